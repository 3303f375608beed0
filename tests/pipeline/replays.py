"""What the tests of replays, metrics and drawings share: programs by name, replayed."""

from __future__ import annotations

from clustersim.pipeline.graph import compile
from clustersim.pipeline.ops import Program
from clustersim.pipeline.replay import Costs, Timeline, replay
from clustersim.pipeline.schedule import Pipeline, get_schedule


def built(kind: str, ranks: int, microbatches: int, chunks: int = 1, slices: int = 1, **options: object) -> Program:
    """One schedule's program."""
    schedule = get_schedule(kind, **options)
    if schedule.traits.chunks is not None:
        chunks = 1
    return schedule.program(Pipeline(ranks, microbatches, chunks, slices))


def timed(program: Program, *, p2p: str = "overlapped", streams: str = "direction", **costs: object) -> Timeline:
    """A program replayed with costs of a rank's share (F = I = W = 1 unless given)."""
    graph = compile(program, p2p=p2p, streams=streams)  # type: ignore[arg-type]
    every = Costs.of(**costs)  # type: ignore[arg-type]
    return replay(graph, graph.durations(every), graph.delays(every))


def makespan(kind: str, ranks: int, microbatches: int, chunks: int = 1, slices: int = 1, **costs: object) -> float:
    """How long one step of a schedule takes."""
    return timed(built(kind, ranks, microbatches, chunks, slices), **costs).makespan
