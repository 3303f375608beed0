"""What repeats while nothing disturbs a job: legs of steps and saves, and the cycle that they settle into.

``Pattern`` plays saves once, by arithmetic, until what is in flight has been seen before; ``checkpoint/stretch.py`` then
says where an undisturbed stretch of training stands at any time. What ends at time t has ended at t.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from clustersim.checkpoint.engine import Transfer
from clustersim.checkpoint.interval import Every
from clustersim.checkpoint.tiers import Tier
from clustersim.checkpoint.track import Column, Repeated, Track


class Luck(Protocol):
    """What becomes of saves, by their serial number."""

    def fails(self, serial: int) -> bool:
        """The save never becomes durable."""

    def corrupt(self, serial: int) -> bool:
        """The copy turns out to be unreadable when it is loaded."""


class Pace(NamedTuple):
    """Seconds of a step now, while a save is in flight, and by what they exceed the nominal step.

    ``nominal_s`` is what a kept step books as training (nominal step time × its tokens ÷ nominal tokens); the rest of
    ``step_s`` is split into ``straggle_s`` and ``degraded_s``, the rest of ``saving_s`` beyond ``step_s`` is slow-down.
    """

    step_s: float
    saving_s: float
    nominal_s: float
    straggle_s: float = 0.0
    degraded_s: float = 0.0


class Outlay(NamedTuple):
    """One save under undisturbed conditions: its stall, and when (from the stall's start) which tier holds a copy."""

    stall_s: float
    durable: tuple[tuple[float, Tier], ...]
    main_s: float | None = None
    """Background part that later saves queue behind; None: until the last copy is durable."""
    beside: frozenset[Tier] = frozenset()
    """Tiers whose copies are made beside it and hold nothing up."""
    held: frozenset[Tier] = frozenset()
    """Tiers that hold the copy when training goes on."""

    @property
    def busy_s(self) -> float:
        """From the end of the stall until the background part that later saves queue behind has ended."""
        if self.main_s is not None:
            return self.main_s
        return max((after - self.stall_s for after, _ in self.durable), default=0.0)

    def after_s(self, tier: Tier) -> float | None:
        """When a tier holds the copy, seconds from the stall's start; None: this save makes none there."""
        return next((after for after, held in self.durable if held == tier), None)


class Leg(NamedTuple):
    """Training up to a save that is due, then its stall."""

    steps: int
    slow: int
    """Steps that start while the save before is in flight."""
    train_s: float
    stall_s: float
    """With the wait for the save before, where that blocks."""
    wait_s: float = 0.0
    late_s: float = 0.0
    """From the end of the stall until the save before it is out of the way of this one's background part."""
    lags: Mapping[Tier, float] | None = None
    """Where saves meet: of each tier, seconds from the end of the stall until it holds the copy (negative: before)."""

    @property
    def length_s(self) -> float:
        """Training and stall."""
        return self.train_s + self.stall_s


class Books(NamedTuple):
    """Seconds by ledger category."""

    train: float = 0.0
    checkpoint_stall: float = 0.0
    checkpoint_slowdown: float = 0.0
    straggle: float = 0.0
    degraded: float = 0.0
    other: float = 0.0


def outlay(transfers: tuple[Transfer, ...], seconds: tuple[float, ...]) -> Outlay:
    """Stall and durable times of a save whose transfers take ``seconds`` each: one after the other, those ``beside``
    from the end of the stall on."""
    pairs = list(zip(transfers, seconds, strict=True))
    chain = [(transfer, time) for transfer, time in pairs if not transfer.beside]
    stall = math.fsum(time for transfer, time in chain if transfer.blocking)
    times = [time for _, time in chain]
    for place, (transfer, time) in enumerate(chain):
        if transfer.streams and place:  # what has flowed by the end of the stall
            times[place] = time - min(times[place - 1], time - transfer.seconds)
    durable = [(math.fsum(times[: i + 1]), t.tier) for i, (t, _) in enumerate(chain) if t.tier is not None]
    aside = [(stall + time, t.tier) for t, time in pairs if t.beside and t.tier is not None]
    main = math.fsum(time for (transfer, _), time in zip(chain, times, strict=True) if not transfer.blocking)
    held = frozenset(transfer.tier for transfer, _ in chain if transfer.blocking and transfer.tier is not None)
    return Outlay(stall, tuple(durable + aside), main, frozenset(tier for _, tier in aside), held)


def whole(quotient: float) -> int:
    """``quotient`` rounded up, where a relative excess of 1e-9 (rounding of decimal input) does not count."""
    return math.ceil(quotient - 1e-9 * max(1.0, quotient))


def training_time(steps: int, slow: int, pace: Pace) -> float:
    """Seconds of ``steps`` steps of which the first ``slow`` run beside a save."""
    return min(steps, slow) * pace.saving_s + max(0, steps - slow) * pace.step_s


def steps_for(seconds: float, slow: int, pace: Pace) -> int:
    """Whole steps, at least one, that take ``seconds`` or more."""
    early = slow * pace.saving_s
    if seconds <= early * (1 + 1e-9):
        return max(1, whole(seconds / pace.saving_s))
    return max(1, slow + whole((seconds - early) / pace.step_s))


def make_leg(every: Every, pace: Pace, save: Outlay, busy_s: float, when_busy: str, slot_s: float | None = None) -> Leg:
    """The leg that starts while saves are in flight for ``busy_s`` more (0: none is), of which the next one has to wait
    for ``slot_s`` (None: as long)."""
    slot_s = busy_s if slot_s is None else slot_s
    slow = whole(busy_s / pace.saving_s) if busy_s > 0 else 0
    held = steps_for(slot_s, slow, pace) if slot_s > 0 else 0
    steps = every.steps or steps_for(every.seconds or 0.0, slow, pace)
    if when_busy == "wait":
        steps = max(steps, held)
    elif when_busy == "skip" and steps < held:
        steps = _due_after(every, pace, slow, held)
    slow, train = min(slow, steps), training_time(steps, slow, pace)
    wait = max(0.0, slot_s - train) if when_busy == "block" else 0.0
    return Leg(steps, slow, train, wait + save.stall_s, wait)


def _due_after(every: Every, pace: Pace, slow: int, held: int) -> int:
    """Steps until a save falls due that are ``held`` or more: those that fall due before are left out."""
    if every.steps:
        return every.steps * -(-held // every.steps)
    seconds = every.seconds or 0.0
    if seconds <= pace.step_s:
        return held
    times = max(1, int(training_time(held - 1, slow, pace) / seconds))
    while (steps := steps_for(times * seconds, slow, pace)) < held:
        times += 1
    return steps


class Pattern:
    """What repeats under given conditions: legs after a resumption until saves are in step, then a cycle of legs.

    Args:
        every: training time or steps between saves.
        pace: what a step takes.
        saves: what a save consists of by its number modulo their count: all tiers take part in number 0.
        when_busy: what a save does that is due while there is no room for it.
        depth: saves that may be in flight at once (copies that the staging memory holds); they go out one by one.
    """

    def __init__(self, every: Every, pace: Pace, saves: Sequence[Outlay], when_busy: str, depth: int = 1) -> None:
        self.pace, self.every, self.depth, self._when_busy = pace, every, depth, when_busy
        self.saves = tuple(saves) or (Outlay(0.0, ()),)
        self.never = not saves or every.never
        self._prefixes: dict[int, tuple[tuple[Leg, ...], int]] = {}
        self._tracks: dict[tuple[int, bool], Track] = {}
        self._repeated: Repeated | None = None
        self._cycle: list[Leg] = []
        self._states: list[tuple[float, ...]] = []
        self.phase = 0
        self.after = tuple({tier: after for after, tier in save.durable} for save in self.saves)
        """Of each save by number: when a tier holds the copy, seconds from the stall's start."""
        self.tiers = tuple((tier, self._stride(tier)) for _, tier in self.saves[0].durable)
        """Tiers that hold copies, and every how many saves each takes part (1 where that is irregular)."""
        if not self.never:
            self._find_cycle()

    @classmethod
    def of(cls, every: Every, pace: Pace, save: Outlay | None, when_busy: str) -> Pattern:
        """The pattern of an engine whose saves are all alike; ``save`` None: it never saves."""
        return cls(every, pace, () if save is None else (save,), when_busy)

    @property
    def save(self) -> Outlay:
        """The save in which all tiers take part."""
        return self.saves[0]

    @property
    def first(self) -> Leg | None:
        """The first leg of a run; None: no save is ever due."""
        return None if self.never else self.prefix(0)[0][0]

    @property
    def cycle(self) -> list[Leg]:
        """The legs that repeat."""
        return self._cycle

    def _stride(self, tier: Tier) -> int:
        held = [number for number, shape in enumerate(self.saves) if shape.after_s(tier) is not None]
        stride = held[1] if len(held) > 1 else len(self.saves)
        return stride if held == list(range(0, len(self.saves), stride)) else 1

    def outlay(self, number: int) -> Outlay:
        """What the save of a number consists of."""
        return self.saves[number % len(self.saves)]

    def lag(self, number: int, tier: Tier, leg: Leg | None = None) -> float:
        """Seconds from the start of a save's stall until a tier holds its copy; inf: it makes none there.

        ``leg``: the one at whose end it is; None: nothing is in the way of its background part.
        """
        number %= len(self.saves)
        after, shape = self.after[number].get(tier), self.saves[number]
        if after is None:
            return math.inf
        late_s = 0.0 if leg is None or tier in shape.held or tier in shape.beside else leg.late_s
        return after + late_s

    def repeated(self) -> Repeated:
        """The legs of the cycle, column by column."""
        if self._repeated is None:
            numbered = list(enumerate(self._cycle, self.phase + 1))
            self._repeated = Repeated(
                Column.of([leg.length_s for leg in self._cycle]), Column.of([leg.steps for leg in self._cycle]),
                Column.of([leg.slow for leg in self._cycle]), Column.of([leg.stall_s for leg in self._cycle]),
                [self.outlay(number).stall_s for number, _ in numbered],
                {tier: [self.lag(number, tier, leg) for number, leg in numbered] for tier, _ in self.tiers})  # fmt: skip
        return self._repeated

    def track(self, number: int, flying: bool) -> Track:
        """The legs after a resumption from save ``number``, of which the background part is only now under way where it
        is ``flying``."""
        key = (number % len(self.saves), flying)
        track = self._tracks.get(key)
        if track is None:
            head, place = ((), 0) if self.never else self._flown(number) if flying else self.prefix(number)
            track = self._tracks[key] = Track(self, head, place, number)
        return track

    def _flown(self, number: int) -> tuple[tuple[Leg, ...], int]:
        """The leg of the cycle that follows a save in flight, and the place of the one after it."""
        place = (number - self.phase) % len(self.saves)
        return (self._cycle[place],), (place + 1) % len(self._cycle)

    def _advance(self, flights: tuple[float, ...], number: int) -> tuple[Leg, tuple[float, ...]]:
        """The leg that ends with save ``number`` and starts with saves in flight for so many seconds more (in order),
        and what is in flight at its end."""
        save = self.outlay(number)
        slot = flights[-self.depth] if len(flights) >= self.depth else 0.0
        leg = make_leg(self.every, self.pace, save, flights[-1] if flights else 0.0, self._when_busy, slot)
        edge = leg.length_s * (1 + 1e-12) + 1e-9
        left = tuple(flight - leg.length_s for flight in flights if flight > edge)
        late = left[-1] if left else 0.0
        if save.busy_s > 0:
            left = (*left, late + save.busy_s)
        return leg._replace(late_s=late), left

    def _find_cycle(self) -> None:
        """Play saves from the start until what is in flight has been seen before."""
        flights: tuple[float, ...] = ()
        seen: dict[tuple[int, ...], int] = {}
        legs: list[Leg] = []
        states: list[tuple[float, ...]] = []
        count = len(self.saves)
        while True:
            if len(legs) % count == 0:
                key = tuple(round(flight * 1e6) for flight in flights)
                if key in seen or len(seen) > MOST_ROUNDS:
                    start = seen.get(key, len(legs) - count)
                    self._cycle, self._states, self.phase = legs[start:], states[start:], start % count
                    return
                seen[key] = len(legs)
            states.append(flights)
            leg, flights = self._advance(flights, len(legs) + 1)
            legs.append(leg)

    def prefix(self, number: int) -> tuple[tuple[Leg, ...], int]:
        """Legs after a resumption from save ``number`` with nothing in flight, at least one, and the place in the cycle
        of the leg that follows."""
        count = len(self.saves)
        phase = number % count
        if phase not in self._prefixes:
            legs: list[Leg] = []
            flights: tuple[float, ...] = ()
            place = None
            while place is None:
                leg, flights = self._advance(flights, phase + len(legs) + 1)
                legs.append(leg)
                place = self._place(flights, (phase + len(legs)) % count, len(legs) > 4 * len(self._cycle) + 64)
            self._prefixes[phase] = tuple(legs), place
        return self._prefixes[phase]

    def _place(self, flights: tuple[float, ...], phase: int, any_: bool) -> int | None:
        """Where in the cycle so much is in flight after a save of this phase; ``any_``: or where the phase fits."""
        key, count = [round(flight * 1e6) for flight in flights], len(self.saves)
        first = (phase - self.phase) % count
        for place in range(first, len(self._cycle), count):
            if any_ or [round(flight * 1e6) for flight in self._states[place]] == key:
                return place
        return None


MOST_ROUNDS = 256
"""Rounds of saves after which what repeats is taken to be the last one."""


def book_steps(pace: Pace, steps: int, slow: int, stall_s: float = 0.0, other_s: float = 0.0) -> Books:
    """Seconds of ``steps`` steps of which ``slow`` ran beside a save, of stalls and of what is neither."""
    return Books(steps * pace.nominal_s, stall_s, slow * (pace.saving_s - pace.step_s), steps * pace.straggle_s,
                 steps * pace.degraded_s, other_s)  # fmt: skip
