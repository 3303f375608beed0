"""TeraPipe: GPipe over slices of sequences."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.ops import Action, Kind
from clustersim.pipeline.orders import row
from clustersim.pipeline.schedule import Pipeline, schedule


@schedule(
    "terapipe",
    defined="m >= 1, causal attention",
    in_flight=lambda pipe, rank: pipe.microbatches,
    formula="m",
    sliced=True,
    source="Li et al., TeraPipe, arXiv 2102.07988 (definition; lists checked by an independent evaluator)",
)
def terapipe(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """All slices forward, then all slices backward in reverse."""
    yield from row(rank, Kind.F, range(pipe.units))
    yield from row(rank, Kind.B, reversed(range(pipe.units)))
