"""Statistics: against scipy, against theory, and by their own coverage over many synthetic studies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clustersim.study.statistics import (
    MINIMUM_REPLICAS,
    Target,
    difference,
    mean_interval,
    quantile,
    quantile_interval,
    replicas_to_decide,
    sd_of,
    summary,
)

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40)


@given(VALUES)
def test_interval_is_students(values: list[float]) -> None:
    interval = mean_interval(values)
    assert interval is not None
    if sd_of(values) > 1e-6:
        expected = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
        assert interval == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(VALUES, st.floats(0, 1))
def test_quantile_is_numpys(values: list[float], p: float) -> None:
    assert quantile(sorted(values), p) == pytest.approx(np.quantile(values, p), rel=1e-9, abs=1e-6)


@given(st.permutations([0.1, 1e9, -1e9, 0.3, 1e-3, 7.0]))
def test_order_of_replicas_cannot_show(values: list[float]) -> None:
    assert summary(values) == summary(sorted(values))


def test_undefined_values_are_left_out_and_never_nan() -> None:
    assert summary([None, None]) is None
    one = summary([None, 2.0])
    assert one == {"mean": 2.0, "sd": 0.0, "p05": 2.0, "p50": 2.0, "p95": 2.0, "ci95": None}


def test_coverage_of_mean_intervals_over_1000_studies() -> None:
    """1,000 studies of 20 replicas of a mildly skewed variable (gamma, shape 25: skewness 0.4).

    A binomial of p = 0.95 and n = 1,000 has a standard deviation of 0.7 points; the bound is 93 to 97 %.
    """
    rng = np.random.default_rng(5)
    hits = 0
    for values in rng.gamma(25.0, 1.0, (1000, MINIMUM_REPLICAS)):
        low, high = mean_interval([float(value) for value in values]) or (math.nan, math.nan)
        hits += low <= 25.0 <= high
    assert 930 <= hits <= 970


def test_coverage_of_the_stopping_rule_over_1000_studies() -> None:
    """Stopping as soon as the half-width is 1 % of the mean, from 20 replicas on, growing by half each round."""
    rng = np.random.default_rng(6)
    target, hits = Target("x", 0.01, True), 0
    for _ in range(1000):
        values = [float(value) for value in rng.normal(1.0, 0.03, MINIMUM_REPLICAS)]
        while not target.reached(values):
            values += [float(value) for value in rng.normal(1.0, 0.03, len(values) // 2)]
        low, high = mean_interval(values) or (math.nan, math.nan)
        hits += low <= 1.0 <= high
    assert 930 <= hits <= 970


def test_coverage_of_paired_differences_and_verdicts() -> None:
    """A common bad-luck term of sd 1 and a true difference of 0.02: pairing finds it, and undecided is rare."""
    rng = np.random.default_rng(7)
    covered, better = 0, 0
    for _ in range(1000):
        luck = rng.normal(0.9, 1.0, 20)
        a = [float(value) for value in luck + 0.02 + rng.normal(0, 0.01, 20)]
        b = [float(value) for value in luck + rng.normal(0, 0.01, 20)]
        found = difference("a", "b", "ettr", a, b)
        assert found is not None
        assert found.ci95 is not None
        covered += found.ci95[0] <= 0.02 <= found.ci95[1]
        better += found.verdict == "a"
    assert 930 <= covered <= 970
    assert better >= 995  # the effect is 6.3 standard errors: power above 0.9999


def test_false_verdicts_stay_at_five_percent() -> None:
    """No true difference: a verdict is an error of the first kind; 50 ± 4 × 6.9 of 1,000 by the binomial."""
    rng = np.random.default_rng(8)
    wrong = 0
    for _ in range(1000):
        a, b = rng.normal(0, 1, 20), rng.normal(0, 1, 20)
        found = difference("a", "b", "wall_s", [float(x) for x in a], [float(x) for x in b])
        assert found is not None
        wrong += found.verdict != "undecided"
    assert 22 <= wrong <= 78


def test_direction_of_better() -> None:
    low, high = [1.0, 1.1, 0.9], [2.0, 2.1, 1.9]
    assert difference("a", "b", "ettr", low, high).verdict == "b"  # type: ignore[union-attr]
    assert difference("a", "b", "wall_s", low, high).verdict == "a"  # type: ignore[union-attr]
    assert difference("a", "b", "ledger_s.detect", low, high).verdict == "undecided"  # type: ignore[union-attr]
    assert difference("a", "b", "ettr", [1.0], [2.0]) is None
    same = difference("a", "b", "ettr", low, low)
    assert same is not None
    assert same.verdict == "undecided"
    assert same.replicas_needed is None


def test_replicas_to_decide_solves_its_equation() -> None:
    more = replicas_to_decide(0.01, 0.05, 20)
    assert more is not None
    n = 20 + more
    assert stats.t.ppf(0.975, n - 1) * 0.05 / math.sqrt(n) <= 0.01
    assert stats.t.ppf(0.975, n - 4) * 0.05 / math.sqrt(n - 3) > 0.01
    assert replicas_to_decide(0.0, 1.0, 20) is None


def test_quantile_interval_covers() -> None:
    """Distribution-free: at least 95 % of 500 exponential samples of 200; the binomial's 4 sd below is 91.1 %."""
    rng = np.random.default_rng(9)
    truth, hits = -math.log(0.1), 0
    for values in rng.exponential(1.0, (500, 200)):
        low, high = quantile_interval([float(value) for value in values], 0.9) or (math.nan, math.nan)
        hits += low <= truth <= high
    assert hits >= 456
    assert quantile_interval([1.0] * 10, 0.95) is None


def test_target_needs_twenty_replicas() -> None:
    assert not Target("x", 1.0, False).reached([1.0] * (MINIMUM_REPLICAS - 1))
    assert Target("x", 1.0, False).reached([1.0] * MINIMUM_REPLICAS)
