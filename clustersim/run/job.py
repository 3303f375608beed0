"""The job: trains, saves, is struck, comes back; one SimPy process from the first second to the last.

The retry loop lives here: whatever breaks off training or a recovery ends in ``_struck``, which books what was under
way, rolls back to the newest surviving copy and sets the moment at which the failure is noticed. Then the recovery
starts again from its first stage.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Generator
from typing import Any, get_args

import numpy as np
import simpy

from clustersim.checkpoint.interval import Predicted
from clustersim.checkpoint.pattern import Pace
from clustersim.faults.failure import FailureModel
from clustersim.faults.process import Hit, What
from clustersim.rng import stream
from clustersim.run.afflictions import Afflictions
from clustersim.run.alarms import Predictor, foreseen
from clustersim.run.attempt import Attempt, parts
from clustersim.run.clock import Clock, delay, interrupt
from clustersim.run.cluster import Fleet
from clustersim.run.impact import Impact
from clustersim.run.ledger import Ledger
from clustersim.run.log import Entry, Log
from clustersim.run.patience import Patience
from clustersim.run.prepared import Prepared
from clustersim.run.reserve import Reserve
from clustersim.run.resources import Resources
from clustersim.run.result import RunResult
from clustersim.run.storage import SharedStorage
from clustersim.run.strikes import Strikes
from clustersim.run.training import Trainer
from clustersim.run.turnover import TURN, Turnover
from clustersim.run.walk import DISTURBED
from clustersim.run.workshop import Workshop

Process = Generator[simpy.Event, Any, None]

HEARD = frozenset(get_args(What))
"""Changes of a node's state that arrivals hear of."""


