"""The whole fit: parameters come back from simulated logs, and the public trace's figures from its fitted model."""

from __future__ import annotations

import math
from importlib import resources

import numpy as np
import pytest

from clustersim.distributions import Constant
from clustersim.faults.failure import FailureModel
from clustersim.faults.fit.calendar import best_edges, constant_rate_p
from clustersim.faults.fit.clusters import find_clusters, negative_binomial
from clustersim.faults.fit.describe import describe
from clustersim.faults.fit.lifetimes import Lifetimes, fit
from clustersim.faults.fit.log import FaultLog, read_log
from clustersim.faults.fit.model import FittedFailures, fit_failures
from clustersim.faults.fit.recurrent import fit_recurrent
from clustersim.faults.simulate import simulate_log
from clustersim.hardware.cluster import Cluster

DAY = 86400.0
CLUSTER = Cluster.model_validate({"nodes": 400, "node": "dgx-h100", "storage": "tectonic"})
TRUTH = {"rate": 1 / (250 * DAY), "frailty": 1.2, "probability": 0.3, "persistence": 0.45, "delay_shape": 0.5, "delay_scale": 2 * DAY}
FOLLOWERS, REPAIR_SHAPE, REPAIR_SCALE = 0.25, 0.6, 20 * 3600.0


def simulated(replica: int) -> FaultLog:
    cause = FailureModel.build({
        "kind": "fleet", "name": "f", "mtbf": 250 * DAY, "frailty": {"shape": 1.2},
        "recurrence": {"probability": 0.3, "persistence": 0.45, "delay": {"kind": "weibull", "shape": 0.5, "scale": 2 * DAY}},
        "bursts": [{"followers": FOLLOWERS, "dispersion": 0.5, "delay": {"kind": "exponential", "mean": 30.0}}],
        "repair": {"kind": "weibull", "shape": REPAIR_SHAPE, "scale": REPAIR_SCALE},
    })  # fmt: skip
    return simulate_log([cause], CLUSTER, 350 * DAY, replica=replica, repair=Constant(value=DAY))


def covered(replica: int) -> dict[str, bool]:
    """Which parameters lie in the intervals that one simulated log gives."""
    log = simulated(replica)
    clusters = find_clusters(log)
    joint = fit_recurrent(log, clusters, calendar=False, families=("weibull",))
    found = {name: low <= TRUTH[name] <= high for name, (low, high) in joint.ci95.items()}
    low, high = clusters.followers_ci95
    found["followers"] = low <= FOLLOWERS <= high
    repair = fit(Lifetimes.of(log.down_s, log.closed), "weibull")
    for name, value, (low, high) in zip(("repair_shape", "repair_scale"), (REPAIR_SHAPE, REPAIR_SCALE), repair.intervals, strict=True):
        found[name] = low <= value <= high
    return found


def shortfall(number: int) -> dict[str, int]:
    rows = [covered(replica) for replica in range(number)]
    return {name: sum(row[name] for row in rows) for name in rows[0]}


def test_intervals_cover_the_truth() -> None:
    # 4 logs: fewer than 2 of 4 at a coverage of 95 % happens in 5 of 10,000.
    assert all(count >= 2 for count in shortfall(4).values())


@pytest.mark.prove
def test_intervals_cover_the_truth_in_95_of_100() -> None:
    counts = shortfall(100)
    assert all(90 <= count <= 99 for count in counts.values()), counts


@pytest.fixture(scope="module")
def trace() -> FaultLog:
    return read_log(str(resources.files("clustersim.faults") / "data" / "infinitehbd.csv"), population=400)


@pytest.fixture(scope="module")
def fitted(trace: FaultLog) -> FittedFailures:
    return fit_failures(trace, intervals=False)


def medians(fitted: FittedFailures, replicas: int) -> dict[str, float]:
    rows = [describe(log).row() for log in fitted.simulate(replicas)]
    return {key: float(np.median([row[key] for row in rows])) for key in rows[0]}  # type: ignore[arg-type]


