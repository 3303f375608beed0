"""What a rank holds: units in flight by list order, and bytes over time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from clustersim.pipeline.dependencies import CODE, Ints
from clustersim.pipeline.graph import Floats, Graph
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.replay import Timeline

_TAKES = (CODE[Kind.F], CODE[Kind.RELOAD])


def _frees(graph: Graph) -> npt.NDArray[np.bool_]:
    """(parts,) whether a part frees its unit's activations: B and W; I where its unit has no W; an offload."""
    parts = graph.parts
    free = np.isin(parts.kind, (CODE[Kind.B], CODE[Kind.W], CODE[Kind.OFFLOAD]))
    key = parts.stage * (int(parts.unit.max(initial=0)) + 1) + parts.unit
    weights = key[parts.kind == CODE[Kind.W]]
    lone = (parts.kind == CODE[Kind.I]) & ~np.isin(key, weights)
    return np.asarray(free | lone)


def peak_in_flight(graph: Graph) -> Ints:
    """(ranks,) the most units (microbatch, or slice of one, through one stage) whose activations a rank holds at once.

    An F takes, a B or W frees (W holds what it needs until it has run), in list order; a fused pair takes before it
    frees.
    """
    parts = graph.parts
    change = np.isin(parts.kind, _TAKES).astype(np.int64) - _frees(graph)
    rank, place = parts.rank[parts.node], parts.place[parts.node]
    by = np.lexsort((-change, place, rank))
    running = np.cumsum(change[by])
    peaks = np.zeros(graph.ranks, dtype=np.int64)
    for r, mine in enumerate(np.split(running, np.searchsorted(rank[by], np.arange(1, graph.ranks)))):
        before = running[np.searchsorted(rank[by], r) - 1] if r and len(mine) else 0
        peaks[r] = max(0, int(mine.max(initial=before)) - int(before))
    return peaks


@lru_cache(maxsize=256)
def _changes(graph: Graph) -> list[tuple[Ints, Ints, Ints]]:
    """For each rank, in list order: the stage of every op that takes or frees, and the units that it adds to those held
    whole and to those held for their W alone (0, 1 or -1 each)."""
    parts = graph.parts
    free = _frees(graph)
    weight, inward = parts.kind == CODE[Kind.W], (parts.kind == CODE[Kind.I]) & ~free
    whole = np.isin(parts.kind, _TAKES).astype(np.int64) - (free & ~weight) - inward
    pending = inward.astype(np.int64) - weight
    rank, place = parts.rank[parts.node], parts.place[parts.node]
    by = np.lexsort((-whole, place, rank))
    by = by[(whole[by] != 0) | (pending[by] != 0)]
    edges = np.searchsorted(rank[by], np.arange(graph.ranks + 1))
    return [(parts.stage[by[a:b]], whole[by[a:b]], pending[by[a:b]]) for a, b in pairwise(edges.tolist())]


def in_flight_at_peak(
    graph: Graph, stage_bytes: npt.ArrayLike, pending_bytes: npt.ArrayLike | None = None
) -> list[dict[int, float]]:
    """Units of each stage that each rank holds when their bytes are highest (the first such moment, in list order).

    Args:
        graph: a compiled schedule.
        stage_bytes: (stages,) bytes that one unit keeps on each stage from its F to its B, or to its I.
        pending_bytes: (stages,) bytes that it keeps from its I to its W; None: as much as before.

    Returns:
        One mapping a rank: stage → units, those that wait for their W alone counted by their bytes.
    """
    size = np.asarray(stage_bytes, float)
    share = np.ones_like(size)
    if pending_bytes is not None:
        share = np.divide(np.asarray(pending_bytes, float), size, out=np.zeros_like(size), where=size > 0)
    held = []
    for stages, whole, pending in _changes(graph):
        counts = dict.fromkeys(np.unique(stages).tolist(), 0.0)
        if len(stages):
            units = whole + pending * share[stages]
            peak = int(np.cumsum(units * size[stages]).argmax()) + 1
            present = np.bincount(stages[:peak], weights=units[:peak], minlength=graph.stages)
            counts = {stage: float(present[stage]) for stage in counts}
        held.append(counts)
    return held


