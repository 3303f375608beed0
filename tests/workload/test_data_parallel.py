"""Data-parallel traffic: volumes against closed forms, ZeRO and HSDP and independent degrees, overlap limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.errors import InputError
from clustersim.hardware.collectives import Group, collective_time
from clustersim.hardware.network import RailOptimized
from clustersim.workload.data_parallel import (
    Shards,
    Unit,
    bucketed_exposed,
    fsdp_pass,
    gradient_seconds,
    layer_gather_seconds,
    prioritised_exposed,
    split_group,
    update_gather_seconds,
    zero_shards,
)
from tests.hardware.nodes import make_node

NODE = make_node("a100-80g", nics=4, gbps=400)
WORLD = Group(64, 8, 64, NODE, RailOptimized())


def test_zero_stages() -> None:
    assert zero_shards(0, 64) == Shards(1, 1, 1)
    assert zero_shards(1, 64) == Shards(1, 1, 64)
    assert zero_shards(2, 64) == Shards(1, 64, 64)
    assert zero_shards(3, 64) == Shards(64, 64, 64)
    assert zero_shards(3, 64, parameters=8) == Shards(8, 64, 64)
    assert zero_shards(1, 64, optimizer=8) == Shards(1, 1, 8)


@pytest.mark.parametrize(("key", "degree"), [("optimizer", 7), ("parameters", 48), ("gradients", 0)])
def test_degrees_that_do_not_divide_are_refused(key: str, degree: int) -> None:
    with pytest.raises(InputError, match=f"parallelism.shard.{key}"):
        zero_shards(3, 64, **{key: degree})  # type: ignore[arg-type]


def test_a_split_covers_the_group() -> None:
    near, far = split_group(WORLD, 8)
    assert (near.size, near.domains, far.size, far.domains) == (8, 1, 8, 8)
    assert far.concurrent == 8
    wide, across = split_group(WORLD, 16)
    assert (wide.domains, across.size, across.per_node) == (2, 4, 1)


def test_ddp_is_one_all_reduce_and_zero_1_a_scatter_and_a_gather() -> None:
    size = 14e9
    assert gradient_seconds(size, WORLD, zero_shards(0, 64)) == collective_time("all-reduce", size, WORLD)
    one = zero_shards(1, 64)
    assert gradient_seconds(size, WORLD, one) == pytest.approx(collective_time("reduce-scatter", size, WORLD))
    assert update_gather_seconds(size, WORLD, one) == pytest.approx(collective_time("all-gather", size, WORLD))
    assert update_gather_seconds(size, WORLD, zero_shards(3, 64)) == 0


def test_node_sized_shards_keep_the_gather_on_the_fast_links() -> None:
    local, whole = zero_shards(1, 64, optimizer=8), zero_shards(1, 64)
    assert update_gather_seconds(14e9, WORLD, local) < 0.2 * update_gather_seconds(14e9, WORLD, whole)
    # what is left for the network: an all-reduce of 1/8 of the gradients on 1/8 of the NICs
    assert gradient_seconds(14e9, WORLD, local) == pytest.approx(2 * gradient_seconds(14e9, WORLD, whole), rel=0.25)


def test_broadcasts_pay_their_start_once_a_shard() -> None:
    shards = zero_shards(1, 64)
    gather, broadcast = (update_gather_seconds(1e6, WORLD, shards, broadcast=b) for b in (False, True))
    assert broadcast > gather
    assert broadcast > 64 * NODE.intra_node.latency


def test_hsdp_gathers_inside_the_node() -> None:
    assert layer_gather_seconds(4e8, WORLD, zero_shards(3, 64, parameters=8)) < 5e-3
    assert layer_gather_seconds(4e8, WORLD, zero_shards(3, 64)) > 5e-3
    assert layer_gather_seconds(4e8, WORLD, zero_shards(2, 64)) == 0


@settings(max_examples=100)
@given(traffic=st.floats(0, 10), window=st.floats(0, 10), buckets=st.integers(1, 50))
def test_exposed_buckets_lie_between_the_bounds(traffic: float, window: float, buckets: int) -> None:
    exposed = bucketed_exposed(traffic, window, buckets)
    assert max(0.0, traffic - window) - 1e-9 <= exposed <= traffic + 1e-9
    assert exposed >= traffic / buckets - 1e-12


def test_one_bucket_overlaps_nothing_and_many_hide_all() -> None:
    assert bucketed_exposed(3, 10, 1) == 3
    assert bucketed_exposed(3, 10, 1000) == pytest.approx(0.003)
    with pytest.raises(ValueError, match="bucket"):
        bucketed_exposed(1, 1, 0)


def test_fsdp_hides_the_faster_of_both() -> None:
    fast = fsdp_pass([Unit(2.0, 1.0)] * 10)
    assert fast.total == pytest.approx(1 + 20)
    slow = fsdp_pass([Unit(1.0, 2.0)] * 10)
    assert slow.total == pytest.approx(20 + 1)
    assert fsdp_pass([Unit(1.0, 2.0, 3.0)] * 4, overlap=False).total == 24


def test_fsdp_scatters_share_the_wire_with_gathers() -> None:
    both = fsdp_pass([Unit(1.0, 1.0, 1.0)] * 10)
    assert both.total == pytest.approx(20, abs=2)
    assert fsdp_pass([Unit(2.0, 0.0, 1.0)] * 10).total == pytest.approx(21)


@settings(max_examples=100)
@given(
    units=st.lists(
        st.builds(Unit, st.floats(0.01, 5), st.floats(0, 5), st.floats(0, 5)),
        min_size=1,
        max_size=12,
    ),
    limit=st.integers(1, 4),
)
def test_fsdp_lies_between_the_busiest_stream_and_the_sum(units: list[Unit], limit: int) -> None:
    total = fsdp_pass(units, limit=limit).total
    assert total <= fsdp_pass(units, overlap=False).total + 1e-9
    assert total >= max(sum(u.compute for u in units), sum(u.gather + u.scatter for u in units)) - 1e-9
    assert fsdp_pass(units, limit=limit + 1).total <= total + sum(u.scatter for u in units) + 1e-9


def test_chunks_yield_to_all_to_all() -> None:
    layers = [(1.0, 0.5)] * 8
    # plenty of room: only the overshoot of chunks that were on the wire
    assert prioritised_exposed(4.0, layers, 400, 0.0) == pytest.approx(0.0, abs=0.2)
    # no room at all: everything is left over
    assert prioritised_exposed(4.0, [(0.0, 0.5)] * 8, 10, 0.0) == pytest.approx(4.0)
    # start-up cost punishes tiny chunks
    assert prioritised_exposed(4.0, layers, 4000, 0.01) > prioritised_exposed(4.0, layers, 40, 0.01)
    assert prioritised_exposed(0.0, layers, 4, 0.01) == 0
