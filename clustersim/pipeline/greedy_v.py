"""Greedy ZB-V: rounds of one backward and one forward a rank on two lanes, weight gradients in the gaps.

The heuristic of sail-sg/zero-bubble-pipeline-parallelism (Qi et al., arXiv 2405.15362, section on ZB-V) at equal F, I,
W and a cap of p microbatches. Lane 0 runs down the ranks (F of chunk 0, backward of chunk 1), lane 1 runs up. Two
switches say whether a weight gradient may overfill the wait of a forward or of a backward on lane 0; each list is tried
again with the idle time that its first try found unavoidable. The list with the least idle time on any rank wins, the
first on ties.
"""

from __future__ import annotations

from collections import deque
from itertools import product

from clustersim.pipeline.ops import Kind, Op

_CHANGE = {Kind.F: 2, Kind.I: -1, Kind.W: -1}
_UNSET = -1


def greedy_v(ranks: int, microbatches: int) -> list[list[Op]]:
    """Every rank's order. Needs microbatches >= 2 * ranks - 1."""
    best: _Greedy | None = None
    for fill_backward, fill_forward in product((True, False), repeat=2):
        found = _solve(ranks, microbatches, fill_forward, fill_backward)
        if best is None or max(found.idle) < max(best.idle):
            best = found
    assert best is not None
    return best.orders


def _solve(ranks: int, microbatches: int, fill_forward: bool, fill_backward: bool) -> _Greedy:
    """Try again while the idle time that a try found makes the next one better."""
    best = _Greedy(ranks, microbatches, fill_forward, fill_backward, None).run()
    while True:
        again = _Greedy(ranks, microbatches, fill_forward, fill_backward, best.idle).run()
        if max(again.idle) >= max(best.idle):
            return best
        best = again


