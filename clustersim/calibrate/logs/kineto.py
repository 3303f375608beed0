"""Traces of torch's profiler (Kineto JSON): kernels grouped to ops, exposed communication, idle time by cause.

Of each ``ProfilerStep#n`` and device: *busy* is the union of its compute kernels; *exposed* communication the part of the
communication kernels' union that no compute kernel covers; *idle* the rest of the step. An idle gap counts as ``host`` if
the kernel after it was launched only after the gap began, else as ``wait`` (streams, events, copies). A trace without
kernels (CPU) counts the self time of its operators instead. ``ts`` and ``dur`` are microseconds.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from typing import Any, NamedTuple

from clustersim.calibrate.records import Measurements
from clustersim.errors import InputError, Problem

GROUPS: tuple[tuple[str, str], ...] = (
    ("communication", r"nccl|rccl|gloo|c10d::|all_?reduce|all_?gather|reduce_?scatter|alltoall"),
    ("attention", r"flash|fmha|attention|sdpa|cudnn.*(mha|sdpa)"),
    ("gemm", r"gemm|cutlass|nvjet|xmma|cublas|matmul|aten::(mm|bmm|addmm|linear|baddbmm)|wgmma"),
    ("copy", r"memcpy|memset|aten::copy_|aten::_to_copy"),
    ("norm", r"norm"),
    ("softmax-loss", r"softmax|cross_entropy|nll"),
    ("optimizer", r"adam|sgd|optimizer|multi_tensor|foreach"),
    ("embedding", r"embedding|index"),
    ("elementwise", r"elementwise|vectorized|gelu|silu|add|mul|dropout|reduce|sum|triton"),
)
"""First match wins; what matches none is ``other``."""


class Piece(NamedTuple):
    """A kernel or operator: microseconds."""

    start: float
    end: float
    name: str
    launched: float
    """When the host launched it; minus infinity where unknown."""


def looks_like(data: Any) -> bool:
    """Whether a JSON document is a Kineto trace."""
    return isinstance(data, dict) and "traceEvents" in data


def group_of(name: str) -> str:
    """The group of a kernel or operator."""
    lowered = name.lower()
    return next((group for group, words in GROUPS if re.search(words, lowered)), "other")


def parse(data: dict[str, Any], name: str) -> Measurements:
    """A record a step and device: ``step_s``, ``groups_s``, ``exposed_communication_s``, ``idle_s`` by cause.

    Raises:
        InputError: no steps are marked, or they hold neither kernels nor operators.
    """
    events = [event for event in data.get("traceEvents", []) if isinstance(event, dict) and event.get("ph") == "X"]
    marks = [event for event in events if str(event.get("name", "")).startswith("ProfilerStep#")]
    steps = sorted((event["ts"], event["ts"] + event["dur"], event["name"]) for event in marks
                   if event.get("cat") != "gpu_user_annotation")  # fmt: skip
    if not steps:
        sentence = "marks no steps ('ProfilerStep#…'): profile with a schedule and call prof.step() after each step"
        raise InputError(Problem("traceEvents", sentence, name))
    lanes = _kernels(events) or _operators(events)
    if not lanes:
        raise InputError(Problem("traceEvents", "holds neither kernels nor operators: profile CUDA or CPU activities", name))
    records = [_step(start, end, str(title), device, pieces)
               for start, end, title in steps for device, pieces in sorted(lanes.items())]  # fmt: skip
    records = [record for record in records if record["groups_s"]]
    if not records:
        raise InputError(Problem("traceEvents", "no kernel or operator ran inside a marked step", name))
    return Measurements(name, "trace", {}, records)


def _kernels(events: list[dict[str, Any]]) -> dict[str, list[Piece]]:
    launched = {event["args"]["correlation"]: event["ts"] for event in events
                if event.get("cat") in ("cuda_runtime", "cuda_driver", "hip_runtime")
                and "correlation" in event.get("args", {})}  # fmt: skip
    lanes: dict[str, list[Piece]] = defaultdict(list)
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            args = event.get("args", {})
            when = launched.get(args.get("correlation"), float("-inf"))
            lane = f"device {args.get('device', 0)}"
            lanes[lane].append(Piece(event["ts"], event["ts"] + event["dur"], str(event["name"]), when))
    return {lane: sorted(pieces) for lane, pieces in lanes.items()}


def _operators(events: list[dict[str, Any]]) -> dict[str, list[Piece]]:
    """Leaves of the operators' call trees, and what lies between leaves of one operator (its self time)."""
    threads: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "cpu_op":
            threads[event.get("tid")].append(event)
    pieces: list[Piece] = []
    for thread in threads.values():
        thread.sort(key=lambda event: (event["ts"], -event["dur"]))
        open_: list[list[Any]] = []
        for event in [*thread, {"ts": float("inf"), "dur": 0.0, "name": ""}]:
            while open_ and event["ts"] >= open_[-1][1]:
                name, end, reached = open_.pop()
                pieces.append(Piece(reached, end, name, float("-inf")))
                if open_:
                    open_[-1][2] = max(open_[-1][2], end)
            if open_:
                pieces.append(Piece(open_[-1][2], event["ts"], open_[-1][0], float("-inf")))
            if event["name"]:
                open_.append([str(event["name"]), event["ts"] + event["dur"], event["ts"]])
    kept = [piece for piece in pieces if piece.end > piece.start]
    return {"cpu": sorted(kept)} if kept else {}


def _step(start: float, end: float, title: str, device: str, pieces: list[Piece]) -> dict[str, Any]:
    inside = [piece._replace(start=max(piece.start, start), end=min(piece.end, end)) for piece in pieces
              if piece.end > start and piece.start < end]  # fmt: skip
    groups: dict[str, float] = defaultdict(float)
    for piece in inside:
        groups[group_of(piece.name)] += piece.end - piece.start
    talk = [piece for piece in inside if group_of(piece.name) == "communication"]
    work = union([(piece.start, piece.end) for piece in inside if group_of(piece.name) != "communication"])
    every = union([(piece.start, piece.end) for piece in inside])
    exposed = length(every) - length(work)
    idle = _idle(start, end, every, inside)
    micro = 1e-6
    return {
        "key": {"step": title, "device": device},
        "step_s": (end - start) * micro,
        "groups_s": {name: seconds * micro for name, seconds in sorted(groups.items())},
        "communication_s": length(union([(piece.start, piece.end) for piece in talk])) * micro,
        "exposed_communication_s": exposed * micro,
        "idle_s": {cause: seconds * micro for cause, seconds in idle.items()},
    }


def _idle(start: float, end: float, every: list[tuple[float, float]], inside: list[Piece]) -> dict[str, float]:
    """Idle microseconds by cause."""
    found = {"host": 0.0, "wait": 0.0}
    begins = [piece.start for piece in inside]
    reached = start
    for left, right in [*every, (end, end)]:
        if left > reached:
            index = bisect_right(begins, left) - 1
            late = index >= 0 and left < end and inside[index].launched > reached
            found["host" if late or left >= end else "wait"] += left - reached
        reached = max(reached, right)
    return found


def union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans merged where they overlap, ascending."""
    merged: list[tuple[float, float]] = []
    for left, right in sorted(spans):
        if merged and left <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], right))
        else:
            merged.append((left, right))
    return merged


def length(spans: list[tuple[float, float]]) -> float:
    """Total length of disjoint spans."""
    return sum(right - left for left, right in spans)
