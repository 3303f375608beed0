"""A schedule needs no more than its function: the decorator alone gives it a name, its keys and safe bounds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clustersim.pipeline.ops import Kind, Op
from clustersim.pipeline.schedule import Pipeline, Schedule, get_schedule, schedule


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    Schedule.kinds.pop("late-backward", None)


def test_the_decorator_alone_is_enough() -> None:
    @schedule
    def late_backward(pipe: Pipeline, rank: int, *, ahead: int = 0) -> Iterator[Op]:
        """1F1B with some forwards more ahead."""
        warm = min(pipe.microbatches, pipe.ranks - 1 - rank + ahead)
        yield from (Op(rank, Kind.F, m) for m in range(warm))
        for m in range(pipe.microbatches - warm):
            yield Op(rank, Kind.F, warm + m)
            yield Op(rank, Kind.B, m)
        yield from (Op(rank, Kind.B, m) for m in range(pipe.microbatches - warm, pipe.microbatches))

    pipe = Pipeline(4, 8)
    assert get_schedule("late-backward").program(pipe).ranks == get_schedule("1f1b").program(pipe).ranks
    assert get_schedule("late-backward", ahead=2).program(pipe).ranks != get_schedule("1f1b").program(pipe).ranks
    told = get_schedule("late-backward").describe(pipe)
    assert told.in_flight == (8.0, 8.0, 8.0, 8.0)  # nothing is known of it: the whole step is the bound
    assert (told.summary, told.defined, told.verified) == ("1F1B with some forwards more ahead.", "any size", False)
    assert told.options["ahead"] == 0
