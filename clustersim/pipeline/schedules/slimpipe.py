"""SlimPipe: 1F1B over many equal slices and several chunks; about one microbatch in flight whatever m.

The group that passes one chunk before the next is the n slices of one microbatch. Moving attention work of late slices
to other ranks (context exchange) equalises the slices' times: it changes costs, not the order.
"""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.ops import Action
from clustersim.pipeline.orders import alternate, backward_units, interleaved_rows
from clustersim.pipeline.rules import multiple_of
from clustersim.pipeline.schedule import Pipeline, schedule


def warm_up(pipe: Pipeline, rank: int) -> int:
    """Forwards before the first backward: min(mnv, nv + 2(p−1−r)) units."""
    return min(pipe.units * pipe.chunks, pipe.slices * pipe.chunks + 2 * (pipe.ranks - 1 - rank))


@schedule(
    "slimpipe",
    defined="n slices, n a multiple of p, causal attention",
    in_flight=lambda pipe, rank: warm_up(pipe, rank) / (pipe.slices * pipe.chunks),
    formula="1 + 2(p-1-r)/(nv)",
    rules=lambda pipe: multiple_of("slices", pipe.slices, pipe.ranks, "p"),
    chunks=None,
    default_chunks=2,
    sliced=True,
    source="SlimPipe, arXiv 2504.14519 (recalled construction)",
    verified=False,
)
def slimpipe(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """1F1B over n slices a microbatch and v chunks, one microbatch's slices a group."""
    order = backward_units(pipe.microbatches, pipe.slices)
    forwards, backwards = interleaved_rows((pipe.ranks, pipe.units), rank, pipe.chunks, pipe.slices, order=order)
    yield from alternate(forwards, backwards, warm_up(pipe, rank))
