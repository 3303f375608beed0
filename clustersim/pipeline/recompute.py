"""Recomputation as ops of its own, so that it runs in the bubbles (Mario-like).

With full recomputation a rank repeats the forward of a stage before its backward. As part of the backward the repeat
waits for the gradient; as an op R of its own, right before the backward in list order, it needs only the stage's saved
input and runs while the rank would wait. The chain of backwards then costs B a hop instead of R + B. Construction
recalled from Mario (doi 10.1145/3710848.3710878): by definition, not verified.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from clustersim.pipeline.ops import Action, Kind, Op, Program, parts_of


def with_recompute(program: Program) -> Program:
    """The program with an R right before every B or I (before the pair, where the backward is fused)."""
    return replace(program, ranks=tuple(tuple(_with_recompute(rank)) for rank in program.ranks))


def _with_recompute(rank: tuple[Action, ...]) -> Iterator[Action]:
    for action in rank:
        for op in parts_of(action):
            if op.kind in (Kind.B, Kind.I):
                yield Op(op.stage, Kind.R, op.microbatch)
        yield action
