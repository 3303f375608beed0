"""Automatic zero bubble: the order is searched for given pass times and a memory cap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from clustersim.pipeline.greedy_zb import PassTimes, greedy_zero_bubble
from clustersim.pipeline.ops import Action
from clustersim.pipeline.schedule import Pipeline, schedule

Time = Annotated[float, Field(gt=0, description="pass time of a rank's share of one microbatch, in any unit")]


def held(pipe: Pipeline, rank: int, memory: float | None = 1.0) -> float:
    """The cap; a microbatch between I and W counts half."""
    return pipe.microbatches if memory is None else 2 * memory * pipe.ranks


def rules(pipe: Pipeline, memory: float | None = 1.0) -> Iterator[str]:
    """The cap holds at least one microbatch."""
    if memory is not None and memory * pipe.ranks < 1:
        yield f"needs memory * p >= 1 microbatch, got {memory:g} * {pipe.ranks}"


@schedule(
    "zb-auto",
    aliases=("zb-1p", "automatic-zb"),
    defined="any m; memory cap >= 1 microbatch",
    in_flight=held,
    formula="cap k*p where F counts 1, after I 1/2 (so at most 2kp microbatches whose W is open)",
    rules=rules,
    splits_backward=True,
    source="Qi et al., arXiv 2401.10241; sail-sg scheduler (heuristic, equal to its ILP on four small cases)",
)
def zb_auto(
    pipe: Pipeline,
    *,
    memory: Annotated[
        float | None, Field(gt=0, description="cap k in k*p microbatches: 1 = ZB-1p, 2 = ZB-2p, null = none")
    ] = 1.0,
    forward: Time = 1.0,
    input_grad: Time = 1.0,
    weight_grad: Time = 1.0,
    latency: Annotated[float, Field(ge=0, description="time of a message, in the unit of the pass times")] = 0.0,
) -> Sequence[Sequence[Action]]:
    """Greedy search for the order with the least idle time under a memory cap."""
    cap = None if memory is None else memory * pipe.ranks
    return greedy_zero_bubble(pipe.ranks, pipe.microbatches, PassTimes(forward, input_grad, weight_grad, latency), cap)
