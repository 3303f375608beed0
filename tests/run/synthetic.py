"""Small scenarios with a given step time, for tests of the run: nothing in them depends on the step model."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from clustersim.faults.failure import FailureModel
from clustersim.faults.process import Arrivals, Hit, Site
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.run.simulate import run_replica
from clustersim.scenario.schema import Scenario

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
GPU = {"name": "unit", "memory": 1e15, "memory_bandwidth": 1e12, "peak": {"bf16": 1e15}, "sms": 100,
       "link_bandwidth_per_direction": 1e11, "pcie_bandwidth_per_direction": 1e11, "power": 500.0}  # fmt: skip
MODEL = {"layers": 1, "hidden": 64, "ffn_hidden": 256, "heads": 1, "vocab": 1000}


def build(
    *,
    nodes: int = 1,
    gpus: int = 1,
    spares: int = 0,
    failures: Sequence[dict[str, Any]] = (),
    checkpoint: Any = "none",
    stages: dict[str, Any] | None = None,
    recovery: dict[str, Any] | None = None,
    repair: Any = 1e-6,
    crews: int | None = None,
    during: dict[str, Any] | None = None,
    storage: dict[str, Any] | None = None,
    nodes_per_rack: int = 1,
    domain_gpus: int | None = None,
    **end: Any,
) -> Scenario:
    """A scenario of one-GPU-wide replicas; ``end`` is one of duration (s), steps, tokens. Bare numbers are SI."""
    node = {"gpu": GPU, "gpus": gpus, "nics": 1, "nic_bandwidth": 1e11, "intra_node": {"domain_gpus": domain_gpus}}
    fast = {"kind": "shared-filesystem", "write_bandwidth": 1e30, "read_bandwidth": 1e30, "latency": 0.0}
    return Scenario.model_validate({
        "model": MODEL, "parallelism": {"dp": nodes * gpus},
        "cluster": {"nodes": nodes, "spare_nodes": spares, "node": node, "storage": {**fast, **(storage or {})},
                    "nodes_per_rack": nodes_per_rack},
        "training": {"seq_len": 8, "global_batch": nodes * gpus, **end},
        "checkpoint": checkpoint, "failures": [dict(cause) for cause in failures],
        "recovery": {"kind": "restart", "stages": stages or {}, **(recovery or {})},
        "repair": {"crews": crews, "time": repair}, "failures_during": during or {},
    })  # fmt: skip


def job_failure(mtbf: float, detection: float = 0.0, **keys: Any) -> dict[str, Any]:
    """Exponential failures of the job as a whole that take no node."""
    return {"component": "job", "severity": "process", "mtbf": mtbf, "detection": detection, **keys}


def replicas(scenario: Scenario, step: float, count: int, seed: int = 1) -> list[RunResult]:
    """Results of the first replicas."""
    prepared = Prepared(scenario, step)
    return [run_replica(prepared, seed, index, events=False) for index in range(count)]


def assert_mean(values: Sequence[float], expected: float, largest_error: float = 0.0033) -> None:
    """The mean lies within 4 standard errors of ``expected``, and the standard error is small enough to tell.

    4 standard errors are exceeded by chance with a probability of 6e-5 under the normal law of the mean.
    """
    error = statistics.stdev(values) / math.sqrt(len(values))
    assert error <= largest_error * abs(expected), f"standard error {error / abs(expected):.2%} of {expected}"
    assert abs(statistics.fmean(values) - expected) <= 4 * error, (statistics.fmean(values), expected, error)


def ratio_of(values: Sequence[tuple[float, float]], expected: float, largest_error: float = 0.0033) -> None:
    """Like ``assert_mean`` for a ratio of means (delta method): sum of numerators ÷ sum of denominators."""
    top, bottom = math.fsum(a for a, _ in values), math.fsum(b for _, b in values)
    ratio, count = top / bottom, len(values)
    spread = math.sqrt(math.fsum((a - ratio * b) ** 2 for a, b in values) / (count - 1))
    error = spread / math.sqrt(count) / (bottom / count)
    assert error <= largest_error * abs(expected), f"standard error {error / abs(expected):.2%} of {expected}"
    assert abs(ratio - expected) <= 4 * error, (ratio, expected, error)


class Planted(FailureModel, kind="planted"):
    """Failures at given times (absolute seconds), for tests: each takes the place that stands beside its time."""

    times: tuple[float, ...] = ()
    place: int = 0
    lasting: float = 5.0

    def rate(self, site: Site) -> float:
        """Not part of any interval's optimum."""
        return 0.0

    def arrivals(self, site: Site) -> Arrivals | None:
        return PlantedArrivals(self) if site.block is None else None


class PlantedArrivals(Arrivals):
    """Hands out the times in order."""

    def __init__(self, cause: Planted) -> None:
        self._cause, self._left = cause, sorted(cause.times, reverse=True)
        self._advance()

    def _advance(self) -> None:
        self.next_s = self._left.pop() if self._left else math.inf

    def pop(self) -> Hit:
        cause = self._cause
        hit = Hit(self.next_s, cause, cause.place, cause.place + 1, cause.detection.mean_s(), cause.lasting)
        self._advance()
        return hit


def planted(*times: float, severity: str = "process", detection: float = 0.0, **keys: Any) -> dict[str, Any]:
    """Failures of the job, or of node 0, at given times."""
    component = "job" if severity in ("process", "cluster", "storage") else "node"
    return {
        "kind": "planted",
        "component": component,
        "severity": severity,
        "times": times,
        "detection": detection,
        **keys,
    }


def counted(prepared: Prepared) -> tuple[RunResult, int]:
    """A run, and the events that it took."""
    job = Job(prepared, 0, 0, events=False)
    result = job.run()
    assert job.clock.played > 0  # else nothing has been counted, and no bound on it could fail
    return result, job.clock.played
