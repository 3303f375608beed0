"""In a run: slow nodes slow the job as the step model says, corruption rolls back past itself, nodes add up."""

from __future__ import annotations

import math
from typing import Any

import pytest

from clustersim.run.cluster import State
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.run.simulate import run_replica
from clustersim.scenario.schema import Scenario

DAY, HOUR = 86400.0, 3600.0


def scenario(failures: list[dict[str, Any]], *, days: float = 30, nodes: int = 16, spares: int = 2, **keys: Any) -> Scenario:
    return Scenario.model_validate({
        "model": "llama3-8b", "cluster": {"nodes": nodes, "spare_nodes": spares, "node": "dgx-h100", "storage": "tectonic"},
        "training": {"seq_len": 8192, "global_batch": 128, "micro_batch": 1, "duration": days * DAY},
        "parallelism": {"tp": 2, "pp": 4}, "checkpoint": {"engine": "async", "interval": 1800.0}, "failures": failures, **keys,
    })  # fmt: skip


SLOW = {"kind": "fail-slow", "mtbf": 16 * DAY, "depth": 1.5, "length": {"kind": "exponential", "mean": 4 * HOUR}}


def test_a_fixed_step_is_slowed_by_the_deepest_episode_under_way() -> None:
    # One episode a day of 4 h on 16 nodes: slow with probability 1 - exp(-1/6); a step takes 1.5 times as long meanwhile.
    # Relative spread of the slow share over 12 replicas of 60 days (720 episodes): below 1/√720 × √2.
    prepared = Prepared(scenario([SLOW], days=60), 10.0)
    results = [run_replica(prepared, 0, replica, events=False) for replica in range(12)]
    slow = 1 - math.exp(-1 / 6)
    straggle = sum(result.ledger_s["straggle"] for result in results) / sum(result.wall_s for result in results)
    assert straggle == pytest.approx(slow * 0.5 / 1.5, rel=4 * math.sqrt(2 / 720))
    for result in results:
        assert math.fsum(result.ledger_s.values()) == pytest.approx(result.wall_s, rel=1e-9)


def test_the_step_model_prices_the_slow_node() -> None:
    prepared = Prepared(scenario([SLOW]))
    nominal = prepared.pace.step_s
    last = prepared.slowed({15: 1.5}, {}, 1.0).step_s
    everyone = max(prepared.slowed({place: 1.5}, {}, 1.0).step_s for place in range(16))
    assert nominal < last <= everyone < 1.5 * nominal
    assert prepared.slowed({3: 1.3}, {}, 1.0) == prepared.slowed({1: 1.3}, {}, 1.0)  # the same stage of another replica
    line = (prepared.slowed({15: 1.25}, {}, 1.0).step_s + last) / 2
    assert prepared.slowed({15: 1.375}, {}, 1.0).step_s == pytest.approx(line)
    assert prepared.slowed({}, {0: 3.0}, 1.0).step_s >= nominal


def test_a_straggler_that_is_found_is_replaced() -> None:
    watched = {**SLOW, "watch": {"every": 10.0, "rounds": 5}, "repair": 3600.0}
    prepared = Prepared(scenario([watched]), 10.0)
    blind = run_replica(Prepared(scenario([SLOW]), 10.0), 0, 0)
    seen = run_replica(prepared, 0, 0)
    assert blind.interruptions == 0
    assert seen.interruptions > 10
    assert seen.ledger_s["straggle"] < blind.ledger_s["straggle"] / 20


def test_the_wrong_node_does_not_help() -> None:
    wrong = {**SLOW, "watch": {"every": 10.0, "rounds": 5, "wrong_node": 1.0}, "repair": 3600.0}
    result = run_replica(Prepared(scenario([wrong]), 10.0), 0, 0)
    right = run_replica(Prepared(scenario([{**SLOW, "watch": {"every": 10.0, "rounds": 5}, "repair": 3600.0}]), 10.0), 0, 0)
    assert result.interruptions > 10
    assert result.ledger_s["straggle"] > 5 * right.ledger_s["straggle"]


def test_intermittent_episodes_come_and_go() -> None:
    broken = {**SLOW, "intermittent": {"on": 600.0, "off": 600.0}}
    whole = run_replica(Prepared(scenario([SLOW], days=120), 10.0), 0, 0).ledger_s["straggle"]
    half = run_replica(Prepared(scenario([broken], days=120), 10.0), 0, 0).ledger_s["straggle"]
    assert half == pytest.approx(whole / 2, rel=0.2)


def test_corruption_goes_back_past_itself() -> None:
    sdc = {"kind": "silent-corruption", "component": "node", "mtbf": 160 * DAY, "latency": 5 * HOUR}
    prepared = Prepared(scenario([sdc], days=60), 10.0)
    results = [run_replica(prepared, 0, replica) for replica in range(6)]
    hits = sum(result.interruptions for result in results)
    assert hits > 20
    lost = sum(result.lost_work_s for result in results) / hits
    # What was done since the corruption, and since the save before it: uniform in 30 min. Its standard error: 30 min/√12/√hits.
    assert lost == pytest.approx(5 * HOUR + 900, abs=4 * 520 / math.sqrt(hits) + 60)


