"""The course of one run, from its event log: what the job did when, its saves, its failures, nodes that were down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from clustersim.report.page import packed
from clustersim.report.story import Row

STALL, DETECT = "checkpoint_stall", "detect"
MOST = 120_000
"""Saves that a page shows: more would make it larger than 5 MB."""
COLOURS = {
    "train": "train",
    "rework": "rework",
    STALL: "save",
    "checkpoint_slowdown": "save",
    "straggle": "slow",
    "degraded": "slow",
    DETECT: "detect",
    "diagnose": "recover",
    "reschedule": "recover",
    "start": "recover",
    "communicators": "recover",
    "load": "load",
    "warm_up": "load",
    "wait_for_nodes": "wait",
    "migrate": "wait",
    "other": "other",
}
"""The page's colour of each category (``--c-…``)."""


def colour_of(category: str) -> str:
    """A category's colour as CSS."""
    return f"var(--c-{COLOURS.get(category, 'other')})"


@dataclass
class Course:
    """One run as spans of time.

    Attributes:
        segments: (start, end, first step) of undisturbed training between stalls and failures.
        spans: (start, end, what, kind) of everything else; ``kind``: the ledger's category.
        failures: (time, cause, place or −1).
        saves: (start, durable, step); durable is −1 for one that was cut off.
        down: (time, nodes down) whenever that changes.
        wall_s: the end.
        step_s: time of an undisturbed step.
        shown_until: saves beyond this time are left out.
    """

    wall_s: float
    step_s: float
    segments: list[tuple[float, float, int]] = field(default_factory=list)
    spans: list[tuple[float, float, str]] = field(default_factory=list)
    failures: list[tuple[float, str, int]] = field(default_factory=list)
    saves: list[tuple[float, float, int]] = field(default_factory=list)
    down: list[tuple[float, int]] = field(default_factory=list)
    shown_until: float | None = None


def course_of(rows: Sequence[Row], wall_s: float, step_s: float) -> Course:
    """Follow an event log from start to end."""
    walk = _Walk(Course(wall_s, step_s))
    for row in rows:
        walk.take(row)
    return walk.finish()


class _Walk:
    """Reads the log row by row: training runs from ``since`` unless that is None."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.since: float | None = 0.0
        self.step = 0
        self.open: list[tuple[float, int]] = []
        self.nodes_down = 0

    def take(self, row: Row) -> None:
        """One event."""
        act = getattr(self, f"_{row.event}", None)
        if act is not None:
            act(row)

    def finish(self) -> Course:
        """Close what is open at the end."""
        self._pause(self.course.wall_s)
        self.course.saves += [(start, -1.0, step) for start, step in self.open]
        self.course.saves.sort()
        if len(self.course.saves) > MOST:
            self.course.shown_until = self.course.saves[MOST][0]
            del self.course.saves[MOST:]
        return self.course

    def _pause(self, at: float) -> None:
        if self.since is not None and at > self.since:
            self.course.segments.append((self.since, at, self.step))
        self.since = None

    def _resume(self, row: Row) -> None:
        self.since, self.step = row.time_s, row.step or 0

    def _save_start(self, row: Row) -> None:
        self._pause(row.time_s)
        stall = row.seconds or 0.0
        if stall > 0:
            self.course.spans.append((row.time_s, row.time_s + stall, STALL))
        self.since, self.step = row.time_s + stall, row.step or 0
        self.open.append((row.time_s, self.step))

    def _save_durable(self, row: Row) -> None:
        for number, (start, step) in enumerate(self.open):
            if step == row.step:
                self.course.saves.append((start, row.time_s, step))
                del self.open[number]
                return

    def _failure(self, row: Row) -> None:
        self._pause(row.time_s)
        self.course.failures.append((row.time_s, row.subject, -1 if row.place is None else row.place))
        self.course.saves += [(start, -1.0, step) for start, step in self.open]
        self.open.clear()

    def _detect(self, row: Row) -> None:
        self.course.spans.append((row.time_s, row.time_s + (row.seconds or 0.0), DETECT))

    def _stage(self, row: Row) -> None:
        self.course.spans.append((row.time_s, row.time_s + (row.seconds or 0.0), row.subject))

    def _wait_for_nodes(self, row: Row) -> None:
        if row.seconds:
            self.course.spans.append((row.time_s, row.time_s + row.seconds, "wait_for_nodes"))

    def _failed(self, row: Row) -> None:
        self._count(row.time_s, 1)

    def _spare_failure(self, row: Row) -> None:
        self._count(row.time_s, 1)

    def _repaired(self, row: Row) -> None:
        self._count(row.time_s, -1)

    def _count(self, at: float, change: int) -> None:
        self.nodes_down = max(0, self.nodes_down + change)
        self.course.down.append((at, self.nodes_down))


def course_data(course: Course, spares: int, name: str) -> dict[str, Any]:
    """The data of the page's timeline: typed arrays, names once."""
    kinds = list(dict.fromkeys(kind for _, _, kind in course.spans))
    causes = list(dict.fromkeys(cause for _, cause, _ in course.failures))
    spans = sorted(course.spans)
    return {
        "name": name,
        "wall": course.wall_s,
        "step": course.step_s,
        "spares": spares,
        "kinds": [[kind, COLOURS.get(kind, "other")] for kind in kinds],
        "causes": causes,
        "until": course.shown_until,
        "arrays": {
            "seg_start": packed([s[0] for s in course.segments], "f8"),
            "seg_end": packed([s[1] for s in course.segments], "f8"),
            "seg_step": packed([s[2] for s in course.segments], "i4"),
            "span_start": packed([s[0] for s in spans], "f8"),
            "span_end": packed([s[1] for s in spans], "f8"),
            "span_kind": packed([kinds.index(s[2]) for s in spans], "u1"),
            "hit_time": packed([f[0] for f in course.failures], "f8"),
            "hit_cause": packed([causes.index(f[1]) for f in course.failures], "u2"),
            "hit_place": packed([f[2] for f in course.failures], "i4"),
            "save_start": packed([s[0] for s in course.saves], "f8"),
            "save_lag": packed([s[1] - s[0] if s[1] >= 0 else -1.0 for s in course.saves], "f4"),
            "down_time": packed([d[0] for d in course.down], "f8"),
            "down_nodes": packed([d[1] for d in course.down], "u2"),
        },
    }
