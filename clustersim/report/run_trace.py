"""The course of a run as Chrome trace JSON, for ui.perfetto.dev: tracks for the job, saves, failures and the repair shop.

One replica. Undisturbed training between two saves is one slice with its first and last step; a save is a slice from its
start until it is durable; a failure is an instant with its cause; nodes in repair are slices by node and a counter against
the spares. Times are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersim.report.course import Course, course_of
from clustersim.report.story import Row

if TYPE_CHECKING:
    from clustersim.scenario.schema import Scenario

_MICRO = 1e6
_TRACKS = ("job", "saves", "failures", "nodes", "repair shop")
_JOB, _SAVES, _FAILURES, _NODES, _REPAIR = range(len(_TRACKS))


def run_trace(
    rows: Sequence[Row], wall_s: float, step_s: float, *, name: str = "run", spares: int = 0
) -> dict[str, Any]:
    """The trace of one replica as a JSON document.

    Args:
        rows: its event log (``story.rows_of(result.events)``).
        wall_s: its wall time, seconds.
        step_s: an undisturbed step, seconds.
        name: of the run, shown in the trace.
        spares: spare nodes, drawn beside those that are down.
    """
    course = course_of(rows, wall_s, step_s)
    events = [
        *_names(),
        *_job(course),
        *_saves(course),
        *_failures(course),
        *_down(course, spares),
        *_repairs(rows, wall_s),
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"producer": "clustersim", "run": name}}


def run_trace_json(rows: Sequence[Row], wall_s: float, step_s: float, *, name: str = "run", spares: int = 0) -> str:
    """``run_trace`` as text."""
    return json.dumps(run_trace(rows, wall_s, step_s, name=name, spares=spares), allow_nan=False, separators=(",", ":"))


def write_run_trace(path: str | Path, scenario: Scenario, seed: int | None = None, replica: int = 0) -> Path:
    """Run one replica again and write its trace.

    Raises:
        InputError: no file can have this name.
        OSError: the file cannot be written.
    """
    from clustersim.report.files import write_output
    from clustersim.report.story import rows_of
    from clustersim.run.simulate import run_replica
    from clustersim.study.replicas import prepared_for

    prepared = prepared_for(scenario)
    result = run_replica(prepared, scenario.simulation.seed if seed is None else seed, replica)
    rows, spares = list(rows_of(result.events)), scenario.cluster.spare_nodes
    text = run_trace_json(rows, result.wall_s, prepared.pace.nominal_s, name=scenario.name, spares=spares)
    write_output(Path(path), text.encode())
    return Path(path)


def _names() -> Iterator[dict[str, Any]]:
    for process, track in enumerate(_TRACKS):
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": track}}
        yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": process}}


def _slice(track: int, name: str, start_s: float, end_s: float, thread: int = 0, **args: Any) -> dict[str, Any]:
    return {
        "name": name, "cat": _TRACKS[track], "ph": "X", "ts": start_s * _MICRO, "dur": (end_s - start_s) * _MICRO,
        "pid": track, "tid": thread, "args": args,
    }  # fmt: skip


def _job(course: Course) -> Iterator[dict[str, Any]]:
    for start, end, step in course.segments:
        yield _slice(_JOB, "train", start, end, first_step=step + 1, steps=int((end - start) / course.step_s + 1e-9))
    for start, end, kind in course.spans:
        yield _slice(_JOB, kind, start, end)


def _saves(course: Course) -> Iterator[dict[str, Any]]:
    for start, durable, step in course.saves:
        done = durable >= 0
        yield _slice(_SAVES, "save" if done else "save, never durable", start, durable if done else start, step=step)


def _failures(course: Course) -> Iterator[dict[str, Any]]:
    for at, cause, place in course.failures:
        args = {} if place < 0 else {"place": place}
        yield {
            "name": cause,
            "cat": "failure",
            "ph": "i",
            "s": "p",
            "ts": at * _MICRO,
            "pid": _FAILURES,
            "tid": 0,
            "args": args,
        }


def _down(course: Course, spares: int) -> Iterator[dict[str, Any]]:
    for at, nodes in [(0.0, 0), *course.down]:
        yield {
            "name": "nodes down",
            "ph": "C",
            "ts": at * _MICRO,
            "pid": _NODES,
            "args": {"down": nodes, "spares": spares},
        }


def _repairs(rows: Sequence[Row], wall_s: float) -> Iterator[dict[str, Any]]:
    """A slice a node from its removal to its return; nodes that overlap lie on threads of their own."""
    since: dict[int, float] = {}
    free: list[float] = []
    stays = []
    for row in rows:
        node = row.node
        if node is None:
            continue
        if row.event in ("removed", "spare_failure"):
            since.setdefault(node, row.time_s)
        elif row.event == "repaired" and node in since:
            stays.append((since.pop(node), row.time_s, node))
    stays += [(start, wall_s, node) for node, start in since.items()]
    for start, end, node in sorted(stays):
        lane = next((number for number, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        yield _slice(_REPAIR, f"node {node}", start, end, thread=lane)
