"""Conditions as factors on pipeline ranks: which GPUs sit where, and which replicas differ."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustersim.pipeline.conditions import Conditions
from clustersim.pipeline.step_costs import Floats
from clustersim.pipeline.step_messages import Groups
from clustersim.pipeline.step_plan import Plan


class RankFactors(NamedTuple):
    """``compute``: (distinct replicas, ranks) factor on computation; ``sends`` and ``data``: (ranks,) on messages."""

    compute: Floats
    sends: Floats
    data: Floats


def place(gpu: int, groups: Groups) -> tuple[int, int] | None:
    """(replica, pipeline rank) of a GPU in placement order; None beyond the job."""
    at = groups.place.place(gpu)
    return None if at is None else (at["dp"], at["pp"])


def rank_factors(conditions: Conditions, plan: Plan, groups: Groups) -> RankFactors:
    """Factors of the replicas that differ from one another, less those that another is at least as slow as.

    A slow node slows the pipeline ranks that it holds; tensor and context parallel ranks of a group wait for its
    slowest.
    """
    gpus = plan.cluster.node.gpus
    slow: dict[tuple[int, int], float] = {}
    entries = [(gpu, factor) for node, factor in conditions.slow for gpu in range(node * gpus, (node + 1) * gpus)]
    for gpu, factor in (*entries, *conditions.slow_gpus):
        at = place(gpu, groups)
        if at is not None:
            slow[at] = max(slow.get(at, 0.0), factor)
    ranks = plan.layout.pp
    by_replica: dict[int, Floats] = {}
    for (replica, rank), factor in sorted(slow.items()):
        by_replica.setdefault(replica, np.ones(ranks))[rank] = factor
    rows = {tuple(row.tolist()) for row in by_replica.values()}
    if len(by_replica) < plan.dp:
        rows.add((1.0,) * ranks)
    sends, data = _links(conditions, plan, groups)
    return RankFactors(_slowest(np.array(sorted(rows))), sends, data)


def _slowest(rows: Floats) -> Floats:
    """Rows that no other row is at least as slow as on every rank: the others never end later (a longest path only
    grows)."""
    if len(rows) < 2:
        return rows
    covers = np.all(rows[None, :, :] >= rows[:, None, :], axis=2)
    return np.asarray(rows[np.sum(covers, axis=1) == 1])  # each covers itself


def _links(conditions: Conditions, plan: Plan, groups: Groups) -> tuple[Floats, Floats]:
    """Factors on stage-to-stage and data-parallel messages where they leave a node."""
    ranks, gpus = plan.layout.pp, plan.cluster.node.gpus
    taken = 1.0 / (1.0 - conditions.saving)
    sends = np.full(ranks, taken if groups.pp.domains > 1 else 1.0)
    data = np.full(ranks, taken if groups.data.domains > 1 else 1.0)
    for node, share in conditions.slow_links:
        touched = {at[1] for gpu in range(node * gpus, (node + 1) * gpus) if (at := place(gpu, groups)) is not None}
        for rank in sorted(touched):
            if groups.pp.domains > 1:
                sends[rank] = max(sends[rank], taken / share)
            if groups.data.domains > 1:
                data[rank] = max(data[rank], taken / share)
    return sends, data
