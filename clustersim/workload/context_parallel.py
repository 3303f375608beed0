"""Context parallelism: core attention whose keys and values lie on several GPUs.

Kinds: ``ring`` (keys and values go around, Liu et al. 2023), ``double-ring`` (around the node inside, between nodes
outside: BurstAttention, arXiv 2403.09347; LoongTrain), ``ulysses`` (all-to-all: sequence cut becomes head cut), ``usp``
(Ulysses groups inside a ring, arXiv 2405.07719). Tokens are laid out in zigzag (each GPU gets an early and a late
part: causal work is even) or contiguously (the last GPU does everything).

Elements passed a GPU, with T tokens, q and k the widths of all query and key/value heads on this GPU:
  ring        forward n−1 steps of 2·T·k; backward n−1 steps of 4·T·k (keys, values, and their gradients)
  burst       backward n−1 steps of 3·T·q (queries, their gradients, output gradients) and two fp32 statistics a head
  ulysses     all-to-all of T·(q + 2k) in and T·q out, forward; the same backward
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from clustersim.errors import InputError, Problem
from clustersim.hardware.collectives import Group, collective_time

ContextKind = Literal["ring", "double-ring", "ulysses", "usp"]


class ContextGroup(NamedTuple):
    """Where the ranks of one context-parallel group sit."""

    ring: Group
    """Ranks around which keys and values go (one rank of each Ulysses group)."""
    ulysses: Group
    """Ranks that exchange heads for sequence."""
    double: bool = False
    """Rings inside nodes within a ring between nodes."""


def context_group(
    group: Group, kind: ContextKind, ulysses: int | None = None, kv_heads: float | None = None
) -> ContextGroup:
    """The ring and the Ulysses group of a context-parallel ``group``; Ulysses ranks are neighbours.

    ``ulysses`` defaults to the whole group (``ulysses``), or to the ranks of one node (``usp``), at most ``kv_heads``.

    Raises:
        InputError: when the degree does not divide the group or exceeds the key/value heads.
    """
    n = group.size
    if kind in ("ring", "double-ring"):
        degree = 1
    else:
        default = n if kind == "ulysses" else min(group.per_node, n, int(kv_heads) if kv_heads else n)
        degree = ulysses if ulysses is not None else max(1, default)
    if n % degree:
        raise InputError(Problem("parallelism.context.ulysses", f"{degree} must divide cp {n}"))
    stride = max(1, group.span_gpus // n)
    near_per_node = max(1, min(degree, group.per_node))
    beside = max(1, group.per_node // near_per_node)
    near = group._replace(size=degree, per_node=near_per_node, span_gpus=degree * stride,
                          concurrent=group.concurrent * (beside if degree > group.per_node else 1))  # fmt: skip
    ring = group._replace(
        size=n // degree, per_node=min(beside, n // degree), concurrent=group.concurrent * near_per_node
    )
    return ContextGroup(ring, near, kind == "double-ring" or (kind == "usp" and ring.per_node > 1 and ring.domains > 1))


class RingWork(NamedTuple):
    """One pass of attention around a ring: seconds of one step's computation and bytes of one step's message."""

    step: float
    """A full (unmasked) block against a full block, on this GPU."""
    message: float
    merge: float = 0.0
    """Seconds to fold one step's result into the running one."""


def causal_steps(ranks: int, causal: bool, balanced: bool) -> list[float]:
    """Share of a full block that the slowest GPU computes at each step of a ring of ``ranks``.

    Without a mask every step is full. Causal and balanced (zigzag, striped): every step is half. Causal and
    contiguous: the last
    GPU computes half of its own block, then all the others in full.
    """
    if not causal:
        return [1.0] * ranks
    if balanced:
        return [0.5] * ranks
    return [0.5] + [1.0] * (ranks - 1)


def ring_seconds(
    work: RingWork, ranks: int, send: float, *, causal: bool, balanced: bool, overlap: bool = True
) -> float:
    """Seconds of one pass around a flat ring: double buffering sends the next block beside the computation on this one.

    T = Σ max(step i, send) over the first n−1 steps + the last step; without overlap all sends are added.
    """
    steps = [share * work.step + (work.merge if ranks > 1 else 0.0) for share in causal_steps(ranks, causal, balanced)]
    if not overlap:
        return sum(steps) + (ranks - 1) * send
    return sum(max(step, send) for step in steps[:-1]) + steps[-1]


