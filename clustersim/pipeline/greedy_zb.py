"""Automatic zero bubble: greedy placement of F, I and W under a memory cap.

The search of Qi et al. (arXiv 2401.10241, section 3.1; heuristic of sail-sg/zero-bubble-pipeline-parallelism): ranks
take rounds of one forward and one input gradient each; weight gradients fill gaps and free memory. Three switches give
eight lists, of which the one with the shortest longest span of a rank is taken (the first on ties). Activations count 2
at the forward, 1 after I, 0 after W.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from clustersim.errors import InputError, Problem
from clustersim.pipeline.ops import Kind, Op

_HELD = {Kind.F: 2, Kind.I: -1, Kind.W: -1}


class PassTimes(NamedTuple):
    """Seconds, or any unit, of F, I and W of one microbatch on one rank, and of a message between ranks."""

    forward: float
    input_grad: float
    weight_grad: float
    latency: float


def greedy_zero_bubble(ranks: int, microbatches: int, times: PassTimes, cap: float | None) -> list[list[Op]]:
    """The best of the eight lists.

    Args:
        ranks: pipeline ranks.
        microbatches: microbatches a step.
        times: pass times.
        cap: activations a rank may hold, in microbatches; None for no cap.

    Raises:
        InputError: when no list fits the cap.
    """
    best: tuple[float, list[list[Op]]] | None = None
    for switches in product((True, False), repeat=3):
        search = _Search(ranks, microbatches, times, cap, *switches)
        span = search.run()
        if span is not None and (best is None or span < best[0]):
            best = span, search.orders
    if best is None:
        raise InputError(Problem("schedule.memory", f"a cap of {cap:g} microbatches a rank is too small for any list"))
    return best[1]


class _NoRoom(Exception):
    """The cap leaves no room for the next pass and no weight gradient is left to free some."""


class _Search:
    """One greedy pass; ``idle`` is each rank's idle time since its first forward."""

    def __init__(self, ranks: int, microbatches: int, times: PassTimes, cap: float | None, early_bubble: bool,
                 prefer_backward: bool, fill: bool) -> None:  # fmt: skip
        self.p, self.m, self.latency = ranks, microbatches, times.latency
        self.cost = {Kind.F: times.forward, Kind.I: times.input_grad, Kind.W: times.weight_grad}
        self.cap = 6 * microbatches if cap is None else 2 * cap
        self.early_bubble, self.prefer_backward, self.fill = early_bubble, prefer_backward, fill
        self.end: dict[Kind, list[list[float]]] = {kind: [[] for _ in range(ranks)] for kind in self.cost}
        self.free = [0.0] * ranks
        self.held = [0] * ranks
        self.idle = [0.0] * ranks
        self.orders: list[list[Op]] = [[] for _ in range(ranks)]

    def run(self) -> float | None:
        """Fill ``orders``; the longest span of a rank, or None when the cap is too small."""
        try:
            self._first_round()
            for unit in range(1, self.m):
                self._round(unit)
        except _NoRoom:
            return None
        for rank in range(self.p):
            while self._count(Kind.W, rank) < self.m:
                self._put(Kind.W, rank)
        first = [self.end[Kind.F][rank][0] for rank in range(self.p)]
        return max(self.end[Kind.W][rank][-1] - first[rank] + self.cost[Kind.F] for rank in range(self.p))

    def _count(self, kind: Kind, rank: int) -> int:
        return len(self.end[kind][rank])

    def _arrival(self, kind: Kind, rank: int, unit: int) -> float | None:
        """When the message that a pass waits for is there; None where none comes."""
        source = {Kind.F: rank - 1, Kind.I: rank + 1}.get(kind, -1)
        return self.end[kind][source][unit] + self.latency if 0 <= source < self.p else None

    def _put(self, kind: Kind, rank: int) -> None:
        unit, cost = self._count(kind, rank), self.cost[kind]
        without_wait = self.free[rank] + cost
        arrival = self._arrival(kind, rank, unit)
        end = without_wait if arrival is None else max(without_wait, arrival + cost)
        if self._count(Kind.F, rank):
            self.idle[rank] += end - without_wait
        self.end[kind][rank].append(end)
        self.free[rank] = end
        self.held[rank] += _HELD[kind]
        self.orders[rank].append(Op(rank, kind, unit))

    def _first_round(self) -> None:
        for rank in range(self.p):
            self._put(Kind.F, rank)
        wanted = self._warm_up()
        for rank in range(self.p):
            for _ in range(wanted[rank]):
                self._put(Kind.F, rank)
        for rank in reversed(range(self.p)):
            self._put(Kind.I, rank)

    def _warm_up(self) -> list[int]:
        """Further forwards that fit before each rank's first gradient arrives."""
        forward, wanted = self.cost[Kind.F], [0] * self.p
        gradient = self.end[Kind.F][-1][0] + self.cost[Kind.I]
        for rank in reversed(range(self.p - 1)):
            held, now, arrival = self.held[rank], self.free[rank], gradient + self.latency
            while self._count(Kind.F, rank) + wanted[rank] < self.m and held + _HELD[Kind.F] <= self.cap:
                if (now + forward > arrival) if self.early_bubble else (now >= arrival):
                    break
                held, now = held + _HELD[Kind.F], now + forward
                wanted[rank] += 1
            gradient = max(now, arrival) + self.cost[Kind.I]
        for rank in range(1, self.p):
            while 0 < wanted[rank] >= wanted[rank - 1] and self._count(Kind.F, rank) + wanted[rank] < self.m:
                wanted[rank] -= 1
        return wanted

    def _round(self, unit: int) -> None:
        wanted = [self._wants_forward(rank) for rank in range(self.p)]
        for rank in reversed(range(self.p - 1)):
            wanted[rank] = wanted[rank] and wanted[rank + 1]
        for rank in range(self.p):
            if wanted[rank]:
                self._place(Kind.F, rank)
        for rank in reversed(range(self.p)):
            last = rank == 0 and self._count(Kind.F, 0) == self.m
            self._place(Kind.I, rank, drain=last)

    def _wants_forward(self, rank: int) -> bool:
        """Whether the rank takes a forward this round; with ``prefer_backward`` it may hold back for the next
        gradient."""
        done = self._count(Kind.F, rank)
        if done >= self.m:
            return False
        if rank + 1 == self.p or done < self._count(Kind.F, rank + 1) + 2 or not self.prefer_backward:
            return True
        gradient = self.free[rank + 1] + self.cost[Kind.F] + self.cost[Kind.I] + self.latency
        if self.free[rank] >= gradient:
            return False
        held, weights, pending = self.held[rank] + _HELD[Kind.F], 0.0, self._pending(rank)
        while held > self.cap and pending:
            held, weights, pending = held + _HELD[Kind.W], weights + self.cost[Kind.W], pending - 1
        if self.free[rank] + self.cost[Kind.F] + weights <= gradient:
            return True
        return gradient - self.free[rank] > max(self.idle) - self.idle[rank]

    def _pending(self, rank: int) -> int:
        return self._count(Kind.I, rank) - self._count(Kind.W, rank)

    def _place(self, kind: Kind, rank: int, drain: bool = False) -> None:
        """Free memory, fill the wait for the message with weight gradients, then put the pass."""
        while self.held[rank] + _HELD[kind] > self.cap:
            if not self._pending(rank):
                raise _NoRoom
            self._put(Kind.W, rank)
        arrival = self._arrival(kind, rank, self._count(kind, rank))
        if arrival is not None:
            while self._pending(rank) and self.free[rank] + self.cost[Kind.W] <= arrival:
                self._put(Kind.W, rank)
            wait = arrival - self.free[rank]
            if self._pending(rank) and wait > 0 and (self.fill or wait > max(self.idle) - self.idle[rank]):
                self._put(Kind.W, rank)
        while drain and self._pending(rank):
            self._put(Kind.W, rank)
        self._put(kind, rank)
