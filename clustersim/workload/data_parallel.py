"""Data-parallel traffic: who holds which shard, what is sent for it, and how much of it computation hides.

Parameters, gradients and optimizer state may be cut over different numbers of ranks (ZeRO 0 to 3, FSDP, HSDP, the
redundant sharding of InternEvo, arXiv 2401.09149). The ranks of one shard group are neighbours, so that a degree of one
node's GPUs keeps its gathers on the fast links and only what is left crosses nodes.

With n replicas, degrees p (parameters), g (gradients), o (optimizer) and r = max(g, o):
  gradients   reduce-scatter over r neighbours, then all-reduce of 1/r over the n/r groups (all-reduce over n when r =
  1); parameters  after the update, all-gather over the o/p ranks that updated one parameter shard;
  per layer   (p > 1) all-gather over p before its forward, and before its backward unless it was kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clustersim.errors import InputError, Problem
from clustersim.hardware.collectives import Group, collective_time


class Shards(NamedTuple):
    """Number of ranks over which each kind of state is cut."""

    parameters: int = 1
    gradients: int = 1
    optimizer: int = 1

    @property
    def reduce_over(self) -> int:
        """Ranks over which reduced gradients are cut: those that update them need no more."""
        return max(self.gradients, self.optimizer)


def zero_shards(zero: int, ranks: int, parameters: int | None = None, gradients: int | None = None,
                optimizer: int | None = None) -> Shards:  # fmt: skip
    """Degrees of ZeRO stage ``zero`` over ``ranks`` replicas; given degrees replace the stage's.

    Raises:
        InputError: when a degree does not divide the next wider one: parameters | gradients | optimizer | ranks.
    """
    given = (parameters, gradients, optimizer)
    stage = (ranks if zero >= 3 else 1, ranks if zero >= 2 else 1, ranks if zero >= 1 else 1)
    p, g, o = (own if own is not None else default for own, default in zip(given, stage, strict=True))
    for name, inner, outer in (("parameters", p, max(g, o)), ("gradients", g, ranks), ("optimizer", o, ranks)):
        if inner < 1 or outer % inner:
            path = f"parallelism.shard.{name}"
            raise InputError(
                Problem(path, f"{inner} must divide {outer} (parameters | gradients, optimizer | {ranks} replicas)")
            )
    return Shards(p, g, o)


def split_group(group: Group, inner: int) -> tuple[Group, Group]:
    """A group cut into neighbourhoods of ``inner`` ranks: one neighbourhood, and one rank of each of them.

    The second groups run side by side: each rank of a neighbourhood has one.
    """
    outer = group.size // inner
    stride = max(1, group.span_gpus // group.size)
    per_node = max(1, min(inner, group.per_node))
    near = group._replace(size=inner, per_node=per_node, span_gpus=min(group.span_gpus, inner * stride))
    beside = max(1, group.per_node // per_node)
    near = near._replace(concurrent=group.concurrent * beside if inner > group.per_node else group.concurrent)
    far = group._replace(size=outer, per_node=beside, concurrent=group.concurrent * per_node)
    return near, far


def gradient_seconds(size: float, group: Group, shards: Shards) -> float:
    """Seconds to reduce ``size`` bytes of gradients of one rank over its replicas."""
    over = shards.reduce_over
    if group.size == 1:
        return 0.0
    if over == 1:
        return collective_time("all-reduce", size, group)
    near, far = split_group(group, over)
    return collective_time("reduce-scatter", size, near) + collective_time("all-reduce", size / over, far)


def update_gather_seconds(size: float, group: Group, shards: Shards, *, broadcast: bool = False) -> float:
    """Seconds to bring updated parameters (``size`` bytes a rank before sharding) to every rank that holds them.

    ``broadcast``: each shard's owner sends it on its own, one after the other (InternEvo, DeepSpeed before 0.10),
    instead
    of one all-gather: the bytes are the same, the start-up time comes once a shard.
    """
    over = shards.optimizer // shards.parameters if shards.optimizer >= shards.parameters else 1
    if over <= 1 or group.size == 1:
        return 0.0
    near, _ = split_group(group, shards.optimizer)
    owners = near._replace(size=over, per_node=max(1, min(over, near.per_node)))
    if broadcast:
        return over * collective_time("broadcast", size / shards.optimizer, owners)
    return collective_time("all-gather", size / shards.parameters, owners)


def layer_gather_seconds(size: float, group: Group, shards: Shards) -> float:
    """Seconds to gather one layer's parameters (``size`` bytes whole) before use."""
    return (
        0.0 if shards.parameters == 1 else collective_time("all-gather", size, split_group(group, shards.parameters)[0])
    )