def double_ring_seconds(work: RingWork, inner: int, outer: int, send_inner: float, send_outer: float, *, causal: bool,
                        balanced: bool) -> float:  # fmt: skip
    """Seconds of one pass around rings of ``inner`` ranks (fast) inside a ring of ``outer`` nodes.

    The block for the next node leaves at the start of a node round and has the whole round to arrive, so node links
    carry
    outer−1 messages instead of being paced by each of the inner·outer steps.
    """
    steps = [share * work.step + work.merge for share in causal_steps(inner * outer, causal, balanced)]
    total = 0.0
    for node in range(outer):
        own = steps[node * inner : (node + 1) * inner]
        inside = sum(max(step, send_inner) for step in own[:-1]) + own[-1]
        total += max(inside, send_outer) if node < outer - 1 else inside
    return total


def ring_pass_seconds(
    work: RingWork, place: ContextGroup, *, causal: bool, balanced: bool, overlap: bool = True
) -> float:
    """Seconds of one pass around the ring of ``place``: flat (paced by its slowest link) or double.

    A flat ring across nodes sends one block a step over a node's edge; the rank at the edge uses its own NIC. A
    double ring sends
    every rank's block to the next node at once.
    """
    ring, n = place.ring, place.ring.size
    if n == 1:
        return work.step * causal_steps(1, causal, balanced)[0]
    inside = send_seconds(work.message, ring, inside=True)
    if ring.domains == 1:
        return ring_seconds(work, n, inside, causal=causal, balanced=balanced, overlap=overlap)
    if place.double and ring.per_node > 1 and overlap:
        every = ring._replace(size=2, per_node=1, concurrent=ring.concurrent * ring.per_node)
        across = collective_time("send", work.message, every)
        return double_ring_seconds(work, ring.per_node, ring.domains, inside, across, causal=causal, balanced=balanced)
    edge = send_seconds(work.message, ring, inside=False)
    return ring_seconds(work, n, max(inside, edge) if ring.per_node > 1 else edge, causal=causal, balanced=balanced,
                        overlap=overlap)  # fmt: skip


def send_seconds(size: float, ring: Group, *, inside: bool) -> float:
    """Seconds of one block to the next rank of the ring, inside a domain or over its edge."""
    return collective_time("send", size, ring._replace(size=2, per_node=2 if inside else 1, span_gpus=ring.span_gpus))


def ulysses_seconds(tokens: float, query_width: float, kv_width: float, width: float, group: Group) -> float:
    """Seconds of the all-to-alls of one pass: queries, keys, values in; output back (three and one messages).

    ``tokens`` of this GPU before the exchange, head widths of all its heads, ``width`` bytes an element. Key/value
    heads
    fewer than ranks are sent repeated.
    """
    if group.size == 1:
        return 0.0
    sent = [query_width, max(kv_width, 0.0), max(kv_width, 0.0), query_width]
    return sum(collective_time("all-to-all", tokens * each * width, group) for each in sent)


class ContextBytes(NamedTuple):
    """Bytes of one ring step of this GPU."""

    forward: float
    backward: float


def ring_bytes(tokens: float, query_width: float, kv_width: float, heads: float, width: float, *, burst: bool = False,
               gradient_width: float | None = None) -> ContextBytes:  # fmt: skip
    """Bytes of one step: keys and values forward; backward with their gradients, or Burst's three query tensors.

    Gradients that go around with their keys are accumulated in ``gradient_width`` bytes (default: as the activations).
    Burst sends the smaller of both: with grouped-query attention keys and values are fewer than queries.
    """
    grad = gradient_width if gradient_width is not None else width
    classic = tokens * kv_width * 2 * (width + grad)
    if burst:
        queries = tokens * (query_width * (2 * width + grad) + 2 * 4.0 * heads)
        return ContextBytes(2 * tokens * kv_width * width, min(classic, queries))
    return ContextBytes(2 * tokens * kv_width * width, classic)
