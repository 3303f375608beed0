"""Training and its saves: undisturbed stretches by arithmetic, the rest leg by leg with events."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator
from typing import Any

import simpy

from clustersim.checkpoint.engine import Load
from clustersim.checkpoint.pattern import Luck, Pace
from clustersim.checkpoint.played import PlayedPattern, PlayedStretch
from clustersim.checkpoint.stretch import Spot, Stretch
from clustersim.checkpoint.tiers import Copies, Copy, Tier
from clustersim.faults.failure import Severity
from clustersim.run.clock import at, delay
from clustersim.run.landing import under_way
from clustersim.run.ledger import Ledger, Piece
from clustersim.run.log import Entry, Log
from clustersim.run.prepared import Prepared
from clustersim.run.storage import SharedStorage
from clustersim.run.walk import DISTURBED, Walk

Process = Generator[simpy.Event, Any, None]


class Trainer:
    """The part of a job that trains and saves; failures and recoveries are the job's.

    Attributes:
        step: steps done in the state that trains or will be restored (those of a stretch under way not counted).
        target: steps at which training ends.
        pace, pattern: what a step takes now, and what repeats at that pace.
        copies: the durable copies that are left.
        luck: which saves fail or turn out to be unreadable; None: none does.
        number: number of the last save of the state that trains, by which tiers take turns.
        serial: saves started so far.
        every: training time or steps between saves.
        alarmed: a failure has been announced: save at the end of this step.
        reading: what reading the state back takes, copies that turn out to be unreadable included.
    """

    def __init__(
        self,
        env: simpy.Environment,
        prepared: Prepared,
        storage: SharedStorage,
        ledger: Ledger,
        log: Log,
        luck: Luck | None = None,
    ) -> None:
        self.env, self.prepared, self.storage, self.ledger, self.log = env, prepared, storage, ledger, log
        self.copies = Copies(Copy(0, Tier.SHARED, 0.0), prepared.scenario.checkpoint.keep, prepared.placement,
                             prepared.scenario.cluster.nodes)  # fmt: skip
        self.luck, self._keep = luck, prepared.scenario.checkpoint.keep
        self.number, self.serial = 0, 0
        self.reading = prepared.load
        self.every, self.alarmed, self._failures = prepared.every, False, 0
        self.pace, self.pattern = prepared.pace, prepared.pattern
        self.nodes = prepared.scenario.cluster.nodes
        self.step = 0
        self.target = prepared.target_steps
        self.spoilt: Copy | None = None
        """The copy to go back to with the next rollback, because all newer ones are wrong."""
        self.blocked_s = 0.0
        """Until when communication stands still, absolute seconds."""
        self.skipped = 0
        """Batches that have been left out so far: the data are that much further than the steps."""
        self._stretch: Stretch | None = None
        self._walk: Walk | None = None

    @property
    def jumping(self) -> bool:
        """Whether an undisturbed stretch is being crossed by arithmetic."""
        return self._stretch is not None

    @property
    def stalled(self) -> bool:
        """Whether training stands still for a save."""
        if self._stretch is not None:
            return self._stretch.locate(self.env.now).stalled
        return self._walk is not None and self._walk.stalled

    def steps_done(self) -> int:
        """Steps done by now, saved or not."""
        if self._stretch is not None:
            spot = self._stretch.locate(self.env.now)
            return self._stretch.step + self._stretch.steps_before(spot.leg) + spot.steps
        return self.step if self._walk is None else self._walk.steps_done()

    def change_pace(self, pace: Pace) -> None:
        """Steps take another time from the next one on; whoever calls this interrupts training with ``DISTURBED``."""
        self.pace, self.pattern = pace, self.prepared.pattern_at(pace, self.every)

    # -- forward

    def train(self) -> Process:
        """Train to the last step."""
        flying: int | None = None
        while self.step < self.target:
            free = self.blocked_s <= self.env.now and not self.alarmed
            if self._walk is None and self.prepared.jump and free and (flying is not None or self.storage.quiet):
                yield from self._jump(flying)
            flying = (yield from self._leg()) if self.step < self.target else None
        if self.prepared.scenario.checkpoint.final and self.prepared.save is not None:
            yield from self._final()

    def _jump(self, flying: int | None) -> Process:
        """One time-out to the end of training; broken off by whatever disturbs. ``flying``: see ``_leg``."""
        now: float = self.env.now
        if isinstance(self.pattern, PlayedPattern):
            stretch: Stretch = PlayedStretch(self.pattern, now, self.step, flying, self.number, self.serial)
        else:
            stretch = Stretch(self.pattern, now, self.step, flying is not None, self.number, self.serial)
        self._stretch = stretch
        try:
            if self.target == math.inf:
                yield self.env.event()
            end = stretch.end_of(int(self.target) - self.step)
            yield delay(self.env, max(0.0, end - now), "training")
        except simpy.Interrupt as interrupt:
            if interrupt.cause is not DISTURBED:
                raise
            self._land()
            return
        self._close(end, all_steps=True)

    def _leg(self) -> Generator[simpy.Event, Any, int | None]:
        """One leg event by event; the leg of the cycle that comes next where its saves are all that is under way."""
        if self._walk is None:
            self._walk = Walk(self, self.env.now)
        walk = self._walk
        yield from walk.live()
        flying = None
        if self.prepared.jump and not self.pattern.never and walk.left() and self.blocked_s <= self.env.now:
            flying = walk.rejoins() if isinstance(self.pattern, PlayedPattern) else 0 if walk.flies_alone() else None
        if flying is not None:
            for saver in walk.savers:
                saver.cut()
        done = self.step >= self.target
        if done:
            walk.cut_saves()  # one at the end takes their place, or the run is over
        self._walk = None if not walk.left() or flying is not None or done else walk.successor()
        return flying

    def _final(self) -> Process:
        """The save at the end of training; it waits until the copy is durable."""
        self._walk = Walk(self, self.env.now)
        yield from self._walk.last_save()
        self._walk = None

    # -- the end of a stretch

    def _ended(self, stretch: Stretch, now: float, spot: Spot, leg: int, goes_on: bool = False) -> None:
        """A stretch has ended at ``spot``, after saves up to ``leg``: they become copies and entries of the log.

        Saves that are under way are cut off, unless training ``goes_on`` event by event.
        """
        self._stretch = None
        for copy in stretch.copies(now, leg, self.luck, self._keep):
            self.copies.add(copy)
        started = stretch.started(spot, now)
        self.number, self.serial = stretch.number + started, stretch.serial + started
        if self.log.active:
            self.log.stretch(stretch, now, leg, self.luck, stands=goes_on and spot.stalled)
            cut = [] if goes_on else under_way(stretch, spot, now, self.prepared.lanes_of)
            for save in (held.save for held in cut if held.save <= leg):
                self.log.add(Entry(now, "save_cut", "", stretch.step + stretch.steps_before(save + 1)))

    def _close(self, end: float, all_steps: bool = False) -> None:
        """Keep everything of the stretch up to ``end``, for now."""
        stretch = self._stretch
        assert stretch is not None
        if all_steps:
            steps = int(self.target) - stretch.step
            spot = stretch.spot_of(steps)
        else:
            spot = stretch.locate(end)
            steps = stretch.steps_before(spot.leg) + spot.steps
        # The save that falls due with the last step is not taken.
        self._ended(stretch, end, spot, spot.leg - all_steps)
        self.step = stretch.step + steps
        self.ledger.keep(Piece(stretch.step, self.step, stretch.books_in(spot, end), stretch, open=True))

    def _land(self) -> None:
        """Turn the stretch that has been disturbed into its state event by event."""
        stretch, now = self._stretch, float(self.env.now)
        assert stretch is not None
        spot = stretch.locate(now)
        self._ended(stretch, now, spot, spot.leg, goes_on=True)
        self.step = stretch.step + stretch.steps_before(spot.leg)
        if spot.leg:
            self.ledger.keep(Piece(stretch.step, self.step, stretch=stretch, legs=spot.leg))
        self._walk = Walk.landing(self, stretch, spot)

    def stop(self, now: float) -> None:
        """The run ends here: keep what has been done."""
        if self._stretch is not None:
            self._close(now)
        elif self._walk is not None:
            self.step = self._walk.break_off(now)

    def lose(self, now: float, severity: Severity | None, places: Collection[int] | None = None) -> None:
        """A failure stops training, or hits while it is down: go back to the newest copy that survives.

        Args:
            now: the time.
            severity: what the failure takes; None: nothing.
            places: places whose nodes are lost; None: unknown.
        """
        if self._stretch is not None:
            self._lose_stretch(self._stretch, now, severity, places)
            return
        if self._walk is not None:
            self.step = self._walk.break_off(now)
        self._roll_back(now, severity, places, self._walk is not None)
        self._walk = None

    def boundary(self) -> float:
        """When the step, or the stall, that is under way ends, absolute seconds (now, where nothing is known)."""
        if self._stretch is not None:
            return self._stretch.boundary(self.env.now)
        return self.env.now if self._walk is None else self._walk.boundary()

    def after_stall(self, call: Callable[[simpy.Event], None]) -> None:
        """Call ``call`` once what the stall under way waits for has happened; training may stand still for more."""
        if self._stretch is not None:
            at(self.env, self._stretch.boundary(self.env.now), call, "end of a stall")
            return
        waits = self._walk.stalled_for() if self._walk is not None else None
        if waits is None or waits.callbacks is None:  # it has happened just now
            at(self.env, self.env.now, call, "end of a stall")
        else:
            waits.callbacks.append(call)

    def hold(self, now: float, severity: Severity | None = None, places: Collection[int] | None = None) -> None:
        """Training stops, or has stopped, but the state of the last finished step is still there: it is gone on from.

        The step under way is lost, and so is a save that is not yet durable. Without a failure (at a turn) a
        step that ends within the rounding of ``now`` has ended.
        """
        up = self._stretch is not None or self._walk is not None
        if self._stretch is not None:
            stretch = self._stretch
            spot = stretch.locate(now) if severity is not None else stretch.settled(now)
            self._ended(stretch, now, spot, spot.leg)
            self.step = stretch.step + stretch.steps_before(spot.leg) + spot.steps
            books = stretch.books_in(spot, now)
            self.ledger.spend("rework", books.other)
            if books.other:
                books = books._replace(other=0.0)
            self.ledger.keep(Piece(stretch.step, self.step, books, stretch))
        elif self._walk is not None:
            self.step = self._walk.break_off(now, broken="rework")
            self._walk = None
        if severity is not None:
            self.copies.lose(severity, places)
        if up and self.log.active:
            self.log.add(Entry(now, "hold", "", self.step))

    def resumed(self) -> None:
        """The state has been restored on all nodes."""
        self.copies.healed()

    def _lose_stretch(self, stretch: Stretch, now: float, severity: Severity | None,
                      places: Collection[int] | None) -> None:  # fmt: skip
        """Keep what a surviving copy holds of a stretch; the rest is ``rework``."""
        spot = stretch.locate(now)
        self._ended(stretch, now, spot, spot.leg)
        legs = stretch.legs_to(self._roll_back(now, severity, places))
        if legs > spot.leg:  # a tier held the copy before all others did, while training still stood still
            self.ledger.keep(Piece(stretch.step, self.step, stretch.books_in(spot, now), stretch))
            return
        if legs:
            self.ledger.keep(Piece(stretch.step, self.step, stretch=stretch, legs=legs))
        self.ledger.spend("rework", now - stretch.leg_start(legs))

    def _roll_back(self, now: float, severity: Severity | None, places: Collection[int] | None = None,
                   up: bool = True) -> int:  # fmt: skip
        """Go back to the newest copy that survives ``severity`` and can be read; returns its steps."""
        if severity is not None:
            self.copies.lose(severity, places)
        if self.spoilt is not None:
            self.copies.spoil(self.spoilt)
            self.spoilt = None
        restored = self.copies.newest()
        assert restored is not None
        self.reading = self.prepared.loads[restored.tier]
        if restored.corrupt:
            restored = self._fall_back(restored)
        if (up or restored.step != self.step) and self.log.active:
            self.log.add(Entry(now, "rollback", restored.tier.value, restored.step))
        self.ledger.rollback(restored.step)
        self.step, self.number, self.alarmed = restored.step, restored.number, False
        if severity is not None and self.prepared.learns:
            self._failures += 1
            every = self.prepared.every_after(now, self._failures)
            if every != self.every:
                self.every, self.pattern = every, self.prepared.pattern_at(self.pace, every)
        return restored.step

    def _fall_back(self, copy: Copy) -> Copy:
        """The newest copy that can be read, where ``copy`` turns out not to be; those read in vain are read as well."""
        reading = [self.reading]
        while copy.corrupt:
            self.copies.drop(copy)
            older = self.copies.newest()
            assert older is not None
            copy = older
            reading.append(self.prepared.loads[copy.tier])
        self.reading = Load.joined(reading)
        return copy
