"""A timeline as Chrome trace JSON, for ui.perfetto.dev and chrome://tracing.

One process a rank; threads for compute, sends, receives, collectives and copies; names as
torch.distributed.pipelining gives its profiler ranges (``PP:2F0``), so that a trace from torch's profiler opens
beside it; a flow arrow for each message; a counter of the activations that a rank holds. Times are microseconds;
costs without a unit count as seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from clustersim.pipeline.dependencies import CODE, KINDS
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.replay import Timeline
from clustersim.report.scene import View, views

_MICRO = 1e6
_THREADS = ("compute", "send", "receive", "collectives", "copies")
_THREAD_OF = {
    CODE[Kind.SEND_F]: 1,
    CODE[Kind.SEND_B]: 1,
    CODE[Kind.RECV_F]: 2,
    CODE[Kind.RECV_B]: 2,
    CODE[Kind.UNSHARD]: 3,
    CODE[Kind.RESHARD]: 3,
    CODE[Kind.REDUCE_GRAD]: 3,
    CODE[Kind.OFFLOAD]: 4,
    CODE[Kind.RELOAD]: 4,
}


def trace(timelines: Timeline | View | Sequence[Timeline | View], *, memory: bool = True) -> dict[str, Any]:
    """The trace as a JSON document.

    Args:
        timelines: one or several; each has processes of its own.
        memory: a counter track a rank.
    """
    events: list[dict[str, Any]] = []
    shown = views(timelines)
    first = 0
    for number, view in enumerate(shown):
        prefix = f"{view.name}: " if len(shown) > 1 else ""
        events += _names(view, first, prefix)
        events += _ops(view, first)
        events += _messages(view, first, f"{number}/")
        if memory:
            events += _memory(view, first)
        first += view.timeline.graph.ranks
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"producer": "clustersim", "schedules": [view.name for view in shown]},
    }


def perfetto_json(timelines: Timeline | View | Sequence[Timeline | View], *, memory: bool = True) -> str:
    """``trace`` as text."""
    return json.dumps(trace(timelines, memory=memory), allow_nan=False, separators=(",", ":"))


def _names(view: View, first: int, prefix: str) -> Iterator[dict[str, Any]]:
    graph = view.timeline.graph
    used = {(int(rank), _THREAD_OF.get(int(kind), 0)) for rank, kind in zip(graph.rank, graph.kind, strict=True)}
    if len(graph.messages) and not any(thread == 1 for _, thread in used):
        used |= {(rank, 1) for rank in set(graph.messages.source_rank.tolist())}
        used |= {(rank, 2) for rank in set(graph.messages.target_rank.tolist())}
    for rank in range(graph.ranks):
        about = {"ph": "M", "pid": first + rank}
        yield {**about, "name": "process_name", "args": {"name": f"{prefix}rank {rank}"}}
        yield {**about, "name": "process_sort_index", "args": {"sort_index": first + rank}}
    for rank, thread in sorted(used):
        about = {"ph": "M", "pid": first + rank, "tid": thread}
        yield {**about, "name": "thread_name", "args": {"name": _THREADS[thread]}}
        yield {**about, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _ops(view: View, first: int) -> Iterator[dict[str, Any]]:
    timeline, graph = view.timeline, view.timeline.graph
    columns = (
        graph.rank,
        graph.kind,
        graph.stage,
        graph.unit,
        timeline.start - timeline.first_start,
        timeline.end - timeline.start,
    )
    slices = graph.program.slices
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for op, (rank, kind, stage, unit, start, seconds) in enumerate(rows):
        args: dict[str, Any] = {"stage": stage, "kind": KINDS[kind].value}
        if unit >= 0:
            args["microbatch"] = unit // slices
            if slices > 1:
                args["slice"] = unit % slices
        thread = _THREAD_OF.get(kind, 0)
        yield {
            "name": "PP:" + graph.label(op),
            "cat": _THREADS[thread],
            "ph": "X",
            "ts": start * _MICRO,
            "dur": seconds * _MICRO,
            "pid": first + rank,
            "tid": thread,
            "args": args,
        }


def _messages(view: View, first: int, prefix: str) -> Iterator[dict[str, Any]]:
    """A flow arrow a message; where the list has no SEND and RECV of its own, its time in flight as slices too."""
    timeline, graph = view.timeline, view.timeline.graph
    messages = graph.messages
    zero = timeline.first_start
    columns = (messages.source, messages.target, messages.source_rank, messages.target_rank, messages.stage)
    ends = ((timeline.departure - zero).tolist(), (timeline.arrival - zero).tolist())
    for number, (source, target, sender, receiver, stage, left, came) in enumerate(
        zip(*(column.tolist() for column in columns), *ends, strict=True)
    ):
        explicit = not graph.compute[source]
        if not explicit:
            way = "F" if int(graph.stage[target]) > stage or graph.kind[target] == CODE[Kind.S] else "B"
            unit = int(graph.unit[source])
            flight = {"cat": "p2p", "ph": "X", "ts": left * _MICRO, "dur": (came - left) * _MICRO}
            to = int(graph.stage[target])
            yield {**flight, "name": f"PP:{stage}SEND_{way}{unit}", "pid": first + sender, "tid": 1}
            yield {**flight, "name": f"PP:{to}RECV_{way}{unit}", "pid": first + receiver, "tid": 2}
        arrow = {"name": "message", "cat": "p2p", "id": f"{prefix}{number}"}
        begin = float(timeline.start[source]) - zero if explicit else left
        over = float(timeline.start[target]) - zero if explicit else came
        yield {**arrow, "ph": "s", "ts": begin * _MICRO, "pid": first + sender, "tid": 1}
        yield {**arrow, "ph": "f", "bp": "e", "ts": over * _MICRO, "pid": first + receiver, "tid": 2}


def _memory(view: View, first: int) -> Iterator[dict[str, Any]]:
    zero = view.timeline.first_start
    for rank, held in enumerate(view.memory):
        name = "activations" if view.static_bytes is None else "memory"
        about = {"name": name, "ph": "C", "pid": first + rank}
        yield {**about, "ts": 0.0, "args": {view.memory_unit: view.base[rank]}}
        for time, value in zip((held.time_s - zero).tolist(), held.bytes.tolist(), strict=True):
            yield {**about, "ts": time * _MICRO, "args": {view.memory_unit: value}}
