"""Durations of a step's ops from the table of costs, and their replay under the factors of some conditions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from clustersim.pipeline.dependencies import CODE
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.replay import Timeline, replay
from clustersim.pipeline.step_conditions import RankFactors
from clustersim.pipeline.step_costs import ATTENTION, COMPUTE, EP, PP, Floats, StageCosts
from clustersim.pipeline.step_graph import Shape
from clustersim.workload.attention import is_causal

EXCHANGE_SMS = 24
"""SMs that an expert exchange takes from the computation beside it (DeepEP README: kernels of 20 and 24 SMs)."""

_GATHERS = (CODE[Kind.UNSHARD], CODE[Kind.REDUCE_GRAD])


class OpSeconds(NamedTuple):
    """(ops,) seconds of each op that scale with its rank's speed, of its sends, and of its other messages."""

    compute: Floats
    sends: Floats
    messages: Floats
    hidden: Floats
    """(ranks,) expert-parallel seconds that fused pairs hide behind each other's computation."""


@dataclass(frozen=True, eq=False)
class Replayer:
    """Replays one shape with one job's costs."""

    shape: Shape
    costs: StageCosts

    @cached_property
    def ops(self) -> OpSeconds:
        """Seconds of the ops."""
        graph, table, parts = self.shape.graph, self.costs.table, self.shape.graph.parts
        compute = table[:, :, COMPUTE].sum(axis=2)
        split = np.stack([compute, table[:, :, PP], table.sum(axis=2) - compute - table[:, :, PP]])
        by_part = split[:, parts.kind, parts.stage]
        weight = self.shape.slice_weight
        if weight is not None and is_causal(self.costs.plan.model.attention):
            by_part[0] += table[:, :, ATTENTION][parts.kind, parts.stage] * (weight - 1.0)
        by_op = by_part[:, : graph.ops].copy()
        fused, second = self.shape.pairs
        hidden = np.zeros(graph.ranks)
        if len(fused):
            by_op[:, fused] += by_part[:, second]
            exchange = table[:, :, EP]
            both = exchange[parts.kind[fused], parts.stage[fused]] + exchange[parts.kind[second], parts.stage[second]]
            free = np.array([1 - EXCHANGE_SMS / gpu.sms for gpu in self.costs.gpus])
            saved = np.minimum(both, by_op[0, fused]) * np.clip(free, 0.0, 1.0)[graph.rank[fused]]
            by_op[2, fused] -= saved
            np.add.at(hidden, graph.rank[fused], saved)
        by_op = np.maximum(by_op, 0.0)
        return OpSeconds(by_op[0], by_op[1], by_op[2], hidden)

    def delays(self, factors: RankFactors) -> Floats:
        """(messages,) seconds that a message is under way after its sender went on."""
        messages = self.shape.graph.messages
        worst = np.maximum(factors.sends[messages.source_rank], factors.sends[messages.target_rank])
        return self.costs.delay * worst

    def timeline(self, factors: RankFactors, row: int = 0, *, gathers: bool = True) -> Timeline:
        """When each op runs in the replica of one row of the factors; without ``gathers``, as if listed gathers and
        scatters of sharded state took no time."""
        rank, ops = self.shape.graph.rank, self.ops
        messages = ops.messages
        if self.shape.lists_gathers:
            collective = np.isin(self.shape.graph.parts.kind[: self.shape.graph.ops], _GATHERS)
            messages = messages * np.where(collective, factors.data[rank] * gathers, 1.0)
        durations = ops.compute * factors.compute[row][rank] + ops.sends * factors.sends[rank] + messages
        return replay(self.shape.graph, durations, self.delays(factors))

    def ends(self, factors: RankFactors, *, gathers: bool = True) -> Floats:
        """(distinct replicas, ranks) when the last op of each rank ends."""
        ends = np.zeros((len(factors.compute), self.shape.graph.ranks))
        for row in range(len(factors.compute)):
            np.maximum.at(ends[row], self.shape.graph.rank, self.timeline(factors, row, gathers=gathers).end)
        return ends

    @cached_property
    def spent(self) -> Floats:
        """(ranks, columns) nominal seconds that each rank's compute stream is held, by what it goes to."""
        spent: Floats = np.einsum("rks,ksc->rc", self.shape.counts, self.costs.table)
        spent[:, EP] -= self.ops.hidden
        return spent
