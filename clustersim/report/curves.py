"""Curves over time or over a parameter as inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from clustersim.report.svg import WIDTH, Scale, box, drawing, line, nice_ticks, path, text

_LEFT, _RIGHT = 64.0, 14.0
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Curve:
    """A line: its points in data units, a CSS class, a name for the legend (none if empty), a band around it."""

    points: Points
    style: str
    label: str = ""
    band: tuple[Points, Points] | None = None


@dataclass
class Panel:
    """One plot of several that share the axis across."""

    name: str
    curves: list[Curve]
    low: float
    high: float
    said: Callable[[float], str]
    height: float = 150.0
    marks: list[tuple[str, str, Sequence[float]]] = field(default_factory=list)
    """Rows of ticks under the curves: (what they mark, CSS class, places)."""
    level: tuple[float, str] | None = None
    """A horizontal line: (value, what it means)."""


def panels(
    name: str,
    description: str,
    shown: Sequence[Panel],
    across: tuple[float, float],
    unit: str,
    ticks: Sequence[tuple[float, str]] | None = None,
    log: bool = False,
) -> str:
    """Panels above each other on one axis.

    Args:
        across: ends of the shared axis.
        unit: what it counts.
        ticks: (value, label) of the axis; None: round numbers.
        log: a logarithmic axis.
    """
    scale = Scale(*across, _LEFT, WIDTH - _RIGHT, log)
    labels = [(tick, f"{tick:g}") for tick in nice_ticks(*across, 8)] if ticks is None else list(ticks)
    body, top = [], 18.0
    for panel in shown:
        drawn, height = _panel(panel, scale, top, labels)
        body.append(drawn)
        top += height + 26
    bottom = top - 22
    body += [text(scale(at), bottom + 8, said, anchor="middle", style="soft", size=11) for at, said in labels]
    body.append(text(WIDTH - _RIGHT, bottom + 24, unit, anchor="end", style="soft", size=11))
    return drawing(name, description, bottom + 32, "".join(body))


def _panel(panel: Panel, across: Scale, top: float, labels: Sequence[tuple[float, str]]) -> tuple[str, float]:
    up = Scale(panel.low, panel.high, top + panel.height, top)
    left, right = across.start, across.end
    body = [text(left, top - 6, panel.name, style="strong")]
    body += [_legend(panel, top)]
    for tick in nice_ticks(panel.low, panel.high, 4):
        body.append(line(left, up(tick), right, up(tick)))
        body.append(text(left - 6, up(tick) + 4, panel.said(tick), anchor="end", style="soft", size=11))
    body += [line(across(at), top, across(at), top + panel.height) for at, _ in labels]
    for curve in panel.curves:
        if curve.band is not None:
            lower, upper = curve.band
            around = [(across(x), up(y)) for x, y in [*upper, *reversed(lower)]]
            body.append(path(around, f"{curve.style} band", ' stroke="none"'))
        body.append(path([(across(x), up(y)) for x, y in curve.points], curve.style))
    if panel.level is not None:
        value, said = panel.level
        body.append(line(left, up(value), right, up(value), "level"))
        body.append(text(right - 4, up(value) - 4, said, anchor="end", style="soft", size=11))
    height = panel.height
    for meaning, style, places in panel.marks:
        height += 16
        told = "".join(f"M{across(x):.1f} {top + height - 9:.1f}v8" for x in places)
        body.append(f'<path d="{told}" class="mark {style}"><title>{escape(meaning)}</title></path>')
        body.append(text(left - 6, top + height - 1, meaning, anchor="end", style="soft", size=10))
    return "".join(body), height


def _legend(panel: Panel, top: float) -> str:
    """Names of the curves in the upper right corner, from the right."""
    parts, x = [], WIDTH - _RIGHT
    for curve in reversed([curve for curve in panel.curves if curve.label]):
        x -= 6.0 * len(curve.label)
        parts.append(text(x, top - 6, curve.label, style="soft", size=11))
        parts.append(path([(x - 20, top - 10), (x - 4, top - 10)], curve.style))
        x -= 34
    return "".join(parts)


def columns(name: str, rows: Sequence[tuple[str, float, str]], level: tuple[float, str] | None = None) -> str:
    """Upright columns: (label, value, hover); ``level``: a mark behind the column of that index (a fraction is between)."""
    height, top = 130.0, 16.0
    most = max((value for _, value, _ in rows), default=0.0) or 1.0
    pitch = (WIDTH - _LEFT - _RIGHT) / max(len(rows), 1)
    every = max(1, round((12 + 7 * max((len(label) for label, _, _ in rows), default=1)) / pitch))
    body = [line(_LEFT, top + height, WIDTH - _RIGHT, top + height, "zero")]
    for tick in nice_ticks(0, most, 3):
        y = top + height - tick / most * height
        body.append(line(_LEFT, y, WIDTH - _RIGHT, y))
        body.append(text(_LEFT - 6, y + 4, f"{100 * tick:.3g} %", anchor="end", style="soft", size=11))
    for number, (label, value, hover) in enumerate(rows):
        tall = value / most * height
        body.append(
            box(_LEFT + number * pitch + 0.08 * pitch, top + height - tall, 0.84 * pitch, tall, "var(--c-down)", hover)
        )
        if number % every == 0:
            body.append(
                text(_LEFT + (number + 0.5) * pitch, top + height + 14, label, anchor="middle", style="soft", size=11)
            )
    if level is not None:
        x = _LEFT + level[0] * pitch
        body.append(line(x, top - 6, x, top + height, "level"))
        near = x > WIDTH * 0.6
        body.append(
            text(x + (-5 if near else 5), top + 6, level[1], anchor="end" if near else "start", style="soft", size=11)
        )
    told = "; ".join(hover for _, _, hover in rows[:40])
    return drawing(name, told, top + height + 22, "".join(body))
