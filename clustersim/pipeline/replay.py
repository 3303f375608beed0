"""Compiled replay: the start and end of every op, by longest path over a compiled graph.

    graph = compile(program)                                       # once
    timeline = replay(graph, graph.durations(costs), graph.delays(costs))

``clustersim.pipeline.des`` replays the same graph in SimPy, and there models what this replay cannot: links that
messages share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from clustersim.pipeline.costs import Costs
from clustersim.pipeline.graph import Floats, Graph, compile
from clustersim.pipeline.kernel import Engine, Problem, last_ends, longest_path

__all__ = ["Costs", "Graph", "Timeline", "compile", "replay", "replay_many", "replay_speeds"]

_BLOCK = 4_000_000  # op-replicas replayed at once: bounds memory to a few times 32 MB


@dataclass(frozen=True, eq=False)
class Timeline:
    """When each op ran.

    ``node_start, node_end``: (nodes,) seconds, ops first; ``message_delay``: (messages,) seconds from departure to
    arrival.
    """

    graph: Graph
    node_start: Floats
    node_end: Floats
    message_delay: Floats

    @cached_property
    def departure(self) -> Floats:
        """(messages,) when each message leaves, seconds."""
        if len(self.graph.transfer):
            return self.node_start[self.graph.transfer]
        return self.node_end[self.graph.departure_node]

    @cached_property
    def arrival(self) -> Floats:
        """(messages,) when each message is there, seconds."""
        return self.departure + self.message_delay

    @property
    def start(self) -> Floats:
        """(ops,) seconds."""
        return self.node_start[: self.graph.ops]

    @property
    def end(self) -> Floats:
        """(ops,) seconds."""
        return self.node_end[: self.graph.ops]

    @cached_property
    def first_start(self) -> float:
        """When the first op of any rank starts."""
        return float(self.start.min(initial=np.inf)) if self.graph.ops else 0.0

    @cached_property
    def makespan(self) -> float:
        """First start to last end over all ranks and streams, seconds."""
        return float(self.end.max(initial=-np.inf)) - self.first_start if self.graph.ops else 0.0

    @cached_property
    def rank_span(self) -> Floats:
        """(ranks,) first start to last end of each rank's compute, seconds."""
        compute = self.graph.compute
        rank = self.graph.rank[compute]
        first = np.full(self.graph.ranks, np.inf)
        last = np.full(self.graph.ranks, -np.inf)
        np.minimum.at(first, rank, self.start[compute])
        np.maximum.at(last, rank, self.end[compute])
        return np.where(np.isfinite(first), last - first, 0.0)


def replay(
    graph: Graph,
    durations: npt.ArrayLike,
    delays: npt.ArrayLike | None = None,
    *,
    release: npt.ArrayLike | None = None,
    engine: Engine = "auto",
) -> Timeline:
    """Replay a graph once.

    Args:
        graph: from ``compile``.
        durations: (ops,) seconds.
        delays: (messages,) seconds from a message's departure to its arrival; None: 0.
        release: (ranks,) when each rank may begin, or (ops,) when each op may; None: 0.
        engine: ``python``, ``numpy``, ``numba`` (all equal to the last bit) or ``auto``.

    Raises:
        ValueError: an array has the wrong shape, or holds what is no duration.
    """
    duration = checked(durations, (graph.ops,), "durations")[None]
    delay = checked(0.0 if delays is None else delays, (len(graph.messages),), "delays")[None]
    start, end = longest_path(_problem(graph, duration, delay, release_times(graph, release)), engine)
    return Timeline(graph, start, end, delay[0])


