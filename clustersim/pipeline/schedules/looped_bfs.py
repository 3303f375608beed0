"""Looped BFS (breadth-first): all microbatches of one chunk before the next chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from clustersim.pipeline.ops import Action, Kind
from clustersim.pipeline.orders import row
from clustersim.pipeline.schedule import Pipeline, schedule


def notes(pipe: Pipeline) -> Iterator[str]:
    """Fewer microbatches than ranks stall at every loop."""
    if pipe.microbatches < pipe.ranks:
        yield f"m={pipe.microbatches} < pp={pipe.ranks}: every loop stalls; raise the global batch or lower pp"


@schedule(
    "looped-bfs",
    aliases=("breadth-first",),
    defined="m >= 1 (m >= p to avoid stalls)",
    in_flight=lambda pipe, rank: pipe.microbatches,
    formula="m",
    notes=notes,
    chunks=None,
    default_chunks=2,
    source="Lamy-Poirier, arXiv 2211.05953; torch (descending) and minPP (ascending)",
)
def looped_bfs(
    pipe: Pipeline,
    rank: int,
    *,
    backward: Annotated[
        Literal["descending", "ascending"], Field(description="microbatch order of the backward: torch's, or minPP's")
    ] = "descending",
) -> Iterator[Action]:
    """All microbatches of chunk 0, then of chunk 1, …; backward from the last chunk."""
    units = range(pipe.microbatches)
    for chunk in range(pipe.chunks):
        yield from row(chunk * pipe.ranks + rank, Kind.F, units)
    for chunk in reversed(range(pipe.chunks)):
        yield from row(chunk * pipe.ranks + rank, Kind.B, reversed(units) if backward == "descending" else units)
