"""V-Half and V-Min: a building block repeated every six slots, squeezed and reordered at both ends.

Each rank runs four passes a microbatch on *lanes* (0: F of chunk 0, 1: F of chunk 1, 2: backward of chunk 1, 3:
backward of chunk 0) and its two weight gradients in the slots that are left. Lanes 0 and 2 run down the ranks, 1 and 3
up. The block's offsets decide how long activations live (Qi et al., arXiv 2405.15362). Repeating the block leaves gaps
while the pipeline fills and drains; passes there move to the earliest free slot that does not raise the peak (the
authors' greedy: once with weight gradients as ops of their own, once without).
"""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.pipeline.ops import Kind, Op

Lanes = list[list[int]]  # slot of each unit, lane by lane; four lanes, a fifth for weight gradients
_PERIOD = 6
_DOWN, _UP = (0, 2), (1, 3)
_BACKWARD = (2, 3)
_WEIGHT = 4
_EMPTY = -1


def half_block(ranks: int) -> list[list[int]]:
    """Offsets of the lanes on each rank for half of 1F1B's memory."""
    shift = 3 if ranks % 2 == 0 else 0
    return [[2 * r, 3 * ranks - r - 2, 3 * ranks + shift + 2 * r - 1, 6 * ranks + shift - r - 2] for r in range(ranks)]


def min_block(ranks: int) -> list[list[int]]:
    """Offsets of the lanes on each rank for a third of 1F1B's memory."""
    shift = 2 if ranks % 3 == 0 else 0
    return [[r, 2 * ranks - r - 1, 2 * ranks + shift + r, 4 * ranks + shift - r - 1] for r in range(ranks)]


def repeated_block(block: Sequence[Sequence[int]], microbatches: int) -> list[list[Op]]:
    """Every rank's order for ``microbatches`` repetitions of the block."""
    table = [[list(range(start, start + _PERIOD * microbatches, _PERIOD)) for start in rank] for rank in block]
    table = [lanes[:4] for lanes in _reorder([[*lanes, _weights(lanes)] for lanes in table])]
    table = [lanes[:4] for lanes in _reorder(table)]
    return [_order(lanes, rank, len(table)) for rank, lanes in enumerate(table)]


def _order(lanes: Lanes, rank: int, ranks: int) -> list[Op]:
    """One rank's ops by slot, weight gradients in the slots left: those of chunk 1 first."""
    stages = (rank, 2 * ranks - 1 - rank)
    placed = [(slot, Op(stages[lane in (1, 2)], Kind.F if lane < 2 else Kind.I, unit))
              for lane, slots in enumerate(lanes) for unit, slot in enumerate(slots)]  # fmt: skip
    free = _split_weights(lanes)
    for chunk, slots in zip((1, 0), free, strict=True):
        placed += [(slot, Op(stages[chunk], Kind.W, unit)) for unit, slot in enumerate(slots)]
    return [op for _, op in sorted(placed)]


def _timeline(lanes: Lanes) -> list[int]:
    """Lane in each slot, or ``_EMPTY``."""
    slots = [_EMPTY] * (1 + max(lane[-1] for lane in lanes))
    for lane, times in enumerate(lanes):
        for slot in times:
            slots[slot] = lane
    return slots


def _weights(lanes: Lanes) -> list[int]:
    """Slots of the weight gradients, both chunks together."""
    return sorted(slot for slots in _split_weights(lanes, together=True) for slot in slots)


def _split_weights(lanes: Lanes, together: bool = False) -> tuple[list[int], list[int]]:
    """Free slots given to the weight gradients of backward lanes 2 and 3: each as soon as a slot is free, lane 2
    first."""
    timeline = _timeline(lanes)
    waiting, slots = [0, 0], ([], [])  # type: tuple[list[int], tuple[list[int], list[int]]]
    for slot, lane in enumerate(timeline):
        if lane in _BACKWARD:
            waiting[0 if together else lane - 2] += 1
        elif lane == _EMPTY and any(waiting):
            first = 0 if waiting[0] else 1
            slots[first].append(slot)
            waiting[first] -= 1
    after = len(timeline)
    for first in (0, 1):
        slots[first].extend(range(after, after + waiting[first]))
        after += waiting[first]
    return slots