class Job:
    """One replica of a run.

    Attributes:
        clock: the simulated time; ``env`` is the same.
        trainer: training and its saves.
        fleet: nodes, spares, the repair shop.
        storage: shared storage.
        ledger, log: where the time went, and what happened.
    """

    def __init__(self, prepared: Prepared, seed: int, replica: int, events: bool = True) -> None:
        self.prepared, self._seed, self._replica = prepared, seed, replica
        scenario = prepared.scenario
        cluster = scenario.cluster
        self.clock = Clock()
        self.env: simpy.Environment = self.clock
        env = self.env
        self.log = Log(events)
        arrivals = foreseen(prepared.arrivals(seed, replica), self._predictor())
        self.impact = Impact(self)
        self.strikes = Strikes(env, arrivals, self.impact.strike)
        watch = self._changed if events else self._heard if self.strikes.watched else None
        self.fleet = Fleet(env, cluster.nodes, cluster.spare_nodes, scenario.repair.crews, watch)
        shop = Workshop(scenario.repair, self.draws, self.strikes.will_fail)
        self.fleet.grown = self.strikes.grow
        self.fleet.shop = None if shop.plain else shop
        self.storage: SharedStorage = (
            Resources(env, cluster.storage, prepared.shop.capacity) if prepared.shared else SharedStorage(env, cluster.storage)
        )
        self.ledger = Ledger()
        self.trainer = Trainer(env, prepared, self.storage, self.ledger, self.log, prepared.luck(seed, replica))
        self.afflictions = Afflictions(self)
        self.interruptions, self.planned = 0, 0
        self.patience = Patience(prepared)
        self._streams: dict[str, np.random.Generator] = {}
        if cluster.cold_spare_nodes:
            power_up = functools.partial(cluster.power_up.sample, self.draws("power-up"))
            self.fleet.reserve = Reserve(self.fleet, cluster.cold_spare_nodes, power_up)
        self._attempt = Attempt(env, self.fleet, self.storage, self.draws)
        self._cause: FailureModel | None = None
        self._since_s, self._noticed_s = 0.0, 0.0
        self._up = not scenario.recovery.cold_start
        self._steps_lost, self._finished, self._begun = 0, False, False
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

    def draws(self, name: str) -> np.random.Generator:
        """The replica's stream of a name; the same generator every time."""
        if name not in self._streams:
            self._streams[name] = stream(self._seed, self._replica, name)
        return self._streams[name]

    # -- from start to end

    def run(self) -> RunResult:
        """Run to the end and tell what came out."""
        limit = self.patience.limit_s
        end = delay(self.env, limit, "the end of the run")
        self.clock.play(simpy.AnyOf(self.env, [self.process, end]))
        if not self._finished and not self.patience.hopeless:
            self._stop(limit)
        return self._result()

    def _live(self) -> Process:
        """The life of the job."""
        while not self.patience.hopeless:
            try:
                if not self._up:
                    yield from self._come_back()
                yield from self.trainer.train()
                break
            except simpy.Interrupt as broken:
                if isinstance(broken.cause, Hit):
                    self._struck(broken.cause)
                elif broken.cause is TURN:
                    self._turned()
                elif self._attempt.under_way:
                    self._book_recovery(self.env.now)
        self._finished = not self.patience.hopeless

    def _stop(self, limit: float) -> None:
        """The end of the given duration, or of all patience, at ``limit``."""
        if self._up:
            self.trainer.stop(limit)
        else:
            self._book_recovery(limit)
            if not self.turnover.kept:
                self.trainer.lose(limit, None, self.impact.places)
        self.patience.out_of_time(limit, self.interruptions + self.planned)

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

    def struck_by(self, hit: Hit, announced: bool = False) -> None:
        """A failure that has been under way comes to light; ``announced``: it strikes although it was announced."""
        self.impact.strike(hit, announced, at_once=False)

    @property
    def over(self) -> bool:
        """Whether it has ended, or been given up."""
        return self._finished or self.patience.hopeless

    @property
    def noticed_s(self) -> float:
        """When the failure that it is down for is noticed, or was."""
        return self._noticed_s

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
        kept = self.turnover.struck(hit, self.impact.places, was_up)
        if not was_up:
            self._book_recovery(now)
        if kept:
            trainer.hold(now, cause.severity, self.impact.places)
        else:
            trainer.lose(now, cause.severity, self.impact.places)
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
        self.patience.interrupted(step, now, self.interruptions + self.planned)

    # -- recovery

    def _come_back(self) -> Process:
        """Detection, then the strategy's stages, once; whatever strikes meanwhile ends in ``_struck``."""
        if self._noticed_s > self.env.now:
            yield delay(self.env, self._noticed_s - self.env.now, "detection")
        now: float = self.env.now
        if now > self._since_s:
            self._detecting(now)
        self._since_s = now
        self.turnover.remove(self.impact.fallen, self._cause)
        self.impact.fallen.clear()
        comeback = self.turnover.comeback(self._cause)
        trainer = self.trainer
        yield from self._attempt.run(comeback.graph, trainer.reading, comeback.waits, trainer.step + trainer.skipped)
        self._book_recovery(self.env.now)
        self._up = True
        self.afflictions.moved()
        trainer.resumed()
        self.turnover.resumed()
        if self._thin is not None or self.trainer.target != self.prepared.target_steps:
            self._retarget()
        if self.log.active:
            self.log.add(Entry(self.env.now, "resume", "", self.trainer.step))

    def _retarget(self) -> None:
        """A run that is bounded by tokens goes on until they are trained, however many a step trains now."""
        training, trainer = self.prepared.scenario.training, self.trainer
        if training.tokens is None:
            return
        trained = self.ledger.trained_s / self.prepared.pace.nominal_s
        left = training.tokens / training.tokens_per_step - trained
        share = trainer.pace.nominal_s / self.prepared.pace.nominal_s
        trainer.target = trainer.step + max(0, math.ceil(left / share - 1e-9))

    def _detecting(self, now: float) -> None:
        """Book the time from the failure, or from the start of the wait, to ``now``."""
        self.ledger.spend("detect", now - self._since_s)
        self._told("detect", "", self._since_s, now - self._since_s)

    def _told(self, event: str, subject: str, start_s: float, seconds: float) -> None:
        if self.log.active:
            self.log.add(Entry(start_s, event, subject, self.trainer.step, seconds=seconds))

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
        verdict = self.patience.verdict
        if verdict is None and self.ledger.steps == 0 and self.interruptions + self.planned > 0:
            verdict = "no progress: no step was kept"
        tokens = self._tokens(totals["train"])
        ettr = totals["train"] / wall if wall > 0 else 0.0
        hits = self.interruptions
        return RunResult(
            wall_s=wall, ettr=ettr, goodput_tokens_per_s=tokens / wall if wall > 0 else 0.0, interruptions=hits,
            interruptions_planned=self.planned, effective_mfu=None if prepared.mfu is None else prepared.mfu * ettr,
            gpu_hours=scenario.cluster.gpus * wall / 3600, steps=self.ledger.steps, tokens=tokens,
            lost_work_s=totals["rework"], steps_lost=self._steps_lost, nodes_down_p99=self.fleet.down_quantile(0.99),
            mtti_s=wall / hits if hits else None, ledger_s=totals, down_s=dict(self.fleet.down_s), verdict=verdict,
            hopeless=self.patience.hopeless, log=self.log,
        )  # fmt: skip
