"""Small charts as inline SVG: crisp in print, coloured by the page's theme, with a title and hover texts.

Colours are CSS custom properties of the page (``--c-train``), so that one drawing serves light and dark. Every text that
comes from a user passes through ``escape``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from clustersim.shown import cut

WIDTH = 640
"""Units of the drawing; the page scales it."""


def drawing(name: str, description: str, height: float, body: str, width: float = WIDTH) -> str:
    """A whole SVG element with its accessible name."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(name)}. {escape(description)}" '
        f'preserveAspectRatio="xMidYMid meet">{body}</svg>'
    )


def text(x: float, y: float, said: str, *, anchor: str = "start", style: str = "", size: float = 12) -> str:
    """A text element."""
    css = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:g}"{css}>{escape(said)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, hover: str = "", more: str = "") -> str:
    """A rectangle with a hover text."""
    title = f"<title>{escape(hover)}</title>" if hover else ""
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.01):.2f}" height="{height:.2f}" '
        f'fill="{fill}"{more}>{title}</rect>'
    )


def line(x1: float, y1: float, x2: float, y2: float, style: str = "grid") -> str:
    """A straight line of a class of the page."""
    return f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" class="{style}"/>'


def path(points: Sequence[tuple[float, float]], style: str, more: str = "") -> str:
    """A polyline through points in drawing units."""
    told = "".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(points))
    return f'<path d="{told}" class="{style}"{more}/>'


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers within [low, high]: steps of 1, 2, 2.5 or 5 times a power of ten."""
    if not high > low:
        return [low]
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


@dataclass(frozen=True)
class Scale:
    """From data to drawing units: ``low`` lands on ``start``, ``high`` on ``end``; logarithmic if asked."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value, kept inside the drawing."""
        low, high, at = (
            (math.log(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        )
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


@dataclass(frozen=True)
class Bar:
    """A row of a bar chart: a label, a value as drawn and as said, a colour."""

    label: str
    value: float
    said: str
    colour: str
    hover: str = ""


def bars(name: str, rows: Sequence[Bar], *, label_width: float = 150) -> str:
    """Horizontal bars from zero, the value written behind each."""
    pitch, top = 24.0, 4.0
    room = WIDTH - label_width - 130
    most = max((row.value for row in rows), default=0.0) or 1.0
    body = []
    for number, row in enumerate(rows):
        y = top + number * pitch
        wide = row.value / most * room
        body.append(text(label_width - 8, y + 15, cut(row.label, 24), anchor="end"))
        body.append(box(label_width, y + 2, wide, 17, row.colour, row.hover or f"{row.label}: {row.said}"))
        body.append(text(label_width + wide + 6, y + 15, row.said, style="soft"))
    told = "; ".join(f"{row.label} {row.said}" for row in rows)
    return drawing(name, told, top + len(rows) * pitch + 4, "".join(body))


def waterfall(name: str, rows: Sequence[Bar], kept: Bar, whole: str) -> str:
    """From the whole (1) down to what is kept: each row takes its share away.

    Args:
        rows: shares of the whole, in the order in which they are taken away.
        kept: what is left.
        whole: how the whole is called.
    """
    label_width, pitch, top = 150.0, 22.0, 4.0
    right = WIDTH - 150.0
    lost = math.fsum(row.value for row in rows)
    low = (
        0.0 if kept.value < 0.5 else math.floor(20 * (1 - 1.6 * lost)) / 20 if lost > 0.02 else 1 - 2 * max(lost, 5e-4)
    )
    scale = Scale(low, 1.0, label_width, right)
    body, at, y = [], 1.0, top
    ticks = nice_ticks(low, 1.0, 4)
    height = top + (len(rows) + 2) * pitch
    body += [line(scale(tick), top, scale(tick), height) for tick in ticks]
    body += [
        text(scale(tick), height + 14, f"{100 * tick:.4g} %", anchor="middle", style="soft", size=11) for tick in ticks
    ]

    def row_of(row: Bar, start: float, end: float, at_y: float) -> str:
        x0, x1 = scale(start), scale(end)
        return (
            text(label_width - 8, at_y + 15, cut(row.label, 24), anchor="end")
            + box(x0, at_y + 2, max(x1 - x0, 1.2), 17, row.colour, row.hover or f"{row.label}: {row.said}")
            + text(right + 8, at_y + 15, row.said, style="soft")
        )

    body.append(row_of(Bar(whole, 1.0, "100 %", "var(--c-whole)"), low, 1.0, y))
    for row in rows:
        y += pitch
        body.append(row_of(row, at - row.value, at, y))
        body.append(line(scale(at), y - 3, scale(at), y + 2, "join"))
        at -= row.value
    y += pitch
    body.append(row_of(kept, low, kept.value, y))
    if low > 0:
        body.append(text(label_width, height + 29, f"the axis starts at {100 * low:.4g} %", style="soft", size=11))
    told = "; ".join(f"{row.label} {row.said}" for row in (*rows, kept))
    return drawing(name, told, height + (34 if low > 0 else 20), "".join(body))


@dataclass(frozen=True)
class Estimate:
    """A row of an interval plot: a mean with its interval (None: unknown), as said, and whether it is better or worse."""

    label: str
    mean: float
    low: float | None
    high: float | None
    said: str
    colour: str = "var(--ink)"


def intervals(name: str, rows: Sequence[Estimate], unit: str, *, label_width: float = 230) -> str:
    """Dots with their intervals about a line at zero."""
    pitch, top = 24.0, 6.0
    right = WIDTH - max(130.0, 12.0 + 7.2 * max((len(row.said) for row in rows), default=0))
    ends = [0.0] + [value for row in rows for value in (row.mean, row.low, row.high) if value is not None]
    low, high = min(ends), max(ends)
    pad = 0.06 * (high - low or 1.0)
    scale = Scale(low - pad, high + pad, label_width, right)
    height = top + len(rows) * pitch
    body = [line(scale(tick), top, scale(tick), height) for tick in nice_ticks(low - pad, high + pad, 4)]
    body += [
        text(
            scale(tick),
            height + 14,
            f"{tick:+.4g}" if abs(tick) > 1e-12 else "0",
            anchor="middle",
            style="soft",
            size=11,
        )
        for tick in nice_ticks(low - pad, high + pad, 4)
    ]
    body.append(line(scale(0), top, scale(0), height, "zero"))
    body.append(text(right, height + 28, unit, anchor="end", style="soft", size=11))
    for number, row in enumerate(rows):
        y = top + number * pitch + pitch / 2
        body.append(text(label_width - 10, y + 4, cut(row.label, 36), anchor="end"))
        if row.low is not None and row.high is not None:
            body.append(
                f'<line x1="{scale(row.low):.1f}" x2="{scale(row.high):.1f}" y1="{y:.1f}" y2="{y:.1f}" '
                f'stroke="{row.colour}" stroke-width="3" stroke-linecap="round"/>'
            )
        hover = f"<title>{escape(row.label)}: {escape(row.said)}</title>"
        body.append(f'<circle cx="{scale(row.mean):.1f}" cy="{y:.1f}" r="5" fill="{row.colour}">{hover}</circle>')
        body.append(text(right + 8, y + 4, row.said, style="soft"))
    told = "; ".join(f"{row.label} {row.said}" for row in rows)
    return drawing(name, told, height + 34, "".join(body))