def _peak(timeline: Sequence[int], weights_apart: bool) -> int:
    """Most chunk activations held; without lane 4 an empty slot stands for a weight gradient if one waits."""
    held = peak = waiting = 0
    for lane in timeline:
        if lane in (0, 1):
            held += 1
        elif lane in _BACKWARD:
            waiting += 1
        elif lane == _WEIGHT or (lane == _EMPTY and not weights_apart and waiting):
            held, waiting = held - 1, waiting - 1
        peak = max(peak, held)
    return peak


def _sorted_events(table: list[Lanes]) -> list[tuple[int, int, int, int]]:
    """(slot, rank, lane, unit) in time order; equal slots by rank, then lane."""
    return sorted((slot, rank, lane, unit) for rank, lanes in enumerate(table)
                  for lane, slots in enumerate(lanes) for unit, slot in enumerate(slots))  # fmt: skip


def _reorder(table: list[Lanes]) -> list[Lanes]:
    """Move passes of the fill and the drain to earlier free slots without raising the peak, then close the gaps.

    The steady phase, from rank 0's first backward of chunk 0 to the last forward that enters, stays as it is; so does
    the fill when weight gradients are not ops of their own.
    """
    weights_apart = len(table[0]) > _WEIGHT
    timelines = [_timeline(lanes) for lanes in table]
    most = max(_peak(timeline, weights_apart) for timeline in timelines)
    last = len(table[0][0]) - 1
    phase = 0
    for slot, rank, lane, unit in _sorted_events(table):
        if phase == 0 and lane == 3 and rank == 0:
            phase = 1
        if phase == 1:
            phase = 2 if lane == 0 and unit == last else 1
        elif phase == 2 or weights_apart:
            _move(table, timelines[rank], (slot, rank, lane, unit), weights_apart, most)
    if not weights_apart:
        table = [[*lanes, _weights(lanes)] for lanes in table]
    return _squeeze(table)


def _move(
    table: list[Lanes], timeline: list[int], event: tuple[int, int, int, int], weights_apart: bool, most: int
) -> None:
    """Give one pass the earliest free slot behind what it needs that keeps the peak; it stays if there is none."""
    slot, rank, lane, unit = event
    for earlier in range(1 + _earliest(table, rank, lane, unit), slot):
        if timeline[earlier] != _EMPTY:
            continue
        timeline[earlier], timeline[slot] = lane, _EMPTY
        if _peak(timeline, weights_apart) <= most:
            table[rank][lane][unit] = earlier
            return
        timeline[earlier], timeline[slot] = _EMPTY, lane


def _needs(lane: int, rank: int, ranks: int) -> list[tuple[int, int]]:
    """(rank, lane) of the passes of the same unit that a pass waits for."""
    needs = []
    if lane in _DOWN and rank > 0:
        needs.append((rank - 1, lane))
    if lane in _UP and rank + 1 < ranks:
        needs.append((rank + 1, lane))
    if 0 < lane < _WEIGHT:
        needs.append((rank, lane - 1))
    return needs


def _earliest(table: list[Lanes], rank: int, lane: int, unit: int) -> int:
    """Last slot of what a pass waits for, −1 when for nothing."""
    slots = [table[r][other][unit] for r, other in _needs(lane, rank, len(table))]
    if lane == _WEIGHT:
        slots.append(sorted(table[rank][2] + table[rank][3])[unit])
    if unit:
        slots.append(table[rank][lane][unit - 1])
    return max(slots, default=-1)


def _squeeze(table: list[Lanes]) -> list[Lanes]:
    """Start every pass as early as its needs and its rank's order let it, each one slot long."""
    start = [[[0] * len(slots) for slots in lanes] for lanes in table]
    free = [0] * len(table)
    for _, rank, lane, unit in _sorted_events(table):
        needs = [start[r][other][unit] + 1 for r, other in _needs(lane, rank, len(table))]
        start[rank][lane][unit] = max(free[rank], *needs) if needs else free[rank]
        free[rank] = start[rank][lane][unit] + 1
    return start
