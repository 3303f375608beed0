"""Nodes, spares, repair: every node in one state, and the closed forms of repair queues."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.run.cluster import Fleet, State
from clustersim.run.prepared import Prepared
from clustersim.run.simulate import run_replica
from tests.run.synthetic import DAY, assert_mean, build


def check(fleet: Fleet) -> None:
    """Every node is in one state, and in one place if it works, has failed, or is a spare."""
    nodes = len(fleet._where)
    assert sum(fleet.counts) == nodes
    for state in State:
        assert fleet.counts[state] == sum(fleet.state(node) == state for node in range(nodes))
    held = [node for node in (*fleet.places, *fleet.slots) if node >= 0]
    assert len(set(held)) == len(held) == fleet.counts[0] + fleet.counts[1] + fleet.counts[4]
    assert len(fleet.vacant) == fleet.places.count(-1)
    for place, node in enumerate(fleet.places):
        assert node < 0 or fleet.place_of(node) == place
    for slot, node in enumerate(fleet.slots):
        assert node < 0 or fleet.slot_of(node) == slot


@settings(max_examples=80)
@given(
    st.integers(1, 5),
    st.integers(0, 4),
    st.one_of(st.none(), st.integers(1, 2)),
    st.lists(
        st.tuples(st.sampled_from(["fail", "spare", "fill", "wait", "pass"]), st.integers(0, 5), st.floats(0, 9)),
        max_size=40,
    ),
)
def test_no_node_is_ever_lost(nodes: int, spares: int, crews: int | None, moves: list[tuple[str, int, float]]) -> None:
    env = simpy.Environment()
    fleet = Fleet(env, nodes, spares, crews)
    for what, which, seconds in moves:
        if what == "fail" and fleet.working(which % nodes, which % nodes + 1):
            fleet.fail(which % nodes)
            check(fleet)
            fleet.remove(which % nodes, seconds)
        elif what == "spare":
            fleet.fail_spare(which, seconds)
        elif what == "fill":
            fleet.fill()
        elif what == "wait":
            fleet.waiter = lambda: None
        elif what == "pass":
            env.run(until=env.now + seconds + 1e-9)
        check(fleet)
        assert crews is None or fleet.counts[State.IN_REPAIR] <= crews
        assert crews is None or not fleet.counts[State.QUEUED] or fleet.counts[State.IN_REPAIR] == crews
    env.run()
    check(fleet)
    assert fleet.counts[State.IN_REPAIR] == fleet.counts[State.QUEUED] == 0


def down(scenario: Any, count: int, skip: float = 0.0) -> list[dict[int, float]]:
    """Share of the time with so many nodes down, a mapping a replica."""
    prepared = Prepared(scenario, 600.0)
    shares = []
    for replica in range(count):
        spent = run_replica(prepared, 5, replica, events=False).down_s
        total = sum(spent.values())
        shares.append({nodes: seconds / total for nodes, seconds in spent.items()})
    return shares


def node_failures(rate_per_day: float) -> list[dict[str, Any]]:
    return [{"component": "node", "severity": "node", "mtbf": DAY / rate_per_day, "detection": 0.0}]


@pytest.mark.parametrize(
    "repair", [DAY, {"kind": "exponential", "mean": DAY}, {"kind": "uniform", "low": 0.0, "high": 2 * DAY}]
)
def test_nodes_in_repair_are_poisson_whatever_the_repair(repair: Any) -> None:
    # M/G/∞: mean N r MTTR = 2048 · 0.0037887 · 1 = 7.75926; P(more than 13 down) = 2.7 % (13 spares for 5 %). The
    # first days fill up from 0: over T with constant repair the time mean is the limit × (1 − MTTR/2T); T = 400 d
    # leaves 0.13 %.
    scenario = build(
        nodes=2048,
        spares=100,
        failures=node_failures(0.0037887),
        repair=repair,
        duration=400 * DAY,
        during={"spare": False},
        checkpoint={"kind": "sync", "interval": 3600.0, "stall": 0.0},
    )
    shares = down(scenario, 30)
    means = [sum(n * share for n, share in each.items()) for each in shares]
    lag = {float: 0.5, str: 1.0}.get(
        type(repair), 1.0 if isinstance(repair, dict) and repair["kind"] == "exponential" else 2 / 3
    )
    assert_mean(means, 7.75926 * (1 - lag / 400), largest_error=0.01)
    for spares, most in ((13, 0.05), (15, 0.01), (18, 0.001)):
        over = [sum(share for n, share in each.items() if n > spares) for each in shares]
        exact = 1 - math.exp(-7.75926) * math.fsum(7.75926**n / math.factorial(n) for n in range(spares + 1))
        assert exact <= most < exact + math.exp(-7.75926) * 7.75926**spares / math.factorial(spares)
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
    ("spares", "rate", "exceeded", "mean"), [(2, 0.0065, 0.10083071, 1.0013022), (4, 0.0065, 0.017435686, 1.004954)]
)
def test_finite_crews_and_spares(spares: int, rate: float, exceeded: float, mean: float) -> None:
    # N 128, μ 1 a day and crew, 2 crews. A job that waits for its nodes still holds the others, which go on failing.
    shares = birth_death(128, spares, rate, 1.0, 2)
    assert math.fsum(shares[spares + 1 :]) == pytest.approx(exceeded, rel=1e-6)
    assert math.fsum(d * share for d, share in enumerate(shares)) == pytest.approx(mean, rel=1e-6)
    scenario = build(
        nodes=128,
        spares=spares,
        failures=node_failures(rate),
        repair={"kind": "exponential", "mean": DAY},
        crews=2,
        duration=10_000 * DAY,
        during={"spare": False},
    )
    found = down(scenario, 24)
    assert_mean([sum(n * share for n, share in each.items()) for each in found], mean, largest_error=0.01)
    over = [sum(share for n, share in each.items() if n > spares) for each in found]
    assert_mean(over, exceeded, largest_error=0.04)


def test_one_repair_shop_is_m_m_c() -> None:
    # Erlang C: 7.76 a day, 10 crews of 1 d: P(wait) 0.357704, mean time in system 1.159689 d, by Little 9.0 nodes down.
    load, crews = 7.76, 10
    blocked = load**crews / math.factorial(crews) / (1 - load / crews)
    wait = blocked / (math.fsum(load**k / math.factorial(k) for k in range(crews)) + blocked)
    assert wait == pytest.approx(0.357704, abs=1e-6)
    system = wait / (crews - load) + 1
    assert system == pytest.approx(1.159689, abs=1e-6)
    scenario = build(nodes=2048, spares=300, failures=node_failures(7.76 / 2048), crews=crews, duration=1500 * DAY,
                     repair={"kind": "exponential", "mean": DAY}, during={"spare": False})  # fmt: skip
    found = down(scenario, 40)
    assert_mean([sum(n * share for n, share in each.items()) for each in found], 7.76 * system, largest_error=0.01)
    waiting = [sum(share for n, share in each.items() if n >= crews) for each in found]  # arrivals see time averages
    assert_mean(waiting, wait, largest_error=0.02)


@pytest.mark.parametrize(
    ("need", "spares", "published"), [(128, 2, 0.9559225), (128, 4, 0.99871971), (1024, 8, 0.82738919)]
)
def test_k_of_n_up(need: int, spares: int, published: float) -> None:
    # All nodes alike (spares fail too), availability 0.994, independent: P(at least n up) is a binomial tail.
    from scipy.stats import binom

    exact = float(binom.sf(need - 1, need + spares, 0.994))
    assert exact == pytest.approx(published, abs=1e-6)
    up_s = 0.994 / 0.006 * DAY
    cause = {"component": "node", "severity": "node", "mtbf": up_s, "detection": 0.0}
    scenario = build(
        nodes=need, spares=spares, failures=[cause], repair={"kind": "exponential", "mean": DAY}, duration=1200 * DAY
    )
    found = [sum(share for n, share in each.items() if n <= spares) for each in down(scenario, 40)]
    assert_mean(found, exact, largest_error=0.005)


def test_one_more_spare_shifts_nobodys_failures() -> None:
    def failures(spares: int) -> list[float]:
        scenario = build(nodes=64, spares=spares, failures=node_failures(0.05), repair=DAY, duration=100 * DAY)
        entries = run_replica(Prepared(scenario, 600.0), 0, 0).log.entries()
        return [entry.time_s for entry in entries if entry.event == "failure"]

    few, many = failures(40), failures(41)
    assert few == many
    assert len(few) > 200


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
        firsts[age] = [min(source.next_s for source in prepared.arrivals(2, replica)) for replica in range(4000)]
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
    scenario = build(
        nodes=200, failures=[cause], duration=30 * DAY, checkpoint={"kind": "sync", "interval": 3600.0, "stall": 0.0}
    )
    prepared = Prepared(scenario, 600.0)
    counts = [float(run_replica(prepared, 4, replica, events=False).interruptions) for replica in range(60)]
    assert_mean(counts, 200 * 30 / 20, largest_error=0.02)
