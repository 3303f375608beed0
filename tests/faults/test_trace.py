"""A log played again is the log; resampled it keeps its rate and what happens together."""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersim.distributions import Constant
from clustersim.faults.failure import FailureModel
from clustersim.faults.fit.describe import describe, down_profile
from clustersim.faults.fit.log import read_log
from clustersim.faults.process import Site
from clustersim.faults.simulate import simulate_log
from clustersim.hardware.cluster import Cluster
from clustersim.rng import stream

DAY = 86400.0
FILE = str(resources.files("clustersim.faults") / "data" / "infinitehbd.csv")


def cluster(nodes: int) -> Cluster:
    return Cluster.model_validate({"nodes": nodes, "node": "dgx-h100", "storage": "tectonic"})


def trace(**keys: Any) -> FailureModel:
    return FailureModel.build({"kind": "trace", "name": "log", "file": FILE, "nodes_watched": 400, **keys})


def test_replay_is_the_log_itself() -> None:
    log = read_log(FILE, population=400)
    played = simulate_log([trace()], cluster(400), log.window_s)
    assert [int(played.nodes[node]) for node in played.node] == log.node.tolist()
    assert np.array_equal(played.start_s, log.start_s)
    assert np.allclose(played.end_s, log.end_s, rtol=0, atol=1e-6)
    assert played.classes == log.classes
    before, after = down_profile(log), down_profile(played)
    assert np.array_equal(before[1], after[1])
    first, second = describe(log).row(), describe(played).row()
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert second[key] == pytest.approx(value, rel=1e-9), key


def test_a_smaller_cluster_has_only_its_nodes() -> None:
    log = read_log(FILE, population=400)
    played = simulate_log([trace()], cluster(50), log.window_s)
    assert len(played) == int((log.node < 50).sum())


def test_after_the_window_nothing_happens() -> None:
    source = trace().arrivals(site(400, 700))
    count = 0
    while source.next_s < float("inf"):
        source.pop()
        count += 1
    assert count == 584


def site(nodes: int, days: float, replica: int = 0) -> Site:
    return Site(cluster(nodes), nodes, functools.partial(stream, 0, replica), Constant(value=DAY), None, days * DAY)


@pytest.mark.parametrize(("nodes", "days"), [(128, 349), (400, 1000), (1000, 349)])
def test_resampling_keeps_rate_and_togetherness(nodes: int, days: int) -> None:
    logs = [simulate_log([trace(resample={"block": "7 d"})], cluster(nodes), days * DAY, replica=replica) for replica in range(12)]
    rate = [len(log) / (nodes * days) for log in logs]
    # 49 blocks with 12 ± 11 faults: the relative spread of a replica's total is at most 11/12/√(days/7).
    assert np.mean(rate) == pytest.approx(584 / 400 / 348.98, rel=4 * 0.95 / np.sqrt(days / 7) / np.sqrt(12))
    shares = [describe(log).cooccurrence for log in logs]
    if nodes == 400:
        assert np.mean([share for share in shares if share is not None]) == pytest.approx(0.27, abs=0.06)


def test_open_ends_last_to_the_end_of_the_log(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("node,start_s,end_s\na,10,\nb,20,30\n", encoding="utf-8")
    cause = FailureModel.build({"kind": "trace", "file": str(file), "window": 100.0, "detection": 60.0})
    source = cause.arrivals(site(2, 1))
    first, second = source.pop(), source.pop()
    assert (first.time_s, first.detection_s + first.repair_s) == (10, 90)
    assert (second.detection_s, second.repair_s) == (10, 0)  # noticed no later than it is over