def replay_many(
    graph: Graph,
    durations: npt.ArrayLike,
    delays: npt.ArrayLike | None = None,
    *,
    release: npt.ArrayLike | None = None,
    engine: Engine = "auto",
    per_rank: bool = False,
) -> Floats:
    """Replay one graph under many sets of durations at once, such as data-parallel replicas of different speed.

    Args:
        graph: from ``compile``.
        durations: (replicas, ops) seconds.
        delays: (messages,) or (replicas, messages) seconds; None: 0.
        release: as in ``replay``.
        engine: as in ``replay``.
        per_rank: return the last end of each rank.

    Returns:
        (replicas,) when the last op of each replica ends, or (replicas, ranks). The slowest replica decides a
        synchronous
        step: ``replay_many(…).max()``.
    """
    duration = np.atleast_2d(np.asarray(durations, dtype=np.float64))
    replicas = len(duration)
    duration = checked(duration, (replicas, graph.ops), "durations")
    delay = np.asarray(0.0 if delays is None else delays, dtype=np.float64)
    rows = replicas if delay.ndim == 2 else 1
    delay = checked(delay, (rows, len(graph.messages)), "delays")
    block = max(1, _BLOCK // max(1, graph.nodes))
    ends = []
    for first in range(0, replicas, block):
        mine = slice(first, first + block)
        problem = _problem(graph, duration[mine], delay[mine] if rows > 1 else delay, release_times(graph, release))
        ends.append(_last(graph, last_ends(problem, graph.last_nodes, engine), per_rank))
    return np.concatenate(ends) if ends else np.zeros((0, graph.ranks) if per_rank else 0)


def replay_speeds(
    graph: Graph,
    durations: npt.ArrayLike,
    factors: npt.ArrayLike,
    delays: npt.ArrayLike | None = None,
    *,
    engine: Engine = "auto",
    per_rank: bool = False,
) -> Floats:
    """``replay_many`` where every rank of every replica has its own speed.

    Args:
        graph: from ``compile``.
        durations: (ops,) seconds at nominal speed.
        factors: (replicas, ranks) by how much longer each rank takes.
        delays, engine, per_rank: as in ``replay_many``.

    Returns:
        As ``replay_many``.
    """
    base = checked(durations, (graph.ops,), "durations")
    factor = np.atleast_2d(np.asarray(factors, dtype=np.float64))
    factor = checked(factor, (len(factor), graph.ranks), "factors")
    block = max(1, _BLOCK // max(1, graph.nodes))
    results = [
        replay_many(
            graph, base * factor[first : first + block][:, graph.rank], delays, engine=engine, per_rank=per_rank
        )
        for first in range(0, len(factor), block)
    ]
    return np.concatenate(results) if results else np.zeros((0, graph.ranks) if per_rank else 0)


def _problem(graph: Graph, duration: Floats, delay: Floats, release: Floats) -> Problem:
    """Durations of nodes from those of ops and messages."""
    replicas, extra = len(duration), graph.nodes - graph.ops
    if extra:
        beside = np.zeros((replicas, extra))
        if len(graph.transfer):
            beside[:, graph.transfer - graph.ops] = delay
        duration = np.concatenate([duration, beside], axis=1)
    hops = np.zeros((len(delay), delay.shape[1] + 1))
    hops[:, :-1] = delay
    return Problem(graph, np.ascontiguousarray(duration), hops, release)


def _last(graph: Graph, end: Floats, per_rank: bool) -> Floats:
    """Last ends from those of every stream's last op."""
    if not per_rank:
        return np.asarray(end.max(axis=1, initial=0.0))
    result = np.zeros((graph.ranks, len(end)))
    np.maximum.at(result, graph.rank[graph.last_nodes], end.T)
    return result.T


def release_times(graph: Graph, release: npt.ArrayLike | None) -> Floats:
    """(nodes,) earliest starts from those of ranks or ops, seconds."""
    every = np.zeros(graph.nodes)
    if release is not None:
        given = np.asarray(release, dtype=np.float64)
        by_rank = given.shape == (graph.ranks,)
        given = checked(given, (graph.ranks,) if by_rank else (graph.ops,), "release")
        every[: graph.ops] = given[graph.rank] if by_rank else given
    return every


def checked(values: npt.ArrayLike, shape: tuple[int, ...], name: str) -> Floats:
    """Values as an array of a shape (one number stands for all), each finite and at least 0."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or array.shape == shape[1:]:
        array = np.broadcast_to(array, shape)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, not {array.shape}")
    if array.size and not (array.min() >= 0 and np.isfinite(array.max())):
        raise ValueError(f"{name} must be finite and at least 0")
    return array
