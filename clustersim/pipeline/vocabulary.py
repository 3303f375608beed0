"""Vocabulary parallelism: the output layer split over all ranks, as S and T ops between the loss stage's F and B.

S(u): local logits with their maximum and sum, on every rank, once the loss stage's forward of unit u is broadcast.
T(u): gradients, once every S(u) is reduced. *Algorithm 1* has two barriers (the loss stage's backward waits for every
T);
*algorithm 2* has one (it waits for every S, T may come later). Each barrier adds one microbatch in flight: p + 2 and p
+ 1 on 1F1B (Yeung et al., arXiv 2411.05288; construction recalled: by definition, not verified).

The base schedule keeps its order. S and T go where they become possible when the program is played with equal pass
times, so their order can always be executed.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

from clustersim.errors import InputError, Problem
from clustersim.pipeline.ops import Action, Kind, Op, Program, parts_of

_TIME = {Kind.F: 1.0, Kind.B: 2.0, Kind.I: 1.0, Kind.W: 1.0, Kind.S: 0.25, Kind.T: 0.25}


def with_vocabulary(program: Program, algorithm: int) -> Program:
    """The program with S and T of every unit on every rank.

    Args:
        program: compute only, one chain.
        algorithm: 1 (two barriers) or 2 (one barrier).

    Raises:
        InputError: for several chains, whose loss stages sit on different ranks.
    """
    if program.chains > 1:
        raise InputError(
            Problem("schedule.vocabulary_parallel", f"needs one chain, {program.name} has {program.chains}")
        )
    ranks = tuple(tuple(order) for order in _Play(program, algorithm).run())
    return replace(program, ranks=ranks, options={**program.options, "vocabulary_algorithm": algorithm})


class _Play:
    """The program played in time: base ops in order, S and T as soon as possible (T last under algorithm 2)."""

    def __init__(self, program: Program, algorithm: int) -> None:
        self.base, self.algorithm, self.slices = program.ranks, algorithm, program.slices
        self.loss = program.stages - 1
        names: dict[int, int] = {}
        for stage, rank in program.stage_rank.items():
            names[rank] = min(stage, names.get(rank, stage))
        self.name = [names.get(rank, 0) for rank in range(len(self.base))]
        self.next = [0] * len(self.base)
        self.done: set[tuple[Kind, int, int | None]] = set()
        self.reduced = {Kind.S: [0] * program.units, Kind.T: [0] * program.units}
        self.waiting: list[list[Op]] = [[] for _ in self.base]
        self.later: list[list[Op]] = [[] for _ in self.base]
        self.orders: list[list[Action]] = [[] for _ in self.base]
        self.running: list[tuple[float, int, Action]] = []
        self.busy = [False] * len(self.base)

    def run(self) -> list[list[Action]]:
        """Play to the end; every rank's order with S and T in it."""
        self._start(0.0)
        while self.running:
            now = self.running[0][0]
            while self.running and self.running[0][0] == now:
                _, rank, action = heapq.heappop(self.running)
                self.busy[rank] = False
                for op in parts_of(action):
                    self._finish(op)
            self._start(now)
        return self.orders

    def _start(self, now: float) -> None:
        for rank in range(len(self.base)):
            action = None if self.busy[rank] else self._choose(rank)
            if action is not None:
                self.busy[rank] = True
                self.orders[rank].append(action)
                heapq.heappush(
                    self.running, (now + sum(_TIME.get(op.kind, 0.0) for op in parts_of(action)), rank, action)
                )

    def _choose(self, rank: int) -> Action | None:
        if self.waiting[rank]:
            return self.waiting[rank].pop(0)
        if self.next[rank] < len(self.base[rank]):
            action = self.base[rank][self.next[rank]]
            if all(self._ready(op) for op in parts_of(action)):
                self.next[rank] += 1
                return action
        return self.later[rank].pop(0) if self.later[rank] else None

    def _ready(self, op: Op) -> bool:
        stage, unit = op.stage, op.microbatch or 0
        if op.kind is Kind.F:
            return stage == 0 or (Kind.F, stage - 1, unit) in self.done
        if op.kind not in (Kind.B, Kind.I):
            return True
        if stage == self.loss:
            return self.reduced[Kind.T if self.algorithm == 1 else Kind.S][unit] == len(self.base)
        return (Kind.B, stage + 1, unit) in self.done

    def _finish(self, op: Op) -> None:
        unit = op.microbatch or 0
        if op.kind in (Kind.S, Kind.T):
            self.reduced[op.kind][unit] += 1
            if op.kind is Kind.S and self.reduced[Kind.S][unit] == len(self.base):
                self._offer(Kind.T, unit)
            return
        self.done.add((Kind.B if op.kind is Kind.I else op.kind, op.stage, unit))
        if op.kind is Kind.F and op.stage == self.loss:
            self._offer(Kind.S, unit)

    def _offer(self, kind: Kind, unit: int) -> None:
        queues = self.later if kind is Kind.T and self.algorithm == 2 else self.waiting
        for rank, queue in enumerate(queues):
            queue.append(Op(self.name[rank], kind, unit))
