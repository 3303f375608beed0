"""Closed forms of repair and of superposed failures: M/G/∞, finite crews, Erlang C, k of n, fresh and stationary nodes.

The sheet of analytic checks gives the values; each test recomputes them. Small versions run always, the full ones,
with a standard error of at most 0.33 %, under `make prove`.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest

from clustersim.run.prepared import Prepared
from clustersim.run.simulate import run_replica
from tests.run.synthetic import DAY, assert_mean, build

EXPONENTIAL, UNIFORM = {"kind": "exponential", "mean": DAY}, {"kind": "uniform", "low": 0.0, "high": 2 * DAY}


def proof(*values: Any) -> Any:
    """A parameter set of `make prove`."""
    return pytest.param(*values, marks=pytest.mark.prove)


def node_failures(rate_per_day: float) -> list[dict[str, Any]]:
    return [{"component": "node", "severity": "node", "mtbf": DAY / rate_per_day, "detection": 0.0}]


def down(scenario: Any, count: int) -> list[dict[int, float]]:
    """Share of the time with so many nodes down, a mapping a replica."""
    prepared = Prepared(scenario, 600.0)
    shares = []
    for replica in range(count):
        spent = run_replica(prepared, 5, replica, events=False).down_s
        total = sum(spent.values())
        shares.append({nodes: seconds / total for nodes, seconds in spent.items()})
    return shares


def mean_down(shares: list[dict[int, float]]) -> list[float]:
    """Time mean of the nodes down, a replica each."""
    return [sum(n * share for n, share in each.items()) for each in shares]


@pytest.mark.parametrize(
    ("repair", "lag", "count", "largest_error"),
    [
        (UNIFORM, 2 / 3, 6, 0.015),
        proof(DAY, 0.5, 80, 0.0033),
        proof(EXPONENTIAL, 1.0, 80, 0.0033),
        proof(UNIFORM, 2 / 3, 80, 0.0033),
    ],
)
def test_nodes_in_repair_are_poisson_whatever_the_repair(
    repair: Any, lag: float, count: int, largest_error: float
) -> None:
    # M/G/∞: mean N r MTTR = 2048 · 0.0037887 · 1 = 7.75926; 13, 15 and 18 spares keep a shortage below 5, 1 and 0.1 %.
    # The first days fill up from 0: over T the time mean is the limit × (1 − E[R²]/(2 E[R] T)), T = 400 d.
    scenario = build(nodes=2048, spares=100, failures=node_failures(0.0037887), repair=repair, duration=400 * DAY,
                     during={"spare": False})  # fmt: skip
    shares = down(scenario, count)
    assert_mean(mean_down(shares), 7.75926 * (1 - lag / 400), largest_error)
    for spares, most in ((13, 0.05), (15, 0.01), (18, 0.001)):
        over = [sum(share for n, share in each.items() if n > spares) for each in shares]
        terms = [math.exp(-7.75926) * 7.75926**n / math.factorial(n) for n in range(spares + 1)]
        exact = 1 - math.fsum(terms)
        assert exact <= most < exact + terms[-1]
        error = statistics.stdev(over) / math.sqrt(len(over))
        assert abs(statistics.fmean(over) - exact) <= 4 * error + exact / 200


def birth_death(nodes: int, spares: int, rate: float, repair: float, crews: int) -> list[float]:
    """Stationary shares of the number down: up min(N, N + S − d) λ, down min(c, d) μ."""
    weights = [1.0]
    for d in range(1, nodes + spares + 1):
        weights.append(weights[-1] * min(nodes, nodes + spares - d + 1) * rate / (min(crews, d) * repair))
    total = math.fsum(weights)
    return [weight / total for weight in weights]


@pytest.mark.parametrize(
    ("spares", "exceeded", "mean", "count", "largest_error"),
    [
        (2, 0.10083071, 1.0013022, 6, 0.02),
        proof(2, 0.10083071, 1.0013022, 120, 0.0033),
        proof(4, 0.017435686, 1.004954, 120, 0.0033),
    ],
)
def test_finite_crews_and_spares(spares: int, exceeded: float, mean: float, count: int, largest_error: float) -> None:
    # N 128, λ 0.0065 a day, μ 1 a day and crew, 2 crews. A job that waits still holds its other nodes, which go on
    # failing.
    shares = birth_death(128, spares, 0.0065, 1.0, 2)
    assert math.fsum(shares[spares + 1 :]) == pytest.approx(exceeded, rel=1e-6)
    assert math.fsum(d * share for d, share in enumerate(shares)) == pytest.approx(mean, rel=1e-6)
    scenario = build(nodes=128, spares=spares, failures=node_failures(0.0065), repair=EXPONENTIAL, crews=2,
                     duration=3000 * DAY, during={"spare": False})  # fmt: skip
    found = down(scenario, count)
    # Running nodes fail while the others are repaired; the start with all nodes up costs under 0.1 % over 3,000 d.
    means = mean_down(found)
    error = statistics.stdev(means) / math.sqrt(count)
    assert error <= 2 * largest_error * mean
    assert abs(statistics.fmean(means) - mean) <= 4 * error + 0.001 * mean
    over = [sum(share for n, share in each.items() if n > spares) for each in found]
    error = statistics.stdev(over) / math.sqrt(count)
    assert error <= 10 * largest_error * exceeded
    assert abs(statistics.fmean(over) - exceeded) <= 4 * error


@pytest.mark.prove
def test_large_fleets_with_few_crews() -> None:
    # N 2,048, S 32, λ 0.0065 a day, μ 0.5, 50 crews: P(down > S) 0.12850691, mean 26.618457.
    shares = birth_death(2048, 32, 0.0065, 0.5, 50)
    assert math.fsum(shares[33:]) == pytest.approx(0.12850691, rel=1e-6)
    scenario = build(nodes=2048, spares=32, failures=node_failures(0.0065), crews=50, duration=600 * DAY,
                     repair={"kind": "exponential", "mean": 2 * DAY}, during={"spare": False})  # fmt: skip
    found = down(scenario, 40)
    assert_mean(mean_down(found), 26.618457 * (1 - 2 / 600), 0.0033)
    over = [sum(share for n, share in each.items() if n > 32) for each in found]
    assert_mean(over, 0.12850691, 0.04)


@pytest.mark.parametrize(("count", "largest_error"), [(6, 0.06), proof(260, 0.0033)])
def test_one_repair_shop_is_m_m_c(count: int, largest_error: float) -> None:
    # Erlang C: 7.76 a day, 10 crews of 1 d: P(wait) 0.357704, mean time in system 1.159689 d, by Little 9.0 nodes down.
    load, crews, days = 7.76, 10, 600
    blocked = load**crews / math.factorial(crews) / (1 - load / crews)
    wait = blocked / (math.fsum(load**k / math.factorial(k) for k in range(crews)) + blocked)
    assert wait == pytest.approx(0.357704, abs=1e-6)
    system = wait / (crews - load) + 1
    assert system == pytest.approx(1.159689, abs=1e-6)
    scenario = build(nodes=2048, spares=300, failures=node_failures(load / 2048), crews=crews, duration=days * DAY,
                     repair=EXPONENTIAL, during={"spare": False})  # fmt: skip
    means = mean_down(down(scenario, count))
    error = statistics.stdev(means) / math.sqrt(count)
    assert error <= largest_error * load * system
    # The shop starts empty: the mean falls short by about the time to fill up ÷ the run, here under 0.3 %.
    assert abs(statistics.fmean(means) - load * system) <= 4 * error + 0.003 * load * system


@pytest.mark.parametrize(
    ("need", "spares", "published", "days", "count", "largest_error"),
    [
        (128, 2, 0.9559225, 600, 12, 0.005),
        proof(128, 2, 0.9559225, 1200, 60, 0.0033),
        proof(128, 4, 0.99871971, 1200, 30, 0.0033),
        proof(1024, 8, 0.82738919, 600, 60, 0.0033),
    ],
)
def test_k_of_n_up(need: int, spares: int, published: float, days: int, count: int, largest_error: float) -> None:
    # All nodes alike (spares fail too), availability 0.994, independent: P(at least n up) is a binomial tail. A job
    # that is short waits for its nodes, which leaves the hazard of the others as it is. All are up at the start,
    # which the mean over the run forgets within about a repair time: 1 d ÷ run × the probability of being short.
    from scipy.stats import binom

    exact = float(binom.sf(need - 1, need + spares, 0.994))
    assert exact == pytest.approx(published, abs=1e-6)
    cause = {"component": "node", "severity": "node", "mtbf": 0.994 / 0.006 * DAY, "detection": 0.0}
    scenario = build(nodes=need, spares=spares, failures=[cause], repair=EXPONENTIAL, duration=days * DAY)
    found = [sum(share for n, share in each.items() if n <= spares) for each in down(scenario, count)]
    assert_mean(found, exact, largest_error)


def test_fresh_and_stationary_weibull_superposition() -> None:
    # n new Weibull nodes of shape 0.7 and mean 100 d: first failure after η Γ(1 + 1/k) n^{−1/k} = 0.12017 h on
    # average for n = 1,024; in the steady state after about mean/n = 2.34375 h (the residual of one gap has the
    # density S(t)/mean).
    cause = {"component": "node", "severity": "process", "mtbf": 100 * DAY, "distribution": "weibull", "shape": 0.7}
    exact = 100 * DAY * 1024 ** (-1 / 0.7)
    assert exact / 3600 == pytest.approx(0.12017, abs=1e-5)
    firsts: dict[str, list[float]] = {}
    for age in ("new", "stationary"):
        scenario = build(nodes=1024, failures=[{**cause, "age": age}], duration=DAY)
        prepared = Prepared(scenario, 600.0)
        firsts[age] = [min(source.next_s for source in prepared.arrivals(2, replica)) for replica in range(3500)]
    assert_mean(firsts["new"], exact, largest_error=0.03)
    grid = np.linspace(0, 40 * 3600, 20_001)
    scale = 100 * DAY / math.gamma(1 + 1 / 0.7)
    survival = np.exp(-((grid / scale) ** 0.7))
    residual = 1 - np.concatenate([[0], np.cumsum((survival[1:] + survival[:-1]) / 2 * np.diff(grid))]) / (100 * DAY)
    assert_mean(firsts["stationary"], float(np.trapezoid(residual**1024, grid)), largest_error=0.03)


@pytest.mark.parametrize(
    ("distribution", "shape"), [("weibull", 0.7), ("weibull", 2.0), ("gamma", 0.5), ("lognormal", 1.2)]
)
def test_stationary_renewals_keep_their_rate_from_the_first_day(distribution: str, shape: float) -> None:
    cause = {"component": "node", "severity": "process", "mtbf": 20 * DAY, "distribution": distribution, "shape": shape}
    scenario = build(nodes=200, failures=[cause], duration=30 * DAY)
    prepared = Prepared(scenario, 600.0)
    counts = [float(run_replica(prepared, 4, replica, events=False).interruptions) for replica in range(20)]
    assert_mean(counts, 200 * 30 / 20, largest_error=0.03)
