"""ZB-H1: 1F1B with the backward split; weight gradients, delayed by the rank's number, fill the drain."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.ops import Action, Kind
from clustersim.pipeline.orders import alternate_split, row
from clustersim.pipeline.rules import at_least
from clustersim.pipeline.schedule import Pipeline, schedule


@schedule(
    "zb-h1",
    aliases=("zb1p",),
    defined="m >= p",
    in_flight=lambda pipe, rank: pipe.ranks,
    formula="p while W holds it (p - r if I frees it)",
    rules=lambda pipe: at_least("microbatches", pipe.microbatches, pipe.ranks, "p"),
    splits_backward=True,
    source="Qi et al., arXiv 2401.10241; torch (one chunk), JaxPP, Victarry, sail-sg 1p agree",
)
def zb_h1(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """p - r forwards; then I, the W of r microbatches ago, F in turn."""
    units = range(pipe.microbatches)
    yield from alternate_split(row(rank, Kind.F, units), row(rank, Kind.I, units), pipe.ranks - rank, rank)
