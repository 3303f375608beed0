"""Undisturbed training by arithmetic: stretches of steps and saves that repeat, without an event for each.

A ``Stretch`` says, at any time, how many steps are done, whether training stands still, which saves are durable, and where
every second went, at a cost that does not depend on how many saves lie behind. Step k of a leg ends at the leg's start + k
× step time; legs follow those of the pattern's prefix, then its cycle over and over. What ends at time t has ended at t.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from clustersim.checkpoint.pattern import Books, Leg, Luck, Outlay, Pace, Pattern, book_steps, training_time
from clustersim.checkpoint.tiers import Copy, Tier
from clustersim.checkpoint.track import Track


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

    __slots__ = ("_last", "_track", "flying", "number", "pattern", "serial", "start_s", "step")

    def __init__(self, pattern: Pattern, start_s: float, step: int, flying: bool = False, number: int = 0,
                 serial: int = 0) -> None:  # fmt: skip
        self.pattern, self.start_s, self.step = pattern, start_s, step
        self.flying: int = flying
        self.number, self.serial = number, serial
        self._track: Track = pattern.track(number, flying)
        self._last: tuple[float, Spot] | None = None

    @property
    def saves(self) -> bool:
        """Whether a save is ever due."""
        return not self.pattern.never

    def leg_start(self, leg: int) -> float:
        """When leg 0, 1, … starts, absolute seconds."""
        return self.start_s + self._track.start(leg)

    def leg_at(self, leg: int) -> Leg:
        """Leg 0, 1, ….

        Raises:
            ValueError: nothing is ever saved, so that there are no legs.
        """
        if self.pattern.never:
            raise ValueError("a stretch without saves has no legs")
        track = self._track
        return track.legs[leg if leg < track.known else track.like(leg)]

    def outlay(self, save: int) -> Outlay:
        """What the save at the end of leg ``save`` consists of; −1: the one before this stretch."""
        return self.pattern.outlay(self.number + save + 1)

    def steps_before(self, leg: int) -> int:
        """Steps of the stretch before a leg."""
        return self._track.done(leg)

    def legs_to(self, step: int) -> int:
        """Legs from the start to the save of ``step``."""
        steps = step - self.step
        return self._track.leg_of(steps) if steps > 0 else 0

    def stall_start(self, save: int) -> float:
        """When the save at the end of leg ``save`` starts."""
        return self.leg_start(save) + self.leg_at(save).train_s

    def stall_end(self, save: int) -> float:
        """When training goes on after the save at the end of leg ``save``; −1: the save before this stretch."""
        return self.leg_start(save + 1)

    def durable_s(self, save: int, tier: Tier) -> float | None:
        """When the save at the end of leg ``save`` is durable on a tier; None: never."""
        durable = self._durable_s(save, tier)
        return None if durable == math.inf else durable

    def _durable_s(self, save: int, tier: Tier) -> float:
        track = self._track
        if 0 <= save < track.known:
            return self.start_s + track.starts[save + 1] - track.saved[save] + track.lags[tier][save]
        lag = self.pattern.lag(self.number, tier) if save < 0 else track.lags[tier][track.like(save)]
        return self.stall_end(save) - self.outlay(save).stall_s + lag

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
        if not spot.stalled:
            return spot.leg
        return spot.leg + (time_s >= self.stall_end(spot.leg) - self.outlay(spot.leg).stall_s)

    def locate(self, time_s: float) -> Spot:
        """Leg, steps done in it, and whether training stands still, at a time from ``start_s`` on."""
        if self._last is None or self._last[0] != time_s:  # a failure asks several times about its own moment
            self._last = (time_s, self._located(time_s))
        return self._last[1]

    def boundary(self, time_s: float) -> float:
        """When the step, or the stall, that is under way at a time ends; a step that ends just then is one."""
        spot = self.locate(time_s)
        leg, begin, pace = spot.leg, self.leg_start(spot.leg), self.pattern.pace
        slow = self.leg_at(leg).slow if self.saves else 0
        if not spot.stalled and begin + training_time(spot.steps, slow, pace) == time_s:
            return time_s
        steps = spot.steps + 1
        if spot.stalled or (self.saves and steps >= self.leg_at(leg).steps):
            return self.leg_start(leg + 1)
        end = begin + training_time(steps, slow, pace)
        self._last = (end, Spot(leg, steps, False))  # where it will stand: most often asked next
        return end

    def settled(self, time_s: float) -> Spot:
        """Where it stands at a time, a step that ends within the rounding of it included."""
        if self._last is not None and self._last[0] == time_s:
            return self._last[1]
        return self.locate(time_s + 8 * math.ulp(time_s))

    def _located(self, time_s: float) -> Spot:
        pace, track = self.pattern.pace, self._track
        if self.pattern.never:
            return Spot(0, _steps_by(time_s - self.start_s, 0, pace), False)
        leg = track.leg_at(time_s - self.start_s)
        begin = self.leg_start(leg)
        if begin > time_s and leg > 0:  # by rounding
            leg, begin = leg - 1, self.leg_start(leg - 1)
        elif (after := self.leg_start(leg + 1)) <= time_s:
            leg, begin = leg + 1, after
        shape = track.legs[leg if leg < track.known else track.like(leg)]
        if time_s >= begin + shape.train_s:
            return Spot(leg, shape.steps, True)
        steps = _steps_by(time_s - begin, shape.slow, pace)
        return Spot(leg, min(steps, shape.steps - 1), False)

    def end_of(self, steps: int) -> float:
        """When ``steps`` steps of the stretch are done; the save that falls due then is not taken."""
        spot = self.spot_of(steps)
        slow = 0 if self.pattern.never else self.leg_at(spot.leg).slow
        return self.leg_start(spot.leg) + training_time(spot.steps, slow, self.pattern.pace)

    def copies(self, time_s: float, leg: int, luck: Luck | None = None, keep: int = 1) -> list[Copy]:
        """The ``keep`` newest copies on each tier that became durable in this stretch by ``time_s``, which lies in
        ``leg``; oldest first."""
        found: list[Copy] = []
        for tier, stride in () if self.pattern.never else self.pattern.tiers:
            found += self._durable(time_s, leg, tier, stride, luck, keep)
        return found

    def _durable(self, time_s: float, leg: int, tier: Tier, stride: int, luck: Luck | None, keep: int) -> list[Copy]:
        """The ``keep`` newest copies on a tier, oldest first."""
        found: list[Copy] = []
        newest = leg - (self.number + leg + 1) % stride
        for save in range(newest, -1 - self.flying, -stride):
            durable, serial = self._durable_s(save, tier), self.serial + save + 1
            if durable > time_s or (luck is not None and luck.fails(serial)):
                continue
            corrupt = luck is not None and luck.corrupt(serial)
            found.append(Copy(self.step + self.steps_before(save + 1), tier, durable, self.number + save + 1, corrupt))
            if len(found) == keep:
                break
            time_s = self._latest(time_s, durable)
        found.reverse()
        return found

    def _latest(self, time_s: float, durable_s: float) -> float:
        """When an older copy than one of ``durable_s`` must have been durable at the latest, to be kept."""
        return time_s

    def slow_steps(self, legs: int) -> int:
        """Steps of the first ``legs`` legs that ran beside a save."""
        return self._track.slow(legs)

    def stall_s(self, legs: int) -> float:
        """Seconds for which training stood still in the first ``legs`` legs."""
        return self._track.stall(legs)

    def books(self, legs: int) -> Books:
        """Seconds of the first ``legs`` legs, stalls included."""
        track = self._track
        return book_steps(self.pattern.pace, track.done(legs), track.slow(legs), track.stall(legs))

    def spot_of(self, steps: int) -> Spot:
        """The moment at which ``steps`` steps of the stretch are done, before a save that falls due then."""
        if self.pattern.never:
            return Spot(0, steps, False)
        leg = self.legs_to(self.step + steps - 1) if steps > 0 else 0
        return Spot(leg, steps - self.steps_before(leg), False)

    def books_in(self, spot: Spot, time_s: float) -> Books:
        """Seconds from the start to ``time_s``, where the stretch stands at ``spot``; an unfinished step is
        ``other``."""
        track, pace, leg = self._track, self.pattern.pace, spot.leg
        slow = 0 if self.pattern.never else min(spot.steps, self.leg_at(leg).slow)
        rest = max(0.0, time_s - self.leg_start(leg) - training_time(spot.steps, slow, pace))  # less: by rounding
        stall = track.stall(leg) + (rest if spot.stalled else 0.0)
        return book_steps(pace, track.done(leg) + spot.steps, track.slow(leg) + slow, stall, 0.0 if spot.stalled else rest)


def _steps_by(seconds: float, slow: int, pace: Pace) -> int:
    """Whole steps, of which the first ``slow`` run beside a save, that end within ``seconds`` of their start."""
    early = slow * pace.saving_s
    if seconds < early:
        steps, start_s, step_s, before = int(seconds / pace.saving_s), 0.0, pace.saving_s, 0
    else:
        step_s, start_s, before = pace.step_s, early, slow
        steps = int((seconds - early) / step_s)
    if start_s + (steps + 1) * step_s <= seconds:  # by rounding
        steps += 1
    elif steps > 0 and start_s + steps * step_s > seconds:
        steps -= 1
    return before + steps
