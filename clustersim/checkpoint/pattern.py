"""Undisturbed training by arithmetic: stretches of steps and saves that repeat, without an event for each.

While nothing disturbs the job, training and saving repeat with a period. A ``Stretch`` says, at any time, how many
steps are done, whether training stands still, which saves are durable, and where every second went, at a cost that
does not depend on how many saves lie behind. Step k of a leg ends at the leg's start + k × step time; leg n of a
stretch starts at the end of the first leg + (n − 1) × the length of a leg. What ends at time t has ended at t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from clustersim.checkpoint.engine import Transfer
from clustersim.checkpoint.interval import Every
from clustersim.checkpoint.tiers import Copy, Tier


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

    @property
    def busy_s(self) -> float:
        """From the end of the stall until all transfers have ended."""
        return max((after - self.stall_s for after, _ in self.durable), default=0.0)


class Leg(NamedTuple):
    """Training up to a save that is due, then its stall."""

    steps: int
    slow: int
    """Steps that start while the save before is in flight."""
    train_s: float
    stall_s: float
    """With the wait for the save before, where that blocks."""
    wait_s: float = 0.0

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
    """Stall and durable times of a save whose transfers take ``seconds`` each, one after the other."""
    stall = math.fsum(time for transfer, time in zip(transfers, seconds, strict=True) if transfer.blocking)
    ends = [math.fsum(seconds[: index + 1]) for index in range(len(seconds))]
    return Outlay(stall, tuple((end, t.tier) for end, t in zip(ends, transfers, strict=True) if t.tier is not None))


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


def make_leg(every: Every, pace: Pace, save: Outlay, busy_s: float, when_busy: str) -> Leg:
    """The leg that starts while the save before needs ``busy_s`` more (0: none is in flight)."""
    slow = whole(busy_s / pace.saving_s) if busy_s > 0 else 0
    steps = every.steps or steps_for(every.seconds or 0.0, slow, pace)
    if when_busy == "wait":
        steps = max(steps, slow)
    elif when_busy == "skip" and training_time(steps, slow, pace) < busy_s * (1 - 1e-9):
        times = whole(busy_s / training_time(steps, slow, pace))
        steps = every.steps * times if every.steps else steps_for((every.seconds or 0.0) * times, slow, pace)
        steps = max(steps, slow)
    slow, train = min(slow, steps), training_time(steps, slow, pace)
    wait = max(0.0, busy_s - train) if when_busy == "block" else 0.0
    return Leg(steps, slow, train, wait + save.stall_s, wait)


@dataclass(frozen=True)
class Pattern:
    """What repeats under given conditions: the first leg after a resumption, and each one after it."""

    pace: Pace
    save: Outlay
    first: Leg | None
    """None: no save is ever due."""
    leg: Leg | None

    @classmethod
    def of(cls, every: Every, pace: Pace, save: Outlay | None, when_busy: str) -> Pattern:
        """The pattern of an engine whose saves are all alike; ``save`` None: it never saves."""
        if save is None or every.never:
            return cls(pace, Outlay(0.0, ()), None, None)
        return cls(pace, save, make_leg(every, pace, save, 0.0, when_busy),
                   make_leg(every, pace, save, save.busy_s, when_busy))  # fmt: skip


class Spot(NamedTuple):
    """Where a stretch stands at a time."""

    leg: int
    steps: int
    """Steps done in this leg."""
    stalled: bool


class Stretch:
    """Training from ``start_s`` and ``step`` on, undisturbed; ``flying``: a save's background part starts at
    ``start_s``."""

    __slots__ = ("_first", "_first_end_s", "_leg", "_slow_first", "flying", "pattern", "start_s", "step")

    def __init__(self, pattern: Pattern, start_s: float, step: int, flying: bool = False) -> None:
        self.pattern, self.start_s, self.step, self.flying = pattern, start_s, step, flying
        self._leg = pattern.leg
        self._first = pattern.leg if flying else pattern.first
        self._first_end_s = math.inf if self._first is None else start_s + self._first.length_s

    def leg_start(self, leg: int) -> float:
        """When leg 0, 1, … starts, absolute seconds."""
        if leg == 0:
            return self.start_s
        assert self._leg is not None
        if leg == 1:
            return self._first_end_s
        return self._first_end_s + (leg - 1) * self._leg.length_s

    def leg_at(self, leg: int) -> Leg:
        """Leg 0, 1, ….

        Raises:
            ValueError: nothing is ever saved, so that there are no legs.
        """
        chosen = self._first if leg == 0 else self._leg
        if chosen is None:
            raise ValueError("a stretch without saves has no legs")
        return chosen

    def steps_before(self, leg: int) -> int:
        """Steps of the stretch before a leg."""
        if leg == 0:
            return 0
        assert self._first is not None
        assert self._leg is not None
        return self._first.steps + (leg - 1) * self._leg.steps

    def legs_to(self, step: int) -> int:
        """Legs from the start to the save of ``step``."""
        if step <= self.step:
            return 0
        assert self._first is not None
        assert self._leg is not None
        return 1 + (step - self.step - self._first.steps) // self._leg.steps

    def stall_start(self, save: int) -> float:
        """When the save at the end of leg ``save`` starts."""
        return self.leg_start(save) + self.leg_at(save).train_s

    def stall_end(self, save: int) -> float:
        """When training goes on after the save at the end of leg ``save``; −1: the save before this stretch."""
        return self.leg_start(save + 1)

    def locate(self, time_s: float) -> Spot:
        """Leg, steps done in it, and whether training stands still, at a time from ``start_s`` on."""
        first, shape = self._first, self._leg
        if first is None or shape is None:
            return Spot(0, self._steps_by(time_s - self.start_s, 0, None), False)
        leg, start = 0, self.start_s
        if time_s >= self._first_end_s:
            length = shape.length_s
            leg = 1 + int((time_s - self._first_end_s) / length)
            if self._first_end_s + leg * length <= time_s:
                leg += 1
            start = self._first_end_s + (leg - 1) * length
            if start > time_s:
                leg -= 1
                start = self.leg_start(leg)
        else:
            shape = first
        if time_s >= start + shape.train_s:
            return Spot(leg, shape.steps, True)
        return Spot(leg, self._steps_by(time_s - start, shape.slow, shape.steps), False)

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
        slow = 0 if self._first is None else self.leg_at(spot.leg).slow
        return self.leg_start(spot.leg) + training_time(spot.steps, slow, self.pattern.pace)

    def copies(self, time_s: float, leg: int) -> list[Copy]:
        """The newest copy on each tier that became durable in this stretch by ``time_s``, which lies in ``leg``."""
        found = []
        oldest = -1 if self.flying else 0
        for after, tier in self.pattern.save.durable if self._first is not None else ():
            for save in range(leg, oldest - 1, -1):
                durable = self.stall_end(save) - self.pattern.save.stall_s + after
                if durable <= time_s:
                    found.append(Copy(self.step + self.steps_before(save + 1), tier, durable))
                    break
        return found

    def books(self, legs: int) -> Books:
        """Seconds of the first ``legs`` legs, stalls included."""
        if legs == 0 or self._first is None or self._leg is None:
            return Books()
        steps = self._first.steps + (legs - 1) * self._leg.steps
        slow = self._first.slow + (legs - 1) * self._leg.slow
        stall = self._first.stall_s + (legs - 1) * self._leg.stall_s
        return book_steps(self.pattern.pace, steps, slow)._replace(checkpoint_stall=stall)

    def spot_of(self, steps: int) -> Spot:
        """The moment at which ``steps`` steps of the stretch are done, before a save that falls due then."""
        if self._first is None or steps <= self._first.steps:
            return Spot(0, steps, False)
        assert self._leg is not None
        leg = 1 + (steps - self._first.steps - 1) // self._leg.steps
        return Spot(leg, steps - self.steps_before(leg), False)

    def books_in(self, spot: Spot, time_s: float) -> Books:
        """Seconds from the start to ``time_s``, where the stretch stands at ``spot``; an unfinished step is
        ``other``."""
        before, pace = self.books(spot.leg), self.pattern.pace
        slow = min(spot.steps, self.leg_at(spot.leg).slow) if self._first is not None else 0
        now = book_steps(pace, spot.steps, slow)
        rest = time_s - self.leg_start(spot.leg) - training_time(spot.steps, slow, pace)
        now = now._replace(checkpoint_stall=rest) if spot.stalled else now._replace(other=rest)
        return Books(*[a + b for a, b in zip(before, now, strict=True)])


def book_steps(pace: Pace, steps: int, slow: int) -> Books:
    """Seconds of ``steps`` steps of which ``slow`` ran beside a save."""
    return Books(train=steps * pace.nominal_s, checkpoint_slowdown=slow * (pace.saving_s - pace.step_s),
                 straggle=steps * pace.straggle_s, degraded=steps * pace.degraded_s)  # fmt: skip
