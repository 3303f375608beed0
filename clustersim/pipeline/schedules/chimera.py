"""Chimera: 2f pipelines in opposite directions on the same ranks, each holding its own copy of the weights.

With slots of one op each, position j of every chain runs F of its u-th microbatch in slot j + 2u and B in slot 2p − 1 −
j + 2u: chains of opposite direction differ in parity, those of equal direction are p/f apart, so no slot is taken
twice. Blocks of p microbatches (p/2f a chain) follow each other every 2p slots (*direct* concatenation).

*Forward doubling* runs two microbatches' forwards per forward slot, *backward halving* halves a microbatch for its
backward; both make a forward slot as long as a backward slot when B = 2F. Their blocks hold pairs of units.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from clustersim.pipeline.ops import Action, Kind, Op
from clustersim.pipeline.orders import by_slot
from clustersim.pipeline.placement import Placement, chain_ranks
from clustersim.pipeline.rules import even, multiple_of
from clustersim.pipeline.schedule import Pipeline, Schedule, schedule

Concatenation = Literal["direct", "forward-doubling", "backward-halving"]


class HalvingSchedule(Schedule):
    """Backward halving works on half microbatches: its units are halves."""

    def _sized(self, pipe: Pipeline) -> Pipeline:
        halves: Any = getattr(self, "concatenation", "direct") == "backward-halving"
        return super()._sized(pipe)._replace(slices=2 if halves else pipe.slices)

    def _broken(self, pipe: Pipeline) -> Iterator[str]:
        halves = getattr(self, "concatenation", "direct") == "backward-halving"
        yield from super()._broken(pipe._replace(slices=1) if halves else pipe)


def rules(pipe: Pipeline, pairs: int = 1, concatenation: Concatenation = "direct") -> Iterator[str]:
    """p even, 2f divides p, m a multiple of p (2p when forwards are doubled)."""
    yield from even("pp", pipe.ranks)
    if pipe.ranks % (2 * pairs):
        yield f"needs pp to be a multiple of 2 * pairs = {2 * pairs}, got {pipe.ranks}"
    block = 2 * pipe.ranks if concatenation == "forward-doubling" else pipe.ranks
    yield from multiple_of("microbatches", pipe.microbatches, block, "2p" if block > pipe.ranks else "p")


def held(pipe: Pipeline, rank: int, pairs: int = 1, concatenation: Concatenation = "direct") -> float:
    """Each chain holds its forwards until its backward returns: position j at most p/2f + … units, all chains
    together."""
    units_a_microbatch = 2 if concatenation == "backward-halving" else 1
    peak = now = 0
    for op in _order(pipe, rank, pairs, concatenation):
        now += 1 if op.kind is Kind.F else -1
        peak = max(peak, now)
    return peak / units_a_microbatch


@schedule(
    "chimera",
    defined="p even, 2f divides p, m a multiple of p (of 2p with forward doubling)",
    in_flight=held,
    formula="p/2 + 1 ... p (f = 1, direct); twice that with forward doubling",
    rules=rules,
    placement=Placement.BIDIRECTIONAL,
    chains=lambda pairs=1: 2 * pairs,
    source="Li and Hoefler, Chimera, arXiv 2107.06925; the authors' generator (f = 1, direct); the rest by definition",
    base=HalvingSchedule,
)
def chimera(
    pipe: Pipeline,
    rank: int,
    *,
    pairs: Annotated[int, Field(ge=1, description="f: pairs of pipelines in opposite directions")] = 1,
    concatenation: Annotated[
        Concatenation, Field(description="how blocks of more than p microbatches are made")
    ] = "direct",
) -> Iterator[Action]:
    """2f pipelines in opposite directions; blocks of p microbatches one behind the other."""
    yield from _order(pipe, rank, pairs, concatenation)


def _order(pipe: Pipeline, rank: int, pairs: int, concatenation: Concatenation) -> list[Op]:
    double = concatenation != "direct"
    units = pipe.microbatches * (2 if concatenation == "backward-halving" else 1)
    table = _paired_slots if double else _slots
    return by_slot(table(pipe.ranks, rank, pairs, units // (2 * pairs)))


def _slots(p: int, rank: int, pairs: int, units: int) -> Iterator[tuple[int, Op]]:
    """(slot, op) of one rank: every chain's 1F1B diamond, one block of p/2f units a chain after the other."""
    size = p // (2 * pairs)
    for chain in range(2 * pairs):
        position = chain_ranks(p, 2 * pairs, chain).index(rank)
        for unit in range(units):
            start = unit // size * 2 * p + 2 * (unit % size)
            yield start + position, Op(chain * p + position, Kind.F, unit)
            yield start + 2 * p - 1 - position, Op(chain * p + position, Kind.B, unit)


def _paired_slots(p: int, rank: int, pairs: int, units: int) -> Iterator[tuple[int, Op]]:
    """As ``_slots`` with a pair of units in place of each: both forwards, later both backwards (the second unit
    first)."""
    for slot, op in _slots(p, rank, pairs, units // 2):
        first = 2 * (op.microbatch or 0)
        order = (first, first + 1) if op.kind is Kind.F else (first + 1, first)
        for place, unit in enumerate(order):
            yield 2 * slot + place, Op(op.stage, op.kind, unit)
