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

from dataclasses import dataclass
from typing import NamedTuple

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
    cut = _stretches(timeline)
    by = np.lexsort((cut.start, cut.rank))
    by = by[cut.end[by] > cut.start[by]]
    rows = zip(*(column[by].tolist() for column in (cut.rank, cut.start, cut.end, cut.cause)), strict=True)
    return [Gap(rank, start, end, CAUSES[cause]) for rank, start, end, cause in rows]


def idle_by_cause(timeline: Timeline) -> dict[str, float]:
    """Idle seconds of each cause, summed over ranks."""
    cut = _stretches(timeline)
    total = np.bincount(cut.cause, np.maximum(0.0, cut.end - cut.start), minlength=len(CAUSES))
    return dict(zip(CAUSES, total.tolist(), strict=True))


class _Stretches(NamedTuple):
    """Idle stretches: (n,) arrays; ``cause`` indexes ``CAUSES``; some are empty."""

    rank: Ints
    start: Floats
    end: Floats
    cause: Ints


class _Waits(NamedTuple):
    """Gaps before ops, (n,) arrays: from ``start`` to ``end``, the op's start; ``computed`` is when what the op needs
    was computed, ``left`` when it was sent; ``transit`` is the cause (index) of the time from then on."""

    op: Ints
    start: Floats
    computed: Floats
    left: Floats
    end: Floats
    transit: Ints


def _stretches(timeline: Timeline) -> _Stretches:
    """Fill and drain of every rank, and every gap between two of its ops cut by cause."""
    waits, rank = _waits(timeline), timeline.graph.rank
    due = _due(timeline, waits)
    edges = (waits.start, due, waits.computed, waits.left, waits.end)
    causes = [np.full(len(due), CAUSES.index(name)) for name in ("dependency", "imbalance", "blocked_send")]
    ends = _ends(timeline)
    return _Stretches(
        np.concatenate([ends.rank, *[rank[waits.op]] * 4]),
        np.concatenate([ends.start, *edges[:-1]]),
        np.concatenate([ends.end, *edges[1:]]),
        np.concatenate([ends.cause, *causes, waits.transit]),
    )


def _ends(timeline: Timeline) -> _Stretches:
    """Fill and drain of every rank; a rank without compute drains all the time."""
    ranks, first = timeline.graph.ranks, timeline.first_start
    last = first + timeline.makespan
    begins, stops = np.full(ranks, first), np.full(ranks, first)
    for rank, ops in enumerate(_compute_ops(timeline.graph)):
        if len(ops):
            begins[rank], stops[rank] = timeline.start[ops[0]], timeline.end[ops[-1]]
    cause = np.repeat([CAUSES.index("fill"), CAUSES.index("drain")], ranks)
    start, end = np.concatenate([np.full(ranks, first), stops]), np.concatenate([begins, np.full(ranks, last)])
    return _Stretches(np.tile(np.arange(ranks), 2), start, end, cause)


def _compute_ops(graph: Graph) -> list[Ints]:
    return [ops[graph.compute[ops]] for ops in graph.rank_ops]


def _due(timeline: Timeline, waits: _Waits) -> Floats:
    """When equal ranks would have computed what each waiting op needs: the dependency's share of the wait."""
    balanced = _balanced(timeline)
    if balanced is None:
        return waits.computed
    allowed = np.zeros(timeline.graph.ops)
    equal = _waits(balanced)
    allowed[equal.op] = equal.computed - equal.start
    return np.minimum(waits.computed, waits.start + allowed[waits.op])


def _waits(timeline: Timeline) -> _Waits:
    """Every gap between two compute ops of a rank."""
    graph = timeline.graph
    pairs = [(ops[:-1], ops[1:]) for ops in _compute_ops(graph)]
    before = np.concatenate([first for first, _ in pairs])
    op = np.concatenate([second for _, second in pairs])
    late = timeline.start[op] > timeline.end[before]
    before, op = before[late], op[late]
    start, end = timeline.end[before], timeline.start[op]
    computed, left, transit = _causes(timeline, op, start, end)
    computed = np.clip(computed, start, end)
    return _Waits(op, start, computed, np.clip(left, computed, end), end, transit)


def _causes(timeline: Timeline, op: Ints, start: Floats, end: Floats) -> tuple[Floats, Floats, Ints]:
    """(n,) when what each op needs was computed, when it left, and the cause of the rest of the gap."""
    graph, binding = timeline.graph, Binding(timeline)
    source, message = binding.sources[op], binding.messages[op]
    left = np.where(source >= 0, timeline.node_end[source], start)
    computed = left.copy()
    transit = np.full(len(op), CAUSES.index("latency"))
    direct = (source >= 0) & (source < graph.ops)
    direct[direct] = graph.compute[source[direct]]
    if graph.p2p == "deferred":
        sent = direct & (message >= 0)
        computed[sent] = timeline.node_end[graph.messages.source[message[sent]]]
    for index in np.flatnonzero(~direct & (source >= 0)).tolist():
        found = _behind(binding, int(op[index]))
        computed[index] = start[index] if found.computed is None else found.computed
        left[index] = end[index] if found.blocked else computed[index]
        transit[index] = CAUSES.index(found.transit)
    return computed, left, transit


class _Found(NamedTuple):
    computed: float | None  # when the compute op at the end of the chain ended; None: there is none
    transit: str
    blocked: bool


def _behind(binding: Binding, op: int) -> _Found:
    """What stands behind an op that waits for communication: from edge to edge back to a compute op."""
    timeline, graph = binding.timeline, binding.timeline.graph
    node, transit = op, "latency"
    while True:
        source, _ = binding.of(node)
        if source < 0:
            return _Found(None, transit, False)
        carried = binding.transfer_of.get(source)
        if carried is not None and node == op and graph.messages.source_rank[carried] == graph.rank[op]:
            return _Found(None, transit, True)  # its rank's own send
        if source < graph.ops and graph.compute[source]:
            return _Found(float(timeline.node_end[source]), transit, False)
        if source < graph.ops and int(graph.kind[source]) in _COPIES:
            transit = "memory"
        node = source


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
