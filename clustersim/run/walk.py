"""Training event by event, one leg at a time: steps up to a save that is due, then the save's stall.

This is the reference for ``checkpoint/pattern.py`` and takes over wherever something disturbs the arithmetic: an
outage of the storage, a change of pace, a save that shares bandwidth with others. A leg without disturbance costs two
events.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import simpy

from clustersim.checkpoint.pattern import Books, Pace, Spot, Stretch, book_steps, steps_for, training_time
from clustersim.checkpoint.tiers import Copy, Tier
from clustersim.run.clock import delay
from clustersim.run.ledger import Piece
from clustersim.run.log import Entry
from clustersim.run.saver import Saver

if TYPE_CHECKING:
    from clustersim.run.training import Trainer

Process = Generator[simpy.Event, Any, None]


class Disturbed:
    """Cause of an interrupt that is no failure: what training relied on has changed."""


DISTURBED = Disturbed()


@dataclass(slots=True)
class Batch:
    """Steps under one time-out. Conditions are read at its start; a disturbance shortens it to the step under way."""

    start_s: float
    steps: int
    step_s: float
    slow: bool
    pace: Pace

    @property
    def end_s(self) -> float:
        """When the last step ends."""
        return self.start_s + self.steps * self.step_s

    def done_by(self, now: float) -> int:
        """Steps that have ended by ``now``."""
        steps = min(self.steps, int((now - self.start_s) / self.step_s))
        return steps + 1 if steps < self.steps and self.start_s + (steps + 1) * self.step_s <= now else steps


class Walk:
    """One leg under way."""

    def __init__(self, trainer: Trainer, start_s: float, saver: Saver | None = None) -> None:
        self._trainer, self._prepared = trainer, trainer.prepared
        self.start_s, self.saver = start_s, saver
        self._first_step, self.steps = trainer.step, 0
        self.trained_s, self._skips = 0.0, 0
        self.stalled, self._stall_s = False, start_s
        self._saving: Saver | None = None
        self._batch: Batch | None = None
        self._books: list[Books] = []
        self._unblocked_s = math.nan

    @classmethod
    def landing(cls, trainer: Trainer, stretch: Stretch, spot: Spot) -> Walk:
        """The leg that a disturbed stretch was in, with its save and its step under way."""
        walk, leg, pace = cls(trainer, stretch.leg_start(spot.leg)), spot.leg, stretch.pattern.pace
        slow = 0
        if stretch.pattern.first is not None:
            slow = min(spot.steps, stretch.leg_at(leg).slow)
            if leg > 0 or stretch.flying:
                walk.saver = walk._resumed(stretch.step + stretch.steps_before(leg), stretch.stall_end(leg - 1))
        walk.steps, walk.trained_s = spot.steps, training_time(spot.steps, slow, pace)
        walk._books.append(book_steps(pace, spot.steps, slow))
        if spot.stalled:
            walk.stalled, walk._stall_s = True, stretch.stall_start(leg)
            if trainer.env.now >= stretch.stall_end(leg) - stretch.pattern.save.stall_s:
                walk._saving = walk._resumed(trainer.step + spot.steps, stretch.stall_end(leg))
        else:
            slowed = stretch.pattern.first is not None and spot.steps < stretch.leg_at(leg).slow
            if trainer.prepared.scenario.checkpoint.when_busy == "skip":
                walk._skip_passed()
            walk._batch = Batch(
                walk.start_s + walk.trained_s, 1, pace.saving_s if slowed else pace.step_s, slowed, pace
            )
        return walk

    def _skip_passed(self) -> None:
        """Count the saves that fell due in this leg and were left out."""
        while not self._prepared.every.never and self._due_in() <= 0:
            self._skips += 1

    def _resumed(self, step: int, stall_end_s: float) -> Saver | None:
        """The save whose stall ends (or ended) at ``stall_end_s``, as far as it is now; None: it is complete."""
        save = self._prepared.save
        assert save is not None
        elapsed = self._trainer.env.now - (stall_end_s - save.stall_s)
        if elapsed >= math.fsum(self._prepared.transfer_s):
            return None
        return self._saver(step, elapsed, resumed=True)

    def _saver(self, step: int, elapsed_s: float = 0.0, resumed: bool = False) -> Saver:
        trainer, prepared = self._trainer, self._prepared

        def durable(tier: Tier) -> None:
            trainer.copies.add(Copy(step, tier, trainer.env.now))
            trainer.log.add(Entry(trainer.env.now, "save_durable", tier.value, step))

        if not resumed:
            trainer.log.add(Entry(trainer.env.now, "save_start", "", step))
        return Saver(
            trainer.env,
            trainer.storage,
            prepared.transfers,
            prepared.transfer_s,
            trainer.nodes,
            step,
            durable,
            elapsed_s,
        )

    # -- the leg
    # ------------------------------------------------------------------------------------------------------------

    def live(self) -> Process:
        """Train until a save is due, then save; ends with the stall, or with the last step of training."""
        if self._batch is not None:
            yield from self._run(self._batch)
        if not self.stalled:
            yield from self._until_due()
            if self._left == 0:
                self._close(ended=False)
                return
            self.stalled, self._stall_s = True, self._trainer.env.now
        if self.saver is not None and self.busy:
            yield from self._hold(self.saver.ended)
        if self._saving is None:
            self._saving = self._saver(self._first_step + self.steps)
        yield from self._hold(self._saving.unblocked)
        self._unblocked_s = self._trainer.env.now
        self._books.append(Books(checkpoint_stall=self._trainer.env.now - self._stall_s))
        self.saver, self._saving = (None if self._saving.ended.triggered else self._saving), None
        self._close(ended=True)

    @property
    def busy(self) -> bool:
        """A save is in flight."""
        return self.saver is not None and not self.saver.ended.triggered

    @property
    def _left(self) -> float:
        """Steps to the end of training."""
        return self._prepared.target_steps - self._first_step - self.steps

    def _until_due(self) -> Process:
        """Whole steps until a save is due and may start, or training ends."""
        when_busy = self._prepared.scenario.checkpoint.when_busy
        while self._left > 0:
            wanted = self._due_in()
            if wanted <= 0:
                if not self.busy or when_busy == "block":
                    return
                if when_busy == "skip":
                    self._skips += 1
                    continue
                wanted = 1
            pace = self._trainer.pace
            steps = min(self._left, wanted)
            if self.busy and pace.saving_s != pace.step_s:
                steps = 1
            if steps == math.inf:
                steps = 2**62
            step_s = pace.saving_s if self.busy else pace.step_s
            yield from self._run(Batch(self._trainer.env.now, int(steps), step_s, self.busy, pace))

    def _due_in(self) -> float:
        """Steps until the next save is due at the present pace; 0: it is."""
        every, pace = self._prepared.every, self._trainer.pace
        if self._prepared.save is None or every.never:
            return math.inf
        if every.steps is not None:
            return every.steps * (self._skips + 1) - self.steps
        assert every.seconds is not None
        seconds = every.seconds * (self._skips + 1)
        if self.steps > 0 and self.trained_s >= seconds * (1 - 1e-9):
            return 0
        return steps_for(max(seconds - self.trained_s, 0.0), 0, pace)

    def _run(self, batch: Batch) -> Process:
        """Run a batch of steps to its end."""
        self._batch, env = batch, self._trainer.env
        while True:
            try:
                yield delay(env, max(0.0, batch.end_s - env.now), "training")
                break
            except simpy.Interrupt as interrupt:
                if interrupt.cause is not DISTURBED:
                    raise
                batch.steps = min(batch.steps, batch.done_by(env.now) + 1)
        self._count(batch, batch.steps)
        self._batch = None

    def _count(self, batch: Batch, steps: int) -> None:
        """Book the first steps of a batch."""
        self.steps += steps
        self.trained_s += steps * batch.step_s
        self._books.append(book_steps(batch.pace, steps, steps if batch.slow else 0))

    def _hold(self, event: simpy.Event) -> Process:
        """Stand still until an event."""
        while not event.processed:
            try:
                yield event
            except simpy.Interrupt as interrupt:
                if interrupt.cause is not DISTURBED:
                    raise

    # -- its end
    # ------------------------------------------------------------------------------------------------------------

    def last_save(self) -> Process:
        """One more save at the end of training; one that is in flight is dropped for it."""
        if self.saver is not None:
            self.saver.cut()
        self._first_step, self.steps, self._books = self._trainer.step, 0, []
        self.stalled, self._stall_s = True, self._trainer.env.now
        self._saving = self._saver(self._first_step)
        yield from self._hold(self._saving.ended)
        self._books.append(Books(checkpoint_stall=self._trainer.env.now - self._stall_s))
        self._close(ended=True)

    def _close(self, ended: bool) -> None:
        """Keep the leg, for now; ``ended``: with its save's stall."""
        trainer = self._trainer
        trainer.step = self._first_step + self.steps
        books = Books(*(math.fsum(column) for column in zip(*self._books, strict=True))) if self._books else Books()
        trainer.ledger.keep(Piece(self._first_step, trainer.step, books, open=not ended))
        self._books = []

    def break_off(self, now: float) -> int:
        """The leg ends at ``now`` as it stands; returns the steps that are done."""
        if self.stalled:
            self._books.append(Books(checkpoint_stall=now - self._stall_s))
        elif self._batch is not None:
            batch, done = self._batch, self._batch.done_by(now)
            self._count(batch, done)
            self._books.append(Books(other=now - batch.start_s - done * batch.step_s))
        for saver in (self.saver, self._saving):
            if saver is not None and not saver.ended.triggered:
                saver.cut()
                self._trainer.log.add(Entry(now, "save_cut", "", saver.step))
        self._close(ended=False)
        return self._trainer.step

    def steps_done(self) -> int:
        """Steps of the run that are done by now."""
        batch = self._batch
        return self._first_step + self.steps + (batch.done_by(self._trainer.env.now) if batch is not None else 0)

    def flies_alone(self) -> bool:
        """Whether the leg's save has its background part before it and the storage for itself."""
        saver, storage = self.saver, self._trainer.storage
        return (
            saver is not None
            and self._unblocked_s == self._trainer.env.now
            and self._trainer.pace is self._trainer.pattern.pace
            and storage.up
            and storage.only(saver.flow)
        )

    def successor(self) -> Walk:
        """The next leg, which starts now with this one's save in flight."""
        return Walk(self._trainer, self._trainer.env.now, self.saver)
