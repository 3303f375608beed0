"""Greedy list scheduling: orders for any placement by playing the pipeline in time.

Whenever a rank is free it takes, of the passes whose inputs are there, a backward before a forward, the older
microbatch before the newer, and of one microbatch the stage nearest to the loss. A microbatch enters only while fewer
than ``admitted`` are on the way, so that some pass can always run.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from clustersim.pipeline.ops import Kind, Op


def list_schedule(
    stage_rank: Sequence[int], microbatches: int, admitted: int, *, forward: float = 1.0, backward: float = 2.0
) -> list[list[Op]]:
    """Orders for one chain of stages.

    Args:
        stage_rank: rank of each stage.
        microbatches: units that pass.
        admitted: microbatches on the way at most.
        forward: time of a stage's forward, in any unit.
        backward: time of a stage's full backward.
    """
    return _Play(stage_rank, microbatches, admitted, {Kind.F: forward, Kind.B: backward}).run()


class _Play:
    """Ranks, what each could run now, and what is running."""

    def __init__(self, stage_rank: Sequence[int], microbatches: int, admitted: int, cost: dict[Kind, float]) -> None:
        self.stage_rank, self.last = stage_rank, len(stage_rank) - 1
        self.m, self.cost = microbatches, cost
        self.orders: list[list[Op]] = [[] for _ in range(1 + max(stage_rank))]
        self.ready: list[list[tuple[int, int, int, Op]]] = [[] for _ in self.orders]
        self.busy = [False] * len(self.orders)
        self.running: list[tuple[float, int, Op]] = []
        self.entered = 0
        for _ in range(min(admitted, microbatches)):
            self._enter()

    def run(self) -> list[list[Op]]:
        """Play to the end."""
        now = 0.0
        self._start(now)
        while self.running:
            now = self.running[0][0]
            while self.running and self.running[0][0] == now:
                _, rank, op = heapq.heappop(self.running)
                self.busy[rank] = False
                self._finish(op)
            self._start(now)
        return self.orders

    def _enter(self) -> None:
        if self.entered < self.m:
            self._offer(Op(0, Kind.F, self.entered))
            self.entered += 1

    def _offer(self, op: Op) -> None:
        unit = op.microbatch or 0
        nearest_to_loss = -op.stage if op.kind is Kind.F else op.stage
        heapq.heappush(self.ready[self.stage_rank[op.stage]], (op.kind is Kind.F, unit, nearest_to_loss, op))

    def _finish(self, op: Op) -> None:
        if op.kind is Kind.F:
            at_loss = op.stage == self.last
            self._offer(Op(op.stage, Kind.B, op.microbatch) if at_loss else Op(op.stage + 1, Kind.F, op.microbatch))
        elif op.stage:
            self._offer(Op(op.stage - 1, Kind.B, op.microbatch))
        else:
            self._enter()

    def _start(self, now: float) -> None:
        for rank, ready in enumerate(self.ready):
            if ready and not self.busy[rank]:
                op = heapq.heappop(ready)[-1]
                self.busy[rank] = True
                self.orders[rank].append(op)
                heapq.heappush(self.running, (now + self.cost[op.kind], rank, op))