class _Greedy:
    """One greedy pass with unit pass times; ``idle`` is each rank's idle time since its first forward."""

    def __init__(
        self, ranks: int, units: int, fill_forward: bool, fill_backward: bool, allowed: list[int] | None
    ) -> None:
        self.p, self.m = ranks, units
        self.fill_forward, self.fill_backward = fill_forward, fill_backward
        self.allowed = allowed or [_UNSET] * ranks
        self.cap = 4 * ranks
        self.end: dict[tuple[Kind, int, int], list[int]] = {
            (kind, lane, rank): [] for kind in _CHANGE for lane in (0, 1) for rank in range(ranks)
        }
        self.free = [0] * ranks
        self.held = [0] * ranks
        self.idle = [0] * ranks
        self.pending: list[deque[int]] = [deque() for _ in range(ranks)]
        self.orders: list[list[Op]] = [[] for _ in range(ranks)]

    def run(self) -> _Greedy:
        """Fill, then rounds of a backward and a forward on every rank, then the weight gradients that are left."""
        self._fill()
        for _ in range(2 * self.m):
            self._backward_round()
            for rank in range(self.p):
                self._forward_turn(rank)
        for rank in range(self.p):
            while self.pending[rank]:
                self._put_weight(rank)
        return self

    def _count(self, kind: Kind, lane: int, rank: int) -> int:
        return len(self.end[kind, lane, rank])

    def _arrival(self, kind: Kind, lane: int, rank: int) -> int:
        """When the message of the next pass on a lane is there, −1 when none comes or it is not sent yet."""
        source = rank - 1 if lane == 0 else rank + 1
        if kind is Kind.W or not 0 <= source < self.p:
            return _UNSET
        ends, unit = self.end[kind, lane, source], self._count(kind, lane, rank)
        return ends[unit] if unit < len(ends) else _UNSET

    def _put(self, kind: Kind, lane: int, rank: int) -> None:
        unit = self._count(kind, lane, rank)
        started = self._count(Kind.F, 0, rank) > 0
        end = max(self.free[rank], self._arrival(kind, lane, rank)) + 1
        if started:
            self.idle[rank] += end - self.free[rank] - 1
        self.end[kind, lane, rank].append(end)
        self.free[rank] = end
        self.held[rank] += _CHANGE[kind]
        chunk = lane if kind is Kind.F else 1 - lane
        self.orders[rank].append(Op(rank if chunk == 0 else 2 * self.p - 1 - rank, kind, unit))
        if kind is Kind.I:
            self.pending[rank].append(lane)

    def _put_weight(self, rank: int) -> None:
        self._put(Kind.W, self.pending[rank].popleft(), rank)

    # --- the fill
    # ---------------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        for rank in range(self.p):
            self._put(Kind.F, 0, rank)
        for rank in reversed(range(self.p)):
            if rank + 1 < self.p:
                self._ahead_of_turn(rank)
            self._put(Kind.F, 1, rank)
        self._even_out()

    def _ahead_of_turn(self, rank: int) -> None:
        """Forwards on chunk 0 while the first microbatch comes back up the V."""
        back = self.end[Kind.F, 1, rank + 1][0]
        while (self.held[rank] + 2 * (2 + 2 * rank) <= self.cap and self.free[rank] + 1 <= back
               and self._count(Kind.F, 0, rank) < self.m):  # fmt: skip
            for above in range(rank + 1):
                self._put(Kind.F, 0, above)

    def _even_out(self) -> None:
        """Forwards, lanes in turn, until each rank has made as many as the one above it."""
        lane = 0
        for rank in range(1, self.p):
            while self._behind(rank):
                for below in reversed(range(rank, self.p)):
                    if self._count(Kind.F, lane, below) < self.m:
                        self._put(Kind.F, lane, below)
                lane = 1 - lane

    def _behind(self, rank: int) -> bool:
        mine = [self._count(Kind.F, lane, rank) for lane in (0, 1)]
        above = [self._count(Kind.F, lane, rank - 1) for lane in (0, 1)]
        return sum(mine) < sum(above) or mine[1] <= above[1] < self.m

    # --- the rounds
    # -------------------------------------------------------------------------------------------------------

    def _backward_round(self) -> None:
        for rank in range(self.p):
            self._make_room(rank, Kind.I)
        up = [rank for rank in range(self.p) if self._goes_up(rank)]
        for rank in reversed(up):
            self._place(Kind.I, 1, rank, fill=True)
        for rank in range(self.p):
            if rank not in up:
                self._place(Kind.I, 0, rank, fill=self.fill_backward)

    def _goes_up(self, rank: int) -> bool:
        """Whether the rank's next backward is of chunk 0."""
        down, up = self._count(Kind.I, 0, rank), self._count(Kind.I, 1, rank)
        if up >= down:
            return False
        return rank == self.p - 1 or self._arrival(Kind.I, 1, rank) >= 0 or down >= self.m

    def _forward_turn(self, rank: int) -> None:
        lane = self._forward_lane(rank)
        if lane is not None:
            self._make_room(rank, Kind.F)
            self._place(Kind.F, lane, rank, fill=self.fill_forward)

    def _forward_lane(self, rank: int) -> int | None:
        down, up = self._count(Kind.F, 0, rank), self._count(Kind.F, 1, rank)
        if up >= self.m:
            return None
        if up >= down:
            return 0
        if rank == self.p - 1 or self._arrival(Kind.F, 1, rank) >= 0:
            return 1
        return 0 if down < self.m and (rank == 0 or self._arrival(Kind.F, 0, rank) >= 0) else None

    def _make_room(self, rank: int, kind: Kind) -> None:
        while self.held[rank] + _CHANGE[kind] > self.cap:
            self._put_weight(rank)

    def _place(self, kind: Kind, lane: int, rank: int, fill: bool) -> None:
        arrival = self._arrival(kind, lane, rank)
        while self.pending[rank] and arrival >= self.free[rank] + 1:
            self._put_weight(rank)
        if self.pending[rank] and fill and arrival >= 0 and arrival - self.free[rank] > self._slack(rank):
            self._put_weight(rank)
        self._put(kind, lane, rank)

    def _slack(self, rank: int) -> int:
        """Idle time that the rank may still add without becoming the worst."""
        return max(*self.idle, max(self.allowed) - self.allowed[rank]) - self.idle[rank]
