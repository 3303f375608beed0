"""Failures of machines: each effect against what it should do to a fleet's log."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest

from clustersim.distributions import Constant
from clustersim.faults.failure import FailureModel
from clustersim.faults.fit.describe import gaps_after_repair, recurrence
from clustersim.faults.fit.log import FaultLog
from clustersim.faults.process import Change, Site
from clustersim.faults.simulate import simulate_log
from clustersim.hardware.cluster import Cluster
from clustersim.rng import stream

DAY = 86400.0


def cluster(nodes: int, **extra: Any) -> Cluster:
    return Cluster.model_validate({"nodes": nodes, "node": "dgx-h100", "storage": "tectonic", **extra})


def log_of(nodes: int, days: float, replica: int = 0, *, racks: int = 4, **keys: Any) -> FaultLog:
    cause = FailureModel.build({"kind": "fleet", "name": "f", "mtbf": 100 * DAY, **keys})
    return simulate_log([cause], cluster(nodes, nodes_per_rack=racks), days * DAY, replica=replica,
                        repair=Constant(value=DAY))  # fmt: skip


def test_nodes_down_are_those_of_a_finite_source() -> None:
    # A node is down a share r/(m+r) of the time whatever the law of either: 2,000 nodes, 100 d up, 1 d down. The counts of
    # faults are renewal counts: variance of the total about n·T·r²... bounded by Poisson's, so 4/√faults is generous.
    log = log_of(2000, 400)
    down = float(log.down_s.sum()) / log.window_s
    assert down == pytest.approx(2000 / 101, rel=4 / math.sqrt(len(log)))


@pytest.mark.parametrize("keys", [{}, {"lifetime": {"kind": "weibull", "shape": 0.6}}, {"lifetime": {"kind": "gamma", "shape": 0.4}},
                                  {"lifetime": {"kind": "lognormal", "shape": 1.0}}])  # fmt: skip
def test_stationary_units_keep_their_rate_from_the_first_day(keys: dict[str, Any]) -> None:
    # The first 4 days of 20,000 stationary nodes hold n·T/m faults whatever the lifetime (repairs are far off).
    log = log_of(20000, 4, repair=1000 * DAY, **keys)
    assert len(log) == pytest.approx(800 - 0.5 * 800 * 4 / 100, abs=4 * math.sqrt(800))


def test_new_weibull_units_fail_early() -> None:
    # n new Weibull units: the first failure of the fleet is at η Γ(1+1/k) n^(-1/k) in the mean: 0.12017 h for k = 0.7, mean
    # 100 d, n = 1,024. It is itself Weibull of shape k: relative standard error √(Γ(1+2/k)/Γ(1+1/k)² - 1)/√replicas = 5.2 %.
    first = [log_of(1024, 1, replica, ages="new", lifetime={"kind": "weibull", "shape": 0.7}).start_s[0] for replica in range(200)]
    assert np.mean(first) / 3600 == pytest.approx(0.12017, rel=4 * 1.463 / math.sqrt(200))


def test_frailty_makes_counts_negative_binomial() -> None:
    # Faults of a node in T: variance = mean + mean²/k. The bound on the variance is from the fourth moment of the sample.
    log = log_of(8000, 300, frailty={"shape": 0.9}, repair=60.0)
    count = np.bincount(log.node, minlength=8000)[:8000].astype(float)
    count = np.concatenate([count[: len(log.nodes)], np.zeros(8000 - len(log.nodes))])
    mean = 3.0
    assert count.mean() == pytest.approx(mean, rel=4 * math.sqrt((1 / mean + 1 / 0.9) / 8000))
    fourth = ((count - count.mean()) ** 4).mean()
    assert count.var() == pytest.approx(mean + mean**2 / 0.9, abs=4 * math.sqrt((fourth - count.var() ** 2) / 8000))


def test_a_repair_that_does_not_hold_comes_back() -> None:
    log = log_of(4000, 200, recurrence={"probability": 0.3, "delay": 3600.0}, repair=DAY / 4)
    found = recurrence(log, 2 * 3600.0)
    assert found is not None
    gaps, _, _ = gaps_after_repair(log)
    chance = 0.3 + 0.7 * 2 / 2400  # and the base hazard within two hours
    assert found == pytest.approx(chance, abs=4 * math.sqrt(0.21 / len(gaps)))


def test_persistence_and_haste() -> None:
    keys = {"recurrence": {"probability": 0.2, "persistence": 0.7, "delay": 3600.0, "haste": 0.25}, "repair": DAY / 4}
    log = log_of(4000, 200, **keys)
    gaps, observed, following = gaps_after_repair(log)
    again = np.zeros(len(log), dtype=bool)
    again[following[observed & (np.abs(gaps - 3600) < 1e-3)]] = True  # faults that came back
    order = np.lexsort((log.start_s, log.node))
    previous = {int(b): int(a) for a, b in itertools.pairwise(order) if log.node[a] == log.node[b]}
    failed = np.zeros(len(log), dtype=bool)
    for row in np.flatnonzero(again):
        failed[previous[int(row)]] = True
    for kind, chance in ((~again, 0.2), (again, 0.7)):
        assert failed[kind].mean() == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / kind.sum()) + 0.005)
    assert set(np.round(log.down_s[failed] / 3600, 6)) == {1.5}
    held = log.down_s[~failed & log.closed] / 3600  # but for those whose return another fault, or the end, forestalled
    assert np.isclose(held, 6.0).mean() > 0.998


def test_bursts_reach_their_domain_and_share_repairs() -> None:
    burst = {"followers": 1.0, "delay": 10.0, "domain": "rack", "shared_repair": 1.0}
    log = log_of(400, 60, racks=8, mtbf=2000 * DAY, bursts=[burst], repair={"kind": "exponential", "mean": 3600.0})
    names = np.array([int(log.nodes[node]) for node in log.node])
    followers = 0
    for row in range(1, len(log)):
        for earlier in range(row - 1, -1, -1):
            if log.start_s[row] - log.start_s[earlier] > 10.001:
                break
            if abs(log.start_s[row] - log.start_s[earlier] - 10) < 1e-6 and names[row] // 8 == names[earlier] // 8:
                followers += 1
                assert log.end_s[row] == pytest.approx(max(log.end_s[earlier], log.start_s[row]), abs=1e-5)
    primaries = 400 * 60 / 2000
    assert followers > primaries / 3


def test_a_calendar_moves_faults_in_time() -> None:
    calendar = [{"kind": "steps", "at": [0.0, 10 * DAY], "factors": [4.0, 1.0]}]
    for lifetime in ("exponential", {"kind": "weibull", "shape": 1.0}):
        log = log_of(5000, 20, calendar=calendar, lifetime=lifetime, repair=1.0)
        early = int((log.start_s < 10 * DAY).sum())
        assert early == pytest.approx(2000, abs=4 * math.sqrt(2000))
        assert len(log) - early == pytest.approx(500, abs=4 * math.sqrt(500))


def test_repair_goes_on_at_the_speed_of_the_calendar() -> None:
    speed = [{"kind": "steps", "at": [0.0, 10 * DAY], "factors": [0.1, 2.0]}]
    log = log_of(3000, 30, repair_speed=speed)
    early, late = log.start_s < 8 * DAY, log.start_s > 10 * DAY
    assert np.allclose(log.end_s[early], (10 + (1 - 0.1 * (10 - log.start_s[early] / DAY)) / 2) * DAY)
    assert np.allclose(log.end_s[late & log.closed] - log.start_s[late & log.closed], DAY / 2)


def arrivals_of(spares: int, **keys: Any) -> Any:
    cause = FailureModel.build({"kind": "fleet", "name": "f", "mtbf": 3 * DAY, **keys})
    site = Site(cluster(16, spare_nodes=spares), 16, functools.partial(stream, 0, 0), Constant(value=DAY), None, 30 * DAY)
    return cause.arrivals(site)


@pytest.mark.parametrize("keys", [{}, {"frailty": {"shape": 0.9}}, {"lifetime": {"kind": "weibull", "shape": 0.7}, "frailty": {"shape": 2}}])
def test_one_more_spare_shifts_no_other_machine(keys: dict[str, Any]) -> None:
    def hits(spares: int) -> list[tuple[float, int | None]]:
        source, found = arrivals_of(spares, **keys), []
        while source.next_s <= 30 * DAY and len(found) < 400:
            hit = source.pop()
            found.append((hit.time_s, hit.node))
        return found

    few, many = hits(3), hits(4)
    # A hit of which nothing is heard takes nothing down; units of the 20th machine are further numbers, not other ones.
    if "lifetime" in keys:
        first = {node: time for time, node in reversed(few)}
        assert {node: time for time, node in reversed(many) if node != 19}.items() >= first.items()
    else:
        assert [hit for hit in many if hit[1] != 19] == few


def test_a_cured_node_does_not_come_back() -> None:
    keys = {"recurrence": {"probability": 1.0, "delay": 3600.0}, "mtbf": 16 * DAY}
    for cure in (False, True):
        source = arrivals_of(0, **keys)
        hit = source.pop()
        source.observe(Change(hit.time_s, "failed", hit.node, hit.node))
        assert source.will_fail(hit.node)
        if cure:
            source.observe(Change(hit.time_s + 1, "cured", hit.node, -1))
        assert source.will_fail(hit.node) is not cure
        source.observe(Change(hit.time_s + DAY, "repaired", hit.node, -1))
        aimed = [(aim.node, aim.time_s) for aim in source._aims if aim.origin == "again"]
        assert aimed == ([] if cure else [(hit.node, pytest.approx(hit.time_s + DAY + 3600))])


def test_a_retired_lemon_is_replaced_by_an_ordinary_machine() -> None:
    source = arrivals_of(0, frailty={"shape": 0.3})
    base = source._bases[0]
    before = base._weights.copy()
    source.observe(Change(0.0, "retired", 5, -1))
    assert base._weights[5] != before[5]
    assert np.array_equal(np.delete(base._weights, 5), np.delete(before, 5))
    assert base._total == pytest.approx(base._weights.sum())


def test_the_rate_that_intervals_are_chosen_by() -> None:
    cause = FailureModel.build({"kind": "fleet", "name": "f", "mtbf": 50 * DAY, "repair": 60.0,
                                "recurrence": {"probability": 0.3, "persistence": 0.5, "delay": 3600.0},
                                "bursts": [{"followers": 0.25}]})  # fmt: skip
    site = Site(cluster(1000), 1000, functools.partial(stream, 0, 0), Constant(value=DAY), None, 100 * DAY)
    log = simulate_log([cause], cluster(1000), 100 * DAY)
    # Clusters of faults: base Poisson, so the count's variance is below mean × (mean cluster size)² × 2.
    expected = cause.rate(site) * 100 * DAY
    assert len(log) == pytest.approx(expected, abs=4 * math.sqrt(expected * 2 * 2) + 0.02 * expected)


def test_a_million_machines_cost_no_more_than_their_failures() -> None:
    # Counted, not timed: draws made for the machines themselves are none without frailty, one vector with it.
    source = arrivals_of(0)
    assert source._bases[0]._weights is None
    assert not hasattr(source, "heap")
    assert source._aims == []


@pytest.mark.parametrize("shape", [0.001, 0.00674])
def test_machines_without_frailty_end_their_stream(shape: float) -> None:
    # The numbers of a block of 64 spares are drawn for all of them. Where one that does not exist has all the frailty, no fault
    # falls on those that do, however long one looks: 20 seeds ran for minutes.
    cause = FailureModel.build({"kind": "fleet", "name": "f", "mtbf": 100 * DAY, "frailty": {"shape": shape}})
    found = []
    for seed in range(20):
        site = Site(cluster(4, spare_nodes=1), 4, functools.partial(stream, seed, 0), Constant(value=DAY), None, 100 * DAY)
        source = cause.arrivals(site)
        assert source is not None
        while source.next_s <= 100 * DAY and len(found) < 1000:
            found.append(source.pop().node)
    assert all(node is not None and 0 <= node < 5 for node in found)


def test_a_log_without_a_fault_has_no_gaps() -> None:
    quiet = log_of(4, 1, mtbf=1e6 * DAY)
    assert len(quiet) == 0
    assert [len(part) for part in gaps_after_repair(quiet)] == [0, 0, 0]
    assert recurrence(quiet) is None
