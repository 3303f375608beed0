"""Expert parallelism: bytes and seconds of dispatch and combine, and pipelining them with computation.

A token goes to ``top_k`` experts spread over ep ranks. Plain all-to-all sends every copy; a kernel that sends one
copy a
node and forwards it inside (DeepEP) sends fewer across nodes: with e nodes and evenly spread experts a token of k
copies reaches e·(1 − (1 − 1/e)^k) nodes on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clustersim.hardware.collectives import Group, collective_time, group_rate
from clustersim.hardware.fabric import fabric_of


def nodes_reached(nodes: int, top_k: int, limit: int | None = None) -> float:
    """Nodes that the copies of one token reach on average, its own counted; ``limit`` is node-limited routing's
    (DeepSeek: 4)."""
    spread = nodes * (1 - (1 - 1 / nodes) ** top_k)
    return spread if limit is None else min(spread, float(limit))


def exchange_seconds(
    size: float, group: Group, top_k: int, *, once_a_node: bool = False, node_limit: int | None = None
) -> float:
    """Seconds of one dispatch or combine in which each rank sends ``size`` bytes (all copies of its tokens).

    ``once_a_node`` sends one copy a node over the network and spreads it over the fast links (DeepEP).
    """
    if group.size == 1 or size == 0:
        return 0.0
    if not once_a_node or group.domains == 1:
        return collective_time("all-to-all", size, group)
    inside = min(group.size, group.per_node)
    copies = nodes_reached(group.domains, top_k, node_limit) * (1 - 1 / group.domains)
    away = size / top_k * copies * inside / group_rate(group, everyone=True)
    fabric = fabric_of(group.node)
    near = size * (inside - 1) / inside / (fabric.all_to_all_share * group.node.link_bandwidth)
    latency = group.network.startup + group.network.latency_at(group.span_gpus, group.node.gpus)
    return latency + max(away, near)


class MoeStage(NamedTuple):
    """Seconds of one MoE layer in one pass."""

    attention: float
    experts: float
    dispatch: float
    combine: float

    @property
    def total(self) -> float:
        """All of it in a row."""
        return self.attention + self.experts + self.dispatch + self.combine


def pipelined_seconds(layers: Sequence[MoeStage], degree: int, startup: float = 0.0) -> float:
    """Seconds of MoE layers whose microbatch is cut in ``degree`` parts that flow through compute and communication
    streams.

    Compute: attention of part 1 … R, then experts 1 … R. Communication: dispatch r after attention r, combine r after
    experts r, one at a time, dispatches first (FlowMoE, arXiv 2510.00207). Attention r of the next layer waits for
    combine r. Each message pays ``startup`` once more for being cut. ``degree`` 1 is the sequential layer.
    """
    if degree < 1:
        raise ValueError("degree must be at least 1")
    compute = wire = 0.0
    ready = [0.0] * degree
    for layer in layers:
        extra = startup if degree > 1 else 0.0
        sent = [0.0] * degree
        for r in range(degree):
            compute = max(compute, ready[r]) + layer.attention / degree
            wire = max(wire, compute) + layer.dispatch / degree + (extra if layer.dispatch else 0.0)
            sent[r] = wire
        for r in range(degree):
            compute = max(compute, sent[r]) + layer.experts / degree
            wire = max(wire, compute) + layer.combine / degree + (extra if layer.combine else 0.0)
            ready[r] = wire
    return max(compute, wire)


def busiest_load(experts: int, ep: int, tokens: float, top_k: int) -> float:
    """Load of the busiest expert-parallel rank ÷ the mean when every token picks experts at random.

    Copies arriving at a rank are binomial with mean m = tokens·top_k (ep ranks of ``tokens`` each send tokens·k·ep
    copies
    over ep ranks); the largest of ep has about m + √(2·m·ln ep) (Gaussian extreme). Trained routers are worse;
    balancing losses bring them near this. ``experts`` ≥ ep.
    """
    from math import log, sqrt

    if ep == 1 or experts < ep:
        return 1.0
    mean = tokens * top_k
    return 1.0 + sqrt(2 * log(ep) / mean) if mean > 0 else 1.0
