"""ZB-H2: twice the warm-up of ZB-H1; no idle time within a rank's own span at equal F, I, W."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.ops import Action, Kind
from clustersim.pipeline.orders import alternate_split, row
from clustersim.pipeline.rules import at_least
from clustersim.pipeline.schedule import Pipeline, schedule


@schedule(
    "zb-h2",
    defined="m >= 2p - 1; the optimizer step must run without a barrier over ranks",
    in_flight=lambda pipe, rank: 2 * pipe.ranks - 1,
    formula="2p - 1",
    rules=lambda pipe: at_least("microbatches", pipe.microbatches, 2 * pipe.ranks - 1, "2p - 1"),
    splits_backward=True,
    source="Qi et al., arXiv 2401.10241 (definition; lists checked by an independent evaluator)",
)
def zb_h2(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """2(p - r) - 1 forwards; then I, the W of 2r microbatches ago, F in turn."""
    units = range(pipe.microbatches)
    warm_up = 2 * (pipe.ranks - rank) - 1
    yield from alternate_split(row(rank, Kind.F, units), row(rank, Kind.I, units), warm_up, 2 * rank)
