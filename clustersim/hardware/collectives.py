"""Seconds of a collective: by algorithm, message size, group and network, the fastest chosen as NCCL's tuner does.

Sizes follow nccl-tests: all-reduce and broadcast: the buffer of one rank; all-gather: the gathered result;
reduce-scatter:
the buffer before scattering; all-to-all: all that one rank sends, its own share included; send: the message.
Inside a fast domain the times are measured curves (:mod:`clustersim.hardware.fabric`). Across domains

    T = startup + steps x latency + ramp(bytes a NIC) + wire bytes / rate

with ``wire`` = 2(n-1)/n (ring), 1 (tree of two nodes), 2 (double binary tree), 1 (reduction in the switches) for an
all-reduce, (n-1)/n for a gather or scatter; ``rate`` is what the group gets of its nodes' NICs.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, Protocol

from clustersim.hardware.fabric import Fabric, fabric_of
from clustersim.hardware.network import Network
from clustersim.hardware.node import Node

Op = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send"]
Algorithm = Literal["ring", "tree", "nvls", "nvls-tree", "sharp", "hierarchical", "direct"]

# Two stages in a pipeline (inside and between nodes) disturb each other near balance: (a^4 + b^4)^(1/4), which is the
# slower one when they differ. 16 H100: 275 and 372 GB/s of algorithm bandwidth combine to 258, measured 260.
STAGE_POWER = 4.0

# What an all-to-all between nodes reaches of a ring's rate: every NIC talks to every other in an order that no schedule
# coordinates. DeepEP's scheduled kernels reach 43 to 58 of 50 GB/s (the share kept inside a node counted); plain sends
# of NCCL stay below. No component measurement of NCCL's all-to-all is known to the project.
ALL_TO_ALL_SHARE = 0.75

# Bytes that a node receives before it forwards them in a broadcast (NCCL's network chunk, NCCL_P2P_NET_CHUNKSIZE).
BROADCAST_SLICE = 2.0**17

# NCCL's tuner (src/graph/tuning.cc) gives a tree 0.92 of a ring's rate: reduction and forwarding take turns at inner
# nodes.
TREE_SHARE = 0.92


class MeasuredMessages(Protocol):
    """Measured seconds of messages, where there are any (a profile's curves)."""

    def message(self, op: str, size: float, ranks: int, inside: bool) -> float | None:
        """Seconds of ``op`` on ``size`` bytes over ``ranks``, or None."""


class Group(NamedTuple):
    """Ranks that communicate, and where they sit."""

    size: int
    """Ranks."""
    per_node: int
    """Ranks inside one fast domain (a node, or an NVLink domain of several nodes)."""
    span_gpus: int
    """Consecutive GPUs that the group covers."""
    node: Node
    network: Network
    concurrent: int = 1
    """Groups of the same kind that use a domain's NICs at the same time."""
    measured: MeasuredMessages | None = None
    """Measurements of just such groups; they replace the model where no algorithm is asked for."""

    @property
    def domains(self) -> int:
        """Fast domains that the group touches."""
        return -(-self.size // self.per_node)


def domain_gpus(node: Node) -> int:
    """GPUs of one fast domain."""
    return node.intra_node.domain_gpus or node.gpus


def group_rate(group: Group, *, everyone: bool = False) -> float:
    """Bytes/s, one direction, between a domain's ranks of the group and the rest of the group, all of them together.

    The ranks reach the NICs of their own GPUs (at least one); groups at work at the same time share the domain's NICs.
    ``everyone``: each rank talks to all others (all-to-all) rather than to its neighbour in a ring.
    """
    node, network = group.node, group.network
    nics = node.nics * domain_gpus(node) / node.gpus
    reached = min(nics, group.per_node * max(1.0, node.nics / node.gpus))
    share = min(reached, nics / max(1, group.concurrent)) * node.nic_bandwidth
    return share * network.efficiency / (_shared_above(group, everyone) * network.congestion)


def _shared_above(group: Group, everyone: bool) -> float:
    """Factor by which links above the last full-bandwidth tier (a pod) slow the group down, at least 1.

    A pod of P GPUs has uplinks for P/over of them. Ranks lie ``stride`` GPUs apart, so P/stride of a group share a
    pod and one of them sends its ring's bytes out; all groups together load the uplinks by over x stride / P. In an
    all-to-all every rank sends the share of the ranks outside.
    """
    gpus = group.node.gpus
    over = group.network.oversubscription_at(group.span_gpus, gpus)
    if over <= 1.0 or group.network.scattered:
        return over
    below = [
        tier.gpus for tier in group.network.tiers(gpus) if tier.gpus < group.span_gpus and tier.oversubscription < over
    ]
    inside = min(float(group.size), max(1.0, max(below, default=1.0) * group.size / group.span_gpus))
    crossing = 1 - inside / group.size if everyone else 1 / inside
    return min(over, max(1.0, over * crossing))


def _ramp(size: float, group: Group) -> float:
    """Seconds beyond startup and bytes ÷ rate; rises with the root of the bytes a NIC (fits EFA of two generations)."""
    network = group.network
    if network.ramp_time == 0:
        return 0.0
    nics = max(1.0, min(group.node.nics, group.per_node * group.node.nics / group.node.gpus))
    x = math.sqrt(size / nics / max(1.0, network.ramp_bytes))
    return network.ramp_time * x / (1 + x)


def _latency(group: Group) -> float:
    return group.network.latency_at(group.span_gpus, group.node.gpus)


def _stages(*seconds: float) -> float:
    longest = max(seconds)
    return longest * sum((s / longest) ** STAGE_POWER for s in seconds) ** (1 / STAGE_POWER) if longest > 0 else 0.0


def _local_all_reduce(fabric: Fabric, group: Group, size: float, ranks: int) -> dict[Algorithm, float]:
    link = group.node.link_bandwidth
    times: dict[Algorithm, float] = {"ring": fabric.all_reduce_ring(size, ranks, link)}
    nvls = fabric.all_reduce_nvls(size, ranks, link) if group.node.intra_node.in_network_reduction else None
    if nvls is not None:
        # One kernel serves small messages on either path: the curve measured already is the tuner's choice at each
        # size.
        times["nvls"] = nvls
    return times


def _all_reduce(fabric: Fabric, group: Group, size: float) -> dict[Algorithm, float]:
    ranks, inside, nodes = group.size, min(group.size, group.per_node), group.domains
    if nodes == 1:
        return _local_all_reduce(fabric, group, size, ranks)
    rate, latency, link = group_rate(group), _latency(group), group.node.link_bandwidth
    base = group.network.startup + _ramp(size, group)
    wire = 2 * (ranks - 1) / ranks * size
    # A ring posts its next message before the last is acknowledged: half a latency a step between nodes, two ways
    # round.
    steps = (nodes - 1) * latency + 2 * (ranks - nodes) * fabric.hop
    times: dict[Algorithm, float] = {
        "ring": base + steps + _stages(wire / rate, wire / (fabric.share * link) if inside > 1 else 0.0)
    }
    depth = 2 * (math.log2(nodes) * latency + (inside - 1) * fabric.hop)
    up = size * (1 if nodes == 2 else 2) / (TREE_SHARE * rate)
    chain = (2 * size if inside > 1 else 0.0) / (fabric.share * link)
    times["tree"] = base + depth + _stages(up, chain)
    nvls = fabric.nvls if group.node.intra_node.in_network_reduction else None
    if nvls is not None and inside >= nvls.from_ranks:
        switch = size / (nvls.curves[max(nvls.curves)].rate * link / fabric.link)
        times["nvls-tree"] = base + depth + _stages(up, switch)
    if group.network.in_network_reduction:
        hops = 2 * group.network.tier_of(group.span_gpus, group.node.gpus).hops
        times["sharp"] = base + latency + 0.5e-6 * hops + _stages(size / rate, chain)
    local = 2 * fabric.gather(size, inside, link) if inside > 1 else 0.0
    shard = Group(nodes, 1, group.span_gpus, group.node, group.network, group.concurrent * inside)
    if inside > 1:
        times["hierarchical"] = local + _all_reduce(fabric, shard, size / inside)["ring"]
    return times


def _gather(fabric: Fabric, group: Group, size: float) -> dict[Algorithm, float]:
    link = group.node.link_bandwidth
    if group.domains == 1:
        return {"ring": fabric.gather(size, group.size, link)}
    wire = (group.size - 1) / group.size * size
    inside = wire / (fabric.share * link) if group.per_node > 1 else 0.0
    steps = (group.domains - 1) * _latency(group) / 2 + (group.size - group.domains) * fabric.hop
    base = group.network.startup + _ramp(size / 2, group) + steps
    return {"ring": base + _stages(wire / group_rate(group), inside)}


def _all_to_all(fabric: Fabric, group: Group, size: float) -> dict[Algorithm, float]:
    link, inside = group.node.link_bandwidth, min(group.size, group.per_node)
    if group.domains == 1:
        half = group.span_gpus <= domain_gpus(group.node) / 2
        return {"direct": fabric.all_to_all(size, group.size, link, crossing=not half)}
    # Both paths work at once; ranks of a domain share its NICs.
    away = (group.size - inside) / group.size * size * inside / (ALL_TO_ALL_SHARE * group_rate(group, everyone=True))
    near = (inside - 1) / group.size * size / (fabric.all_to_all_share * link)
    # One message to each peer: 0.5 µs to post a send of its own.
    base = group.network.startup + _latency(group) + 0.5e-6 * (group.size - inside)
    return {"direct": base + _stages(away, near)}


def _broadcast(fabric: Fabric, group: Group, size: float) -> dict[Algorithm, float]:
    if group.domains == 1:
        return {"ring": fabric.broadcast(size, group.size, group.node.link_bandwidth)}
    base = group.network.startup + _ramp(size / 2, group)
    # Every node forwards a slice once it has it: the last one waits for a slice's time at each hop.
    slice_seconds = min(size, BROADCAST_SLICE) / group.node.nic_bandwidth
    hops = (group.domains - 1) * (_latency(group) / 2 + slice_seconds)
    return {"ring": base + hops + size / group_rate(group)}


def _send(fabric: Fabric, group: Group, size: float) -> dict[Algorithm, float]:
    if group.domains == 1:
        return {"direct": fabric.send(size, group.node.link_bandwidth, group.concurrent)}
    return {"direct": fabric.send_latency + _latency(group) + size / group_rate(group)}


_MODELS = {"all-reduce": _all_reduce, "all-gather": _gather, "reduce-scatter": _gather, "all-to-all": _all_to_all,
           "broadcast": _broadcast, "send": _send}  # fmt: skip


def algorithm_times(op: Op, size: float, group: Group) -> dict[Algorithm, float]:
    """Seconds by each algorithm that the group and its fabric allow.

    Raises:
        ValueError: for an unknown op, a negative size, or a group without ranks.
    """
    if op not in _MODELS:
        raise ValueError(f"there is no collective '{op}'; known: {', '.join(_MODELS)}")
    if not size >= 0 or group.size < 1 or group.per_node < 1:
        raise ValueError(f"needs size >= 0 and at least one rank, got {size} bytes and {group.size} ranks")
    if size == 0 or group.size == 1:
        return {"direct": 0.0}
    return _MODELS[op](fabric_of(group.node), group, size)


def algorithm(op: Op, size: float, group: Group) -> Algorithm:
    """The algorithm that NCCL's tuner would choose: the fastest in its model (``hierarchical`` is the framework's,
    never NCCL's).

    Inside one domain with in-switch reduction that is NVLS from its smallest group on. Ties: the first of
    ring, nvls, tree, nvls-tree, sharp, direct.
    """
    times = algorithm_times(op, size, group)
    if "nvls" in times:
        return "nvls"
    return min((name for name in times if name != "hierarchical"), key=lambda name: times[name])


def collective_time(op: Op, size: float, group: Group, *, algorithm: Algorithm | Literal["auto"] = "auto") -> float:
    """Seconds of ``op`` on ``size`` bytes (nccl-tests convention, see the module) over ``group``.

    A group of one rank and an empty message cost nothing.

    Raises:
        ValueError: when ``algorithm`` does not exist for this op and group.
    """
    times = algorithm_times(op, size, group)
    if algorithm == "auto":
        if group.measured is not None and size > 0 and group.size > 1:
            known = group.measured.message(op, size, group.size, group.domains == 1)
            if known is not None:
                return known
        if "nvls" in times:
            return times["nvls"]
        return min(seconds for name, seconds in times.items() if name != "hierarchical")
    if algorithm not in times:
        raise ValueError(f"no {algorithm} for {op} here; possible: {', '.join(times)}")
    return times[algorithm]


def bus_bandwidth(op: Op, size: float, group: Group) -> float:
    """Bus bandwidth as nccl-tests prints it, bytes/s: size ÷ time × 2(n-1)/n (all-reduce), (n-1)/n (gather, scatter,
    all-to-all), 1."""
    n = group.size
    factor = {"all-reduce": 2 * (n - 1) / n, "broadcast": 1.0, "send": 1.0}.get(op, (n - 1) / n)
    seconds = collective_time(op, size, group)
    return size / seconds * factor if seconds > 0 else math.inf
