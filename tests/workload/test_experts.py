"""Expert parallelism: volumes, one copy a node, pipelining limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.hardware.collectives import ALL_TO_ALL_SHARE, Group, collective_time
from clustersim.hardware.network import RailOptimized
from clustersim.workload.experts import MoeStage, busiest_load, exchange_seconds, nodes_reached, pipelined_seconds
from tests.hardware.nodes import make_node

H100 = make_node()
NET = RailOptimized()


def ranks(n: int) -> Group:
    return Group(n, min(n, 8), n, H100, NET)


def test_nodes_reached() -> None:
    assert nodes_reached(1, 8) == 1
    assert nodes_reached(8, 1) == pytest.approx(1.0)
    assert nodes_reached(1000, 8) == pytest.approx(8, rel=0.01)
    assert nodes_reached(8, 8, limit=4) == 4


def test_one_copy_a_node_saves_network_bytes() -> None:
    plain, saved = (exchange_seconds(2e9, ranks(64), 8, once_a_node=once) for once in (False, True))
    # 8 copies over 8 nodes reach 8(1 - (7/8)^8) = 5.25 nodes: 5.25/8 of the bytes, by scheduled kernels at the full rate
    assert saved / plain == pytest.approx(ALL_TO_ALL_SHARE * nodes_reached(8, 8) / 8, rel=0.1)
    assert exchange_seconds(2e9, ranks(8), 8, once_a_node=True) == collective_time("all-to-all", 2e9, ranks(8))
    assert exchange_seconds(2e9, ranks(1), 8) == 0


STAGES = st.lists(
    st.builds(MoeStage, *[st.floats(0, 5) for _ in range(4)]),
    min_size=1,
    max_size=5,
)


@settings(max_examples=80)
@given(layers=STAGES, degree=st.integers(1, 6))
def test_pipelining_lies_between_the_busiest_stream_and_the_sum(layers: list[MoeStage], degree: int) -> None:
    total = sum(layer.total for layer in layers)
    busy = max(sum(x.attention + x.experts for x in layers), sum(x.dispatch + x.combine for x in layers))
    assert busy - 1e-9 <= pipelined_seconds(layers, degree) <= total + 1e-9
    assert pipelined_seconds(layers, 1) == pytest.approx(total)


def test_two_parts_take_most_of_the_gain_and_start_up_bounds_the_rest() -> None:
    layers = [MoeStage(1.0, 1.0, 0.5, 0.5)] * 4
    times = {r: pipelined_seconds(layers, r) for r in (1, 2, 4, 8)}
    assert times[1] == 12
    assert times[1] - times[2] > 0.5 * (times[1] - times[8])
    assert pipelined_seconds(layers, 8, startup=0.5) > times[1]
    with pytest.raises(ValueError, match="degree"):
        pipelined_seconds(layers, 0)


def test_random_routing_is_even_for_many_tokens() -> None:
    assert busiest_load(64, 8, 1e9, 6) == pytest.approx(1.0, abs=1e-4)
    assert busiest_load(64, 8, 1024, 1) > 1.05
    assert busiest_load(64, 1, 1024, 1) == 1.0
