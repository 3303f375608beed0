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

from clustersim.checkpoint.interval import Predicted
from clustersim.checkpoint.pattern import Pace
from clustersim.faults.failure import TAKES_NODES, FailureModel, Severity
from clustersim.faults.process import Hit
from clustersim.rng import stream
from clustersim.run.afflictions import Afflictions
from clustersim.run.alarms import Predictor, foreseen
from clustersim.run.attempt import Attempt, parts
from clustersim.run.clock import Clock, delay, interrupt
from clustersim.run.cluster import Fleet
from clustersim.run.ledger import Ledger
from clustersim.run.log import Entry, Log
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.run.storage import SharedStorage
from clustersim.run.strikes import Strikes
from clustersim.run.training import Trainer
from clustersim.run.turnover import TURN, Turnover
from clustersim.run.walk import DISTURBED
from clustersim.run.workshop import Workshop

Process = Generator[simpy.Event, Any, None]

HEARD = frozenset({"failed", "removed", "repaired", "placed", "retired", "cured"})
"""Changes of a node's state that arrivals hear of."""
HOPELESS_INTERRUPTIONS = 1000
"""Interruptions in a row without a new durable save after which reaching the end counts as hopeless."""
HOPELESS_TIMES = 1000.0
"""Wall time ÷ nominal time of the run after which it does."""


