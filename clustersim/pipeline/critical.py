"""The chain of ops and messages that decides a step's length, and the rank to read a breakdown along."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersim.pipeline.idle import Binding
from clustersim.pipeline.replay import Timeline


@dataclass(frozen=True)
class Step:
    """One link of a critical path: an op (or transfer) from ``start`` to ``end``; ``message`` is the index of the
    message that it waited for, −1 if it waited for an op of its own rank."""

    node: int
    label: str
    rank: int | None
    start: float
    end: float
    message: int


def critical_rank(timeline: Timeline) -> int:
    """The rank whose last op ends last; the lowest on ties."""
    last = np.full(timeline.graph.ranks, -np.inf)
    np.maximum.at(last, timeline.graph.rank, timeline.end)
    return int(last.argmax())


def critical_path(timeline: Timeline) -> list[Step]:
    """The critical path in time order: each op starts the moment the one before it, or its message, lets it.

    It ends with the op that ends last (on ties the lowest rank's), and follows, from each op back, the edge that was
    ready last (list order on ties). Shortening an op off this path cannot shorten the step.
    """
    graph = timeline.graph
    if not graph.ops:
        return []
    binding = Binding(timeline)
    latest = np.flatnonzero(timeline.end == timeline.end.max())
    node = int(latest[graph.rank[latest].argmin()])
    path = []
    while node >= 0:
        source, message = binding.of(node)
        rank = int(graph.rank[node]) if node < graph.ops else None
        start, end = float(timeline.node_start[node]), float(timeline.node_end[node])
        path.append(Step(node, graph.label(node), rank, start, end, message))
        node = source
    return path[::-1]
