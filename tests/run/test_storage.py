"""Shared storage: fairness, limits, outages, conservation of bytes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from clustersim.hardware.storage import SharedFilesystem
from clustersim.run.clock import at
from clustersim.run.storage import Flow, SharedStorage


def storage(env: simpy.Environment, **keys: Any) -> SharedStorage:
    return SharedStorage(
        env, SharedFilesystem.model_validate({"write_bandwidth": 100.0, "read_bandwidth": 100.0, **keys})
    )


def play(flows: list[tuple[float, float, str, int]], outage: tuple[float, float] | None = None,
         **keys: Any) -> tuple[list[float], SharedStorage]:  # fmt: skip
    """End times of flows given as (start, bytes, direction, clients)."""
    env = simpy.Environment()
    shared = storage(env, **keys)
    ends = [math.nan] * len(flows)

    def begin(index: int) -> None:
        _, size, direction, clients = flows[index]
        shared.start(size, direction, clients, lambda: ends.__setitem__(index, env.now))  # type: ignore[arg-type]

    for index, flow in enumerate(flows):
        at(env, flow[0], lambda _, index=index: begin(index), "test")
    if outage is not None:
        at(env, outage[0], lambda _: shared.outage(outage[1]), "test")
    env.run()
    return ends, shared


def test_alone_a_flow_takes_bytes_by_bandwidth() -> None:
    assert play([(0.0, 500.0, "write", 1)])[0] == [5.0]


def test_two_equal_flows_share_and_the_rest_speeds_up() -> None:
    # 50 each until the first has moved its 200 at t = 4; the other then has 100 left at 100/s.
    assert play([(0.0, 200.0, "write", 1), (0.0, 300.0, "write", 1)])[0] == pytest.approx([4.0, 5.0])


def test_a_flow_of_more_nodes_gets_more() -> None:
    assert play([(0.0, 300.0, "write", 3), (0.0, 100.0, "read", 1)])[0] == pytest.approx([4.0, 4.0])


def test_each_direction_may_have_its_own_pool() -> None:
    flows = [(0.0, 300.0, "write", 1), (0.0, 300.0, "read", 1)]
    assert play(flows)[0] == pytest.approx([6.0, 6.0])
    assert play(flows, duplex="separate")[0] == pytest.approx([3.0, 3.0])


def test_a_shared_pool_counts_each_direction_by_its_own_bandwidth() -> None:
    # A reader at rate r takes r/200 of the pool, a writer r/100: equal rates of 200/3 use it up.
    rates = storage(simpy.Environment(), read_bandwidth=200.0).rates(
        [Flow(1.0, "read", 1, math.inf, 0.0, lambda: None), Flow(1.0, "write", 1, math.inf, 0.0, lambda: None)])  # fmt: skip
    assert rates == pytest.approx([200 / 3, 200 / 3])


def test_a_node_is_limited_and_the_others_take_what_it_leaves() -> None:
    rates = storage(simpy.Environment()).rates(
        [Flow(1.0, "write", 1, 10.0, 0.0, lambda: None), Flow(1.0, "write", 1, math.inf, 0.0, lambda: None)]
    )
    assert rates == pytest.approx([10.0, 90.0])
    assert play([(0.0, 100.0, "write", 2)], per_node_bandwidth=5.0)[0] == [10.0]


def test_other_tenants_take_their_share() -> None:
    assert play([(0.0, 500.0, "write", 1)], background_load=0.5)[0] == [10.0]


def test_outages_stop_flows_and_overlap() -> None:
    assert play([(0.0, 500.0, "write", 1)], outage=(2.0, 7.0))[0] == pytest.approx([12.0])
    env = simpy.Environment()
    shared = storage(env)
    ends: list[float] = []
    shared.start(500.0, "write", 1, lambda: ends.append(env.now))
    at(env, 1.0, lambda _: shared.outage(4.0), "test")
    at(env, 3.0, lambda _: shared.outage(4.0), "test")
    env.run()
    assert ends == pytest.approx([11.0])


def test_a_flow_that_is_cut_gives_back_its_bandwidth() -> None:
    env = simpy.Environment()
    shared = storage(env)
    ends: list[float] = []
    first = shared.start(1000.0, "write", 1, lambda: ends.append(-1.0))
    shared.start(300.0, "write", 1, lambda: ends.append(env.now))
    at(env, 2.0, lambda _: shared.cancel(first), "test")
    env.run()
    assert ends == pytest.approx([4.0])
    assert shared.moved["write"] == pytest.approx(400.0)


@given(
    st.lists(
        st.tuples(st.floats(0, 50), st.floats(0, 1e4), st.sampled_from(["read", "write"]), st.integers(1, 9)),
        max_size=8,
    ),
    st.sampled_from(["shared", "separate"]),
    st.tuples(st.floats(0, 60), st.floats(0, 20)),
)
def test_bytes_are_conserved_and_no_pool_is_exceeded(flows: list[tuple[float, float, str, int]], duplex: str,
                                                     outage: tuple[float, float]) -> None:  # fmt: skip
    ends, shared = play(flows, outage, duplex=duplex, per_node_bandwidth=30.0)
    for direction in ("read", "write"):
        assert shared.moved[direction] == pytest.approx(math.fsum(f[1] for f in flows if f[2] == direction), abs=1e-6)  # type: ignore[index]
    for (start, size, _, clients), end in zip(flows, ends, strict=True):
        assert end >= start + size / min(100.0, 30.0 * clients) - 1e-6
    total = math.fsum(f[1] for f in flows)
    if flows and duplex == "shared":
        assert max(ends) >= min(f[0] for f in flows) + total / 100.0 - 1e-6


@given(
    st.lists(
        st.tuples(st.sampled_from(["read", "write"]), st.integers(1, 9), st.floats(1, 200)), min_size=1, max_size=8
    )
)
def test_rates_are_max_min_fair(members: list[tuple[str, int, float]]) -> None:
    # Max–min: the pool is used up unless all are at their limits, and no one below his limit gets less than another.
    flows = [Flow(1.0, direction, clients, limit, 0.0, lambda: None) for direction, clients, limit in members]  # type: ignore[arg-type]
    rates = storage(simpy.Environment()).rates(flows)
    each = [rate / flow.clients for rate, flow in zip(rates, flows, strict=True)]
    assert all(e <= f.limit * (1 + 1e-9) for e, f in zip(each, flows, strict=True))
    assert sum(rates) <= 100.0 * (1 + 1e-9)
    limited = all(e >= f.limit * (1 - 1e-9) for e, f in zip(each, flows, strict=True))
    assert limited or sum(rates) == pytest.approx(100.0)
    below = [e for e, f in zip(each, flows, strict=True) if e < f.limit * (1 - 1e-9)]
    assert all(b >= max(each) * (1 - 1e-9) for b in below)


def test_a_flow_may_begin_later_and_then_shares() -> None:
    # 300 bytes from 0 and 100 from 2.0: the first is alone until 2 and has 100 left, then each has 50 a second.
    env = simpy.Environment()
    shared = storage(env)
    ends: list[tuple[str, float]] = []
    shared.start(100.0, "write", 1, lambda: ends.append(("late", env.now)), after=2.0)
    shared.start(300.0, "write", 1, lambda: ends.append(("first", env.now)))
    env.run()
    assert dict(ends) == {"first": pytest.approx(4.0), "late": pytest.approx(4.0)}
    alone: list[float] = []
    shared.start(100.0, "read", 1, lambda: alone.append(env.now), after=3.0)
    at(
        env, env.now + 1.0, lambda _: shared.outage(3.0), "test"
    )  # until 8.0; the flow begins at 7.0 and stands still for a second
    env.run()
    assert alone == pytest.approx([4.0 + 1.0 + 3.0 + 1.0])


def test_delays_are_guarded() -> None:
    from clustersim.run.clock import delay

    env = simpy.Environment()
    for wrong in (math.nan, math.inf, -1.0):
        with pytest.raises(ValueError, match="the tester asked"):
            delay(env, wrong, "the tester")
        with pytest.raises(ValueError, match="the tester asked"):
            at(env, wrong, lambda _: None, "the tester")
