"""GPipe: all forwards, then all backwards."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.ops import Action, Kind
from clustersim.pipeline.orders import row
from clustersim.pipeline.schedule import Pipeline, schedule


@schedule(
    "gpipe",
    defined="m >= 1",
    in_flight=lambda pipe, rank: pipe.microbatches,
    formula="m",
    source="Huang et al., GPipe, arXiv 1811.06965; order as in torch.distributed.pipelining",
)
def gpipe(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """All forwards, then all backwards, microbatches ascending in both."""
    units = range(pipe.microbatches)
    yield from row(rank, Kind.F, units)
    yield from row(rank, Kind.B, units)