def test_the_fitted_trace_simulates_like_the_trace(fitted: FittedFailures) -> None:
    found = medians(fitted, 20)
    assert found["recurrence"] == pytest.approx(0.312, abs=0.05)
    assert found["cooccurrence"] == pytest.approx(0.269, abs=0.05)
    assert found["down_p50"] == pytest.approx(7, abs=3)
    assert found["faults"] == pytest.approx(584, rel=0.1)
    assert found["down_p99"] > 22  # independent failures: 17


@pytest.mark.prove
def test_nodes_down_of_the_fitted_trace(fitted: FittedFailures) -> None:
    # Medians over 200 replicas. The log's own 99th percentile, 31, lies within the replicas' 90 % range; the median of the model
    # is 27 (see docs/failures.md for what is not explained).
    found = medians(fitted, 200)
    assert found["recurrence"] == pytest.approx(0.312, abs=0.05)
    assert found["cooccurrence"] == pytest.approx(0.269, abs=0.05)
    assert found["down_p50"] == pytest.approx(7, abs=3)
    assert found["down_p90"] == pytest.approx(22, abs=3)


@pytest.mark.prove
@pytest.mark.xfail(strict=True, reason="known miss: the median of the model's 99th percentile is 27 (docs/failures.md)")
def test_the_99th_percentile_of_nodes_down_of_the_fitted_trace(fitted: FittedFailures) -> None:
    assert medians(fitted, 200)["down_p99"] == pytest.approx(31, abs=3)


def test_the_block_is_a_scenario_that_runs(fitted: FittedFailures) -> None:
    from ruamel.yaml import YAML

    from clustersim.run.prepared import Prepared
    from clustersim.run.simulate import run_replica
    from clustersim.scenario.schema import Scenario

    block = YAML(typ="safe").load(fitted.yaml())
    base = {"model": "llama3-8b", "cluster": {"nodes": 16, "spare_nodes": 4, "node": "dgx-h100", "storage": "tectonic"},
            "training": {"seq_len": 8192, "global_batch": 128, "duration": 30 * DAY}, "parallelism": {"tp": 2}}  # fmt: skip
    scenario = Scenario.model_validate({**base, **block}, context={})
    result = run_replica(Prepared(scenario, 10.0), 0, 0)
    assert 0 < result.ettr <= 1
    assert FailureModel.build(block["failures"][0]) == fitted.model()


def test_without_structure_none_is_found() -> None:
    cause = FailureModel.build({"kind": "fleet", "mtbf": 100 * DAY, "repair": {"kind": "exponential", "mean": DAY}})
    log = simulate_log([cause], CLUSTER, 200 * DAY)
    clusters = find_clusters(log)
    found = fit_recurrent(log, clusters, families=("weibull",))
    low, high = found.ci95["rate"]
    assert low < 1 / (100 * DAY) < high * 1.02
    assert found.frailty > 5  # the variance of the frailty is below 0.2
    assert found.probability < 0.05
    assert clusters.followers < 0.02
    assert len(found.calendar.factors) == 1
    assert constant_rate_p(log.start_s, log.window_s) > 1e-4


def test_change_points_are_found_where_the_rate_changes() -> None:
    rng = np.random.default_rng(4)
    times = np.concatenate([rng.uniform(0, 100 * DAY, 100), rng.uniform(100 * DAY, 120 * DAY, 120), rng.uniform(120 * DAY, 300 * DAY, 180)])
    edges = best_edges(times, 300 * DAY)
    inner = edges[1:-1] / DAY
    assert min(abs(inner - 100)) <= 5
    assert min(abs(inner - 120)) <= 5
    assert len(inner) <= 5
    assert constant_rate_p(times, 300 * DAY) < 1e-6
    assert constant_rate_p(rng.uniform(0, 1, 400), 1.0) > 1e-3


def test_negative_binomial_by_its_moments() -> None:
    rng = np.random.default_rng(5)
    drawn = rng.negative_binomial(0.5, 0.5 / (0.5 + 0.3), 20000).astype(float)
    mean, dispersion, (low, high) = negative_binomial(drawn)
    assert mean == pytest.approx(drawn.mean())
    assert low < 0.3 < high
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(drawn.var() / 20000), rel=0.1)
    assert dispersion == pytest.approx(0.5, rel=0.2)
    assert negative_binomial(np.zeros(50))[0] == 0.0