def test_corruption_that_nothing_finds_costs_nothing() -> None:
    sdc = {"kind": "silent-corruption", "component": "node", "mtbf": 10 * DAY, "coverage": 0.0}
    result = run_replica(Prepared(scenario([sdc]), 10.0), 0, 0)
    assert (result.interruptions, result.lost_work_s) == (0, 0.0)


def test_checks_find_corruption_at_a_cost() -> None:
    sdc = {"kind": "sdc", "component": "node", "mtbf": 1e15, "coverage": 0.0, "check": {"every": 3600.0, "cost": 36.0}}
    result = run_replica(Prepared(scenario([sdc]), 10.0), 0, 0)
    assert result.ledger_s["straggle"] / result.ledger_s["train"] == pytest.approx(0.01, rel=1e-3)


def test_maintenance_in_turn_and_preemption() -> None:
    rolling = {"kind": "maintenance", "first": DAY, "every": DAY, "nodes": 2, "length": HOUR}
    result = run_replica(Prepared(scenario([rolling], days=10.5), 10.0), 0, 0)
    assert (result.interruptions, result.interruptions_planned) == (0, 10)
    taken = {"kind": "preemption", "mtbf": 2 * DAY, "nodes": 4, "length": 2 * HOUR}
    result = run_replica(Prepared(scenario([taken], days=60), 10.0), 0, 0)
    assert result.interruptions == pytest.approx(30, abs=4 * math.sqrt(30))
    assert result.ledger_s["wait_for_nodes"] == pytest.approx(result.interruptions * 2 * HOUR, rel=0.05)


REPAIR = [
    {"failure": 0.5},
    {"quarantine": {"time": HOUR, "catch": 1.0}},
    {"retire_after": 2, "replacement": 3 * DAY},
    {"exclude": {"faults": 2, "window": 5 * DAY}, "replacement": DAY},
    {"retire_after": 3},
    {"crews": 1, "failure": 0.3, "quarantine": {"time": HOUR}, "exclude": {"faults": 3}, "replacement": DAY},
]


@pytest.mark.parametrize("rules", REPAIR, ids=str)
def test_every_node_is_in_exactly_one_state(rules: dict[str, Any]) -> None:
    fleet = {"kind": "fleet", "mtbf": 20 * DAY, "frailty": {"shape": 0.5},
             "recurrence": {"probability": 0.5, "delay": 2 * HOUR}, "bursts": [{"followers": 0.3, "dispersion": 0.2}]}  # fmt: skip
    job = Job(Prepared(scenario([fleet], spares=6, repair={"time": 6 * HOUR, **rules}), 10.0), 0, 0)
    fleet_ = job.fleet
    move = fleet_._move

    def checked(node: int, state: int, what: str, place: int) -> None:
        move(node, state, what, place)
        assert sum(fleet_.counts) == 22
        assert all(fleet_.counts[state] == sum(each == state for each in fleet_._state) for state in State)

    fleet_._move = checked  # type: ignore[method-assign]
    job.run()
    assert sum(fleet_.counts) == 22


def test_a_burn_in_that_catches_all_ends_recurrence() -> None:
    fleet = {"kind": "fleet", "mtbf": 20 * DAY, "recurrence": {"probability": 0.8, "delay": HOUR}}
    counts = []
    for rules in ({}, {"quarantine": {"time": HOUR, "catch": 1.0}}):
        prepared = Prepared(scenario([fleet], days=60, spares=0, repair={"time": 6 * HOUR, **rules}), 10.0)
        counts.append(sum(run_replica(prepared, 0, replica).interruptions for replica in range(4)))
    assert counts[1] < counts[0] / 3


def test_lemons_that_are_excluded_fail_no_more() -> None:
    # Shape 0.1: few machines have nearly all faults. Excluding those with 3 faults in 28 days leaves the ordinary ones.
    fleet = {"kind": "fleet", "mtbf": 20 * DAY, "frailty": {"shape": 0.1}}
    counts = []
    for rules in ({}, {"exclude": {"faults": 3}, "replacement": DAY}):
        prepared = Prepared(scenario([fleet], days=180, spares=8, repair={"time": 6 * HOUR, **rules}), 10.0)
        counts.append(sum(run_replica(prepared, 0, replica, events=False).interruptions for replica in range(6)))
    assert counts[1] < 0.7 * counts[0]


def test_a_replica_does_not_depend_on_those_before_it() -> None:
    # Paces and their patterns are remembered by the prepared scenario that all replicas of a worker share; each comes out the same
    # to the last bit whether it is the first or not.
    slow = {**SLOW, "mtbf": 4 * DAY, "depth": {"kind": "uniform", "low": 1.05, "high": 1.6}}
    for strategy in ("restart", "elastic"):
        given = scenario([slow, {"component": "node", "mtbf": 30 * DAY}], recovery={"strategy": strategy})
        shared = Prepared(given)
        together = [run_replica(shared, 0, replica, events=False).ledger_s for replica in range(4)]
        assert [run_replica(Prepared(given), 0, replica, events=False).ledger_s for replica in range(4)] == together
