"""Compiled graphs of schedules, kept: one a (schedule, pipeline size), with the counts that breakdowns need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from clustersim.errors import KeyedError
from clustersim.pipeline.dependencies import CODE, IS_COMPUTE, KINDS
from clustersim.pipeline.graph import Graph, compile
from clustersim.pipeline.ops import Kind, Program, parts_of
from clustersim.pipeline.schedule import Pipeline, Schedule

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shape:
    """A program, its graph, and what is read off them once."""

    program: Program
    graph: Graph

    @cached_property
    def counts(self) -> Floats:
        """(ranks, kinds, stages) how many compute ops of each kind of each stage a rank runs, both halves of fused
        pairs."""
        parts = self.graph.parts
        counts = np.zeros((self.graph.ranks, len(KINDS), self.graph.stages))
        np.add.at(counts, (parts.rank[parts.node], parts.kind, parts.stage), 1.0)
        counts[:, ~IS_COMPUTE, :] = 0.0
        return counts

    @cached_property
    def copies_activations(self) -> bool:
        """Whether the list copies activations off a rank and back."""
        return bool((self.graph.parts.kind == CODE[Kind.OFFLOAD]).any())

    @cached_property
    def gradient_rounds(self) -> Floats:
        """(ranks,) how often a rank turns to another stage in its backwards, itself included, ÷ its stages.

        Where gradients are sharded as they come, those of a stage are reduced each time that its run of backwards ends.
        """
        kinds = (CODE[Kind.B], CODE[Kind.W])
        rounds = np.ones(self.graph.ranks)
        for rank, order in enumerate(self.program.ranks):
            stages = [op.stage for action in order for op in parts_of(action) if CODE[op.kind] in kinds]
            turns = sum(stage != before for stage, before in zip(stages, [-1, *stages], strict=False))
            rounds[rank] = turns / max(1, len(set(stages)))
        return rounds

    @cached_property
    def lists_gathers(self) -> bool:
        """Whether gathers of sharded parameters are ops of their own."""
        return bool((self.graph.parts.kind == CODE[Kind.UNSHARD]).any())

    @cached_property
    def slice_weight(self) -> Floats | None:
        """(parts,) causal attention of each part's slice ÷ the mean slice's; None where sequences are whole.

        Slice i of k sees the i before it in full and half of itself: (2i + 1) ÷ k of the mean.
        """
        slices, parts = self.program.slices, self.graph.parts
        if slices == 1:
            return None
        return np.where(parts.unit >= 0, (2.0 * (parts.unit % slices) + 1.0) / slices, 1.0)

    @cached_property
    def pairs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Ops that are fused pairs, and the part that the second half of each is."""
        second = self.graph.second
        fused = np.flatnonzero(second >= 0)
        return fused, second[fused]

    @cached_property
    def stage_rank(self) -> npt.NDArray[np.int64]:
        """(stages,) the rank of each stage."""
        ranks = self.program.stage_rank
        return np.array([ranks[stage] for stage in range(self.graph.stages)], dtype=np.int64)

    @cached_property
    def per_chain(self) -> int:
        """Stages of one chain."""
        return self.graph.stages // self.program.chains

    @cached_property
    def crosses(self) -> tuple[Floats, Floats]:
        """(stages,) 1 where a stage's forward, and its backward, goes to another rank, else 0."""
        rank, last = self.stage_rank, self.per_chain - 1
        inside = np.arange(self.graph.stages) % self.per_chain
        ahead = np.where(inside < last, np.roll(rank, -1) != rank, False)
        behind = np.where(inside > 0, np.roll(rank, 1) != rank, False)
        return ahead.astype(np.float64), behind.astype(np.float64)

    @cached_property
    def has_recompute(self) -> bool:
        """Whether recomputation is an op of its own."""
        return bool((self.graph.parts.kind == CODE[Kind.R]).any())


@lru_cache(maxsize=256)
def _shape(kind: type[Schedule], options: str, pipe: Pipeline) -> Shape:
    schedule = kind.model_validate_json(options)
    program = schedule.program(pipe)
    return Shape(program, compile(program))


def shape_of(schedule: Schedule, pipe: Pipeline) -> Shape:
    """The compiled shape of a schedule at a size.

    Raises:
        InputError: the schedule is not defined there.
        Deadlock: it waits for itself.
    """
    try:
        return _shape(type(schedule), schedule.model_dump_json(), pipe)
    except KeyedError as error:  # whatever is wrong with a list, it is the schedule's
        error.retell(lambda problem: problem if problem.path or problem.file else replace(problem, path="schedule"))
        raise


@lru_cache(maxsize=64)
def _steady(kind: type[Schedule], options: str, pipe: Pipeline) -> tuple[Shape, Shape] | None:
    programs = kind.model_validate_json(options).steady(pipe)
    return (
        None
        if programs is None
        else (Shape(programs[0], compile(programs[0])), Shape(programs[1], compile(programs[1])))
    )


def steady_shapes(schedule: Schedule, pipe: Pipeline) -> tuple[Shape, Shape] | None:
    """Two shapes whose ends differ by one step of the steady state, for a schedule without flush; else None."""
    if schedule.traits.synchronous:
        return None
    return _steady(type(schedule), schedule.model_dump_json(), pipe)
