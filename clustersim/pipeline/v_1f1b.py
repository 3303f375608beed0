"""1F1B-V: a V-shaped building block of two forwards and two full backwards, repeated, with the fill moved forward.

A backward takes two slots of six (Qi et al., arXiv 2405.15362; sail-sg scheduler). The block's offsets follow the
critical path of one microbatch down and up the V, with three idle slots after every third backward so that the residues
mod 6 never collide. Then passes move to earlier free slots as long as the peak of the repeated block is not exceeded.
"""

from __future__ import annotations

from clustersim.pipeline.ops import Kind, Op

_PERIOD = 6
_WIDTH = (1, 1, 2, 2)  # slots of the lanes: F of chunk 0 and 1, B of chunk 1 and 0


def residues(ranks: int) -> list[list[int]]:
    """Slot mod 6 of each lane on each rank."""
    table = [[0] * 4 for _ in range(ranks)]
    for place in range(ranks):
        table[place][0] = place + 1
        table[ranks - 1 - place][1] = ranks + place + 1
    now = 2 * ranks + 1 + (3 if ranks % 3 == 0 else 0)
    turn = (3 - (ranks + 2) % 3) % 3
    for place in range(2 * ranks):
        rank, lane = (place, 2) if place < ranks else (2 * ranks - 1 - place, 3)
        table[rank][lane] = now
        turn, now = turn + 1, now + 2
        if turn == 3:
            turn, now = 0, now + 3
    return [[slot % _PERIOD for slot in rank] for rank in table]


def one_f_one_b_v(ranks: int, microbatches: int) -> list[list[Op]]:
    """Every rank's order."""
    table = _Table(_first_starts(ranks), microbatches)
    table.move_forward()
    return [table.order(rank) for rank in range(ranks)]


def _first_starts(ranks: int) -> list[list[int]]:
    """First slot of each lane on each rank: along the path of microbatch 0, each at the next slot with its residue."""
    table, at = residues(ranks), _PERIOD
    starts = [[0] * 4 for _ in range(ranks)]
    for lane in range(4):
        for rank in range(ranks) if lane in (0, 2) else reversed(range(ranks)):
            at += (table[rank][lane] - at) % _PERIOD
            starts[rank][lane] = at
            at += _WIDTH[lane]
    return starts


class _Table:
    """Slots of every pass, and the activations held behind each slot."""

    def __init__(self, starts: list[list[int]], microbatches: int) -> None:
        self.p, self.m = len(starts), microbatches
        self.length = max(max(rank) for rank in starts) + _PERIOD * (microbatches + 1)
        self.at = [[[first + _PERIOD * unit for unit in range(microbatches)] for first in rank] for rank in starts]
        self.used = [[False] * self.length for _ in starts]
        self.held = [[0] * self.length for _ in starts]
        for rank, lanes in enumerate(self.at):
            for lane, slots in enumerate(lanes):
                for slot in slots:
                    self._mark(rank, lane, slot, True)
            self._count(rank)
        self.most = max(max(held) for held in self.held)

    def _mark(self, rank: int, lane: int, slot: int, value: bool) -> None:
        self.used[rank][slot : slot + _WIDTH[lane]] = [value] * _WIDTH[lane]

    def _count(self, rank: int) -> None:
        change = [0] * self.length
        for lane, slots in enumerate(self.at[rank]):
            for slot in slots:
                change[slot if lane < 2 else slot + 1] += 1 if lane < 2 else -1
        now = 0
        for slot, step in enumerate(change):
            now += step
            self.held[rank][slot] = now

    def move_forward(self) -> None:
        """Passes in time order to the earliest free slots behind what they need; forwards only where memory allows."""
        events = sorted((slot, rank, lane, unit) for rank, lanes in enumerate(self.at)
                        for lane, slots in enumerate(lanes) for unit, slot in enumerate(slots))  # fmt: skip
        for slot, rank, lane, unit in events:
            earliest = self._earliest(rank, lane, unit)
            if lane < 2:
                self._move_forward_pass(rank, lane, unit, slot, earliest)
            else:
                self._move_backward_pass(rank, lane, unit, slot, earliest)

    def _earliest(self, rank: int, lane: int, unit: int) -> int:
        needs = [] if unit == 0 else [(rank, lane, unit - 1)]
        above = rank - 1 if lane in (0, 2) else rank + 1
        if 0 <= above < self.p:
            needs.append((above, lane, unit))
        elif lane:
            needs.append((rank, lane - 1, unit))
        return max((self.at[r][kind][u] + _WIDTH[kind] for r, kind, u in needs), default=0)

    def _move_backward_pass(self, rank: int, lane: int, unit: int, slot: int, earliest: int) -> None:
        place = next((s for s in range(earliest, slot) if not any(self.used[rank][s : s + 2])), slot)
        if place < slot:
            self._mark(rank, lane, slot, False)
            self._mark(rank, lane, place, True)
            self.at[rank][lane][unit] = place
            for between in range(place + 1, slot + 1):
                self.held[rank][between] -= 1

    def _move_forward_pass(self, rank: int, lane: int, unit: int, slot: int, earliest: int) -> None:
        place = slot
        while place > earliest and self.held[rank][place - 1] < self.most:
            place -= 1
        while place < slot and self.used[rank][place]:
            place += 1
        if place < slot:
            self._mark(rank, lane, slot, False)
            self._mark(rank, lane, place, True)
            self.at[rank][lane][unit] = place
            for between in range(place, slot):
                self.held[rank][between] += 1

    def order(self, rank: int) -> list[Op]:
        """One rank's ops by slot."""
        stages = (rank, 2 * self.p - 1 - rank)
        placed = [(slot, Op(stages[lane in (1, 2)], Kind.F if lane < 2 else Kind.B, unit))
                  for lane, slots in enumerate(self.at[rank]) for unit, slot in enumerate(slots)]  # fmt: skip
        return [op for _, op in sorted(placed)]
