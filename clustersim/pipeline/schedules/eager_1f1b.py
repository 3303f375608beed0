"""Eager 1F1B: the doubled warm-up that hides the latency of messages behind twice the activations."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.ops import Action, Kind
from clustersim.pipeline.orders import alternate, row
from clustersim.pipeline.schedule import Pipeline, schedule


def held(pipe: Pipeline, rank: int) -> int:
    """Forwards before the first backward: min(m, 2(p − r) − 1)."""
    return min(pipe.microbatches, 2 * (pipe.ranks - rank) - 1)


@schedule(
    "eager-1f1b",
    defined="m >= 1",
    in_flight=held,
    formula="min(m, 2(p - r) - 1)",
    source="Zhuang et al., arXiv 2211.05322; JaxPP and minPP agree",
)
def eager_1f1b(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """2(p - r) - 1 forwards, then one backward and one forward in turn."""
    units = range(pipe.microbatches)
    yield from alternate(row(rank, Kind.F, units), row(rank, Kind.B, units), held(pipe, rank))
