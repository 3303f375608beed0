"""Longest path over a graph's flat arrays, three times: pure Python, numpy over rounds and replicas, numba.

All three compute, node by node in topological order,

    start = max(release, max over incoming edges (end of the source + delay)),    end = start + duration

(an edge that is no message has delay 0, and adding 0 changes no float)
with the same two additions in the same association, and a maximum is exact: the results are equal to the last bit.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from clustersim.pipeline.dependencies import Ints
from clustersim.pipeline.graph import Floats, Graph

Engine = Literal["auto", "python", "numpy", "numba"]
_PYTHON_OP_S = 0.2e-6  # seconds an op and replica in the Python loop
_NUMPY_OP_S, _NUMPY_ROUND_S = 2e-8, 6e-6  # seconds an op and replica, and a round, with numpy
_NUMBA_START_S = 2.0  # seconds to import numba and load or compile the kernel, once a process


def choose(graph: Graph, replicas: int, engine: Engine) -> Engine:
    """The engine to use. ``auto`` takes the one that should be fastest; results do not depend on it.

    Raises:
        ValueError: the engine is unknown, or numba was asked for and is not installed.
    """
    if engine == "numba" and not has_numba():
        raise ValueError(
            "engine 'numba' needs the numba package (pip install 'clustersim[fast]'), which is not installed"
        )
    if engine not in ("auto", "python", "numpy", "numba"):
        raise ValueError(f"engine must be auto, python, numpy or numba, not {engine!r}")
    if engine != "auto":
        return engine
    work = graph.nodes * replicas
    python, numpy = _PYTHON_OP_S * work, _NUMPY_OP_S * work + _NUMPY_ROUND_S * len(graph.rounds)
    ready = "clustersim.pipeline.machine" in sys.modules
    if has_numba() and (ready or min(python, numpy) > _NUMBA_START_S):
        return "numba"
    return "numpy" if numpy < python else "python"


@lru_cache(maxsize=1)
def has_numba() -> bool:
    """Whether numba can be imported."""
    return find_spec("numba") is not None


@dataclass(frozen=True, eq=False)
class Problem:
    """One call's numbers.

    ``duration``: (replicas, nodes) seconds; ``delay``: (replicas or 1, messages + 1) seconds, the last one 0 (the
    delay of edges that are no messages); ``release``: (nodes,) earliest starts, seconds.
    """

    graph: Graph
    duration: Floats
    delay: Floats
    release: Floats


def longest_path(problem: Problem, engine: Engine) -> tuple[Floats, Floats]:
    """(nodes,) start and end of every node of a problem of one replica, seconds."""
    engine = choose(problem.graph, 1, engine)
    if engine == "python":
        begins, ends = _walk(problem, 0)
        return np.array(begins), np.array(ends)
    if engine == "numpy":
        return _by_round_once(problem)
    from clustersim.pipeline import machine

    start, end = np.empty(problem.graph.nodes), np.empty(problem.graph.nodes + 1)
    machine.one(*problem.graph.tables.arrays, problem.duration[0], problem.delay[0], problem.release, start, end)
    return start, end[:-1]


def last_ends(problem: Problem, wanted: Ints, engine: Engine) -> Floats:
    """(replicas, wanted) the ends of some nodes in every replica, seconds."""
    engine = choose(problem.graph, len(problem.duration), engine)
    if engine == "python":
        walks = [np.array(_walk(problem, replica)[1])[wanted] for replica in range(len(problem.duration))]
        return np.array(walks).reshape(len(walks), len(wanted))
    if engine == "numpy":
        return _by_round(problem, wanted)
    from clustersim.pipeline import machine

    start, end = np.empty(problem.graph.nodes), np.empty(problem.graph.nodes + 1)
    result = np.empty((len(problem.duration), len(wanted)))
    tables = problem.graph.tables.arrays
    machine.many(*tables, problem.duration, problem.delay, problem.release, wanted, start, end, result)
    return result


# --- pure Python --------------------------------------------------------------------------------------------


def _walk(problem: Problem, replica: int) -> tuple[list[float], list[float]]:
    """Start and end of every node, as lists."""
    if problem.graph.at_most_two is not None and not problem.release.any():
        return _walk_two(problem, replica)
    graph = problem.graph
    (order, stops, sources), carried = graph.lists, graph.edge_message
    seconds, start = problem.duration[replica].tolist(), problem.release.tolist()
    hops = problem.delay[min(replica, len(problem.delay) - 1)][carried].tolist()
    end = [0.0] * len(order)
    edge = 0
    for node, stop in zip(order, stops, strict=True):
        begin = start[node]
        while edge < stop:
            ready = end[sources[edge]] + hops[edge]
            if ready > begin:
                begin = ready
            edge += 1
        start[node] = begin
        end[node] = begin + seconds[node]
    return start, end


def _walk_two(problem: Problem, replica: int) -> tuple[list[float], list[float]]:
    """The same where all may begin at 0 and no node waits for more than two: half the time, one step of a loop a node."""
    assert problem.graph.at_most_two is not None
    order, first, first_message, second, second_message = problem.graph.at_most_two
    delay = problem.delay[min(replica, len(problem.delay) - 1)]
    hops, others = delay[first_message].tolist(), delay[second_message].tolist()
    seconds = problem.duration[replica][problem.graph.order].tolist()
    start, end = [0.0] * len(order), [0.0] * (len(order) + 1)  # what is no node has ended at 0
    for node, a, hop, b, other, lasts in zip(order, first, hops, second, others, seconds, strict=True):
        begin, ready = end[a] + hop, end[b] + other
        if ready > begin:
            begin = ready
        start[node] = begin
        end[node] = begin + lasts
    return start, end[:-1]


# --- numpy: a round of nodes and all replicas at a time -----------------------------------------------------


@dataclass(frozen=True, eq=False)
class Layout:
    """A graph laid out for numpy: nodes by round and, in a round, by falling number of edges.

    The k-th incoming edges of a round then belong to a prefix of its nodes. ``place``: (nodes,) node at each place;
    ``at``: (nodes,) place of each node; ``slots[k]``: places of the sources, message of each edge (the last index for
    none), where each round begins in both.
    """

    place: Ints
    at: Ints
    slots: list[tuple[Ints, Ints, list[int]]]

    @classmethod
    def of(cls, graph: Graph) -> Layout:
        """The layout of a graph."""
        rounds = np.repeat(np.arange(len(graph.rounds) - 1), np.diff(graph.rounds))
        degree = np.diff(graph.edges.start)
        by = np.lexsort((-degree, rounds))
        place = graph.order[by]
        at = np.empty(graph.nodes, dtype=np.int64)
        at[place] = np.arange(graph.nodes)
        slots = []
        for k in range(int(degree.max(initial=0))):
            mine = by[degree[by] > k]
            edges = graph.edges.start[mine] + k
            bounds = np.searchsorted(rounds[mine], np.arange(len(graph.rounds)))
            slots.append((at[graph.edges.other[edges]], graph.edge_message[edges], bounds.tolist()))
        return cls(place, at, slots)


def _by_round_once(problem: Problem) -> tuple[Floats, Floats]:
    layout = problem.graph.layout
    seconds = problem.duration[0][layout.place]
    begins, ends = problem.release[layout.place], np.empty(problem.graph.nodes)
    hops = [problem.delay[0][carried] for _, carried, _ in layout.slots]
    bounds = problem.graph.rounds.tolist()
    for r, (first, last) in enumerate(pairwise(bounds)):
        begin = begins[first:last]
        for (source, _, at), hop in zip(layout.slots, hops, strict=True):
            low, high = at[r], at[r + 1]
            if low == high:
                break
            ready = ends.take(source[low:high])
            ready += hop[low:high]
            some = begin[: high - low]
            np.maximum(some, ready, out=some)
        np.add(begin, seconds[first:last], out=ends[first:last])
    return begins[layout.at], ends[layout.at]


def _by_round(problem: Problem, wanted: Ints) -> Floats:
    layout = problem.graph.layout
    ends = np.empty((problem.graph.nodes, len(problem.duration)))
    hops = [np.ascontiguousarray(problem.delay.T[carried]) for _, carried, _ in layout.slots]
    release = problem.release[layout.place][:, None]
    bounds = problem.graph.rounds.tolist()
    for r, (first, last) in enumerate(pairwise(bounds)):
        begin = ends[first:last]
        begin[:] = release[first:last]
        for (source, _, at), hop in zip(layout.slots, hops, strict=True):
            low, high = at[r], at[r + 1]
            if low == high:
                break
            ready = ends.take(source[low:high], axis=0)
            ready += hop[low:high]
            some = begin[: high - low]
            np.maximum(some, ready, out=some)
        begin += problem.duration.take(layout.place[first:last], axis=1).T
    return ends[layout.at[wanted]].T


# --- numba --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Tables:
    """A graph laid out for machine code: two edges a node in one row, so that the common case has no branch.

    ``walk``: (nodes, 5) in topological order: node, source and message of its first edge, of its second (a node
    without one has source ``nodes``, whose end lies before every release). ``more``: (edges, 2) source and message of
    further edges; ``more_at``: (n, 3) the step of the walk that they belong to and where they begin and end, closed
    by a row that no step reaches. Unsigned, so that numba need not look for negative indices.
    """

    walk: npt.NDArray[np.uint32]
    more: npt.NDArray[np.uint32]
    more_at: npt.NDArray[np.uint32]

    @property
    def arrays(self) -> tuple[npt.NDArray[np.uint32], ...]:
        """walk, more, more_at."""
        return self.walk, self.more, self.more_at

    @classmethod
    def of(cls, graph: Graph) -> Tables:
        """The tables of a graph."""
        none = len(graph.messages)
        start, degree = graph.edges.start[:-1], np.diff(graph.edges.start)
        message = np.where(graph.edge_message < 0, none, graph.edge_message)
        walk = np.empty((graph.nodes, 5), dtype=np.uint32)
        walk[:, 0] = graph.order
        for k in range(2):
            there = degree > k
            walk[:, 1 + 2 * k], walk[:, 2 + 2 * k] = graph.nodes, none
            walk[there, 1 + 2 * k] = graph.edges.other[start[there] + k]
            walk[there, 2 + 2 * k] = message[start[there] + k]
        many = np.flatnonzero(degree > 2)
        rows = np.stack([many, start[many] + 2, start[many] + degree[many]], axis=1)
        closed = np.concatenate([rows, [[graph.nodes, 0, 0]]]).astype(np.uint32)
        return cls(walk, np.stack([graph.edges.other, message], axis=1).astype(np.uint32), closed)
