"""The job: trains, saves, is struck, comes back; one SimPy process from the first second to the last.

The retry loop lives here: whatever breaks off training or a recovery ends in ``_struck``, which books what was under
way, rolls back to the newest surviving copy and sets the moment at which the failure is noticed. Then the recovery
starts again from its first stage.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np
import simpy

from clustersim.checkpoint.pattern import Pace, Stretch
from clustersim.checkpoint.tiers import Copies, Copy, Tier
from clustersim.faults.failure import FailureModel, Severity
from clustersim.faults.process import Change, Hit
from clustersim.rng import stream
from clustersim.run.attempt import Attempt
from clustersim.run.clock import delay
from clustersim.run.cluster import Fleet
from clustersim.run.ledger import Ledger, Piece
from clustersim.run.log import Entry, Log
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.run.storage import SharedStorage
from clustersim.run.strikes import Strikes
from clustersim.run.walk import Walk

Process = Generator[simpy.Event, Any, None]

HOPELESS_INTERRUPTIONS = 1000
"""Interruptions in a row without a new durable save after which reaching the end counts as hopeless."""
HOPELESS_TIMES = 1000.0
"""Wall time ÷ nominal time of the run after which it does."""


class Disturbed:
    """Cause of an interrupt that is no failure: what training relied on has changed."""


class Job:
    """One replica of a run.

    Attributes:
        step: steps done in the state that trains or will be restored.
        vacant: places without a node (for strategies; see ``JobView``).
    """

    def __init__(self, prepared: Prepared, seed: int, replica: int, events: bool = True) -> None:
        self.prepared, self._seed, self._replica = prepared, seed, replica
        scenario = prepared.scenario
        cluster = scenario.cluster
        self.env = env = simpy.Environment()
        self.log = Log(events)
        self.strikes = Strikes(env, prepared.arrivals(seed, replica), self._strike)
        watch = self._changed if events or self.strikes.watched else None
        self.fleet = Fleet(env, cluster.nodes, cluster.spare_nodes, scenario.repair.crews, watch)
        self.storage = SharedStorage(env, cluster.storage)
        self.ledger = Ledger()
        self.copies = Copies(Copy(0, Tier.SHARED, 0.0))
        self.pace, self.pattern = prepared.pace, prepared.pattern
        self.step = 0
        self.interruptions, self.planned = 0, 0
        self.verdict: str | None = None
        self.hopeless = False
        self._streams: dict[str, np.random.Generator] = {}
        self._stretch: Stretch | None = None
        self._walk: Walk | None = None
        self._attempt: Attempt | None = None
        self._cause: FailureModel | None = None
        self._fallen: list[tuple[int, float]] = []
        self._since_s, self._noticed_s = 0.0, 0.0
        self._up = not scenario.recovery.cold_start
        self._barren, self._furthest = 0, 0
        self._finished = False
        self.disturbed = Disturbed()
        self.process: simpy.Process = env.process(self._live())

    # -- what strategies see
    # ------------------------------------------------------------------------------------------------

    @property
    def vacant(self) -> int:
        """Places of the job without a node."""
        return len(self.fleet.vacant)

    @property
    def spares(self) -> int:
        """Spare nodes that stand ready."""
        return self.fleet.spares

    @property
    def nodes(self) -> int:
        """Places of the job."""
        return self.fleet.nodes

    def steps_done(self) -> int:
        """Steps done by now, saved or not."""
        if self._stretch is not None:
            spot = self._stretch.locate(self.env.now)
            return self._stretch.step + self._stretch.steps_before(spot.leg) + spot.steps
        return self.step if self._walk is None or not self._up else self._walk.steps_done()

    def draws(self, name: str) -> np.random.Generator:
        """The replica's stream of a name; the same generator every time."""
        if name not in self._streams:
            self._streams[name] = stream(self._seed, self._replica, name)
        return self._streams[name]

    # -- from start to end
    # --------------------------------------------------------------------------------------------------

    def run(self) -> RunResult:
        """Run to the end and tell what came out."""
        prepared = self.prepared
        limit = prepared.horizon_s if prepared.horizon_s < math.inf else HOPELESS_TIMES * prepared.nominal_s
        end = self.env.timeout(limit)
        self.env.run(until=simpy.AnyOf(self.env, [self.process, end]))
        if not self._finished and not self.hopeless:
            self._stop(limit)
        return self._result()

    def _live(self) -> Process:
        """The life of the job."""
        while not self.hopeless:
            try:
                if not self._up:
                    yield from self._come_back()
                yield from self._train()
                break
            except simpy.Interrupt as interrupt:
                if isinstance(interrupt.cause, Hit):
                    self._struck(interrupt.cause)
                elif self._attempt is not None:
                    self._book_recovery(self.env.now)
        self._finished = not self.hopeless

    def _stop(self, limit: float) -> None:
        """The end of the given duration, or of all patience, at ``limit``."""
        self._book_until(limit, keep=self._up)
        if self.prepared.horizon_s == math.inf:
            self._give_up(f"wall time passed {HOPELESS_TIMES:g} × the nominal {self.prepared.nominal_s:.4g} s")

    # -- training
    # -----------------------------------------------------------------------------------------------------------

    def _train(self) -> Process:
        """Train to the last step, undisturbed stretches by arithmetic, the rest save by save."""
        target = self.prepared.target_steps
        flying = False
        while self.step < target:
            if self._walk is None and self.prepared.jump and (flying or self.storage.quiet):
                yield from self._jump(flying)
            flying = (yield from self._leg()) if self.step < target else False
        if self.prepared.scenario.checkpoint.final and self.prepared.save is not None:
            yield from self._final()

    def _jump(self, flying: bool) -> Process:
        """One time-out to the end of training; broken off by whatever disturbs."""
        now: float = self.env.now
        self._stretch = stretch = Stretch(self.pattern, now, self.step, flying)
        try:
            if self.prepared.target_steps == math.inf:
                yield self.env.event()
            end = stretch.end_of(int(self.prepared.target_steps) - self.step)
            yield delay(self.env, max(0.0, end - now), "training")
        except simpy.Interrupt as interrupt:
            if interrupt.cause is not self.disturbed:
                raise
            self._land()
            return
        self._close_stretch(end, all_steps=True)

    def _close_stretch(self, end: float, all_steps: bool = False) -> None:
        """Keep everything of a stretch that ends at ``end``, for now."""
        stretch, self._stretch = self._stretch, None
        assert stretch is not None
        if all_steps:
            steps = int(self.prepared.target_steps) - stretch.step
            spot = stretch.spot_of(steps)
        else:
            spot = stretch.locate(end)
            steps = stretch.steps_before(spot.leg) + spot.steps
        books = stretch.books_in(spot, end)
        last = spot.leg - all_steps  # the save that falls due with the last step is not taken
        for copy in stretch.copies(end, last):
            self.copies.add(copy)
        self.log.stretch(stretch, end, last)
        self.ledger.keep(Piece(stretch.step, stretch.step + steps, books, stretch, open=True))
        self.step = stretch.step + steps

    def _land(self) -> None:
        """Turn the stretch that has been disturbed into its state event by event."""
        stretch, self._stretch = self._stretch, None
        assert stretch is not None
        now: float = self.env.now
        spot = stretch.locate(now)
        for copy in stretch.copies(now, spot.leg):
            self.copies.add(copy)
        self.log.stretch(stretch, now, spot.leg)
        done = stretch.steps_before(spot.leg)
        if spot.leg:
            self.ledger.keep(Piece(stretch.step, stretch.step + done, stretch.books(spot.leg), stretch))
        self.step = stretch.step + done
        self._walk = Walk.landing(self, stretch, spot)

    def _leg(self) -> Generator[simpy.Event, Any, bool]:
        """One leg event by event; True when nothing but the background part of its save is under way as it ends."""
        if self._walk is None:
            self._walk = Walk(self, self.env.now)
        walk = self._walk
        yield from walk.live()
        flying = walk.flies_alone() and self.prepared.jump and self.pattern.leg is not None
        if flying and walk.saver is not None:
            walk.saver.cut()
        done = self.step >= self.prepared.target_steps
        self._walk = None if walk.saver is None or flying or done else walk.successor()
        return flying

    def _final(self) -> Process:
        """The save at the end of training; it waits until the copy is durable."""
        self._walk = Walk(self, self.env.now)
        yield from self._walk.last_save()
        self._walk = None

    def disturb(self) -> None:
        """Something that undisturbed training relies on is about to change: go on event by event."""
        if self._stretch is not None:
            self.process.interrupt(self.disturbed)

    def change_pace(self, pace: Pace) -> None:
        """Steps take another time from the next one on (stragglers, degraded links, fewer replicas)."""
        self.disturb()
        self.pace, self.pattern = pace, self.prepared.pattern_at(pace)
        if self._walk is not None and self._up:
            self.process.interrupt(self.disturbed)

    # -- failures
    # -----------------------------------------------------------------------------------------------------------

    def _strike(self, hit: Hit) -> None:
        """A failure strikes: does it take anything, does it count, does it stop the job?"""
        if self._finished or self.hopeless:
            return
        if hit.spare or (hit.node is not None and self.fleet.slot_of(hit.node) is not None):
            self._strike_spare(hit)
            return
        severity = hit.cause.severity
        if severity == Severity.STORAGE:
            self.log.add(Entry(self.env.now, "outage", hit.cause.name, seconds=hit.repair_s))
            self.disturb()
            self.storage.outage(hit.repair_s)
            return
        places = self._aimed(hit)
        shared = hit.cause.component == "job" or severity == Severity.CLUSTER
        if not shared and not places:
            return
        if not self._may_strike():
            self.log.add(Entry(self.env.now, "ignored", hit.cause.name))
            return
        if severity.takes_nodes:
            for place in places:
                self.fleet.fail(place)
                self._fallen.append((place, hit.repair_s))
        if self.log.active:
            self.log.add(
                Entry(
                    self.env.now, "failure", hit.cause.name, self.steps_done(), place=hit.first, seconds=hit.detection_s
                )
            )
        self.process.interrupt(hit)

    def _aimed(self, hit: Hit) -> list[int]:
        """The places that a hit takes: those whose node works."""
        if hit.node is not None:
            place = self.fleet.place_of(hit.node)
            return [] if place is None else self.fleet.working(place, place + 1)
        return self.fleet.working(hit.first, hit.last)

    def _strike_spare(self, hit: Hit) -> None:
        """Spare nodes fail: they go to the repair shop, the job goes on."""
        slots = range(hit.first, hit.last) if hit.node is None else (self.fleet.slot_of(hit.node),)
        for slot in slots:
            node = None if slot is None else self.fleet.fail_spare(slot, hit.repair_s)
            if node is not None:
                self.log.add(Entry(self.env.now, "spare_failure", hit.cause.name, node=node))

    def _may_strike(self) -> bool:
        """Whether failures are allowed to strike at this moment (``failures_during``)."""
        during = self.prepared.during
        if self._up:
            return during.save or not self._stalled()
        return during.recovery if self.env.now >= self._noticed_s else during.detecting

    def _stalled(self) -> bool:
        """Whether training stands still for a save."""
        if self._stretch is not None:
            return self._stretch.locate(self.env.now).stalled
        return self._walk is not None and self._walk.stalled

    def _struck(self, hit: Hit) -> None:
        """A failure has stopped the job or its recovery."""
        now: float = self.env.now
        was_up, pending = self._up, self._noticed_s
        self._book_until(now, keep=False, severity=hit.cause.severity)
        self._up, self._cause, self._since_s = False, hit.cause, now
        noticed = now + hit.detection_s
        self._noticed_s = max(noticed, pending) if not was_up else noticed
        if hit.cause.planned:
            self.planned += 1
        else:
            self.interruptions += 1
        self._progress()

    def _book_until(self, now: float, keep: bool, severity: Severity | None = None) -> None:
        """Book what was under way until ``now``; unless ``keep``, go back to the newest copy that survives
        ``severity``."""
        up = self._up
        if self._stretch is not None and not keep:
            self._lose_stretch(now, severity)
            return
        if self._stretch is not None:
            self._close_stretch(now)
        elif self._walk is not None:
            self.step = self._walk.break_off(now)
        elif not self._up:
            self._book_recovery(now)
        if keep:
            return
        self._roll_back(now, severity, up)
        self._walk = None

    def _roll_back(self, now: float, severity: Severity | None, up: bool = True) -> int:
        """Go back to the newest copy that survives ``severity``; returns its steps."""
        if severity is not None:
            self.copies.lose(severity)
        restored = self.copies.newest()
        assert restored is not None
        if up and self.log.active:
            self.log.add(Entry(now, "rollback", restored.tier.value, restored.step))
        self.ledger.rollback(restored.step)
        self.step = restored.step
        return restored.step

    def _lose_stretch(self, now: float, severity: Severity | None) -> None:
        """A stretch is broken off by a failure: keep what a surviving copy holds, the rest is ``rework``."""
        stretch, self._stretch = self._stretch, None
        assert stretch is not None
        leg = stretch.locate(now).leg
        for copy in stretch.copies(now, leg):
            self.copies.add(copy)
        self.log.stretch(stretch, now, leg)
        legs = stretch.legs_to(self._roll_back(now, severity))
        if legs:
            self.ledger.keep(Piece(stretch.step, self.step, stretch.books(legs), stretch))
        self.ledger.spend("rework", now - stretch.leg_start(legs))

    def _progress(self) -> None:
        """Count interruptions without a new durable save; give up, or only say so, when there are too many."""
        if self.step > self._furthest:
            self._furthest, self._barren = self.step, 0
            return
        self._barren += 1
        if self._barren >= HOPELESS_INTERRUPTIONS and self.verdict is None:
            self._give_up(f"{self._barren} interruptions in a row without a new durable save")

    def _give_up(self, reason: str) -> None:
        """State that there is no progress; a run without a given duration ends with it."""
        prepared = self.prepared
        between = self.env.now / max(1, self.interruptions + self.planned)
        save = prepared.save.stall_s + prepared.save.busy_s if prepared.save else math.inf
        first = (prepared.pattern.first.train_s + save) if prepared.pattern.first else prepared.nominal_s
        back = prepared.scenario.recovery.graph.mean_s(prepared.load_s)
        self.verdict = (f"no progress: {reason}; {between:.4g} s between interruptions, {back:.4g} s to come back "
                        f"and {first:.4g} s to the first durable save")  # fmt: skip
        self.hopeless = prepared.horizon_s == math.inf

    # -- recovery
    # -----------------------------------------------------------------------------------------------------------

    def _come_back(self) -> Process:
        """Detection, then the strategy's stages, once; whatever strikes meanwhile ends in ``_struck``."""
        if self._noticed_s > self.env.now:
            yield delay(self.env, self._noticed_s - self.env.now, "detection")
        now: float = self.env.now
        if now > self._since_s:
            self._detecting(now)
        self._since_s = now
        for place, repair_s in self._fallen:
            self.fleet.remove(place, repair_s)
        self._fallen.clear()
        comeback = self.prepared.scenario.recovery.comeback(self._cause, self)
        self._attempt = Attempt(self.env, self.fleet, self.storage, self.prepared.load, self.draws)
        yield from self._attempt.run(comeback.graph)
        self._book_recovery(self.env.now)
        self._up = True
        if self.log.active:
            self.log.add(Entry(self.env.now, "resume", "", self.step))

    def _detecting(self, now: float) -> None:
        """Book the time from the failure, or from the start of the wait, to ``now``."""
        self.ledger.spend("detect", now - self._since_s)
        if self.log.active:
            self.log.add(Entry(self._since_s, "detect", "", self.step, seconds=now - self._since_s))

    def _book_recovery(self, now: float) -> None:
        """Book detection or stages up to ``now``."""
        if self._attempt is None:
            if now > self._since_s:
                self._detecting(now)
            return
        for span in self._attempt.close(now):
            if span.section is not None and span.end_s <= now and not self.log.active:
                self.ledger.spend_section(span.section)
                continue
            for part in span.parts(now):
                self.ledger.spend(part.category, part.end_s - part.start_s)
                if self.log.active:
                    self.log.add(Entry(part.start_s, "stage", part.name, self.step, seconds=part.end_s - part.start_s))
        self._attempt = None

    # -- the end
    # ------------------------------------------------------------------------------------------------------------

    def _changed(self, what: str, node: int, place: int) -> None:
        """A node's state has changed."""
        self.log.add(Entry(self.env.now, what, "", node=node, place=place if place >= 0 else None))
        if self.strikes.watched and what in ("failed", "removed", "repaired", "placed", "retired"):
            self.strikes.observe(Change(self.env.now, what, node, place))  # type: ignore[arg-type]

    def _result(self) -> RunResult:
        """Sum everything up."""
        prepared, wall = self.prepared, float(self.env.now)
        scenario = prepared.scenario
        self.fleet.settle()
        totals = self.ledger.totals()
        if self.verdict is None and self.ledger.steps == 0 and self.interruptions + self.planned > 0:
            self.verdict = "no progress: no step was kept"
        tokens = self.ledger.step_equivalents * scenario.training.tokens_per_step
        ettr = totals["train"] / wall if wall > 0 else 0.0
        hits = self.interruptions
        return RunResult(
            wall_s=wall, ettr=ettr, goodput_tokens_per_s=tokens / wall if wall > 0 else 0.0, interruptions=hits,
            interruptions_planned=self.planned, effective_mfu=None if prepared.mfu is None else prepared.mfu * ettr,
            gpu_hours=scenario.cluster.gpus * wall / 3600, steps=self.ledger.steps, tokens=tokens,
            lost_work_s=totals["rework"], nodes_down_p99=self.fleet.down_quantile(0.99),
            mtti_s=wall / hits if hits else None, ledger_s=totals, down_s=dict(self.fleet.down_s), verdict=self.verdict,
            hopeless=self.hopeless, log=self.log,
        )  # fmt: skip


__all__ = ["Disturbed", "Job"]
