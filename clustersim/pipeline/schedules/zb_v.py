"""ZB-V: two chunks in a V, so that the loss comes back to rank 0 and memory is even; no idle time within a rank's span.

Two constructions: torch's hand-made list, and the greedy list of the authors (see ``clustersim.pipeline.greedy_v``).
Both are without idle time at equal F, I, W; they differ in which W goes where.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from clustersim.pipeline.ops import Action, Kind, Op
from clustersim.pipeline.placement import Placement
from clustersim.pipeline.schedule import Pipeline, schedule


def notes(pipe: Pipeline) -> Iterator[str]:
    """Fewer microbatches than fill the V."""
    if pipe.microbatches < 2 * pipe.ranks - 1:
        yield f"m={pipe.microbatches} < 2p - 1 = {2 * pipe.ranks - 1}: it runs, but not without a bubble"


@schedule(
    "zb-v",
    aliases=("zbv",),
    defined="v = 2; m >= 2p - 1 for zero bubble (fewer run)",
    in_flight=lambda pipe, rank: pipe.ranks,
    formula="p",
    notes=notes,
    placement=Placement.V,
    chunks=2,
    splits_backward=True,
    source="Qi et al., arXiv 2405.15362; torch ScheduleZBVZeroBubble (hand-made), sail-sg (greedy)",
)
def zb_v(
    pipe: Pipeline,
    *,
    construction: Annotated[
        Literal["hand-made", "greedy"], Field(description="torch's list, or the authors' greedy search")
    ] = "hand-made",
) -> Sequence[Sequence[Action]]:
    """Two chunks a rank in a V, backward split, every rank busy from its first to its last op."""
    if construction == "greedy":
        from clustersim.pipeline.greedy_v import greedy_v

        return greedy_v(pipe.ranks, pipe.microbatches)
    return [_kept(_hand_made(pipe, rank), pipe.microbatches) for rank in range(pipe.ranks)]


def _kept(order: Iterator[Op], microbatches: int) -> list[Op]:
    """The list is made for at least 2p − 1 microbatches; those that do not exist are left out."""
    return [op for op in order if op.microbatch is not None and op.microbatch < microbatches]


def _hand_made(pipe: Pipeline, rank: int) -> Iterator[Op]:
    """2(p−r)−1 F₀; r × (F₁, F₀); (p−r) × (F₁, I₁, W₁); steady (F₀, I₀, W₀, F₁, I₁, W₁); r × (I₀, I₁);
    (p−r) × (I₀, W₀); the W₁ and then the W₀ that are left."""
    p, m = pipe.ranks, max(2 * pipe.ranks - 1, pipe.microbatches)
    stages = (rank, 2 * p - 1 - rank)
    count = dict.fromkeys([(kind, chunk) for kind in (Kind.F, Kind.I, Kind.W) for chunk in (0, 1)], 0)

    def take(kind: Kind, chunk: int) -> Op:
        unit = count[kind, chunk]
        count[kind, chunk] = unit + 1
        return Op(stages[chunk], kind, unit)

    def block(*names: tuple[Kind, int]) -> Iterator[Op]:
        return (take(kind, chunk) for kind, chunk in names)

    def full_turn(chunk: int) -> tuple[tuple[Kind, int], ...]:
        return (Kind.F, chunk), (Kind.I, chunk), (Kind.W, chunk)

    for _ in range(2 * (p - rank) - 1):
        yield take(Kind.F, 0)
    for _ in range(rank):
        yield from block((Kind.F, 1), (Kind.F, 0))
    for _ in range(p - rank):
        yield from block(*full_turn(1))
    while count[Kind.F, 1] < m:
        if count[Kind.F, 0] < m:
            yield take(Kind.F, 0)
        yield from block((Kind.I, 0), (Kind.W, 0), *full_turn(1))
    for _ in range(rank):
        yield from block((Kind.I, 0), (Kind.I, 1))
    for _ in range(p - rank):
        yield from block((Kind.I, 0), (Kind.W, 0))
    for chunk in (1, 0):
        while count[Kind.W, chunk] < m:
            yield take(Kind.W, chunk)
