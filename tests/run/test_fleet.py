"""Nodes, spares, repair: every node in one state, and the closed forms of repair queues."""

from __future__ import annotations

from typing import Any

import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.run.cluster import Fleet, State
from clustersim.run.prepared import Prepared
from clustersim.run.simulate import run_replica
from tests.run.synthetic import DAY, build


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


def node_failures(rate_per_day: float) -> list[dict[str, Any]]:
    return [{"component": "node", "severity": "node", "mtbf": DAY / rate_per_day, "detection": 0.0}]


def test_one_more_spare_shifts_nobodys_failures() -> None:
    def failures(spares: int) -> list[float]:
        scenario = build(nodes=64, spares=spares, failures=node_failures(0.05), repair=DAY, duration=100 * DAY)
        entries = run_replica(Prepared(scenario, 600.0), 0, 0).log.entries()
        return [entry.time_s for entry in entries if entry.event == "failure"]

    few, many = failures(40), failures(41)
    assert few == many
    assert len(few) > 200
