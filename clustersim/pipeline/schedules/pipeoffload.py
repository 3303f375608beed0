"""PipeOffload's grouped interleaving: small groups, W right behind I, activations of the first chunks on the host.

A group of g microbatches (⌈p/2⌉ ≤ g ≤ p) passes each chunk. In slots of one op, position i of the group runs F of chunk
c in slot 3g·c + 3i + r, and from 3(p−1−r) + 1 slots after the last chunk's first F on, I and W of chunk v−1−c in the
two slots that the forwards leave free. Groups repeat every 3gv slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from clustersim.pipeline.ops import Action, Kind, Op
from clustersim.pipeline.orders import by_slot
from clustersim.pipeline.schedule import Pipeline, schedule


def group_size(pipe: Pipeline, group: int | None) -> int:
    """The group in force: the user's, else ⌈p/2⌉."""
    return (pipe.ranks + 1) // 2 if group is None else group


def rules(pipe: Pipeline, group: int | None = None, offload_chunks: int = 0) -> Iterator[str]:
    """⌈p/2⌉ <= g <= p, v >= 2, and no more chunks offloaded than there are."""
    least = (pipe.ranks + 1) // 2
    if not least <= group_size(pipe, group) <= pipe.ranks:
        yield f"needs ceil(p/2) = {least} <= group <= p = {pipe.ranks}, got {group}"
    if pipe.chunks < 2:
        yield f"needs chunks >= 2, got {pipe.chunks}"
    if offload_chunks > pipe.chunks:
        yield f"needs offload_chunks <= chunks = {pipe.chunks}, got {offload_chunks}"


def held(pipe: Pipeline, rank: int, group: int | None = None) -> float:
    """Forwards that can start before the backward of the same chunk and group returns, without offload: counted on
    slots."""
    peak = now = 0
    for op in by_slot(_slots(pipe, rank, group_size(pipe, group))):
        now += {Kind.F: 1, Kind.W: -1}.get(op.kind, 0)
        peak = max(peak, now)
    return peak / pipe.chunks


@schedule(
    "pipeoffload",
    aliases=("grouped-interleaved",),
    defined="v >= 2, ceil(p/2) <= g <= p",
    in_flight=held,
    formula="about (g(v-1) + p)/v; less what is offloaded",
    rules=rules,
    chunks=None,
    default_chunks=2,
    splits_backward=True,
    source="Wan et al., PipeOffload, arXiv 2503.01328; sail-sg grouped interleaving",
)
def pipeoffload(
    pipe: Pipeline,
    rank: int,
    *,
    group: Annotated[int | None, Field(ge=1, description="microbatches a group, ceil(p/2) when absent")] = None,
    offload_chunks: Annotated[
        int, Field(ge=0, description="chunks, from the first, whose activations go to the host")
    ] = 0,
) -> Iterator[Action]:
    """Interleaving in groups below p, W right behind I, first chunks' activations offloaded."""
    order = by_slot(_slots(pipe, rank, group_size(pipe, group)))
    return _offloaded(order, pipe.ranks * offload_chunks) if offload_chunks else iter(order)


def _slots(pipe: Pipeline, rank: int, group: int) -> Iterator[tuple[int, Op]]:
    p, m, v = pipe.ranks, pipe.microbatches, pipe.chunks
    first_backward = 3 * group * (v - 1) + rank + 3 * (p - 1 - rank) + 1
    for unit in range(m):
        start = unit // group * 3 * group * v + 3 * (unit % group)
        for chunk in range(v):
            slot = start + 3 * group * chunk
            stage = (v - 1 - chunk) * p + rank
            yield slot + rank, Op(chunk * p + rank, Kind.F, unit)
            yield slot + first_backward, Op(stage, Kind.I, unit)
            yield slot + first_backward + 1, Op(stage, Kind.W, unit)


def _offloaded(order: list[Op], stages: int) -> Iterator[Op]:
    """OFFLOAD right behind the forward, RELOAD one op ahead of the input gradient, for stages below ``stages``."""
    for op, after in zip(order, [*order[1:], None], strict=True):
        if (
            after is not None
            and after.kind is Kind.I
            and after.stage < stages
            and op != Op(after.stage, Kind.F, after.microbatch)
        ):
            yield Op(after.stage, Kind.RELOAD, after.microbatch)
        yield op
        if op.kind is Kind.F and op.stage < stages:
            yield Op(op.stage, Kind.OFFLOAD, op.microbatch)
        if (
            after is not None
            and after.kind is Kind.I
            and op == Op(after.stage, Kind.F, after.microbatch)
            and op.stage < stages
        ):
            yield Op(op.stage, Kind.RELOAD, op.microbatch)
