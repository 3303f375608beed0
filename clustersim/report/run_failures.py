"""The failures of a run's page: by cause, and nodes down against spares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clustersim.report.course import Course
from clustersim.report.curves import Curve, Panel, columns, panels
from clustersim.report.page import figure, section, table
from clustersim.report.summary import Answer, duration
from clustersim.report.svg import Bar, bars

if TYPE_CHECKING:
    from clustersim.report.story import Story


def failures_section(answer: Answer, story: Story, course: Course) -> str:
    """Failures by cause, nodes down against spares."""
    if not story.causes:
        return section("failures", "Failures", "<p>No failure struck in any replica.</p>")
    spares, count = answer.scenario.cluster.spare_nodes, story.replicas
    known = {cause.name: cause for cause in answer.scenario.failures}
    found = sorted(story.causes.items(), key=lambda pair: (-pair[1].strikes, pair[0]))
    every = sum(cause.strikes for _, cause in found)
    rows = [
        [
            name,
            f"{cause.strikes / count:,.1f}",
            f"{cause.strikes / every:.1%}",
            str(known[name].severity) if name in known else "–",
            duration(cause.down_s / max(cause.strikes, 1)),
            duration(cause.lost_steps * course.step_s / max(cause.strikes, 1)),
            f"{(cause.down_s + cause.lost_steps * course.step_s) / count / 3600:,.1f} h",
        ]
        for name, cause in found
    ]
    head = ("cause", "strikes a run", "share", "severity", "down a strike", "work lost a strike", "cost a run")
    drawn = bars(
        "Failures by cause",
        [
            Bar(name, cause.strikes / count, f"{cause.strikes / count:,.1f}", "var(--c-rework)")
            for name, cause in found[:14]
        ],
    )
    left = figure(
        "Strikes a run by cause",
        drawn,
        "Means over replicas." + (f" {len(found) - 14} rarer causes: see the table." if len(found) > 14 else ""),
    )
    right = figure("Nodes down over time (replica 0)", _down(course, spares)) + _coverage(story, spares)
    caption = "By cause; a strike while the job is down already is counted, its time belongs to the first"
    return section(
        "failures",
        "Failures",
        f'<div class="two"><div>{left}</div><div>{right}</div></div>',
        table(head, rows, caption),
    )


def _spares(count: int) -> str:
    return f"{count} spare" if count == 1 else f"{count} spares"


def _down(course: Course, spares: int) -> str:
    points, level = [(0.0, 0.0)], 0
    for at, nodes in _thinned(course.down, course.wall_s):
        points += [(at / 86400, float(level)), (at / 86400, float(nodes))]
        level = nodes
    points.append((course.wall_s / 86400, float(level)))
    most = max([spares, *(nodes for _, nodes in course.down), 1])
    panel = Panel(
        "nodes down or in repair",
        [Curve(points, "down")],
        0.0,
        most * 1.15,
        lambda v: f"{v:g}",
        120.0,
        level=(float(spares), _spares(spares)),
    )
    return panels(
        "Nodes down over time", f"At most {most}; {_spares(spares)}.", [panel], (0.0, course.wall_s / 86400), "days"
    )


def _thinned(down: Sequence[tuple[float, int]], wall_s: float, cells: int = 500) -> list[tuple[float, int]]:
    """At most the highest and the last value of each stretch of time."""
    if len(down) <= 2 * cells:
        return list(down)
    kept: list[tuple[float, int]] = []
    groups: dict[int, list[tuple[float, int]]] = {}
    for at, nodes in down:
        groups.setdefault(int(at / wall_s * cells), []).append((at, nodes))
    for group in groups.values():
        kept += sorted({max(group, key=lambda pair: pair[1]), group[-1]})
    return kept


def _coverage(story: Story, spares: int) -> str:
    """How much of the time so many nodes are down, all replicas."""
    whole = math.fsum(story.down_s.values())
    if whole <= 0:
        return ""
    most = max(nodes for nodes, seconds in story.down_s.items() if seconds > 0)
    width = max(1, math.ceil((max(most, spares) + 1) / 40))
    rows = []
    for first in range(0, most + 1, width):
        share = math.fsum(story.down_s.get(nodes, 0.0) for nodes in range(first, first + width)) / whole
        label = str(first) if width == 1 else f"{first}–{first + width - 1}"
        rows.append((str(first), share, f"{label} nodes down: {share:.2%} of the time"))
    short_s = math.fsum(seconds for nodes, seconds in story.down_s.items() if nodes > spares) / whole
    for_how_long = f"for {short_s:.3%} of the time" if short_s > 0 else "at no time"
    note = f"More nodes are down than there are spares {for_how_long} (all replicas)."
    level = ((spares + 1) / width, f"{_spares(spares)} reach to here") if spares <= most + width else None
    return figure("How many nodes are down", columns("Share of time by nodes down", rows, level), note)
