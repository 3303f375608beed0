"""BPipe: 1F1B whose early ranks park activations on their mirror rank, so that all ranks hold about the same.

Rank x < p/2 holds at most ⌈(p+2)/2⌉ microbatches: before a forward that would exceed it, the newest activations (needed
last) go to rank p − 1 − x; before the backward that needs them they come back. OFFLOAD and RELOAD are those copies.
"""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.ops import Action, Kind, Op
from clustersim.pipeline.orders import alternate, row
from clustersim.pipeline.rules import even
from clustersim.pipeline.schedule import Pipeline, schedule


def limit(pipe: Pipeline) -> int:
    """Microbatches that a rank may hold: ⌈(p+2)/2⌉."""
    return (pipe.ranks + 3) // 2


@schedule(
    "bpipe",
    defined="p even; the link between rank x and p - 1 - x is fast",
    in_flight=lambda pipe, rank: min(limit(pipe), pipe.ranks - rank),
    formula="min(p - r, ceil((p+2)/2)), without what a partner parked here",
    rules=lambda pipe: even("pp", pipe.ranks),
    source="Kim et al., BPipe, ICML 2023 (recalled construction)",
    verified=False,
)
def bpipe(pipe: Pipeline, rank: int) -> Iterator[Action]:
    """1F1B with activations parked on the mirror rank."""
    units = range(pipe.microbatches)
    order = list(
        alternate(row(rank, Kind.F, units), row(rank, Kind.B, units), min(pipe.microbatches, pipe.ranks - rank))
    )
    yield from _balanced(order, rank, limit(pipe))


def _balanced(order: list[Op], stage: int, most: int) -> Iterator[Op]:
    here: list[int] = []
    away: set[int] = set()

    def make_room() -> Iterator[Op]:
        while len(here) >= most:
            newest = here.pop()
            away.add(newest)
            yield Op(stage, Kind.OFFLOAD, newest)

    for op in order:
        unit = op.microbatch or 0
        if op.kind is Kind.F:
            yield from make_room()
            yield op
            here.append(unit)
            continue
        if unit in away:
            yield from make_room()
            away.remove(unit)
            here.append(unit)
            yield Op(stage, Kind.RELOAD, unit)
        yield op
        here.remove(unit)
