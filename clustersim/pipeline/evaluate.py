"""A timeline in numbers: makespan, the three bubbles in use, idle by cause, what is in flight.

Bubbles, with p ranks, work = compute seconds summed over ranks:

* ``step``: idle ÷ step = 1 − work ÷ (p × makespan): what a step with a barrier at its end pays;
* ``span``: 1 − work ÷ (p × the longest span of one rank): the papers' "zero bubble", true if no rank waits for
another's end;
* ``work``: idle ÷ work = p × makespan ÷ work − 1: by how much longer than ideal the step is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from clustersim.pipeline.activations import peak_in_flight
from clustersim.pipeline.idle import busy, idle_by_cause
from clustersim.pipeline.replay import Timeline


def evaluate(timeline: Timeline, message_bytes: npt.ArrayLike | None = None) -> dict[str, Any]:
    """The numbers of a timeline, ready for JSON.

    Args:
        timeline: from either replay.
        message_bytes: (messages,) or one number: bytes of each message (``Costs.bytes``); adds ``message_bytes``,
        their sum.

    Returns:
        ``makespan`` (first start to last end, in the unit of the costs); ``bubble`` with ``step``, ``span``, ``work``;
        ``rank_span`` a rank; ``peak_in_flight`` a rank, in units (a unit is one microbatch, or slice of one, on one
        stage); ``peak_in_flight_microbatches`` a rank, in whole microbatches on a whole rank's share (units ÷ (chunks
        × slices)); ``messages`` between ranks; ``idle_by_cause`` summed over ranks. Fractions of nothing are None.
    """
    graph = timeline.graph
    peaks = peak_in_flight(graph)
    share = graph.chunks * graph.program.slices
    result: dict[str, Any] = {
        "makespan": timeline.makespan,
        "bubble": bubbles(timeline),
        "rank_span": timeline.rank_span.tolist(),
        "peak_in_flight": peaks.tolist(),
        "peak_in_flight_microbatches": (peaks / share).tolist(),
        "messages": int(graph.messages.counted.sum()),
        "idle_by_cause": idle_by_cause(timeline),
    }
    if message_bytes is not None:
        result["message_bytes"] = float(np.broadcast_to(message_bytes, len(graph.messages)).sum())
    return result


def bubbles(timeline: Timeline) -> dict[str, float | None]:
    """The three bubbles: ``step``, ``span``, ``work``; None where undefined."""
    work, ranks = float(busy(timeline).sum()), timeline.graph.ranks
    step, span = ranks * timeline.makespan, ranks * float(timeline.rank_span.max(initial=0.0))
    return {
        "step": max(0.0, 1 - work / step) if step > 0 else None,
        "span": max(0.0, 1 - work / span) if span > 0 else None,
        "work": max(0.0, step / work - 1) if work > 0 else None,
    }
