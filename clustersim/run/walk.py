"""Training event by event, one leg at a time: steps up to a save that is due, then the save's stall.

This is the reference for ``checkpoint/pattern.py`` and takes over wherever something disturbs the arithmetic: an
outage of the storage, a change of pace, a save that shares bandwidth with others. A leg without disturbance costs two
events.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import simpy

from clustersim.checkpoint.lanes import Places
from clustersim.checkpoint.pattern import Books, Pace, book_steps, steps_for, training_time
from clustersim.checkpoint.stretch import Spot, Stretch
from clustersim.checkpoint.tiers import Copy, Tier
from clustersim.run.clock import delay
from clustersim.run.landing import joins, under_way
from clustersim.run.ledger import Piece
from clustersim.run.log import Entry
from clustersim.run.saver import Saver, Start

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
    stood_s: float = 0.0
    """By how much the last step is longer, because communication stood still."""
    seen_s: float = 0.0
    """Time up to which that is in it."""

    @property
    def end_s(self) -> float:
        """When the last step ends."""
        return self.start_s + self.steps * self.step_s + self.stood_s

    def done_by(self, now: float) -> int:
        """Steps that have ended by ``now``."""
        if self.stood_s:
            return self.steps if self.end_s <= now else min(self.steps - 1, int((now - self.start_s) / self.step_s))
        steps = min(self.steps, int((now - self.start_s) / self.step_s))
        return steps + 1 if steps < self.steps and self.start_s + (steps + 1) * self.step_s <= now else steps

    def wait(self, now: float, until_s: float) -> None:
        """Communication stands still from ``now`` until ``until_s``: the step under way, the last one from here on, waits."""
        if until_s > max(now, self.seen_s):
            self.steps = min(self.steps, self.done_by(now) + 1)
            self.stood_s += until_s - max(now, self.seen_s)
            self.seen_s = until_s


class Walk:
    """One leg under way."""

    def __init__(self, trainer: Trainer, start_s: float, savers: Sequence[Saver] = ()) -> None:
        self._trainer, self._prepared = trainer, trainer.prepared
        self.start_s, self.savers = start_s, list(savers)
        self._first_step, self.steps = trainer.step, 0
        self.trained_s, self._skips = 0.0, 0
        self.stalled, self._stall_s = False, start_s
        self._saving: Saver | None = None
        self._batch: Batch | None = None
        self._books: list[Books] = []
        self._unblocked_s = math.nan
        self._entry = -1
        """The place in the log of the save that training stands still for."""

    @classmethod
    def landing(cls, trainer: Trainer, stretch: Stretch, spot: Spot) -> Walk:
        """The leg that a disturbed stretch was in, with its save and its step under way."""
        walk, leg, pace = cls(trainer, stretch.leg_start(spot.leg)), spot.leg, stretch.pattern.pace
        slow = 0
        if stretch.saves:
            slow = min(spot.steps, stretch.leg_at(leg).slow)
            walk._resume_all(stretch, spot)
        walk.steps, walk.trained_s = spot.steps, training_time(spot.steps, slow, pace)
        walk._books.append(book_steps(pace, spot.steps, slow))
        if spot.stalled:
            walk._stand(stretch.stall_start(leg))
        else:
            slowed = stretch.saves and spot.steps < stretch.leg_at(leg).slow
            if trainer.prepared.scenario.checkpoint.when_busy == "skip":
                walk._skip_passed()
            walk._batch = Batch(
                walk.start_s + walk.trained_s, 1, pace.saving_s if slowed else pace.step_s, slowed, pace
            )
        return walk

    def _resume_all(self, stretch: Stretch, spot: Spot) -> None:
        """Savers for all saves of a stretch that are under way."""
        for save, places in under_way(stretch, spot, self._trainer.env.now, self._prepared.lanes_of):
            saver = self._resumed(stretch, save, places)
            if save == spot.leg:
                self._saving = saver
            else:
                self.savers.append(saver)

    def _skip_passed(self) -> None:
        """Count the saves that fell due in this leg and were left out."""
        while not self._trainer.every.never and not self._trainer.alarmed and self._due_in() <= 0:
            self._skips += 1

    def _resumed(self, stretch: Stretch, save: int, places: Places) -> Saver:
        """The save at the end of leg ``save`` of a stretch, as far as it is now."""
        step = stretch.step + stretch.steps_before(save + 1)
        now, tiers = self._trainer.env.now, stretch.pattern.tiers
        held = [tier for tier, _ in tiers if (stretch.durable_s(save, tier) or math.inf) <= now]
        return self._saver(step, stretch.number + save + 1, stretch.serial + save + 1, places, held)

    def _new_saver(self, step: int, number: int) -> Saver:
        """A save that starts now."""
        self._trainer.serial += 1
        self._trainer.alarmed = False
        return self._saver(step, number, self._trainer.serial)

    def _saver(self, step: int, number: int, serial: int, places: Places | None = None,
               held: Sequence[Tier] = ()) -> Saver:  # fmt: skip
        """A save of which copies on the tiers ``held`` have become durable before."""
        trainer, prepared = self._trainer, self._prepared
        luck = trainer.luck

        def durable(tier: Tier) -> None:
            if tier in held or (luck is not None and luck.fails(serial)):
                return
            corrupt = luck is not None and luck.corrupt(serial)
            trainer.copies.add(Copy(step, tier, trainer.env.now, number, corrupt))
            trainer.log.add(Entry(trainer.env.now, "save_durable", tier.value, step))

        flying = self.flying if prepared.shop.queued else []
        behind = {tier: saver for saver in self.savers for tier in saver.open_sides}
        start = Start(places, flying[-1].ended if flying else None, behind)
        return Saver(trainer.env, trainer.storage, prepared.lanes_of(number), trainer.nodes, step, durable, start,
                     serial)  # fmt: skip

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
            self._stand(self._trainer.env.now)
        if self._saving is None:
            while self.full:
                yield from self._hold(self._room())
            self._trainer.number += 1
            self._saving = self._new_saver(self._first_step + self.steps, self._trainer.number)
        yield from self._hold(self._saving.unblocked)
        self._unblocked_s = self._trainer.env.now
        self._stood()
        self.savers, self._saving = [*self.savers, self._saving], None
        self._close(ended=True)

    def _stand(self, since_s: float) -> None:
        """Training stands still for a save."""
        self.stalled, self._stall_s = True, since_s
        self._entry = self._trainer.log.add(Entry(since_s, "save_start", "", self._first_step + self.steps))

    def _stood(self) -> None:
        """Training has stood still until now."""
        seconds = self._trainer.env.now - self._stall_s
        self._books.append(Books(checkpoint_stall=seconds))
        self._trainer.log.lasted(self._entry, seconds)

    def _room(self) -> simpy.Event:
        """The end of a save that is under way."""
        ends = [saver.ended for saver in self.flying]
        return ends[0] if self._prepared.shop.queued else simpy.AnyOf(self._trainer.env, ends)

    def stalled_for(self) -> simpy.Event | None:
        """What the stall under way waits for next; None: it has just come."""
        if self._saving is not None:
            return self._saving.unblocked
        return self._room() if self.full else None

    @property
    def flying(self) -> list[Saver]:
        """Saves whose background part, which later ones queue behind, is under way."""
        return [saver for saver in self.savers if not saver.ended.triggered]

    @property
    def busy(self) -> bool:
        """A save is in flight that makes steps slower."""
        shop = self._prepared.shop
        if shop.chain_slows and any(not saver.ended.triggered for saver in self.savers):
            return True
        return shop.uploads_slow and any(saver.open_sides for saver in self.savers)

    @property
    def full(self) -> bool:
        """There is no room for another save."""
        return len(self.flying) >= self._prepared.pattern.depth

    @property
    def _left(self) -> float:
        """Steps to the end of training."""
        return self._trainer.target - self._first_step - self.steps

    def _until_due(self) -> Process:
        """Whole steps until a save is due and may start, or training ends."""
        when_busy = self._prepared.scenario.checkpoint.when_busy
        while self._left > 0:
            wanted = self._due_in()
            if wanted <= 0:
                if not self.full or when_busy == "block":
                    return
                if when_busy == "skip" and not self._trainer.alarmed:
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
        every, pace = self._trainer.every, self._trainer.pace
        if self._trainer.alarmed and self._prepared.save is not None:
            return 0 if self.steps > 0 else 1
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
            batch.wait(env.now, self._trainer.blocked_s)
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
        if batch.stood_s and steps == batch.steps:
            self._books.append(Books(straggle=batch.stood_s))

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
        """One more save at the end of training."""
        self._first_step, self.steps, self._books = self._trainer.step, 0, []
        self._stand(self._trainer.env.now)
        self._saving = self._new_saver(self._first_step, 0)
        yield from self._hold(self._saving.unblocked)
        for event in (self._saving.ended, *self._saving.sides.values()):
            yield from self._hold(event)
        self._stood()
        self._close(ended=True)

    def _close(self, ended: bool) -> None:
        """Keep the leg, for now; ``ended``: with its save's stall."""
        trainer = self._trainer
        trainer.step = self._first_step + self.steps
        books = Books(*(math.fsum(column) for column in zip(*self._books, strict=True))) if self._books else Books()
        trainer.ledger.keep(Piece(self._first_step, trainer.step, books, open=not ended))
        self._books = []

    def boundary(self) -> float:
        """When the step under way ends, absolute seconds; now, where one ends just now, and while training stands still."""
        now, batch = self._trainer.env.now, self._batch
        if self.stalled or batch is None:
            return now
        done = batch.done_by(now)
        if batch.start_s + done * batch.step_s == now and not batch.stood_s:
            return now
        steps = min(batch.steps, done + 1)
        return max(now, batch.end_s if steps == batch.steps else batch.start_s + steps * batch.step_s)

    def break_off(self, now: float, broken: str | None = None) -> int:
        """The leg ends at ``now`` as it stands; returns the steps that are done.

        ``broken``: the category of the step under way, of which nothing is kept; None: all stays together, for a
        rollback to take back.
        """
        if self.stalled:
            self._stood()
        elif self._batch is not None:
            batch = self._batch
            done = batch.done_by(now + 8 * math.ulp(now) if broken else now)
            self._count(batch, done)
            through = batch.end_s if done == batch.steps else batch.start_s + done * batch.step_s
            rest = max(0.0, now - through)  # less: by rounding
            if broken:
                self._trainer.ledger.spend(broken, rest)
            else:
                self._books.append(Books(other=rest))
        self.cut_saves()
        self._close(ended=broken is not None)
        return self._trainer.step

    def cut_saves(self) -> None:
        """Stop the saves that are under way."""
        for saver in (*self.savers, self._saving):
            if saver is not None and not saver.over:
                saver.cut()
                self._trainer.log.add(Entry(self._trainer.env.now, "save_cut", "", saver.step))

    def steps_done(self) -> int:
        """Steps of the run that are done by now."""
        batch = self._batch
        return self._first_step + self.steps + (batch.done_by(self._trainer.env.now) if batch is not None else 0)

    def flies_alone(self) -> bool:
        """Whether the leg's save has its background part before it and the storage for itself."""
        trainer, flying = self._trainer, self.flying
        return (
            len(flying) == 1
            and self._prepared.pattern.depth == 1
            and self._unblocked_s == trainer.env.now
            and trainer.pace == trainer.pattern.pace
            and not trainer.alarmed
            and trainer.storage.up
            and trainer.storage.only(flying[0].flow)
            and flying[0].on_time
            and not any(saver.open_sides for saver in self.savers)
        )

    def rejoins(self) -> int | None:
        """The leg of what repeats that starts now where just so much is under way, and nothing else; None: none does."""
        just = self._unblocked_s == self._trainer.env.now
        return joins(self._trainer, self.left()) if just else None

    def left(self) -> list[Saver]:
        """Saves that are still under way."""
        return [saver for saver in self.savers if not saver.over]

    def successor(self) -> Walk:
        """The next leg, which starts now with saves in flight."""
        return Walk(self._trainer, self._trainer.env.now, self.left())
