"""1F1B with batch overlap: each steady forward runs fused with the backward of another microbatch."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.ops import Action, Kind
from clustersim.pipeline.orders import alternate_fused, row
from clustersim.pipeline.rules import at_least
from clustersim.pipeline.schedule import Pipeline, schedule


def enough(pipe: Pipeline) -> Iterator[str]:
    """m >= 2p - 1: rank 0 fuses at least one pair."""
    yield from at_least("microbatches", pipe.microbatches, 2 * pipe.ranks - 1, "2p - 1")


@schedule(
    "1f1b-overlap",
    aliases=("1f1b-batch-overlap",),
    defined="m >= 2p - 1",
    in_flight=lambda pipe, rank: 2 * (pipe.ranks - rank),
    formula="2(p - r)",
    rules=enough,
    source="Victarry/PP-Schedule-Visualization (1F1B with batch overlap)",
)
def overlap_1f1b(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """2(p - r) - 1 forwards, then fused pairs of a forward and a backward of different microbatches."""
    units = range(pipe.microbatches)
    warm_up = 2 * (pipe.ranks - rank) - 1
    yield from alternate_fused(row(rank, Kind.F, units), row(rank, Kind.B, units), warm_up)
