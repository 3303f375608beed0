"""Durations that vary from op to op, drawn under a seed.

A draw belongs to (kind, stage, unit), not to a place in a list: two schedules compared under one seed see the same
slow ops.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from clustersim.distributions import Distribution
from clustersim.pipeline.dependencies import KINDS
from clustersim.pipeline.graph import Floats, Graph
from clustersim.rng import stream


def jittered(
    graph: Graph,
    durations: npt.ArrayLike,
    distribution: Distribution,
    *,
    seed: int,
    replica: int = 0,
    relative: bool = True,
) -> Floats:
    """(ops,) seconds with a random part.

    Args:
        graph: the compiled program.
        durations: (ops,) seconds.
        distribution: of the factor on a duration (``relative``; mean 1 keeps the mean), or of seconds added to it.
        seed, replica: of the random streams (one a kind of op).
        relative: multiply; otherwise add.

    Returns:
        (ops,) seconds. A fused pair takes the mean of its parts' factors, or the sum of their seconds.
    """
    base = np.broadcast_to(np.asarray(durations, dtype=np.float64), graph.ops)
    drawn = _draws(graph, distribution, seed, replica)
    mine, second = drawn[: graph.ops].copy(), graph.second[graph.fused]
    mine[graph.fused] = (mine[graph.fused] + drawn[second]) / (2 if relative else 1)
    return base * mine if relative else base + mine


def _draws(graph: Graph, distribution: Distribution, seed: int, replica: int) -> Floats:
    """(parts,) one draw each, from its kind's stream at (unit, stage): more units do not shift the earlier ones."""
    parts = graph.parts
    units = int(parts.unit.max(initial=0)) + 1
    drawn = np.zeros(len(parts.kind))
    for kind in np.unique(parts.kind).tolist():
        rng = stream(seed, replica, f"pipeline/jitter/{KINDS[kind].value}")
        table = distribution.draw(rng, units * graph.stages)
        mine = parts.kind == kind
        drawn[mine] = table[np.maximum(parts.unit[mine], 0) * graph.stages + parts.stage[mine]]
    return drawn
