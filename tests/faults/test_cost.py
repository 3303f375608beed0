"""What failures cost to simulate: counted in calls, which do not depend on the machine."""

from __future__ import annotations

import cProfile
import pstats
from typing import Any

import pytest

from clustersim.run.prepared import Prepared
from clustersim.run.simulate import run_replica
from clustersim.scenario.schema import Scenario

DAY = 86400.0
FLEET = {"kind": "fleet", "mtbf": 200 * DAY, "frailty": {"shape": 0.9},
         "recurrence": {"probability": 0.3, "delay": {"kind": "lognormal", "median": 25000.0, "sigma": 2.0}},
         "bursts": [{"followers": 0.15, "dispersion": 0.1, "shared_repair": 0.8}]}  # fmt: skip
SLOW = {"kind": "fail-slow", "component": "node", "mtbf": 400 * DAY, "depth": {"kind": "uniform", "low": 1.05, "high": 1.5},
        "length": {"kind": "exponential", "mean": 3600.0}, "watch": {"every": 60.0, "rounds": 10}}  # fmt: skip
FLAP = {"kind": "link-flap", "mtbf": 4000 * DAY, "outage": {"kind": "exponential", "mean": 30.0}}
SPIKE = {"kind": "loss-spike", "mtbf": 3 * DAY, "latency": 3600.0}


def calls_per_failure(nodes: int, days: float, causes: tuple[dict[str, Any], ...], **cluster: Any) -> float:
    given = Scenario.model_validate({
        "model": "llama3-8b", "cluster": {"nodes": nodes, "spare_nodes": nodes // 16, "node": "dgx-h100", "storage": "tectonic", **cluster},
        "training": {"seq_len": 8192, "global_batch": 8 * nodes, "micro_batch": 1, "duration": days * DAY},
        "parallelism": {"tp": 8}, "checkpoint": {"engine": "async", "interval": 600.0}, "failures": causes,
        "repair": {"time": {"kind": "exponential", "mean": DAY}},
    })  # fmt: skip
    prepared = Prepared(given, 10.0)
    profile = cProfile.Profile()
    result = profile.runcall(run_replica, prepared, 0, 0, False)
    assert result.interruptions > 150
    return float(pstats.Stats(profile).total_calls) / result.interruptions  # type: ignore[attr-defined]


@pytest.mark.parametrize("causes", [(FLEET,), (FLEET, SLOW, FLAP)], ids=["fleet", "all"])
def test_a_failure_costs_the_same_in_a_cluster_64_times_as_large(causes: tuple[dict[str, Any], ...]) -> None:
    # The same number of node-days, hence of failures: 512 nodes for 64 days, 32,768 for one.
    small, large = calls_per_failure(512, 64, causes), calls_per_failure(32768, 1, causes)
    assert large < small  # most nodes are not back from the shop within the day


def test_cold_spares_and_spikes_cost_little_beside_failures() -> None:
    plain = calls_per_failure(512, 64, (FLEET,))
    cold = calls_per_failure(512, 64, (FLEET,), cold_spare_nodes=4, power_up=600.0)
    spikes = calls_per_failure(512, 64, (FLEET, SPIKE))
    assert plain < 350
    assert cold < 1.2 * plain
    assert spikes < 1.2 * plain
