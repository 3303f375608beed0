"""Placement: groups partition the ranks, strides follow the order, NICs are shared by those who sit beside."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.hardware.collectives import group_rate
from clustersim.hardware.network import Dragonfly, Ethernet, FatTree, Mesh, Network, RailOptimized, Torus
from clustersim.hardware.node import Node
from clustersim.hardware.topology import DIMENSIONS, Placement, parse_order
from tests.hardware.nodes import make_node

NET = RailOptimized()


@pytest.fixture
def node() -> Node:
    return make_node(nvls=True)


def test_megatron_order_puts_tp_inside_the_node(node: Node) -> None:
    place = Placement({"tp": 8, "pp": 4, "dp": 16})
    tp, dp, pp = (place.group(dim, node, NET) for dim in ("tp", "dp", "pp"))
    assert (tp.size, tp.per_node, tp.domains) == (8, 8, 1)
    assert (dp.size, dp.per_node, dp.span_gpus, dp.concurrent) == (16, 1, 121, 8)
    assert (pp.size, pp.per_node, pp.concurrent) == (4, 1, 8)


def test_dp_innermost_moves_tp_out_of_the_node(node: Node) -> None:
    place = Placement({"tp": 8, "dp": 8}, parse_order("dp-tp"))
    assert place.group("dp", node, NET).domains == 1
    assert place.group("tp", node, NET).per_node == 1


def test_tp_over_two_nodes(node: Node) -> None:
    assert Placement({"tp": 16, "dp": 2}).group("tp", node, NET)[:3] == (16, 8, 16)


def test_a_group_over_two_dimensions(node: Node) -> None:
    both = Placement({"tp": 4, "cp": 2, "dp": 4}).group(("dp", "cp"), node, NET)
    assert (both.size, both.per_node, both.concurrent) == (8, 2, 4)


def test_neighbours_in_the_pipeline(node: Node) -> None:
    far = Placement({"tp": 8, "pp": 4, "dp": 2}).neighbours("pp", node, NET)
    assert (far.per_node, far.concurrent) == (1, 8)
    assert group_rate(far) == pytest.approx(50e9 * 0.88)
    near = Placement({"tp": 2, "pp": 4}).neighbours("pp", node, NET)
    assert near.per_node == 2
    assert Placement({"tp": 8}).neighbours("pp", node, NET).size == 1


@settings(max_examples=60)
@given(sizes=st.fixed_dictionaries({name: st.sampled_from([1, 2, 3, 4]) for name in DIMENSIONS}),
       order=st.permutations(DIMENSIONS), dims=st.sets(st.sampled_from(DIMENSIONS), min_size=1))  # fmt: skip
def test_groups_partition_the_ranks(sizes: dict[str, int], order: list[str], dims: set[str]) -> None:
    place = Placement(sizes, tuple(order))
    ranks = sorted(rank for group in place.groups(sorted(dims)) for rank in group)
    assert ranks == list(range(place.world))


@settings(max_examples=60)
@given(
    sizes=st.fixed_dictionaries({name: st.sampled_from([1, 2, 4]) for name in DIMENSIONS}),
    order=st.permutations(DIMENSIONS),
    dims=st.sets(st.sampled_from(DIMENSIONS), min_size=1),
)
def test_places_of_groups_are_counted_right(sizes: dict[str, int], order: list[str], dims: set[str]) -> None:
    place, node = Placement(sizes, tuple(order)), make_node()
    ranks, group = place.ranks(sorted(dims)), place.group(sorted(dims), node, NET)
    assert group.size == len(ranks)
    assert group.per_node == sum(rank < 8 for rank in ranks)
    assert group.span_gpus == ranks[-1] + 1
    for rank in ranks:
        at = place.place(rank)
        assert at is not None
        assert sum(place.strides[name] * index for name, index in at.items()) == rank
    assert place.place(place.world) is None


def test_wrong_orders_are_refused() -> None:
    with pytest.raises(ValueError, match="at most once"):
        parse_order("tp-tp")
    with pytest.raises(ValueError, match="at most once"):
        parse_order("tp-xp")
    assert parse_order("cp-tp") == ("cp", "tp", "ep", "dp", "pp")
    assert parse_order("tp-cp-pp-dp") == ("tp", "cp", "pp", "ep", "dp")


@pytest.mark.parametrize(
    "network",
    [
        FatTree(pod_gpus=512, oversubscription=3),
        RailOptimized(rail_nodes=32, oversubscription=2),
        Dragonfly(),
        Torus(dims=(4, 4, 4)),
        Mesh(dims=(4, 4)),
        Ethernet(switch_gpus=64, oversubscription=2),
    ],
)
def test_tiers_widen_and_never_get_faster(network: Network) -> None:
    tiers = network.tiers(8)
    assert [t.gpus for t in tiers] == sorted(t.gpus for t in tiers)
    assert [t.oversubscription for t in tiers] == sorted(t.oversubscription for t in tiers)
    assert network.latency_at(10**6, 8) >= network.latency_at(8, 8) >= network.latency
    assert network.oversubscription_at(10**6, 8) == tiers[-1].oversubscription > 1
