"""Interleaved 1F1B with expert-parallel overlap: one more warm-up forward, so that each steady pair can run fused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from clustersim.pipeline.ops import Action
from clustersim.pipeline.orders import alternate, alternate_fused, interleaved_rows
from clustersim.pipeline.rules import at_least
from clustersim.pipeline.schedule import Pipeline, schedule
from clustersim.pipeline.schedules.interleaved_1f1b import (
    Group,
    group_notes,
    group_rules,
    group_size,
    warm_up,
)


def rules(pipe: Pipeline, group: int | None = None) -> Iterator[str]:
    """v >= 2 and the rules of the group."""
    few = list(at_least("chunks", pipe.chunks, 2, "2"))
    yield from few or group_rules(pipe, group, interleaved_1f1b_ep)


@schedule(
    "interleaved-1f1b-ep",
    aliases=("kimi-k2",),
    defined="v >= 2; a chosen group as for interleaved-1f1b",
    in_flight=lambda pipe, rank, group=None: warm_up(pipe, rank, group, 1) / pipe.chunks,
    formula="((v-1)g + 2(p-1-r) + 2)/v",
    rules=rules,
    notes=group_notes,
    chunks=None,
    default_chunks=2,
    source="Megatron-LM overlap_moe_expert_parallel_comm, JaxPP KimiK2, Victarry agree",
)
def interleaved_1f1b_ep(
    pipe: Pipeline,
    rank: int,
    *,
    group: Group = None,
    fused: Annotated[bool, Field(description="run the forward and backward of a steady pair as one op")] = True,
) -> Iterator[Action]:
    """Interleaved 1F1B with one more forward ahead; the forward and backward of a pair are independent and run as
    one."""
    size = group_size(pipe, group)
    forwards, backwards = interleaved_rows((pipe.ranks, pipe.microbatches), rank, pipe.chunks, size)
    if fused:
        yield from alternate_fused(forwards, backwards, warm_up(pipe, rank, group))
    else:
        yield from alternate(forwards, backwards, warm_up(pipe, rank, group, 1))
