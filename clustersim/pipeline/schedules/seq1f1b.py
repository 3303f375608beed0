"""Seq1F1B and its zero-bubble form: 1F1B over slices of sequences.

A unit is one slice of one microbatch. Forwards take the slices of a microbatch in order, backwards in reverse, because
the keys and values of a slice collect gradients from all later ones. k − 1 more units are in flight than in 1F1B, each
1/k of a microbatch.
"""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.ops import Action, Kind
from clustersim.pipeline.orders import alternate, alternate_split, backward_units, row
from clustersim.pipeline.schedule import Pipeline, schedule


def warm_up(pipe: Pipeline, rank: int) -> int:
    """Forwards before the first backward: min(mk, p − r + k − 1) units."""
    return min(pipe.units, pipe.ranks - rank + pipe.slices - 1)


@schedule(
    "seq1f1b",
    defined="m >= 1, causal attention",
    in_flight=lambda pipe, rank: warm_up(pipe, rank) / pipe.slices,
    formula="min(m, (p - r + k - 1)/k)",
    sliced=True,
    source="Sun et al., Seq1F1B, arXiv 2406.03488; the authors' code and sail-sg agree",
)
def seq1f1b(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """1F1B over slices of sequences."""
    backs = backward_units(pipe.microbatches, pipe.slices)
    yield from alternate(row(rank, Kind.F, range(pipe.units)), row(rank, Kind.B, backs), warm_up(pipe, rank))


def enough_units(pipe: Pipeline) -> Iterator[str]:
    """mk >= p + k - 1, as ZB-H1's m >= p on units."""
    needs = pipe.ranks + pipe.slices - 1
    if pipe.units < needs:
        yield f"needs m*k >= p + k - 1 = {needs} units, got {pipe.units}"


@schedule(
    "seq1f1b-zb",
    aliases=("seq1f1b-zb1",),
    defined="mk >= p + k - 1, causal attention",
    in_flight=lambda pipe, rank: (pipe.ranks + pipe.slices - 1) / pipe.slices,
    formula="(p + k - 1)/k",
    rules=enough_units,
    splits_backward=True,
    sliced=True,
    source="Sun et al., Seq1F1B, arXiv 2406.03488 (definition; lists checked by an independent evaluator)",
)
def seq1f1b_zb(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """ZB-H1 over slices of sequences."""
    backs = backward_units(pipe.microbatches, pipe.slices)
    yield from alternate_split(
        row(rank, Kind.F, range(pipe.units)), row(rank, Kind.I, backs), warm_up(pipe, rank), rank
    )
