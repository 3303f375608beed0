"""Undisturbed training by arithmetic: stretches of steps and saves that repeat, without an event for each.

A ``Stretch`` says, at any time, how many steps are done, whether training stands still, which saves are durable, and where
every second went, at a cost that does not depend on how many saves lie behind. Step k of a leg ends at the leg's start + k
× step time; legs follow those of the pattern's prefix, then its cycle over and over. What ends at time t has ended at t.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from clustersim.checkpoint.pattern import Books, Leg, Luck, Outlay, Pattern, book_steps, training_time
from clustersim.checkpoint.tiers import Copy, Tier


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
        place = (self.number - self.pattern.phase) % count
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
        pattern = self.pattern
        number = (self.number + save + 1) % len(pattern.saves)
        after = pattern.after[number].get(tier)
        if after is None:
            return None
        shape = pattern.saves[number]
        end = self.leg_start(save + 1) - shape.stall_s + after
        if save < 0 or tier in shape.held or tier in shape.beside:
            return end
        return end + self.leg_at(save).late_s

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
