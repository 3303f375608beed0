"""Interleaved zero bubble: interleaved 1F1B with half the extra warm-up and the backward split."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.ops import Action, Kind
from clustersim.pipeline.orders import alternate_split, interleaved_rows
from clustersim.pipeline.schedule import Pipeline, schedule
from clustersim.pipeline.schedules.interleaved_1f1b import Group, group_notes, group_rules, group_size


def warm_up(pipe: Pipeline, rank: int, group: int | None) -> int:
    """Forwards before the first I: min(mv, (v−1)g + p − r)."""
    return min(pipe.microbatches * pipe.chunks, (pipe.chunks - 1) * group_size(pipe, group) + pipe.ranks - rank)


def held(pipe: Pipeline, rank: int, group: int | None = None) -> float:
    """(w + r)/v: the warm-up, and the activations that the W behind still hold."""
    return (warm_up(pipe, rank, group) + rank) / pipe.chunks


def rules(pipe: Pipeline, group: int | None = None) -> Iterator[str]:
    """A group that the user chose must give an order that can be executed."""
    yield from group_rules(pipe, group, interleaved_zb)


@schedule(
    "interleaved-zb",
    aliases=("interleaved-zero-bubble",),
    defined="any m; a chosen group as for interleaved-1f1b",
    in_flight=held,
    formula="((v-1)g + p)/v",
    rules=rules,
    notes=group_notes,
    chunks=None,
    default_chunks=2,
    splits_backward=True,
    source="torch.distributed.pipelining ScheduleInterleavedZeroBubble",
)
def interleaved_zb(pipe: Pipeline, rank: int, *, group: Group = None) -> Iterator[Action]:
    """Interleaved 1F1B with (v-1)g + p - r forwards ahead, I and W apart, W behind by the rank's number."""
    size = group_size(pipe, group)
    forwards, inputs = interleaved_rows((pipe.ranks, pipe.microbatches), rank, pipe.chunks, size, backward=Kind.I)
    yield from alternate_split(forwards, inputs, warm_up(pipe, rank, group), rank)
