"""What all replicas of a scenario share: step time, bytes, transfers, intervals, sources of failures. Built once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clustersim.checkpoint.engine import Load, SaveSite, Transfer
from clustersim.checkpoint.interval import Costs, Every
from clustersim.checkpoint.pattern import Outlay, Pace, Pattern, outlay
from clustersim.checkpoint.state import state_bytes
from clustersim.faults.failure import FailureModel, FailuresDuring, Severity
from clustersim.faults.process import SPARE_BLOCK, Arrivals, Site
from clustersim.rng import stream
from clustersim.run.pace import Paces, Step
from clustersim.run.storage import alone_s


def distinct(causes: tuple[FailureModel, ...]) -> tuple[FailureModel, ...]:
    """The causes with names made distinct, since streams are told apart by name (``x``, ``x#2``, …)."""
    seen: dict[str, int] = {}
    named = []
    for cause in causes:
        seen[cause.name] = count = seen.get(cause.name, 0) + 1
        named.append(cause if count == 1 else cause.model_copy(update={"name": f"{cause.name}#{count}"}))
    return tuple(named)


@dataclass
class Prepared:
    """A scenario made ready to be run many times.

    Args:
        scenario: a validated scenario.
        step: see ``Paces``; None: the step model says.
        jump: cross undisturbed stretches by arithmetic; False: an event for every save (the same answer, for tests).
    """

    scenario: Any
    step: Step | None = None
    jump: bool = True
    paces: Paces = field(init=False)
    pace: Pace = field(init=False)
    mfu: float | None = field(init=False)
    target_steps: float = field(init=False)
    horizon_s: float = field(init=False)
    causes: tuple[FailureModel, ...] = field(init=False)
    during: FailuresDuring = field(init=False)
    transfers: tuple[Transfer, ...] = field(init=False)
    transfer_s: tuple[float, ...] = field(init=False)
    save: Outlay | None = field(init=False)
    load: Load = field(init=False)
    mtbf_s: float = field(init=False)
    every: Every = field(init=False)

    def __post_init__(self) -> None:
        scenario = self.scenario
        self.paces = Paces(scenario, self.step, scenario.checkpoint.slowdown)
        self.pace, self.mfu = self.paces.nominal, self.paces.mfu
        self.during = scenario.failures_during
        self.causes = distinct(scenario.failures)
        self._end()
        self._saves()

    def _end(self) -> None:
        training = self.scenario.training
        steps: float = training.steps or math.inf
        if training.tokens is not None:
            steps = math.ceil(training.tokens / training.tokens_per_step - 1e-9)
        self.target_steps = steps
        self.horizon_s = training.duration or math.inf

    def _saves(self) -> None:
        scenario = self.scenario
        cluster, engine = scenario.cluster, scenario.checkpoint
        site = SaveSite(state_bytes(scenario.model, scenario.training, scenario.parallelism, cluster.gpus), cluster)
        self.state = site.state
        self.transfers = engine.save(site)
        self.transfer_s = tuple(self._alone_s(transfer) for transfer in self.transfers)
        self.save = outlay(self.transfers, self.transfer_s) if self.transfers else None
        self.load = engine.load(site)
        self.load_s = self.load.seconds
        if self.load.bytes:
            limit = self.load.per_client or math.inf
            self.load_s += alone_s(cluster.storage, self.load.bytes, "read", self.load.clients, limit)
        rate = math.fsum(cause.rate(self.job_site()) for cause in self.causes if cause.severity != Severity.STORAGE)
        self.mtbf_s = 1 / rate if rate > 0 else math.inf
        cost = self.save or Outlay(0.0, ())
        self.every = (
            Every() if self.save is None else engine.interval.resolve(Costs(cost.stall_s, cost.busy_s, self.mtbf_s))
        )
        self.pattern = self.pattern_at(self.pace)

    def _alone_s(self, transfer: Transfer) -> float:
        if transfer.channel == "local":
            return transfer.seconds
        cluster = self.scenario.cluster
        return transfer.seconds + alone_s(cluster.storage, transfer.bytes, "write", cluster.nodes)

    def pattern_at(self, pace: Pace) -> Pattern:
        """What repeats at a pace."""
        return Pattern.of(self.every, pace, self.save, self.scenario.checkpoint.when_busy)

    @property
    def nominal_s(self) -> float:
        """Wall time of the run if nothing went wrong and nothing was saved; inf where a duration ends it."""
        return self.target_steps * self.pace.step_s

    def job_site(self, seed: int = 0, replica: int = 0) -> Site:
        """The job's places, with the streams of one replica."""

        def streams(name: str, *ids: int) -> np.random.Generator:
            return stream(seed, replica, name, *ids)

        return Site(self.scenario.cluster, self.scenario.cluster.nodes, streams, self.scenario.repair.time,
                    horizon_s=self.horizon_s)  # fmt: skip

    def arrivals(self, seed: int, replica: int) -> list[Arrivals]:
        """All sources of failures of one replica: the job's places cause by cause, then blocks of spare places."""
        job = self.job_site(seed, replica)
        sites = [job]
        spares = self.scenario.cluster.spare_nodes if self.during.spare else 0
        sites += [Site(job.cluster, SPARE_BLOCK, job.streams, job.repair, block, self.horizon_s)
                  for block in range(math.ceil(spares / SPARE_BLOCK))]  # fmt: skip
        found = (cause.arrivals(site) for site in sites for cause in self.causes)
        return [arrivals for arrivals in found if arrivals is not None]