def bucketed_exposed(traffic: float, window: float, buckets: int) -> float:
    """Seconds of ``traffic`` left over after ``window`` seconds of the computation that makes its ``buckets``.

    Equal buckets become ready evenly through the window and go out one after the other: bucket i is ready at
    window·(i+1)/n. The last one is always exposed: traffic/n when computation is the slower, else all but the share
    of the window after the first bucket.
    """
    if traffic <= 0:
        return 0.0
    if buckets < 1:
        raise ValueError("needs at least one bucket")
    return max(traffic / buckets, traffic - window * (1 - 1 / buckets))


def prefetched_exposed(traffic: float, window: float, buckets: int) -> float:
    """Seconds of gathers left over when the first of ``buckets`` layers waits for its own and the others come beside
    it.

    The mirror image of :func:`bucketed_exposed`: layer i may start when bucket i is there.
    """
    return bucketed_exposed(traffic, window, buckets)


class Unit(NamedTuple):
    """One FSDP unit (a layer) in one pass: seconds of computation, of the gather before it, of the scatter after it."""

    compute: float
    gather: float = 0.0
    scatter: float = 0.0


class PassTime(NamedTuple):
    """Seconds of a pass over FSDP units."""

    total: float
    exposed: float
    """What computation waits, and what is still on the wire after it."""


def fsdp_pass(units: Sequence[Unit], *, overlap: bool = True, limit: int = 2, wire_free: float = 0.0) -> PassTime:
    """One pass over FSDP units on a compute stream and one communication stream.

    Gathers run ahead, but at most ``limit`` gathered units wait or compute at a time (FSDP's rate limiter); a
    scatter is
    queued when its unit ends, behind the gather already issued. Without ``overlap`` everything is sequential.
    ``wire_free`` is when the wire is free at first (traffic of an earlier pass).
    """
    compute = sum(unit.compute for unit in units)
    if not overlap:
        total = compute + sum(unit.gather + unit.scatter for unit in units)
        return PassTime(total, total - compute)
    wire, busy = wire_free, 0.0
    ends: list[float] = []
    waiting: list[tuple[float, float]] = []
    for i, unit in enumerate(units):
        allowed = ends[i - limit] if i >= limit else 0.0
        # Scatters that were queued before this gather may be issued go first.
        while waiting and waiting[0][0] <= allowed:
            ready, seconds = waiting.pop(0)
            wire = max(wire, ready) + seconds
        if unit.gather:
            wire = max(wire, allowed) + unit.gather
            busy = max(busy, wire)
        busy += unit.compute
        ends.append(busy)
        if unit.scatter:
            waiting.append((busy, unit.scatter))
    for ready, seconds in waiting:
        wire = max(wire, ready) + seconds
    total = max(busy, wire) if any(unit.scatter for unit in units) else busy
    return PassTime(total, total - compute)


def prioritised_exposed(traffic: float, urgent: Sequence[tuple[float, float]], chunks: int, startup: float) -> float:
    """Seconds of gradient traffic left over beside urgent messages on the same wire, when urgent ones go first.

    ``urgent`` is the pass as (seconds of computation, seconds of the all-to-all after it); gradients are cut in
    ``chunks``
    that each pay ``startup`` and are sent only while no all-to-all waits (FlowMoE, arXiv 2510.00207): a chunk on the
    wire is not interrupted, so an all-to-all may wait for the rest of one chunk.
    """
    if traffic <= 0:
        return 0.0
    each = traffic / chunks + startup
    left, late = chunks, 0.0
    for compute, message in urgent:
        sent = min(left, -(-compute // each)) if compute > 0 else 0
        if sent and message > 0:
            late += max(0.0, sent * each - compute)
        left -= int(sent)
    return late + left * each
