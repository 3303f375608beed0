"""DualPipe and DualPipeV: forward and backward of different microbatches run fused, from both ends of the pipeline at
once.

Eight phases with counts that depend on the distance from the pipeline's middle. DualPipe runs them on p ranks with two
chains in opposite directions (two weight copies); DualPipeV folds the second half back onto the same ranks (V
placement, one copy). ``own`` is the stage whose forwards a rank starts with, ``other`` the one that the opposite
direction brings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from clustersim.pipeline.ops import Action, Fused, Kind, Op
from clustersim.pipeline.placement import Placement
from clustersim.pipeline.rules import at_least, even
from clustersim.pipeline.schedule import Pipeline, schedule


class _Phases:
    """Counters of one rank's list: next forward and backward of each stage, weight gradients that wait."""

    def __init__(self, own: int, other: int) -> None:
        self.own, self.other = own, other
        self.next_forward = {own: 0, other: 0}
        self.next_backward = {own: 0, other: 0}
        self.weights: deque[Op] = deque()

    def forward(self, stage: int) -> Op:
        unit = self.next_forward[stage]
        self.next_forward[stage] = unit + 1
        return Op(stage, Kind.F, unit)

    def backward(self, stage: int, split: bool = False) -> Op:
        unit = self.next_backward[stage]
        self.next_backward[stage] = unit + 1
        if split:
            self.weights.append(Op(stage, Kind.W, unit))
        return Op(stage, Kind.I if split else Kind.B, unit)

    def pair(self, forward: int, backward: int) -> Fused:
        return Fused(self.forward(forward), self.backward(backward))

    def weight(self) -> Iterator[Op]:
        if self.weights:
            yield self.weights.popleft()

    def drain(self, distance: int) -> Iterator[Op]:
        """Phases 6–8: the last backwards, split from the middle on, and the weight gradients kept for the end."""
        split = False
        for turn in range(distance + 1):
            split = split or (turn == (distance + 1) // 2 and distance % 2 == 1)
            yield self.backward(self.other, split)
            split = split or (turn == (distance + 1) // 2 and distance % 2 == 0)
            yield self.backward(self.own, split)
        self.split = split


def _dual(own: int, other: int, microbatches: int, half: int, distance: int) -> Iterator[Action]:
    """One rank's list; ``half`` ranks lie between the end and the middle, ``distance`` of them on the end's side."""
    phases, to_middle = _Phases(own, other), half - distance - 1
    for _ in range(2 * to_middle):
        yield phases.forward(own)
    for _ in range(distance + 1):
        yield phases.forward(own)
        yield phases.forward(other)
    for _ in range(to_middle):
        yield phases.backward(other, split=True)
        yield from phases.weight()
        yield phases.forward(other)
    for turn in range(microbatches - 2 * half + distance + 1):
        if (
            turn == 0 and to_middle == 0
        ):  # the middle rank has both ends of the message itself: fusing would cost a bubble
            yield phases.forward(own)
            yield phases.backward(other)
        else:
            yield phases.pair(own, other)
        yield phases.pair(other, own)
    for _ in range(to_middle):
        yield phases.backward(other)
        yield phases.pair(other, own)
    yield from phases.drain(distance)
    for _ in range(to_middle):
        yield from phases.weight()
        yield phases.backward(own, phases.split)
    while phases.weights:
        yield from phases.weight()


def dualpipe_rules(pipe: Pipeline) -> Iterator[str]:
    """p even, m even, m >= 2p."""
    yield from even("pp", pipe.ranks)
    yield from even("microbatches", pipe.microbatches)
    yield from at_least("microbatches", pipe.microbatches, 2 * pipe.ranks, "2p")


@schedule(
    "dualpipe",
    defined="p even, m even, m >= 2p",
    in_flight=lambda pipe, rank: pipe.ranks + 1,
    formula="p + 1",
    rules=dualpipe_rules,
    placement=Placement.BIDIRECTIONAL,
    chains=2,
    splits_backward=True,
    source="DeepSeek-V3, arXiv 2412.19437; deepseek-ai/DualPipe",
)
def dualpipe(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """Two chains in opposite directions, forward and backward fused; half of the microbatches enter at each end."""
    down, up = rank, 2 * pipe.ranks - 1 - rank
    own, other = (down, up) if rank < pipe.ranks // 2 else (up, down)
    distance = min(rank, pipe.ranks - 1 - rank)
    yield from _dual(own, other, pipe.microbatches // 2, pipe.ranks // 2, distance)


@schedule(
    "dualpipe-v",
    aliases=("dualpipev",),
    defined="v = 2, m >= 2p",
    in_flight=lambda pipe, rank: pipe.ranks + 0.5,
    formula="p + 1/2",
    rules=lambda pipe: at_least("microbatches", pipe.microbatches, 2 * pipe.ranks, "2p"),
    placement=Placement.V,
    chunks=2,
    splits_backward=True,
    source="DeepSeek, deepseek-ai/DualPipe (cut in half: Qi et al.); torch ScheduleDualPipeV and Victarry agree",
)
def dualpipe_v(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """DualPipe folded into a V: one weight copy, both ends of the pipeline on rank 0."""
    yield from _dual(rank, 2 * pipe.ranks - 1 - rank, pipe.microbatches, pipe.ranks, rank)
