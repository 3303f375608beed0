"""PipeDream-2BW: 1F1B without flush; the next step's forwards follow directly, on weights one step old."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, cast

from pydantic import Field

from clustersim.pipeline.ops import Action, Kind, Program
from clustersim.pipeline.orders import alternate, row
from clustersim.pipeline.rules import at_least
from clustersim.pipeline.schedule import Pipeline, Schedule, schedule


class AsynchronousSchedule(Schedule):
    """Several steps in one program; a step in the steady state is the difference of two makespans."""

    @property
    def weight_copies(self) -> float:
        """Two versions of the weights."""
        return 2.0

    def _sized(self, pipe: Pipeline) -> Pipeline:
        return super()._sized(pipe)

    def _program(self, ranks: tuple[tuple[Action, ...], ...], pipe: Pipeline) -> Program:
        steps = cast(int, getattr(self, "steps", 1))
        return super()._program(ranks, pipe._replace(microbatches=pipe.microbatches * steps))

    def steady(self, pipe: Pipeline) -> tuple[Program, Program]:
        """Programs of n and n + 1 steps, n enough to fill the pipeline."""
        first, second = (self.model_copy(update={"steps": steps}) for steps in (2, 3))
        return first.program(pipe), second.program(pipe)

    def messages(self, pipe: Pipeline) -> int:
        """Tensors sent in all steps of the program."""
        return super().messages(pipe) * cast(int, getattr(self, "steps", 1))


@schedule(
    "pipedream-2bw",
    aliases=("async-1f1b", "2bw"),
    defined="m >= p; accepts weights one step old",
    in_flight=lambda pipe, rank: pipe.ranks - rank,
    formula="p - r",
    rules=lambda pipe: at_least("microbatches", pipe.microbatches, pipe.ranks, "p (two weight versions suffice)"),
    synchronous=False,
    source="Narayanan et al., PipeDream-2BW, arXiv 2006.09503 (recalled construction)",
    verified=False,
    base=AsynchronousSchedule,
)
def pipedream_2bw(
    pipe: Pipeline,
    rank: int,
    *,
    steps: Annotated[int, Field(ge=1, description="steps that follow each other without flush in one program")] = 1,
) -> Iterator[Action]:
    """1F1B without flush over steps; two weight versions."""
    units = range(pipe.microbatches * steps)
    yield from alternate(row(rank, Kind.F, units), row(rank, Kind.B, units), min(len(units), pipe.ranks - rank))
