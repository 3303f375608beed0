"""Gradient traffic of schedules whose ranks hold stages of several chains (Chimera, DualPipe): each stage's own end counts.

Eager synchronisation (Chimera, arXiv 2107.06925, section 3.2): the gradients of a stage are reduced as soon as its last
backward has run, while the rank works on the stages of the other chain or waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustersim.pipeline.dependencies import CODE
from clustersim.pipeline.ops import Kind

if TYPE_CHECKING:
    from clustersim.pipeline.step import StepModel

_LAST = (CODE[Kind.B], CODE[Kind.W], CODE[Kind.I])


def eager_tails(step: StepModel, reduce: list[float]) -> list[float]:
    """Seconds by which the gradient traffic of each rank outlasts its last op; ``reduce`` are all its seconds.

    Stages share a rank's traffic evenly and go out one after the other, each from its own last backward on.
    """
    graph, timeline = step.plan.shape.graph, step.timeline()
    parts = graph.parts
    backward = np.isin(parts.kind, _LAST)
    ready = np.zeros(graph.stages)
    np.maximum.at(ready, parts.stage[backward], timeline.end[parts.node[backward]])
    tails = []
    for rank in range(graph.ranks):
        end = float(timeline.end[graph.rank == rank].max(initial=0.0))
        mine = sorted(float(ready[stage]) for stage in np.flatnonzero(step.plan.shape.stage_rank == rank))
        busy = 0.0
        for at in mine:
            busy = max(busy, at) + reduce[rank] / len(mine)
        tails.append(max(0.0, busy - end))
    return tails
