"""Cold spares: off until they are needed, without a hazard meanwhile, and a power-up later than warm ones."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from clustersim.report.summary import recovery_lines
from clustersim.run.cluster import Fleet, State
from clustersim.run.job import Job
from clustersim.run.outlook import outlook
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.run.simulate import run_replica
from clustersim.scenario.schema import Scenario

DAY, HOUR = 86400.0, 3600.0
BARE = {"reschedule": 0.0, "start": 0.0, "communicators": 0.0, "load": 0.0, "warm_up": 0.0}
NODE = {"component": "node", "mtbf": 40 * DAY, "detection": 60.0}


def scenario(cluster: dict[str, Any], *causes: dict[str, Any], days: float = 60, nodes: int = 16, **keys: Any) -> Scenario:
    return Scenario.model_validate({
        "model": "llama3-8b", "cluster": {"nodes": nodes, "node": "dgx-h100", "storage": "tectonic", **cluster},
        "training": {"seq_len": 8192, "global_batch": 128, "micro_batch": 1, "duration": days * DAY},
        "parallelism": {"tp": 2}, "checkpoint": {"engine": "async", "interval": 1800.0}, "failures": causes or (NODE,),
        "recovery": {"strategy": "restart", "stages": BARE}, "repair": {"time": DAY}, **keys,
    })  # fmt: skip


def run(given: Scenario, replica: int = 0) -> RunResult:
    result = run_replica(Prepared(given, 10.0), 0, replica)
    assert math.fsum(result.ledger_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    return result


@pytest.mark.parametrize("before", [0.0, 120.0, 900.0])
def test_a_failure_waits_for_the_power_up_less_what_runs_beside_it(before: float) -> None:
    # The switch is pressed when the failure is noticed; stages that need no node run meanwhile.
    once = {"kind": "maintenance", "first": HOUR, "nodes": 1, "length": 5 * DAY, "planned": False}
    stages = {**BARE, "reschedule": before}
    cold = {"cold_spare_nodes": 2, "power_up": 600.0}
    result = run(scenario(cold, once, days=1, recovery={"strategy": "restart", "stages": stages}))
    assert result.interruptions == 1
    assert result.ledger_s["wait_for_nodes"] == pytest.approx(max(600.0 - before, 0.0))
    assert result.ledger_s["reschedule"] == before


def test_the_two_limits() -> None:
    # Up at once: as warm spares that do not fail. Never up in time: as none at all, the job waits for the repair.
    for replica in range(3):
        warm = run(scenario({"spare_nodes": 4}, failures_during={"spare": False}), replica)
        cold = run(scenario({"cold_spare_nodes": 4, "power_up": 0.0}, failures_during={"spare": False}), replica)
        assert warm.interruptions > 10
        assert cold.ledger_s == warm.ledger_s
        none = run(scenario({}), replica)
        late = run(scenario({"cold_spare_nodes": 4, "power_up": 100 * DAY}), replica)
        assert late.ledger_s == none.ledger_s


def test_what_is_off_does_not_fail() -> None:
    # 60 nodes beside a job of 4, one failure each in 40 d: as many of the spares fail as are on.
    def spares_failed(cluster: dict[str, Any]) -> int:
        result = run(scenario(cluster, nodes=4, days=100))
        return sum(entry.event == "spare_failure" for entry in result.log.entries())

    warm = spares_failed({"spare_nodes": 60})
    assert warm == pytest.approx(60 * 100 / 40, abs=4 * math.sqrt(150))
    assert spares_failed({"cold_spare_nodes": 60, "power_up": 600.0}) == 0
    mixed = spares_failed({"spare_nodes": 6, "cold_spare_nodes": 54, "power_up": 600.0})
    assert mixed == pytest.approx(6 * 100 / 40, abs=4 * math.sqrt(15))


def test_spares_that_are_up_wait_as_long_as_cold_ones_behind_them_take() -> None:
    # A warm one is used at once and replaced by a cold one meanwhile: the wait is for the second within the power-up alone.
    stages = {**BARE, "reschedule": 30.0}
    keys: dict[str, Any] = {"days": 200, "recovery": {"strategy": "restart", "stages": stages}}
    cold = run(scenario({"cold_spare_nodes": 8, "power_up": 4 * HOUR}, **keys))
    both = run(scenario({"spare_nodes": 1, "cold_spare_nodes": 7, "power_up": 4 * HOUR}, **keys))
    assert cold.ledger_s["wait_for_nodes"] == pytest.approx(cold.interruptions * (4 * HOUR - 30), rel=0.15)
    assert both.ledger_s["wait_for_nodes"] < cold.ledger_s["wait_for_nodes"] / 5


@pytest.mark.parametrize("causes", [
    (NODE,),
    ({"kind": "fleet", "mtbf": 20 * DAY, "frailty": {"shape": 0.5}, "recurrence": {"probability": 0.5, "delay": 2 * HOUR}},),
    ({"kind": "lemons", "share": 0.3, "mtbf": 5 * DAY},),
], ids=["component", "fleet", "lemons"])  # fmt: skip
def test_every_node_is_in_exactly_one_state(causes: tuple[dict[str, Any], ...]) -> None:
    rules = {"time": 6 * HOUR, "crews": 2, "failure": 0.2, "retire_after": 4, "replacement": 3 * DAY}
    given = scenario({"spare_nodes": 2, "cold_spare_nodes": 4, "power_up": {"kind": "exponential", "mean": 1200.0}}, *causes, repair=rules)
    job = Job(Prepared(given, 10.0), 0, 0)
    fleet, move, seen = job.fleet, job.fleet._move, set()

    def checked(node: int, state: int, what: str, place: int) -> None:
        move(node, state, what, place)
        seen.add(state)
        assert sum(fleet.counts) == 22
        assert all(fleet.counts[state] == sum(each == state for each in fleet._state) for state in State)

    fleet._move = checked  # type: ignore[method-assign]
    job.run()
    assert {State.OFF, State.STARTING} <= seen


def test_machines_that_were_off_fail_in_the_job() -> None:
    # All of a job's machines are replaced from the reserve sooner or later; lemons among those are found then.
    cause = {"kind": "lemons", "share": 1.0, "mtbf": 10 * DAY, "cure": 0.0}
    result = run(scenario({"cold_spare_nodes": 8, "power_up": 600.0}, cause, days=100))
    assert result.interruptions == pytest.approx(16 * 100 / 10, abs=4 * math.sqrt(160))


def test_cold_spares_need_a_power_up() -> None:
    with pytest.raises(ValidationError, match="'cold_spare_nodes' need a 'power_up'"):
        scenario({"cold_spare_nodes": 1})


def test_the_outlook_tells_warm_from_cold() -> None:
    told = outlook(Prepared(scenario({"spare_nodes": 1, "cold_spare_nodes": 3, "power_up": 600.0}), 10.0))
    assert (told["spare_nodes"], told["cold_spare_nodes"]) == (1, 3)
    assert "1 spare node, 3 more that are off" in " ".join(recovery_lines(told))


def test_no_reserve_costs_nothing() -> None:
    import simpy

    fleet = Fleet(simpy.Environment(), 4, 2, None)
    assert fleet.reserve is None
    assert fleet.counts[State.OFF] == fleet.counts[State.STARTING] == 0
