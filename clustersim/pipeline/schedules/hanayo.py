"""Hanayo: w waves; stages zigzag over the ranks, so that every turn is local.

The paper's order is not public; here the placement is exact and the order comes from greedy list scheduling at B = 2F.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clustersim.pipeline.list_schedule import list_schedule
from clustersim.pipeline.ops import Action
from clustersim.pipeline.placement import Placement, rank_of_stage
from clustersim.pipeline.rules import multiple_of
from clustersim.pipeline.schedule import Pipeline, schedule


def rules(pipe: Pipeline) -> Iterator[str]:
    """v = 2w, m a multiple of p."""
    yield from multiple_of("chunks", pipe.chunks, 2, "2 (w waves are v = 2w chunks)")
    yield from multiple_of("microbatches", pipe.microbatches, pipe.ranks, "p")


@schedule(
    "hanayo",
    defined="v = 2w chunks for w waves, m a multiple of p",
    in_flight=lambda pipe, rank: pipe.ranks,
    formula="<= p",
    rules=rules,
    placement=Placement.ZIGZAG,
    chunks=None,
    default_chunks=2,
    source="Liu et al., Hanayo, arXiv 2308.15762 (placement; order by greedy list scheduling)",
    verified=False,
)
def hanayo(pipe: Pipeline) -> Sequence[Sequence[Action]]:
    """w waves over zigzag stages."""
    return list_schedule(rank_of_stage(Placement.ZIGZAG, pipe.ranks, pipe.chunks), pipe.microbatches, pipe.ranks)
