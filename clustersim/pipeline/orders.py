"""Building blocks that schedules share: rows of ops, the 1F1B alternation, tables of interleaving, slot tables.

Everything here works on one rank's lists and knows nothing of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise

from clustersim.pipeline.ops import Action, Fused, Kind, Op


def row(stage: int, kind: Kind, units: Iterable[int]) -> list[Op]:
    """One op a unit, in the order of ``units``."""
    return [Op(stage, kind, unit) for unit in units]


def backward_units(microbatches: int, slices: int) -> list[int]:
    """Units in backward order: microbatches ascending, slices of each descending (causal attention: keys and values of
    a slice collect gradients from the later ones first)."""
    return [b * slices + s for b in range(microbatches) for s in reversed(range(slices))]


def alternate(forwards: Sequence[Op], backwards: Sequence[Op], warm_up: int) -> Iterator[Op]:
    """``warm_up`` forwards, then one backward and one forward in turn, then the backwards that are left."""
    yield from forwards[:warm_up]
    rest = forwards[warm_up:]
    yield from chain.from_iterable(zip(backwards, rest, strict=False))
    yield from backwards[len(rest) :]


def alternate_fused(forwards: Sequence[Op], backwards: Sequence[Op], warm_up: int) -> Iterator[Action]:
    """``warm_up`` forwards, then pairs of a forward and a backward that run as one, then the backwards that are
    left."""
    yield from forwards[:warm_up]
    rest = forwards[warm_up:]
    yield from (Fused(forward, backward) for forward, backward in zip(rest, backwards, strict=False))
    yield from backwards[len(rest) :]


def alternate_split(forwards: Sequence[Op], inputs: Sequence[Op], warm_up: int, lag: int) -> Iterator[Op]:
    """``warm_up`` forwards; then I, the W that is ``lag`` I-s old, F, round and round; then the W that are left."""
    rest = iter(forwards[warm_up:])
    yield from forwards[:warm_up]
    for done, op in enumerate(inputs):
        yield op
        if done >= lag:
            yield weight_of(inputs[done - lag])
        yield from islice(rest, 1)
    yield from (weight_of(op) for op in inputs[max(0, len(inputs) - lag) :])


def weight_of(op: Op) -> Op:
    """The weight gradient that belongs to an input gradient."""
    return Op(op.stage, Kind.W, op.microbatch)


def grouped_chunks(units: int, chunks: int, group: int) -> list[tuple[int, int]]:
    """(chunk, position) in interleaved order: ``group`` units through chunk 0, the same through chunk 1, …; the last
    group may be smaller (Megatron-LM's schedule table)."""
    return [
        (chunk, unit)
        for first in range(0, units, group)
        for chunk in range(chunks)
        for unit in range(first, min(first + group, units))
    ]


def interleaved_rows(pipe: tuple[int, int], rank: int, chunks: int, group: int, *, backward: Kind = Kind.B,
                     order: Sequence[int] | None = None) -> tuple[list[Op], list[Op]]:  # fmt: skip
    """Forwards and backwards of an interleaved schedule on the loop placement.

    Args:
        pipe: (ranks, units).
        rank: which rank.
        chunks: chunks a rank.
        group: units that pass one chunk before the next.
        backward: B, or I for schedules that split it.
        order: the units in backward order (ascending when absent).
    """
    ranks, units = pipe
    table = grouped_chunks(units, chunks, group)
    backs = range(units) if order is None else order
    forwards = [Op(chunk * ranks + rank, Kind.F, unit) for chunk, unit in table]
    backwards = [Op((chunks - 1 - chunk) * ranks + rank, backward, backs[position]) for chunk, position in table]
    return forwards, backwards


def by_slot(slots: Iterable[tuple[int, Op]]) -> list[Op]:
    """Ops in the order of their slot numbers.

    Raises:
        ValueError: when two ops share a slot: a table built from offsets has a mistake then.
    """
    placed = sorted(slots)
    for (slot, op), (after, other) in pairwise(placed):
        if slot == after:
            raise ValueError(f"slot {slot} holds both {op} and {other}")
    return [op for _, op in placed]
