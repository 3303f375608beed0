"""Compiled graphs of schedules, kept: one a (schedule, pipeline size), with the counts that breakdowns need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from clustersim.pipeline.dependencies import CODE, KINDS
from clustersim.pipeline.graph import Graph, compile
from clustersim.pipeline.ops import Kind, Program
from clustersim.pipeline.schedule import Pipeline, Schedule

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shape:
    """A program, its graph, and what is read off them once."""

    program: Program
    graph: Graph

    @cached_property
    def counts(self) -> Floats:
        """(ranks, kinds, stages) how many ops of each kind of each stage a rank runs, both halves of fused pairs."""
        parts = self.graph.parts
        counts = np.zeros((self.graph.ranks, len(KINDS), self.graph.stages))
        np.add.at(counts, (parts.rank[parts.node], parts.kind, parts.stage), 1.0)
        return counts

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
    return _shape(type(schedule), schedule.model_dump_json(), pipe)
