"""Undisturbed training by arithmetic: stretches of steps and saves that repeat, without an event for each.

While nothing disturbs the job, training and saving repeat with a period. A ``Stretch`` says, at any time, how many
steps are done, whether training stands still, which saves are durable, and where every second went, at a cost that
does not depend on how many saves lie behind. Step k of a leg ends at the leg's start + k × step time; leg n of a
stretch starts at the end of the first leg + (n − 1) × the length of a leg. What ends at time t has ended at t.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from clustersim.checkpoint.engine import Transfer
from clustersim.checkpoint.interval import Every
from clustersim.checkpoint.tiers import Copy, Tier


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

    def queued(self, tier: Tier) -> bool:
        """Whether the copy on a tier waits for the save before."""
        return self.after_s(tier) is not None and tier not in self.held and tier not in self.beside


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
    durable = [(math.fsum(times[: i + 1]), t.tier) for i, (t, _) in enumerate(chain) if t.tier is not None]
    aside = [(stall + time, t.tier) for t, time in pairs if t.beside and t.tier is not None]
    main = math.fsum(time for transfer, time in chain if not transfer.blocking)
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
    held = whole(slot_s / pace.saving_s) if slot_s > 0 else 0
    steps = every.steps or steps_for(every.seconds or 0.0, slow, pace)
    if when_busy == "wait":
        steps = max(steps, held)
    elif when_busy == "skip" and training_time(steps, slow, pace) < slot_s * (1 - 1e-9):
        times = whole(slot_s / training_time(steps, slow, pace))
        steps = every.steps * times if every.steps else steps_for((every.seconds or 0.0) * times, slow, pace)
        steps = max(steps, held)
    slow, train = min(slow, steps), training_time(steps, slow, pace)
    wait = max(0.0, slot_s - train) if when_busy == "block" else 0.0
    return Leg(steps, slow, train, wait + save.stall_s, wait)


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
        self._cycle: list[Leg] = []
        self._states: list[tuple[float, ...]] = []
        self._phase = 0
        self.tiers = tuple((tier, self._stride(tier)) for _, tier in self.saves[0].durable)
        """Tiers that hold copies, and every how many saves each takes part (1 where that is irregular)."""
        if not self.never:
            self._find_cycle()
            self.starts = list(itertools.accumulate((leg.length_s for leg in self._cycle), initial=0.0))
            self.steps = list(itertools.accumulate((leg.steps for leg in self._cycle), initial=0))
            self.slows = list(itertools.accumulate((leg.slow for leg in self._cycle), initial=0))
            self.stalls = list(itertools.accumulate((leg.stall_s for leg in self._cycle), initial=0.0))

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
                    self._cycle, self._states, self._phase = legs[start:], states[start:], start % count
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
        first = (phase - self._phase) % count
        for place in range(first, len(self._cycle), count):
            if any_ or [round(flight * 1e6) for flight in self._states[place]] == key:
                return place
        return None


MOST_ROUNDS = 256
"""Rounds of saves after which what repeats is taken to be the last one."""


class Spot(NamedTuple):
    """Where a stretch stands at a time."""

    leg: int
    steps: int
    """Steps done in this leg."""
    stalled: bool


class Stretch:
    """Training from ``start_s`` and ``step`` on, undisturbed.

    Args:
        flying: a save's background part starts at ``start_s``.
        number: number of the last save of the state that trains.
        serial: saves started in the run so far, by which their luck is told apart.
    """

    __slots__ = ("_head", "_head_starts", "_head_steps", "_last", "_place", "flying", "number", "pattern", "serial",
                 "start_s", "step")  # fmt: skip

    def __init__(self, pattern: Pattern, start_s: float, step: int, flying: bool = False, number: int = 0,
                 serial: int = 0) -> None:  # fmt: skip
        self.pattern, self.start_s, self.step, self.flying = pattern, start_s, step, flying
        self.number, self.serial = number, serial
        self._head: tuple[Leg, ...] = ()
        self._place = 0
        self._last: tuple[float, Spot] | None = None
        if not pattern.never:
            self._head, self._place = self._flown() if flying else pattern.prefix(number)
        self._head_starts = list(itertools.accumulate((leg.length_s for leg in self._head), initial=start_s))
        self._head_steps = list(itertools.accumulate((leg.steps for leg in self._head), initial=0))

    def _flown(self) -> tuple[tuple[Leg, ...], int]:
        """The leg of the cycle that follows the save in flight."""
        cycle, count = self.pattern.cycle, len(self.pattern.saves)
        place = (self.number - self.pattern._phase) % count
        return (cycle[place],), (place + 1) % len(cycle)

    @property
    def saves(self) -> bool:
        """Whether a save is ever due."""
        return not self.pattern.never

    def _beyond(self, leg: int) -> tuple[int, int]:
        """Whole cycles and legs of one between the head's end and leg ``leg``, counted from the cycle's start."""
        return divmod(self._place + leg - len(self._head), len(self.pattern.cycle))

    def _sum(self, sums: list[Any], leg: int) -> Any:
        """Sum over the legs of cycles before ``leg``, from running sums."""
        if len(sums) == 2:  # one leg repeats
            return (leg - len(self._head)) * sums[1]
        rounds, rest = self._beyond(leg)
        return rounds * sums[-1] + (sums[rest] - sums[self._place])

    def leg_start(self, leg: int) -> float:
        """When leg 0, 1, … starts, absolute seconds."""
        if leg <= len(self._head):
            return self._head_starts[leg]
        return self._head_starts[-1] + float(self._sum(self.pattern.starts, leg))

    def leg_at(self, leg: int) -> Leg:
        """Leg 0, 1, ….

        Raises:
            ValueError: nothing is ever saved, so that there are no legs.
        """
        if self.pattern.never:
            raise ValueError("a stretch without saves has no legs")
        if leg < len(self._head):
            return self._head[leg]
        cycle = self.pattern.cycle
        return cycle[0] if len(cycle) == 1 else cycle[self._beyond(leg)[1]]

    def outlay(self, save: int) -> Outlay:
        """What the save at the end of leg ``save`` consists of; −1: the one before this stretch."""
        return self.pattern.outlay(self.number + save + 1)

    def steps_before(self, leg: int) -> int:
        """Steps of the stretch before a leg."""
        if leg <= len(self._head):
            return self._head_steps[leg]
        return self._head_steps[-1] + int(self._sum(self.pattern.steps, leg))

    def legs_to(self, step: int) -> int:
        """Legs from the start to the save of ``step``."""
        steps = step - self.step
        if steps <= 0:
            return 0
        if steps < self._head_steps[-1]:
            return bisect.bisect_right(self._head_steps, steps) - 1
        sums = self.pattern.steps
        rounds, rest = divmod(steps - self._head_steps[-1] + sums[self._place], sums[-1])
        return len(self._head) + rounds * len(self.pattern.cycle) + bisect.bisect_right(sums, rest) - 1 - self._place

    def stall_start(self, save: int) -> float:
        """When the save at the end of leg ``save`` starts."""
        return self.leg_start(save) + self.leg_at(save).train_s

    def stall_end(self, save: int) -> float:
        """When training goes on after the save at the end of leg ``save``; −1: the save before this stretch."""
        return self.leg_start(save + 1)

    def durable_s(self, save: int, tier: Tier) -> float | None:
        """When the save at the end of leg ``save`` is durable on a tier; None: never."""
        shape = self.outlay(save)
        after = shape.after_s(tier)
        if after is None:
            return None
        late = self.leg_at(save).late_s if save >= 0 and shape.queued(tier) else 0.0
        return self.stall_end(save) - shape.stall_s + late + after

    def in_flight(self, save: int, time_s: float) -> bool:
        """Whether the save at the end of leg ``save`` is not complete at a time after its start."""
        return time_s < self._over_s(save, beside=False) or self.side_open(save, time_s)

    def side_open(self, save: int, time_s: float) -> bool:
        """Whether a copy that is made beside is still under way."""
        return bool(self.outlay(save).beside) and time_s < self._over_s(save, beside=True)

    def _over_s(self, save: int, beside: bool) -> float:
        """When the chain of a save has ended, or what is made beside."""
        shape = self.outlay(save)
        if beside:
            return max(self.durable_s(save, tier) or 0.0 for tier in shape.beside)
        late = self.leg_at(save).late_s if save >= 0 and shape.busy_s > 0 else 0.0
        return self.stall_end(save) + late + shape.busy_s

    def side_in_flight(self, save: int, time_s: float) -> int | None:
        """The newest save up to ``save`` that still makes a copy beside; None: none does."""
        if not self.pattern.save.beside:
            return None
        save -= (self.number + save + 1) % len(self.pattern.saves)
        found = save >= (-1 if self.flying else 0) and self.side_open(save, time_s)
        return save if found else None

    def started(self, spot: Spot, time_s: float) -> int:
        """Saves of the stretch that have started by ``time_s``, where it stands at ``spot``."""
        if self.pattern.never:
            return 0
        begun = spot.stalled and time_s >= self.stall_end(spot.leg) - self.outlay(spot.leg).stall_s
        return spot.leg + begun

    def locate(self, time_s: float) -> Spot:
        """Leg, steps done in it, and whether training stands still, at a time from ``start_s`` on."""
        if self._last is None or self._last[0] != time_s:  # a failure asks several times about its own moment
            self._last = (time_s, self._located(time_s))
        return self._last[1]

    def _located(self, time_s: float) -> Spot:
        if self.pattern.never:
            return Spot(0, self._steps_by(time_s - self.start_s, 0, None), False)
        leg = self._leg_by(time_s)
        start, shape = self.leg_start(leg), self.leg_at(leg)
        if time_s >= start + shape.train_s:
            return Spot(leg, shape.steps, True)
        return Spot(leg, self._steps_by(time_s - start, shape.slow, shape.steps), False)

    def _leg_by(self, time_s: float) -> int:
        """The last leg that has started by ``time_s``."""
        if time_s < self._head_starts[-1]:
            return bisect.bisect_right(self._head_starts, time_s) - 1
        sums = self.pattern.starts
        passed = time_s - self._head_starts[-1] + sums[self._place]
        rounds = int(passed / sums[-1])
        rest = min(bisect.bisect_right(sums, passed - rounds * sums[-1]), len(sums) - 1) - 1
        leg = max(len(self._head), len(self._head) + rounds * len(self.pattern.cycle) + rest - self._place)
        while self.leg_start(leg + 1) <= time_s:
            leg += 1
        while self.leg_start(leg) > time_s:
            leg -= 1
        return leg

    def _steps_by(self, seconds: float, slow: int, most: int | None) -> int:
        """Whole steps that have ended ``seconds`` after the start of a leg."""
        pace = self.pattern.pace
        guess = int(seconds / pace.saving_s) if slow else 0
        steps = guess if guess < slow else slow + int((seconds - slow * pace.saving_s) / pace.step_s)
        while training_time(steps + 1, slow, pace) <= seconds:
            steps += 1
        while steps > 0 and training_time(steps, slow, pace) > seconds:
            steps -= 1
        return steps if most is None else min(steps, most - 1)

    def end_of(self, steps: int) -> float:
        """When ``steps`` steps of the stretch are done; the save that falls due then is not taken."""
        spot = self.spot_of(steps)
        slow = 0 if self.pattern.never else self.leg_at(spot.leg).slow
        return self.leg_start(spot.leg) + training_time(spot.steps, slow, self.pattern.pace)

    def copies(self, time_s: float, leg: int, luck: Luck | None = None, keep: int = 1) -> list[Copy]:
        """The ``keep`` newest copies on each tier that became durable in this stretch by ``time_s``, which lies in
        ``leg``; oldest first."""
        found: list[Copy] = []
        if self.pattern.never:
            return found
        for tier, stride in self.pattern.tiers:
            found += reversed(list(itertools.islice(self._durable(time_s, leg, tier, stride, luck), keep)))
        return found

    def _durable(self, time_s: float, leg: int, tier: Tier, stride: int, luck: Luck | None) -> Iterator[Copy]:
        """Copies on a tier, newest first."""
        oldest = -1 if self.flying else 0
        newest = leg - (self.number + leg + 1) % stride
        for save in range(newest, oldest - 1, -stride):
            durable = self.durable_s(save, tier)
            serial = self.serial + save + 1
            if durable is not None and durable <= time_s and not (luck and luck.fails(serial)):
                yield Copy(self.step + self.steps_before(save + 1), tier, durable, self.number + save + 1,
                           bool(luck and luck.corrupt(serial)))  # fmt: skip

    def books(self, legs: int) -> Books:
        """Seconds of the first ``legs`` legs, stalls included."""
        if legs == 0 or self.pattern.never:
            return Books()
        head = self._head[:legs]
        slow, stall = sum(leg.slow for leg in head), math.fsum(leg.stall_s for leg in head)
        if legs > len(self._head):
            slow += self._sum(self.pattern.slows, legs)
            stall += self._sum(self.pattern.stalls, legs)
        return book_steps(self.pattern.pace, self.steps_before(legs), slow)._replace(checkpoint_stall=stall)

    def spot_of(self, steps: int) -> Spot:
        """The moment at which ``steps`` steps of the stretch are done, before a save that falls due then."""
        if self.pattern.never:
            return Spot(0, steps, False)
        leg = self.legs_to(self.step + steps - 1) if steps > 0 else 0
        return Spot(leg, steps - self.steps_before(leg), False)

    def books_in(self, spot: Spot, time_s: float) -> Books:
        """Seconds from the start to ``time_s``, where the stretch stands at ``spot``; an unfinished step is
        ``other``."""
        before, pace = self.books(spot.leg), self.pattern.pace
        slow = 0 if self.pattern.never else min(spot.steps, self.leg_at(spot.leg).slow)
        now = book_steps(pace, spot.steps, slow)
        rest = max(0.0, time_s - self.leg_start(spot.leg) - training_time(spot.steps, slow, pace))  # less: by rounding
        now = now._replace(checkpoint_stall=rest) if spot.stalled else now._replace(other=rest)
        return Books(*[a + b for a, b in zip(before, now, strict=True)])


def book_steps(pace: Pace, steps: int, slow: int) -> Books:
    """Seconds of ``steps`` steps of which ``slow`` ran beside a save."""
    return Books(train=steps * pace.nominal_s, checkpoint_slowdown=slow * (pace.saving_s - pace.step_s),
                 straggle=steps * pace.straggle_s, degraded=steps * pace.degraded_s)  # fmt: skip
