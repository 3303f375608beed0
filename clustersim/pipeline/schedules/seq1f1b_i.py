"""Seq1F1B-I: interleaved 1F1B over slices of sequences, in groups of p units."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.ops import Action
from clustersim.pipeline.orders import alternate, backward_units, interleaved_rows
from clustersim.pipeline.rules import at_least
from clustersim.pipeline.schedule import Pipeline, schedule


def warm_up(pipe: Pipeline, rank: int) -> int:
    """Forwards before the first backward: (v−1)p + 2(p−1−r) + k units; all of them when m = p (as Megatron-LM once
    did)."""
    total = pipe.units * pipe.chunks
    if pipe.microbatches == pipe.ranks:
        return total
    return min(total, (pipe.chunks - 1) * pipe.ranks + 2 * (pipe.ranks - 1 - rank) + pipe.slices)


def rules(pipe: Pipeline) -> Iterator[str]:
    """mk mod p = 0 and p mod k = 0: a group of p units must hold whole microbatches, else the backward waits for
    itself."""
    yield from at_least("chunks", pipe.chunks, 2, "2")
    if pipe.units % pipe.ranks:
        yield f"needs m*k to be a multiple of p = {pipe.ranks}, got {pipe.microbatches}*{pipe.slices} = {pipe.units}"
    if pipe.ranks % pipe.slices:
        yield f"needs slices to divide p = {pipe.ranks} (else it deadlocks), got {pipe.slices}"


@schedule(
    "seq1f1b-i",
    aliases=("seq1f1b-interleaved",),
    defined="v >= 2, mk mod p = 0 and p mod k = 0, causal attention",
    in_flight=lambda pipe, rank: warm_up(pipe, rank) / (pipe.slices * pipe.chunks),
    formula="((v-1)p + 2(p-1-r) + k)/(kv); m when m = p",
    rules=rules,
    chunks=None,
    default_chunks=2,
    sliced=True,
    source="Sun et al., Seq1F1B, arXiv 2406.03488; the authors' code",
)
def seq1f1b_i(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """Interleaved 1F1B over slices of sequences."""
    order = backward_units(pipe.microbatches, pipe.slices)
    forwards, backwards = interleaved_rows((pipe.ranks, pipe.units), rank, pipe.chunks, pipe.ranks, order=order)
    yield from alternate(forwards, backwards, warm_up(pipe, rank))
