"""Collectives: limits, monotony, NCCL's choices, and the measured points that the curves must pass through."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.hardware.collectives import (
    ALL_TO_ALL_SHARE,
    Group,
    algorithm,
    algorithm_times,
    bus_bandwidth,
    collective_time,
    group_rate,
)
from clustersim.hardware.fabric import Curve, fabric_of
from clustersim.hardware.network import FatTree, Network, RailOptimized
from clustersim.hardware.node import Node
from tests.hardware.nodes import make_node

MIB = 2.0**20
OPS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast")
IB = Network.build("infiniband")


@pytest.fixture
def node() -> Node:
    return make_node(nvls=True)


def group(node: Node, size: int, network: Network = IB, **more: int) -> Group:
    """Consecutive ranks."""
    return Group(size, min(size, node.gpus), size, node, network, **more)


@pytest.mark.parametrize(
    ("ranks", "size", "microseconds"), [(2, MIB, 44.21), (8, MIB, 92.79), (8, 4 * MIB, 95.8), (4, 1024 * MIB, 7259.4)]
)
def test_a100_passes_through_the_measured_points(ranks: int, size: float, microseconds: float) -> None:
    time = collective_time("all-reduce", size, group(make_node("a100-80g"), ranks))
    assert time == pytest.approx(microseconds * 1e-6, rel=1e-9)


def test_a100_floor_lasts_until_4_mib() -> None:
    node = make_node("a100-80g")
    floor = [collective_time("all-reduce", size * MIB, group(node, 8)) for size in (1, 2, 4)]
    assert max(floor) / min(floor) < 1.04


@pytest.mark.parametrize(
    ("gpu", "ranks", "chosen"),
    [
        ("h100-sxm", 4, "ring"),
        ("h100-sxm", 5, "nvls"),
        ("h100-sxm", 8, "nvls"),
        ("b200", 5, "ring"),
        ("b200", 6, "nvls"),
    ],
)
def test_nvls_starts_at_the_group_that_nccl_starts_it(gpu: str, ranks: int, chosen: str) -> None:
    assert algorithm("all-reduce", 8e9, group(make_node(gpu, nvls=True), ranks)) == chosen


def test_nvls_is_off_when_the_node_has_none() -> None:
    assert algorithm("all-reduce", 8e9, group(make_node(nvls=False), 8)) == "ring"


# Bus bandwidth of 8 GiB on H200, GB/s: ml-engineering network chapter (nccl-tests).
@pytest.mark.parametrize(("ranks", "measured"), [(4, 363.3), (5, 414.2), (6, 435.6), (7, 460.0), (8, 473.1)])
def test_h200_bus_bandwidth_by_group_size(ranks: int, measured: float) -> None:
    assert bus_bandwidth(
        "all-reduce", 8 * 1024 * MIB, group(make_node("h200", nvls=True), ranks)
    ) / 1e9 == pytest.approx(measured, rel=0.02)


# 2 nodes p5 (16 H100, EFA): ring, then a tree through the switches; 16 nodes p5en: bus bandwidth 370 GB/s.
@pytest.mark.parametrize(
    ("nodes", "size", "microseconds"),
    [(2, 1024, 69.2), (2, 16 * MIB, 298.1), (2, 1024 * MIB, 4607.6), (16, 16384 * MIB, 92173.0)],
)
def test_between_nodes(nodes: int, size: float, microseconds: float) -> None:
    time = collective_time("all-reduce", size, group(make_node(nvls=True), 8 * nodes, Network.build("efa-v2")))
    assert time * 1e6 == pytest.approx(microseconds, rel=0.15)


def test_one_rank_and_no_bytes_cost_nothing(node: Node) -> None:
    assert collective_time("all-reduce", 1e9, group(node, 1)) == 0
    assert collective_time("all-gather", 0, group(node, 8)) == 0


@pytest.mark.parametrize("op", OPS)
@settings(max_examples=60)
@given(size=st.floats(1, 1e11), factor=st.floats(1, 100), ranks=st.sampled_from([2, 3, 8, 16, 64, 1024]),
       gpu=st.sampled_from(["v100-32g", "a100-80g", "h100-sxm", "b200", "l20"]))  # fmt: skip
def test_more_bytes_never_take_less_time(op: str, size: float, factor: float, ranks: int, gpu: str) -> None:
    place = group(make_node(gpu, nvls=True), ranks)
    assert collective_time(op, size * factor, place) >= collective_time(op, size, place) * (1 - 1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize("op", OPS)
def test_large_messages_go_at_the_rate_of_the_nics(op: str) -> None:
    node = make_node(gbps=800)
    place = group(node, 1024)
    time = collective_time(op, 1e12, place)  # type: ignore[arg-type]
    wire = {"all-reduce": 2.0, "all-to-all": 8.0 / ALL_TO_ALL_SHARE}.get(op, 1.0)
    assert time == pytest.approx(wire * 1e12 / group_rate(place), rel=0.02)


def test_groups_at_work_together_share_the_nics() -> None:
    node = make_node("a100-80g")
    alone, eight = Group(16, 1, 128, node, IB), Group(16, 1, 128, node, IB, concurrent=8)
    assert group_rate(alone) == group_rate(eight) == pytest.approx(50e9 * 0.92)
    four_cards = make_node("a100-80g", nics=4, gbps=400)
    assert group_rate(Group(16, 1, 128, four_cards, IB, 8)) == pytest.approx(6.25e9 * 0.92)
    assert group_rate(Group(16, 1, 128, four_cards, IB, 1)) == pytest.approx(12.5e9 * 0.92)


def test_oversubscription_and_congestion_divide_the_rate(node: Node) -> None:
    pods = FatTree(pod_gpus=256, oversubscription=7, congestion=1.5)
    inside, across = group(node, 256, pods), group(node, 512, pods)
    assert group_rate(inside) == pytest.approx(400e9 * 0.88 / 1.5)
    # All-to-all over two pods: half of all bytes go up.
    assert group_rate(across, everyone=True) == pytest.approx(400e9 * 0.88 / 1.5 / 3.5)


def test_rings_cross_a_pod_once() -> None:
    node, pods = make_node(), FatTree(pod_gpus=256, oversubscription=7)
    near = Group(64, 8, 512, node, pods)
    assert group_rate(near) == group_rate(near._replace(network=RailOptimized()))
    # One rank a pod: every pair of neighbours is in two pods, all traffic goes up.
    far = Group(16, 1, 4096, node, pods, concurrent=8)
    assert group_rate(far) == pytest.approx(50e9 * 0.88 / 7)
    # Four ranks a pod: every fourth message goes up, over 1/7 of the links.
    assert group_rate(far._replace(size=64)) == pytest.approx(50e9 * 0.88 * 4 / 7)


def test_sharp_halves_the_wire_bytes() -> None:
    node, plain = make_node(gbps=400), RailOptimized()
    sharp = RailOptimized(in_network_reduction=True)
    ratio = collective_time("all-reduce", 1e11, group(node, 512, plain)) / collective_time(
        "all-reduce", 1e11, group(node, 512, sharp)
    )
    assert ratio == pytest.approx(2.0, rel=0.02)
    assert algorithm("all-reduce", 1e11, group(node, 512, sharp)) == "sharp"


def test_trees_win_small_messages_at_scale_and_rings_large_ones() -> None:
    node = make_node("a100-80g")
    assert algorithm("all-reduce", 1024, group(node, 4096)) == "tree"
    assert algorithm("all-reduce", 1e11, group(node, 4096)) == "ring"


def test_a_domain_of_72_is_one_domain() -> None:
    node = make_node("b200", gpus=4, nics=4, gbps=1600, nvls=True, domain_gpus=72)
    assert set(algorithm_times("all-reduce", 1e9, Group(72, 72, 72, node, IB))) == {"ring", "nvls"}


def test_hierarchical_is_never_chosen_unasked_but_may_be_named(node: Node) -> None:
    place = group(node, 64)
    assert collective_time("all-reduce", 1e9, place, algorithm="hierarchical") > 0
    assert algorithm("all-reduce", 1e9, place) != "hierarchical"
    with pytest.raises(ValueError, match="possible: direct"):
        collective_time("all-to-all", 1e9, place, algorithm="ring")


def test_unknown_ops_and_sizes_are_refused(node: Node) -> None:
    with pytest.raises(ValueError, match="no collective"):
        collective_time("scan", 1, group(node, 8))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size >= 0"):
        collective_time("all-reduce", -1, group(node, 8))


def test_a_slower_link_of_the_same_generation_keeps_the_floor_and_scales_the_rate() -> None:
    full, halved = make_node("h100-sxm", nvls=True), make_node("h100-sxm", nvls=True, bandwidth_per_direction=200e9)
    small = [collective_time("all-reduce", 64, group(n, 8)) for n in (full, halved)]
    large = [collective_time("all-reduce", 1e10, group(n, 8)) for n in (full, halved)]
    assert small[1] == pytest.approx(small[0], rel=0.05)
    assert large[1] / large[0] == pytest.approx(450 / 200, rel=0.02)


def test_curves_are_monotone_even_where_the_measurement_dips() -> None:
    curve = Curve([1e3, 1e4, 1e5], [3.0, 2.0, 5.0])
    assert curve.at(1) == 3.0
    assert curve.at(1e4) == pytest.approx(3.0)
    assert curve.at(1e6) == 50.0
    assert curve.at(math.sqrt(1e4 * 1e5)) == pytest.approx(math.sqrt(3 * 5))
    with pytest.raises(ValueError, match="ascending"):
        Curve([2, 1], [1, 1])


def test_a_gpu_without_curves_takes_the_nearest_of_its_kind() -> None:
    assert fabric_of(make_node("l20")).name == "pcie"
    assert fabric_of(make_node("a100-80g")).name == "nvlink3"


def test_all_to_all_between_sockets_is_the_slowest_thing_on_pcie() -> None:
    node = make_node("l20")
    eight, four = (collective_time("all-to-all", 1e8, group(node, ranks)) for ranks in (8, 4))
    # four neighbours stay in their half; of eight, half of the bytes of four cross: 4 x 5e7 at a third of 12 GB/s
    assert eight == pytest.approx(4 * 5e7 / (0.33 * 12e9), rel=0.05)
    assert eight > 2 * four


def test_flows_between_sockets_share_their_link() -> None:
    pair = Group(2, 2, 8, make_node("l20"), IB)
    one, two = (collective_time("send", 1e9, pair._replace(concurrent=flows)) for flows in (1, 4))
    assert two == pytest.approx(1e9 / 3e9, rel=0.01)
    assert one == pytest.approx(1e9 / (0.25 * 31.5e9), rel=0.01)


def test_scattered_jobs_meet_the_oversubscription_everywhere() -> None:
    node = make_node()
    near, anywhere = (FatTree(pod_gpus=256, oversubscription=4, scattered=s) for s in (False, True))
    assert group_rate(group(node, 512, near)) == 4 * group_rate(group(node, 512, anywhere))
    assert group_rate(group(node, 128, near)) == group_rate(group(node, 128, anywhere))


def test_broadcasts_wait_a_slice_at_each_node() -> None:
    node = make_node("a100-80g", nics=4, gbps=400)
    few, many = (collective_time("broadcast", 1e7, group(node, ranks)) for ranks in (16, 1024))
    hop = 2**17 / 12.5e9 + 2.5e-6
    assert many - few == pytest.approx(126 * hop, rel=0.05)