@dataclass(frozen=True, eq=False)
class Held:
    """Bytes of activations on one rank: ``bytes[i]`` from ``time_s[i]`` on; ``op[i]`` is the op that made the
    change."""

    time_s: Floats
    bytes: Floats
    op: Ints

    @property
    def peak(self) -> float:
        """The most held at once, bytes."""
        return float(self.bytes.max(initial=0.0))

    @property
    def peak_op(self) -> int | None:
        """The op at whose start the peak is reached first."""
        return int(self.op[int(self.bytes.argmax())]) if len(self.bytes) else None


def held_bytes(
    timeline: Timeline,
    activation_bytes: npt.ArrayLike = 1.0,
    checkpoint_bytes: npt.ArrayLike | None = None,
    pending_bytes: npt.ArrayLike | None = None,
) -> list[Held]:
    """Bytes of activations that each rank holds over time.

    Args:
        timeline: from either replay.
        activation_bytes: of one unit on one stage: one number, or one a stage.
        checkpoint_bytes: what a unit holds between F and R where the list recomputes it; None: the same as without.
        pending_bytes: what a unit holds between its I and its W; None: the same as before.

    Returns:
        One ``Held`` a rank. An F takes at its start (only the checkpoint, if an R takes the rest), a B or W frees at
        its end, and an I what its W does not need; an offload frees when the copy has ended, a reload takes when its
        copy starts. At equal times frees come first.
    """
    graph = timeline.graph
    parts = graph.parts
    full = np.broadcast_to(np.asarray(activation_bytes, float), graph.stages)
    change = _part_bytes(graph, full, checkpoint_bytes)
    if pending_bytes is not None:
        change += _handed_on(graph, full - np.asarray(pending_bytes, float))
    frees = change < 0
    when = np.where(frees, timeline.end[parts.node], timeline.start[parts.node])
    rank = parts.rank[parts.node]
    active = change != 0
    by = np.lexsort((parts.place[parts.node], ~frees, when, rank))
    by = by[active[by]]
    result = []
    for r in range(graph.ranks):
        mine = by[rank[by] == r]
        result.append(Held(when[mine], np.cumsum(change[mine]), parts.node[mine]))
    return result


def _part_bytes(graph: Graph, full: Floats, checkpoint_bytes: npt.ArrayLike | None) -> Floats:
    """(parts,) bytes that each part takes (above 0) or frees (below 0)."""
    parts = graph.parts
    key = parts.stage * (int(parts.unit.max(initial=0)) + 1) + parts.unit
    again = np.isin(key, key[parts.kind == CODE[Kind.R]])
    kept = full if checkpoint_bytes is None else np.broadcast_to(np.asarray(checkpoint_bytes, float), graph.stages)
    size, checkpoint = full[parts.stage], kept[parts.stage]
    before_backward = np.where(again, checkpoint, size)  # what a unit holds from its F until its R, if it has one
    change = np.where(np.isin(parts.kind, _TAKES), before_backward, 0.0)
    change = np.where(parts.kind == CODE[Kind.R], size - checkpoint, change)
    freed = np.where(parts.kind == CODE[Kind.OFFLOAD], before_backward, size)
    return np.asarray(np.where(_frees(graph), -freed, change))


def _handed_on(graph: Graph, saved: Floats) -> Floats:
    """(parts,) what each I frees early, and its W then need not; ``saved`` (stages,) is what W does without."""
    parts = graph.parts
    early = (parts.kind == CODE[Kind.I]) & ~_frees(graph)
    key = parts.stage * (int(parts.unit.max(initial=0)) + 1) + parts.unit
    late = (parts.kind == CODE[Kind.W]) & np.isin(key, key[early])
    return np.asarray((late.astype(np.float64) - early) * saved[parts.stage])
