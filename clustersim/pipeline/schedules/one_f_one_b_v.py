"""1F1B-V: two chunks in a V with full backwards; three quarters of 1F1B's activations at most."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.pipeline.ops import Action
from clustersim.pipeline.placement import Placement
from clustersim.pipeline.schedule import Pipeline, schedule
from clustersim.pipeline.v_1f1b import one_f_one_b_v as build


@schedule(
    "1f1b-v",
    defined="v = 2",
    in_flight=lambda pipe, rank: (3 * pipe.ranks + 3) // 4 + (0.5 if pipe.ranks % 3 == 0 else 0.0),
    formula="3p/4",
    placement=Placement.V,
    chunks=2,
    source="Qi et al., arXiv 2405.15362; sail-sg scheduler",
)
def one_f_one_b_v(pipe: Pipeline) -> Sequence[Sequence[Action]]:
    """Two chunks in a V, full backwards."""
    return build(pipe.ranks, pipe.microbatches)
