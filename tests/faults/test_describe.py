"""The estimators on a log small enough to count by hand, and on the public trace against its published summary."""

from __future__ import annotations

from importlib import resources

import pytest

from clustersim.faults.fit.describe import (
    cooccurrence,
    describe,
    down_moments,
    down_quantiles,
    gaps_after_repair,
    lemons,
    merged_down,
    recurrence,
)
from clustersim.faults.fit.log import FaultLog, read_log

DAY = 86400.0


@pytest.fixture(scope="module")
def small() -> FaultLog:
    # a: down 0–10, again 15–20 (gap 5), then up to 100; b: down 10–30 from the moment a is back, open at the end from 90.
    return FaultLog.of(["a", "b", "a", "b"], [0, 10, 15, 90], [10, 30, 20, float("inf")], window_s=100, population=4)


def test_gaps(small: FaultLog) -> None:
    gaps, observed, following = gaps_after_repair(small)
    assert sorted(zip(gaps.tolist(), observed.tolist(), following.tolist(), strict=True)) == [
        (5.0, True, 2), (60.0, True, 3), (80.0, False, -1)]  # fmt: skip


def test_recurrence_and_cooccurrence(small: FaultLog) -> None:
    assert recurrence(small, 5.0) == pytest.approx(1 / 3)
    assert recurrence(small, 60.0) == pytest.approx(2 / 3)
    assert cooccurrence(small, 4.9) == 0.0
    assert cooccurrence(small, 5.0) == 0.5  # b at 10 and a at 15
    assert cooccurrence(small, 10.0) == 0.75


def test_nodes_down(small: FaultLog) -> None:
    # One node down in 0–15, two in 15–20, one in 20–30 and 90–100, none else: 60 s none, 35 s one, 5 s two.
    assert down_quantiles(small, (0.5, 0.6, 0.61, 0.95, 0.96)) == (0, 0, 1, 1, 2)
    mean, variance = down_moments(small)
    assert mean == pytest.approx(0.45)
    assert variance == pytest.approx((35 + 4 * 5) / 100 - 0.45**2)


def test_overlapping_down_times_count_once() -> None:
    log = FaultLog.of(["a", "a"], [0, 5], [10, 7], window_s=20)
    begins, ends = merged_down(log)
    assert (begins.tolist(), ends.tolist()) == ([0], [10])


def test_the_public_trace() -> None:
    log = read_log(str(resources.files("clustersim.faults") / "data" / "infinitehbd.csv"), population=400)
    found = describe(log)
    assert (found.faults, found.nodes_with_fault) == (584, 231)
    assert (found.down_p50, found.down_p90, found.down_p99) == (7, 22, 31)
    assert found.down_mean == pytest.approx(9.26, abs=0.005)
    assert found.per_1000_node_days == pytest.approx(4.1836, abs=2e-4)
    assert found.recurrence == pytest.approx(0.312, abs=1e-3)
    assert found.cooccurrence == pytest.approx(0.269, abs=1e-3)
    assert found.recurrence_independent == pytest.approx(0.029, abs=1e-3)
    assert found.cooccurrence_independent == pytest.approx(0.023, abs=1e-3)
    assert found.daily_dispersion == pytest.approx(3.43, abs=0.02)
    assert found.top_5pct_share == pytest.approx(0.245, abs=1e-3)
    assert log.window_s / DAY == pytest.approx(348.98, abs=1e-3)
    node, faults, chance = lemons(log)[0]
    assert (node, faults) == ("n188", 14)
    assert chance < 1e-5  # no ordinary node
