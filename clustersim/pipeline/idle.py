"""Why a rank stands still: every idle second of a timeline with its cause.

============== ======================================================================================================
cause          a rank's compute stream is idle because
============== ======================================================================================================
fill           its first op has not started
drain          its last op has ended and the step has not
dependency     what the next op needs is still being computed, and would be on ranks of equal speed too
imbalance      … but would not be if every op of a kind took its kind's mean (a slow stage, jitter): the excess
latency        what it needs is computed and on its way (a message, a receive queued behind another, a parameter gather)
blocked_send   its own send holds it up (blocking p2p), or a finished tensor waits for its sender's next op (deferred)
memory         it waits for an offload to make room, or for a reload
============== ======================================================================================================

The causes of one rank add up to makespan − work. ``dependency`` and ``imbalance`` are told apart op by op, by a
second replay in which all ops of a kind take the kind's mean duration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from clustersim.pipeline.dependencies import CODE, Ints
from clustersim.pipeline.graph import Floats, Graph
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.replay import Timeline, replay

CAUSES = ("fill", "drain", "dependency", "latency", "blocked_send", "imbalance", "memory")
_COPIES = (CODE[Kind.OFFLOAD], CODE[Kind.RELOAD])


@dataclass(frozen=True)
class Gap:
    """An idle stretch of one rank, seconds, and its cause."""

    rank: int
    start: float
    end: float
    cause: str


def idle_gaps(timeline: Timeline) -> list[Gap]:
    """Every idle stretch of every rank, rank by rank in time order."""
    waits = _waits(timeline)
    balanced = _balanced(timeline)
    if balanced is not None:
        allowed = {wait.op: wait.computed - wait.start for wait in _waits(balanced)}
    gaps = []
    for rank, ops in enumerate(_compute_ops(timeline.graph)):
        first, last = timeline.first_start, timeline.first_start + timeline.makespan
        if not len(ops):
            gaps.append(Gap(rank, first, last, "drain"))
            continue
        gaps.append(Gap(rank, first, float(timeline.start[ops[0]]), "fill"))
        gaps.append(Gap(rank, float(timeline.end[ops[-1]]), last, "drain"))
    for wait in waits:
        due = wait.computed if balanced is None else min(wait.computed, wait.start + allowed.get(wait.op, 0.0))
        gaps += wait.gaps(due)
    return sorted((gap for gap in gaps if gap.end > gap.start), key=lambda gap: (gap.rank, gap.start))


def idle_by_cause(timeline: Timeline) -> dict[str, float]:
    """Idle seconds of each cause, summed over ranks."""
    total = dict.fromkeys(CAUSES, 0.0)
    for gap in idle_gaps(timeline):
        total[gap.cause] += gap.end - gap.start
    return total


@dataclass(frozen=True)
class _Wait:
    """The gap before one op: ``computed`` is when what it needs was computed, ``left`` when it was sent, ``end`` its
    start."""

    rank: int
    op: int
    start: float
    computed: float
    left: float
    end: float
    transit: str

    def gaps(self, due: float) -> Iterator[Gap]:
        """The gap cut by cause; ``due`` is when equal ranks would have computed what the op needs."""
        yield Gap(self.rank, self.start, due, "dependency")
        yield Gap(self.rank, due, self.computed, "imbalance")
        yield Gap(self.rank, self.computed, self.left, "blocked_send")
        yield Gap(self.rank, self.left, self.end, self.transit)


def _compute_ops(graph: Graph) -> list[Ints]:
    return [ops[graph.compute[ops]] for ops in graph.rank_ops]


def _waits(timeline: Timeline) -> list[_Wait]:
    """Every gap between two compute ops of a rank."""
    binding = Binding(timeline)
    waits: list[_Wait] = []
    for rank, ops in enumerate(_compute_ops(timeline.graph)):
        begin, end = timeline.end[ops[:-1]], timeline.start[ops[1:]]
        late = np.flatnonzero(end > begin)
        rows = zip(ops[late + 1].tolist(), begin[late].tolist(), end[late].tolist(), strict=True)
        waits += [_wait(binding, rank, op, left, right) for op, left, right in rows]
    return waits


def _wait(binding: Binding, rank: int, op: int, start: float, end: float) -> _Wait:
    timeline, graph = binding.timeline, binding.timeline.graph
    node, transit, left = op, "latency", end
    while True:
        source, message = binding.of(node)
        if source < 0:  # nothing but communication before it, or a release time
            computed = left = start
            break
        if source in binding.transfer_of:
            carried = binding.transfer_of[source]
            if int(graph.messages.source_rank[carried]) == rank and node == op:
                return _Wait(rank, op, start, start, end, end, "latency")
        if source < graph.ops and int(graph.kind[source]) in _COPIES:
            transit = "memory"
        if source < graph.ops and graph.compute[source]:
            left = float(timeline.node_end[source])
            made = source if message < 0 or graph.p2p != "deferred" else int(graph.messages.source[message])
            computed = float(timeline.node_end[made])
            break
        node = source
    computed = min(max(computed, start), end)
    return _Wait(rank, op, start, computed, min(max(left, computed), end), end, transit)


class Binding:
    """For each node of a timeline the edge that decided its start: the last to be ready, the first listed on ties.

    ``sources, messages``: (nodes,) the edge's source and message, −1 for none. A node that started later than all its
    edges were ready (a release time) has none.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        graph = timeline.graph
        edges, message = graph.edges, graph.edge_message
        hop = np.concatenate([timeline.message_delay, [0.0]])[message]
        ready = timeline.node_end[edges.other] + hop
        target = np.repeat(np.arange(graph.nodes), np.diff(edges.start))
        by = np.lexsort((-ready, target))
        has = np.diff(edges.start) > 0
        first = by[edges.start[:-1][has]]
        rounding = 1e-9 * timeline.makespan
        bound = timeline.node_start[graph.order[has]] <= ready[first] + rounding
        first = np.where(bound, first, -1)
        self.sources = np.full(graph.nodes, -1, dtype=np.int64)
        self.messages = np.full(graph.nodes, -1, dtype=np.int64)
        self.sources[graph.order[has]] = np.where(first >= 0, edges.other[first], -1)
        self.messages[graph.order[has]] = np.where(first >= 0, message[first], -1)
        self.transfer_of = {int(node): index for index, node in enumerate(graph.transfer.tolist())}

    def of(self, node: int) -> tuple[int, int]:
        """(source, message) of the edge that decided a node's start; −1 for neither."""
        return int(self.sources[node]), int(self.messages[node])


def _balanced(timeline: Timeline) -> Timeline | None:
    """The timeline if every op took the mean of its kind; None if they do already."""
    graph = timeline.graph
    duration = timeline.end - timeline.start
    second = graph.second
    key = graph.kind * (len(CODE) + 1) + np.where(second >= 0, graph.parts.kind[second] + 1, 0)
    even = duration.copy()
    for value in np.unique(key[graph.compute]).tolist():
        mine = graph.compute & (key == value)
        if np.ptp(duration[mine]) > 1e-9 * max(timeline.makespan, 1e-300):
            even[mine] = duration[mine].mean()
    if np.array_equal(even, duration):
        return None
    return replay(graph, even, timeline.message_delay)


def busy(timeline: Timeline) -> Floats:
    """(ranks,) seconds of compute on each rank."""
    graph = timeline.graph
    work = np.zeros(graph.ranks)
    np.add.at(work, graph.rank[graph.compute], (timeline.end - timeline.start)[graph.compute])
    return work
