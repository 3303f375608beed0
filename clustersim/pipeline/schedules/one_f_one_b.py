"""1F1B (PipeDream-Flush) and its variants that differ in how many forwards come before the first backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from clustersim.pipeline.ops import Action, Kind
from clustersim.pipeline.orders import alternate, row
from clustersim.pipeline.schedule import Pipeline, schedule


def held(pipe: Pipeline, rank: int, extra_warm_up: int = 0) -> int:
    """Forwards before the first backward: min(m, p − r + extra)."""
    return min(pipe.microbatches, pipe.ranks - rank + extra_warm_up)


def few_microbatches(pipe: Pipeline) -> Iterator[str]:
    """A pipeline that never fills."""
    if pipe.microbatches < pipe.ranks:
        yield (
            f"m={pipe.microbatches} < pp={pipe.ranks}: it runs, but ranks never work all at once; "
            "raise the global batch or lower pp (torch.distributed.pipelining refuses it)"
        )


@schedule(
    "1f1b",
    aliases=("pipedream-flush", "one-f-one-b"),
    defined="m >= 1 (torch refuses m < p)",
    in_flight=held,
    formula="min(m, p - r)",
    notes=few_microbatches,
    source="Narayanan et al., arXiv 2006.09503 and 2104.04473; Megatron-LM, torch (executed order), JaxPP agree",
)
def one_f_one_b(
    pipe: Pipeline,
    rank: int,
    *,
    extra_warm_up: Annotated[int, Field(ge=0, description="forwards before the first backward beyond p - r")] = 0,
) -> Iterator[Action]:
    """p - r forwards, then one backward and one forward in turn."""
    units = range(pipe.microbatches)
    warm_up = held(pipe, rank, extra_warm_up)
    yield from alternate(row(rank, Kind.F, units), row(rank, Kind.B, units), warm_up)
