"""Stage graphs: short forms, order, errors, parallel branches and resources, who books the time."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from clustersim.recovery.stages import Section
from clustersim.recovery.strategy import RecoveryStrategy
from clustersim.run.attempt import Attempt
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.run.simulate import run_replica
from tests.run.synthetic import build, planted


def names(stages: dict[str, Any]) -> list[str]:
    return [step.name for step in RecoveryStrategy.build({"strategy": "restart", "stages": stages}).graph.steps]


def booked(stages: dict[str, Any], *times: float, **keys: Any) -> dict[str, float]:
    """Recovery categories of a run of 10 s with failures at the given times."""
    scenario = build(stages=stages, steps=10, failures=[planted(*times)], **keys)
    result = run_replica(Prepared(scenario, 1.0), 0, 0)
    assert math.fsum(result.ledger_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    skipped = ("train", "rework")
    return {name: seconds for name, seconds in result.ledger_s.items() if seconds > 1e-9 and name not in skipped}


def test_the_load_stands_behind_the_communicators() -> None:
    assert names({"start": 1.0, "communicators": 2.0, "warm_up": 3.0}) == ["start", "communicators", "load", "warm_up"]
    assert names({"start": 1.0, "warm_up": 3.0}) == ["start", "warm_up", "load"]
    assert names({}) == ["load"]
    assert names({"load": 5.0, "start": 1.0}) == ["load", "start"]


def test_every_way_to_write_a_stage() -> None:
    strategy = RecoveryStrategy.build({"strategy": "restart", "stages": {
        "a": "30 s", "b": {"kind": "exponential", "mean": "1 min"}, "c": {"time": "5 s", "after": ["a"], "needs": "scheduler"}}})  # fmt: skip
    assert [step.after for step in strategy.graph.steps[:3]] == [(), (0,), (0,)]
    assert strategy.graph.steps[2].needs == "scheduler"
    assert RecoveryStrategy.build(strategy.dump()) == strategy


@pytest.mark.parametrize(("stages", "told"), [
    ({"a": {"time": "1 s", "after": ["nowhere"]}}, "waits for 'nowhere'"),
    ({"a": {"time": "1 s", "after": ["b"]}, "b": {"time": "1 s", "after": ["a"]}}, "wait for each other"),
])  # fmt: skip
def test_wrong_graphs_are_told(stages: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        RecoveryStrategy.build({"strategy": "restart", "stages": stages})


def test_of_parallel_stages_the_last_to_end_books_the_time() -> None:
    # start ‖ migrate from 0: 4 s and 9 s; warm_up after both. start is hidden behind migrate.
    stages = {"start": {"time": 4.0, "after": []}, "migrate": {"time": 9.0, "after": []},
              "warm_up": {"time": 2.0, "after": ["start", "migrate"]}}  # fmt: skip
    assert booked(stages, 5.0) == pytest.approx({"migrate": 9.0, "warm_up": 2.0})


def test_parallel_stages_broken_off_by_a_second_failure() -> None:
    stages = {"start": {"time": 4.0, "after": []}, "migrate": {"time": 9.0, "after": []},
              "warm_up": {"time": 2.0, "after": ["start"]}}  # fmt: skip
    assert booked(stages, 5.0, 7.0) == pytest.approx({"migrate": 2.0 + 9.0})


def test_a_resource_is_held_by_one_stage_at_a_time() -> None:
    # b waits for the scheduler until a has ended at 4: the chain a, b is the longest.
    stages = {"start": {"time": 4.0, "after": [], "needs": "scheduler"}, "migrate": {"time": 3.0, "after": [], "needs": "scheduler"},
              "diagnose": {"time": 5.0, "after": []}}  # fmt: skip
    assert booked(stages, 5.0) == pytest.approx({"start": 4.0, "migrate": 3.0})


def test_nodes_are_waited_for_beside_other_branches() -> None:
    stages = {"start": {"time": 2.0, "after": [], "needs": "nodes"}, "warm_up": {"time": 6.0, "after": []}}
    scenario = build(stages=stages, steps=10, failures=[planted(5.0, severity="node", lasting=7.0)])
    result = run_replica(Prepared(scenario, 1.0), 0, 0)
    assert result.ledger_s["wait_for_nodes"] == pytest.approx(7.0)
    assert result.ledger_s["start"] == pytest.approx(2.0)
    assert result.ledger_s["warm_up"] == 0
    assert result.wall_s == pytest.approx(5 + 9 + 10)


def test_loads_beside_other_branches_take_their_bytes() -> None:
    storage = {"read_bandwidth": 1e5, "latency": 0.5}
    stages = {"communicators": {"time": 1.0, "after": []}, "warm_up": {"time": 2.0, "after": []}}
    scenario = build(stages=stages, steps=10, storage=storage, failures=[planted(5.0)],
                     checkpoint={"kind": "sync", "interval": 100.0, "stall": 0.0})  # fmt: skip
    prepared = Prepared(scenario, 1.0)
    result = run_replica(prepared, 0, 0)
    assert prepared.load_s > 2
    assert result.ledger_s["load"] == pytest.approx(prepared.load_s)
    assert result.ledger_s["communicators"] == pytest.approx(1.0)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.floats(0.0, 9.0), st.booleans()), min_size=1, max_size=6), st.floats(0.1, 60.0), st.booleans()
)
def test_a_chain_and_the_same_graph_book_alike(stages: list[tuple[float, bool]], second: float, short: bool) -> None:
    # The same stages through both executors, with or without a shortage of nodes, broken off anywhere.
    written = {
        f"s{index}": {"time": time, "needs": "nodes" if needs else None} for index, (time, needs) in enumerate(stages)
    }
    scenario = build(stages=written, steps=20, spares=0 if short else 2, during={"spare": False},
                     failures=[planted(5.0, 5.0 + second, severity="node", lasting=11.0, detection=0.5)])  # fmt: skip
    chain = run_replica(Prepared(scenario, 1.0), 0, 0)
    original = Attempt._chain
    Attempt._chain = Attempt._parallel  # type: ignore[method-assign]
    try:
        graph = run_replica(Prepared(scenario, 1.0), 0, 0)
    finally:
        Attempt._chain = original  # type: ignore[method-assign]
    assert graph.wall_s == pytest.approx(chain.wall_s)
    assert graph.ledger_s == pytest.approx(chain.ledger_s, abs=1e-6)


def test_stages_of_fixed_time_are_put_into_sections() -> None:
    stages = {
        "diagnose": 1.0,
        "reschedule": 2.0,
        "start": 3.0,
        "communicators": {"kind": "exponential", "mean": 4.0},
        "warm_up": 5.0,
    }
    line = RecoveryStrategy.build({"strategy": "restart", "stages": stages}).graph.line
    assert [len(link.item.steps) if isinstance(link.item, Section) else link.item.name for link in line] == [
        2,
        1,
        "communicators",
        "load",
        1,
    ]


def test_a_strategy_sees_the_job_and_nothing_of_the_clock() -> None:
    class Fake:
        step, vacant, spares, nodes = 7, 1, 0, 4
        ground = Prepared(build(nodes=4, steps=1), 1.0).ground

    strategy = RecoveryStrategy.build({"strategy": "restart", "stages": {"start": 1.0}})
    assert strategy.comeback(None, Fake()).graph is strategy.graph
    assert isinstance(Job(Prepared(build(steps=1), 1.0), 0, 0).turnover.vacant, int)
