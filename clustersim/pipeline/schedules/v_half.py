"""V-Half and V-Min: V-shaped building blocks that hold half and a third of 1F1B's activations."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.pipeline.ops import Action
from clustersim.pipeline.placement import Placement
from clustersim.pipeline.schedule import Pipeline, schedule
from clustersim.pipeline.v_pattern import half_block, min_block, repeated_block


@schedule(
    "v-half",
    defined="v = 2",
    in_flight=lambda pipe, rank: (pipe.ranks + 2) // 2,
    formula="floor((p+2)/2)",
    placement=Placement.V,
    chunks=2,
    splits_backward=True,
    source="Qi et al., arXiv 2405.15362; sail-sg greedy reordering",
)
def v_half(pipe: Pipeline) -> Sequence[Sequence[Action]]:
    """Two chunks in a V, half of 1F1B's activations."""
    return repeated_block(half_block(pipe.ranks), pipe.microbatches)


@schedule(
    "v-min",
    defined="v = 2",
    in_flight=lambda pipe, rank: (pipe.ranks + 4) // 3,
    formula="floor((p+4)/3)",
    placement=Placement.V,
    chunks=2,
    splits_backward=True,
    source="Qi et al., arXiv 2405.15362; sail-sg greedy reordering",
)
def v_min(pipe: Pipeline) -> Sequence[Sequence[Action]]:
    """Two chunks in a V, a third of 1F1B's activations; idle time grows with uneven passes and latency."""
    return repeated_block(min_block(pipe.ranks), pipe.microbatches)
