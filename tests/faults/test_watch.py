"""Detectors: the mean that each states is the mean of what it draws; stragglers are found as the rule says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clustersim.distributions import Distribution
from clustersim.faults.watch import StragglerWatch

DETECTORS = [
    {"kind": "exit-code", "react": {"kind": "exponential", "mean": 60.0}, "localise": 30.0},
    {"kind": "heartbeat", "every": 10.0, "missed": 3},
    {"kind": "inspection", "every": 30.0, "catch": 0.6, "confirm": 2, "takes": 1.0},
    {"kind": "collective-timeout"},
    {"kind": "collective-timeout", "timeout": 900.0, "localise": {"kind": "uniform", "low": 0.0, "high": 600.0}},
    {"kind": "mixture", "of": [60.0, {"kind": "collective-timeout"}], "weights": [9, 1]},
    {"kind": "first-of", "of": [{"kind": "heartbeat", "every": 20.0}, {"kind": "exponential", "mean": 60.0}]},
]


@pytest.mark.parametrize("data", DETECTORS, ids=lambda data: data["kind"])
def test_the_mean_is_that_of_the_draws(data: dict[str, object]) -> None:
    detector = Distribution.build(data)
    drawn = detector.draw(np.random.default_rng(11), 50000)
    spread = float(drawn.std())
    assert drawn.mean() == pytest.approx(detector.mean_s(), abs=4 * spread / math.sqrt(len(drawn)) * 1.2 + 1e-9)
    assert (drawn >= 0).all()


def test_a_hang_waits_for_the_ten_minutes_of_the_time_out() -> None:
    assert Distribution.build("collective-timeout").mean_s() == 600.0


def test_a_heartbeat_is_lost_between_two_beats() -> None:
    drawn = Distribution.build({"kind": "heartbeat", "every": 10.0, "missed": 3}).draw(np.random.default_rng(0), 10000)
    assert 20.0 <= drawn.min() < 20.1
    assert 29.9 < drawn.max() <= 30.0


def test_a_shallow_or_short_episode_is_not_noticed() -> None:
    watch, rng = StragglerWatch(threshold=1.1, every=10.0, rounds=5), np.random.default_rng(0)
    assert watch.notice(1.05, 1e9, rng) is None
    assert watch.notice(1.5, 39.0, rng) is None
    noticed = [watch.notice(1.5, 3600.0, rng) for _ in range(500)]
    assert all(time is not None and 40 <= time < 50 for time in noticed)


def test_rounds_must_follow_each_other() -> None:
    # Mean number of looks until r hits in a row: (1 - pʳ) / ((1 - p) pʳ) = 6 for p = 1/2, r = 2.
    watch, rng = StragglerWatch(every=1.0, rounds=2, catch=0.5), np.random.default_rng(0)
    times = [watch.notice(2.0, 1e9, rng) for _ in range(20000)]
    assert np.mean([time for time in times if time is not None]) == pytest.approx(6 - 1 + 0.5, abs=4 * 4.7 / math.sqrt(20000))


def test_the_wrong_node_is_blamed_as_often_as_stated() -> None:
    watch, rng = StragglerWatch(wrong_node=0.2), np.random.default_rng(1)
    blamed = [watch.blame(rng) for _ in range(10000)]
    share = sum(each is not None for each in blamed) / 10000
    assert share == pytest.approx(0.2, abs=4 * 0.4 / 100)