class Job:
    """One replica of a run.

    Attributes:
        trainer: training and its saves.
        fleet: nodes, spares, the repair shop.
        storage: shared storage.
        ledger, log: where the time went, and what happened.
    """

    def __init__(self, prepared: Prepared, seed: int, replica: int, events: bool = True) -> None:
        self.prepared, self._seed, self._replica = prepared, seed, replica
        scenario = prepared.scenario
        cluster = scenario.cluster
        self._clock = Clock()
        self.env: simpy.Environment = self._clock
        env = self.env
        self.log = Log(events)
        arrivals = foreseen(prepared.arrivals(seed, replica), self._predictor())
        self.strikes = Strikes(env, arrivals, self._strike)
        watch = self._changed if events else self._heard if self.strikes.watched else None
        self.fleet = Fleet(env, cluster.nodes, cluster.spare_nodes, scenario.repair.crews, watch)
        shop = Workshop(scenario.repair, self.draws, self.strikes.will_fail)
        self.fleet.shop = None if shop.plain else shop
        self.storage = SharedStorage(env, cluster.storage)
        self.ledger = Ledger()
        self.trainer = Trainer(env, prepared, self.storage, self.ledger, self.log, prepared.luck(seed, replica))
        self.afflictions = Afflictions(self)
        self.interruptions, self.planned = 0, 0
        self.verdict: str | None = None
        self.hopeless = False
        self._streams: dict[str, np.random.Generator] = {}
        self._during = during = prepared.during
        self._always = during.save and during.recovery and during.detecting
        self._attempt = Attempt(env, self.fleet, self.storage, self.draws)
        self._cause: FailureModel | None = None
        self._fallen: list[tuple[int, float]] = []
        self._hit_places: list[int] = []
        self._since_s, self._noticed_s = 0.0, 0.0
        self._up = not scenario.recovery.cold_start
        self._barren, self._furthest, self._steps_lost = 0, 0, 0
        self._finished, self._begun = False, False
        self._slowed: Pace = prepared.pace
        self._thin: Pace | None = None
        self.turnover = Turnover(self)
        self.fleet.returned = self.turnover.returned if scenario.recovery.rejoins else None
        self.process: simpy.Process = env.process(self._live())
        self._begun = True

    def _predictor(self) -> Predictor | None:
        """What announces failures to the checkpoint policy; None: nothing does."""
        policy, mtbf = self.prepared.scenario.checkpoint.interval, self.prepared.mtbf_s
        if not isinstance(policy, Predicted):
            return None
        return Predictor(self.env, policy, 1 / mtbf, self._alarmed, stream(self._seed, self._replica, "alarms"))

    def _alarmed(self) -> None:
        """A failure is announced: save at the end of this step."""
        if self.up:
            self.trainer.alarmed = True
            self.process.interrupt(DISTURBED)

    @property
    def up(self) -> bool:
        """Whether it trains, or saves."""
        return self._up and not self._finished

    # -- what strategies see

    @property
    def step(self) -> int:
        """Steps done in the state that trains or will be restored."""
        return self.trainer.step

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

    def draws(self, name: str) -> np.random.Generator:
        """The replica's stream of a name; the same generator every time."""
        if name not in self._streams:
            self._streams[name] = stream(self._seed, self._replica, name)
        return self._streams[name]

    # -- from start to end

    def run(self) -> RunResult:
        """Run to the end and tell what came out."""
        prepared = self.prepared
        limit = prepared.horizon_s if prepared.horizon_s < math.inf else HOPELESS_TIMES * prepared.nominal_s
        end = delay(self.env, limit, "the end of the run")
        self._clock.play(simpy.AnyOf(self.env, [self.process, end]))
        if not self._finished and not self.hopeless:
            self._stop(limit)
        return self._result()

    def _live(self) -> Process:
        """The life of the job."""
        while not self.hopeless:
            try:
                if not self._up:
                    yield from self._come_back()
                yield from self.trainer.train()
                break
            except simpy.Interrupt as interrupt:
                if isinstance(interrupt.cause, Hit):
                    self._struck(interrupt.cause)
                elif interrupt.cause is TURN:
                    self._turned()
                elif self._attempt.under_way:
                    self._book_recovery(self.env.now)
        self._finished = not self.hopeless

    def _stop(self, limit: float) -> None:
        """The end of the given duration, or of all patience, at ``limit``."""
        if self._up:
            self.trainer.stop(limit)
        else:
            self._book_recovery(limit)
            if not self.turnover.kept:
                self.trainer.lose(limit, None, self._hit_places)
        if self.prepared.horizon_s == math.inf:
            self._give_up(f"wall time passed {HOPELESS_TIMES:g} × the nominal {self.prepared.nominal_s:.4g} s")

    def disturb(self) -> None:
        """Something that undisturbed training relies on is about to change: go on event by event."""
        if self.trainer.jumping:
            self.process.interrupt(DISTURBED)

    def wait_for_links(self) -> None:
        """The step under way takes longer, until communication is possible again."""
        self.process.interrupt(DISTURBED)

    def change_pace(self, pace: Pace) -> None:
        """Steps take another time from the next one on, because of slow nodes and links."""
        self._slowed = pace
        self._set_pace()

    def thinned(self, pace: Pace | None) -> None:
        """Steps take another time from the next one on, because of places that do not train; None: all do."""
        self._thin = pace
        self._set_pace()

    def _set_pace(self) -> None:
        """What slow nodes add comes on top of what the places that are left make of a step."""
        pace = self.prepared.together(self._slowed, self._thin)
        if pace == self.trainer.pace:
            return
        self.trainer.change_pace(pace)
        if self._up and not self._finished and self._begun and self.env.active_process is not self.process:
            self.process.interrupt(DISTURBED)

    # -- failures

    def _strike(self, hit: Hit, announced: bool = False, at_once: bool = True) -> None:
        """A failure strikes: does it take anything, does it count, does it stop the job?

        ``announced``: it strikes although it was announced; ``at_once``: nothing else of this instant is still to reach
        the job's process.
        """
        if self._finished or self.hopeless or (hit.extra is not None and self.afflictions.takes(hit)):
            return
        cause, severity, fleet = hit.cause, hit.cause.severity, self.fleet
        if hit.spare or (hit.node is not None and fleet.slot_of(hit.node) is not None):
            self._strike_spare(hit)
            return
        if severity is Severity.STORAGE:
            self.log.add(Entry(self.env.now, "outage", cause.name, seconds=hit.repair_s))
            self.disturb()
            self.storage.outage(hit.repair_s)
            return
        may = self._always or self._may_strike()
        if not may and not self.log.active:
            return
        places = fleet.working(hit.first, hit.last) if hit.node is None else self._stands(hit.node)
        shared = severity is Severity.CLUSTER or cause.component == "job"
        if not shared and not places:
            return
        if not may:
            self.log.add(Entry(self.env.now, "ignored", cause.name))
            return
        if not shared and not announced and self.turnover.intercept(hit, places):
            return
        self._hit_places = places
        if severity in TAKES_NODES:
            for place in places:
                fleet.fail(place)
                self._fallen.append((place, hit.repair_s))
        if self.log.active:
            self.log.add(Entry(self.env.now, "failure", cause.name, self.trainer.steps_done(), place=hit.first,
                               seconds=hit.detection_s))  # fmt: skip
        if at_once:
            interrupt(self.process, hit)
        else:
            self.process.interrupt(hit)

    def struck_by(self, hit: Hit, announced: bool = False) -> None:
        """A failure that has been under way comes to light; ``announced``: it strikes although it was announced."""
        self._strike(hit, announced, at_once=False)

    def _stands(self, node: int) -> list[int]:
        """The place of a node that works for the job; empty: it does not."""
        place = self.fleet.place_of(node)
        return [] if place is None else self.fleet.working(place, place + 1)

    def _strike_spare(self, hit: Hit) -> None:
        """Spare nodes fail: they go to the repair shop, the job goes on."""
        slots = range(hit.first, hit.last) if hit.node is None else (self.fleet.slot_of(hit.node),)
        for slot in slots:
            node = None if slot is None else self.fleet.fail_spare(slot, hit.repair_s)
            if node is not None:
                self.log.add(Entry(self.env.now, "spare_failure", hit.cause.name, node=node))

    def _may_strike(self) -> bool:
        """Whether failures are allowed to strike at this moment (``failures_during``)."""
        during = self._during
        if self._up:
            return during.save or not self.trainer.stalled
        return during.recovery if self.env.now >= self._noticed_s else during.detecting

    def turn(self) -> None:
        """Places change hands now, at the end of a step."""
        interrupt(self.process, TURN)

    def _turned(self) -> None:
        """Training stands still for a turn; nothing is lost."""
        now: float = self.env.now
        self.trainer.hold(now)
        self._up, self._cause, self._since_s, self._noticed_s = False, None, now, now
        self.turnover.begin_turn()

    def _struck(self, hit: Hit) -> None:
        """A failure has stopped the job or its recovery."""
        now: float = self.env.now
        cause, trainer, was_up = hit.cause, self.trainer, self._up
        done = trainer.steps_done()
        kept = self.turnover.struck(hit, self._hit_places, was_up)
        if not was_up:
            self._book_recovery(now)
        if kept:
            trainer.hold(now, cause.severity, self._hit_places)
        else:
            trainer.lose(now, cause.severity, self._hit_places)
        step = trainer.step
        if done > step:
            self._steps_lost += done - step
        noticed = now + self.turnover.noticed_after(hit)
        self._noticed_s = noticed if was_up else max(noticed, self._noticed_s)
        self._up, self._cause, self._since_s = False, cause, now
        if cause.planned:
            self.planned += 1
        else:
            self.interruptions += 1
        if step > self._furthest:
            self._furthest, self._barren, self.verdict = step, 0, None
        else:
            self._no_progress()

    def _no_progress(self) -> None:
        """Count interruptions without a new durable save; give up, or only say so, when there are too many."""
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

    def _come_back(self) -> Process:
        """Detection, then the strategy's stages, once; whatever strikes meanwhile ends in ``_struck``."""
        if self._noticed_s > self.env.now:
            yield delay(self.env, self._noticed_s - self.env.now, "detection")
        now: float = self.env.now
        if now > self._since_s:
            self._detecting(now)
        self._since_s = now
        self.turnover.remove(self._fallen, self._cause)
        self._fallen.clear()
        comeback = self.turnover.comeback(self._cause)
        yield from self._attempt.run(comeback.graph, self.trainer.reading, comeback.waits, self.step + self.trainer.skipped)
        self._book_recovery(self.env.now)
        self._up = True
        self.afflictions.moved()
        self.trainer.resumed()
        self.turnover.resumed()
        if self._thin is not None or self.trainer.target != self.prepared.target_steps:
            self._retarget()
        if self.log.active:
            self.log.add(Entry(self.env.now, "resume", "", self.step))

    def _retarget(self) -> None:
        """A run that is bounded by tokens goes on until they are trained, however many a step trains now."""
        training, trainer = self.prepared.scenario.training, self.trainer
        if training.tokens is None:
            return
        trained = math.fsum(piece.booked().train for piece in self.ledger.pieces) / self.prepared.pace.nominal_s
        left = training.tokens / training.tokens_per_step - trained
        share = trainer.pace.nominal_s / self.prepared.pace.nominal_s
        trainer.target = trainer.step + max(0, math.ceil(left / share - 1e-9))

    def _detecting(self, now: float) -> None:
        """Book the time from the failure, or from the start of the wait, to ``now``."""
        self.ledger.spend("detect", now - self._since_s)
        self._told("detect", "", self._since_s, now - self._since_s)

    def _told(self, event: str, subject: str, start_s: float, seconds: float) -> None:
        if self.log.active:
            self.log.add(Entry(start_s, event, subject, self.step, seconds=seconds))

    def _book_recovery(self, now: float) -> None:
        """Book detection or stages up to ``now``."""
        if not self._attempt.under_way:
            if now > self._since_s:
                self._detecting(now)
            return
        spent = self._attempt.close(now)
        if self.log.active:
            for each in spent:
                for step, begin, until in parts(each, now):
                    self._told("stage", step.name, begin, until - begin)
        if spent and spent[-1][2] <= now:
            self.ledger.spend_all(spent)
            return
        for each in spent:  # broken off
            for step, begin, until in parts(each, now):
                self.ledger.spend(step.category, until - begin)

    # -- the end

    def _changed(self, what: str, node: int, place: int) -> None:
        """A node's state has changed."""
        if self.log.active:
            self.log.add(Entry(self.env.now, what, "", node=node, place=place if place >= 0 else None))
        if self.strikes.watched:
            self._heard(what, node, place)

    def _heard(self, what: str, node: int, place: int) -> None:
        """The same, for arrivals that observe alone."""
        if what in HEARD:
            self.strikes.observe(what, node, place)  # type: ignore[arg-type]

    def _tokens(self, train_s: float) -> float:
        """Tokens kept: a step of fewer tokens books so much less training."""
        steps = train_s / self.prepared.pace.nominal_s
        if abs(steps - self.ledger.steps) <= 1e-9 * steps:
            steps = self.ledger.steps
        return float(steps * self.prepared.scenario.training.tokens_per_step)

    def _result(self) -> RunResult:
        """Sum everything up."""
        prepared, wall = self.prepared, float(self.env.now)
        scenario = prepared.scenario
        self.fleet.settle()
        totals = self.ledger.totals()
        if self.verdict is None and self.ledger.steps == 0 and self.interruptions + self.planned > 0:
            self.verdict = "no progress: no step was kept"
        tokens = self._tokens(totals["train"])
        ettr = totals["train"] / wall if wall > 0 else 0.0
        hits = self.interruptions
        return RunResult(
            wall_s=wall, ettr=ettr, goodput_tokens_per_s=tokens / wall if wall > 0 else 0.0, interruptions=hits,
            interruptions_planned=self.planned, effective_mfu=None if prepared.mfu is None else prepared.mfu * ettr,
            gpu_hours=scenario.cluster.gpus * wall / 3600, steps=self.ledger.steps, tokens=tokens,
            lost_work_s=totals["rework"], steps_lost=self._steps_lost, nodes_down_p99=self.fleet.down_quantile(0.99),
            mtti_s=wall / hits if hits else None, ledger_s=totals, down_s=dict(self.fleet.down_s), verdict=self.verdict,
            hopeless=self.hopeless, log=self.log,
        )  # fmt: skip
