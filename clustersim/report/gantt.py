"""The papers' Gantt chart of a timeline, as PNG or SVG.

Ranks are rows; widths are true; numbers are microbatches; a fused pair is one outlined box with its forward above its
backward; idle stretches are tinted by cause; below each rank runs what it holds, with its limit. More than
``FOLD_AT`` boxes are folded into heat rows: the mean colour of each stretch of time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clustersim.pipeline.dependencies import KINDS
from clustersim.pipeline.replay import Timeline
from clustersim.report.heat import heat_rows
from clustersim.report.scene import (
    CAUSE_COLOURS,
    COLOURS,
    KIND_NAMES,
    MEMORY_LEGEND,
    OTHER_COLOUR,
    Floats,
    Ints,
    Row,
    View,
    amount,
    comparison,
    shade,
    text_colour,
    views,
)
from clustersim.shown import drawable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLD_AT = 30_000
_WIDTH = 12.0  # inches
_ROW = 0.30  # inches of one rank's ops
_LINE = 0.19  # inches of one line of the table
_STRIP = 0.6  # height of a memory strip, in rows
_TALL_STRIP = 1.1  # where it shows all memory of a GPU, of which activations are but a part
_GAP = 0.18  # between ranks, in rows
_HATCHES = ("", "////", "\\\\\\\\", "xxxx", "....", "----", "||||", "++++")


def gantt(
    timelines: Timeline | View | Sequence[Timeline | View],
    *,
    memory: bool = True,
    causes: bool = True,
    critical: bool = False,
    table: bool | None = None,
    width: float = _WIDTH,
) -> Figure:
    """Draw timelines, stacked on one time axis.

    Args:
        timelines: one or several, each plain or as a ``View`` with its title, memory sizes and limit.
        memory: a strip under each rank with what it holds.
        causes: tint idle stretches by cause.
        critical: outline the ops of the critical path.
        table: a table of differences below; None: if there are several.
        width: of the figure, inches.

    Returns:
        A matplotlib figure that belongs to no window: ``figure.savefig(path)``.
    """
    from matplotlib.figure import Figure

    shown = views(timelines)
    rows = comparison(shown) if (len(shown) > 1 if table is None else table) else []
    heights = [_row(view) * _rank_height(view, memory) * view.timeline.graph.ranks + 0.45 for view in shown]
    extra = _LINE * (len(rows) + 1) + 0.2 if rows else 0.0
    total = sum(heights) + extra + 0.92
    figure = Figure(figsize=(width, total), layout=None)
    axes = _panels(figure, heights, total, width)
    end = max(view.timeline.makespan for view in shown) or 1.0
    for view, panel in zip(shown, axes, strict=True):
        panel.set_xlim(0, end)
        _draw(panel, view, memory, causes, critical)
    axes[-1].set_xlabel(f"time [{shown[0].time_unit}]" if shown[0].time_unit else "time", fontsize=9)
    for panel in axes[:-1]:
        panel.tick_params(labelbottom=False)
    _legend(figure, shown, memory, causes, critical, total)
    if rows:
        _table(figure, shown, rows, total)
    return figure


def _row(view: View) -> float:
    """Inches of one rank's ops: less where there are many ranks, so that the page ends."""
    return max(0.06, min(_ROW, _ROW * 20 / view.timeline.graph.ranks))


def _every(view: View) -> int:
    """Which ranks carry a label: every n-th, so that labels stay apart."""
    return max(1, round(0.16 / _row(view)))


def _strip(view: View) -> float:
    return _STRIP if view.static_bytes is None else _TALL_STRIP


def _rank_height(view: View, memory: bool) -> float:
    return 1 + _GAP + (_strip(view) if memory else 0.0)


def _panels(figure: Figure, heights: list[float], total: float, width: float) -> list[Axes]:
    """One axes a view, from the top down."""
    left, right, top = 0.75 / width, 0.95 / width, 1 - 0.36 / total
    axes = []
    for height in heights:
        top -= height / total
        place = (left, top + 0.06 / total, 1 - left - right, (height - 0.34) / total)
        axes.append(figure.add_axes(place))
    return axes


def _draw(axes: Axes, view: View, memory: bool, causes: bool, critical: bool) -> None:
    ranks, height = view.timeline.graph.ranks, _rank_height(view, memory)
    if causes:
        _gaps(axes, view, height)
    if len(view.boxes.op) > FOLD_AT:
        heat_rows(axes, view, _colours(view), height)
    else:
        _boxes(axes, view, height)
        if critical:
            _outline(axes, view, view.critical, height, "#d00000", 1.6)
    if memory:
        _strips(axes, view, height)
    numbers = view.numbers
    bubble = numbers["bubble"]["step"]  # type: ignore[index]
    said = f"makespan {view.timeline.makespan:.6g} {view.time_unit}".rstrip() + (
        "" if bubble is None else f", idle {100 * bubble:.1f} % of the step"
    )
    axes.set_title(f"{drawable(view.name)}   ({said})", loc="left", fontsize=10, pad=4)
    axes.set_ylim(ranks * height - _GAP, -0.08)
    every = _every(view)
    axes.set_yticks(
        [rank * height + 0.5 for rank in range(0, ranks, every)], [f"rank {r}" for r in range(0, ranks, every)]
    )
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.tick_params(axis="x", labelsize=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _polygons(axes: Axes, corners: Floats, **style: Any) -> None:
    from matplotlib.collections import PolyCollection

    axes.add_collection(PolyCollection(list(corners), **style))


def _rectangles(start: Floats, end: Floats, top: Floats, height: Floats) -> Floats:
    """(n, 4, 2) corners."""
    corners = np.empty((len(start), 4, 2))
    corners[:, (0, 3), 0] = start[:, None]
    corners[:, (1, 2), 0] = end[:, None]
    corners[:, (0, 1), 1] = top[:, None]
    corners[:, (2, 3), 1] = (top + height)[:, None]
    return corners


def _gaps(axes: Axes, view: View, height: float) -> None:
    folded = len(view.boxes.op) > FOLD_AT
    gaps = [gap for gap in view.gaps if not folded or gap.end - gap.start > view.timeline.makespan / 300]
    zero = view.timeline.first_start
    start = np.array([gap.start - zero for gap in gaps])
    end = np.array([gap.end - zero for gap in gaps])
    top = np.array([gap.rank for gap in gaps], dtype=np.float64) * height
    colours = [CAUSE_COLOURS[gap.cause] for gap in gaps]
    _polygons(axes, _rectangles(start, end, top, np.ones(len(gaps))), facecolors=colours, zorder=1)


def _boxes(axes: Axes, view: View, height: float) -> None:
    boxes = view.boxes
    top = boxes.rank.astype(np.float64) * height + np.where(boxes.half == 2, 0.5, 0.0)
    tall = np.where(boxes.half == 0, 1.0, 0.5)
    corners = _rectangles(boxes.start, boxes.end, top, tall)
    colours = _colours(view)
    dense = len(boxes.op) / max(1, view.timeline.graph.ranks) > 400
    for number in np.unique(boxes.slice[boxes.compute]).tolist():
        mine = boxes.compute & (boxes.slice == number) & (boxes.end > boxes.start)
        style: dict[str, Any] = {"edgecolors": "none" if dense else "white", "linewidths": 0.4, "zorder": 2}
        _polygons(axes, corners[mine], facecolors=colours[mine], **style)
        hatch = _HATCHES[number % len(_HATCHES)] if view.timeline.graph.program.slices > 1 else ""
        if hatch and not dense:
            hatched = {"facecolors": "none", "edgecolors": "#00000038", "linewidths": 0.0, "hatch": hatch, "zorder": 3}
            _polygons(axes, corners[mine], **hatched)
    fused = np.unique(boxes.op[boxes.half == 2])
    _outline(axes, view, fused, height, "#222222", 0.9)
    if not dense:
        _numbers(axes, view, top + tall / 2, tall, colours)


def _colours(view: View) -> Any:
    """(boxes,) colour of each box."""
    boxes = view.boxes
    known: dict[tuple[int, int], str] = {}
    result = []
    for key in zip(boxes.kind.tolist(), boxes.chunk.tolist(), strict=True):
        if key not in known:
            known[key] = shade(*key, boxes.chunks)
        result.append(known[key])
    return np.array(result, dtype=object)


def _outline(axes: Axes, view: View, ops: Ints, height: float, colour: str, weight: float) -> None:
    timeline, zero = view.timeline, view.timeline.first_start
    if len(ops):
        ops = ops[timeline.graph.compute[ops]]
        top = timeline.graph.rank[ops].astype(np.float64) * height
        corners = _rectangles(timeline.start[ops] - zero, timeline.end[ops] - zero, top, np.ones(len(ops)))
        _polygons(axes, corners, facecolors="none", edgecolors=colour, linewidths=weight, zorder=4)


def _numbers(axes: Axes, view: View, middle: Floats, tall: Floats, colours: Any) -> None:
    """Microbatch numbers where they fit: text of ``size`` points is about 0.62·size wide a digit."""
    boxes = view.boxes
    figure = axes.get_figure(root=True)
    assert figure is not None
    points = axes.get_position().width * figure.get_size_inches()[0] * 72 / np.diff(axes.get_xlim())[0]
    wide = (boxes.end - boxes.start) * points
    digits = np.char.str_len(boxes.microbatch.astype(str))
    size = np.minimum(np.where(tall < 1, 6.5, 8.0), (wide - 1.0) / (0.62 * digits))
    for i in np.flatnonzero(boxes.compute & (boxes.microbatch >= 0) & (size >= 3.6)).tolist():
        x, y = (boxes.start[i] + boxes.end[i]) / 2, middle[i]
        colour = text_colour(colours[i])
        text = axes.text(x, y, str(boxes.microbatch[i]), fontsize=float(size[i]), color=colour, zorder=5, clip_on=True)
        text.set(horizontalalignment="center", verticalalignment="center_baseline")


def _strips(axes: Axes, view: View, height: float) -> None:
    """Under each rank what it holds, on one scale for all; the limit dashed, the peak marked."""
    end, zero, top = view.timeline.makespan, view.timeline.first_start, view.memory_top
    tall = _strip(view)
    scale = (tall - 0.12) / top
    for rank, held in enumerate(view.memory):
        base = rank * height + 1 + tall - 0.04
        times = np.concatenate([[0.0], held.time_s - zero, [end]])
        always = view.base[rank]
        level = np.concatenate([[always], held.bytes, held.bytes[-1:] if len(held.bytes) else [always]])
        foot = base - always * scale
        axes.fill_between(
            times, foot, base - level * scale, step="post", color=MEMORY_LEGEND[1][0], linewidth=0, zorder=2
        )
        if always:
            axes.fill_between([0.0, end], base, foot, color=MEMORY_LEGEND[0][0], linewidth=0, zorder=2)
        limit = view.limits[rank]
        if limit is not None:
            style = {
                "color": "#c00000" if view.over[rank] else "#404040",
                "linewidth": 0.9,
                "linestyle": (0, (4, 2)),
                "zorder": 3,
            }
            axes.plot([0, end], [base - limit * scale] * 2, **style)  # type: ignore[arg-type]
        if len(held.bytes):
            at = int(held.bytes.argmax())
            size = 3 * min(1.0, 2 * _row(view) / _ROW)
            axes.plot(
                held.time_s[at] - zero, base - held.peak * scale, marker="v", markersize=size, color="#303030", zorder=4
            )
        if rank % _every(view) == 0:
            axes.text(
                1.004,
                base - tall / 2,
                "peak " + amount(held.peak, view),
                transform=axes.get_yaxis_transform(),
                fontsize=7,
                color="#404040",
                va="center",
            )


def _legend(figure: Figure, shown: Sequence[View], memory: bool, causes: bool, critical: bool, total: float) -> None:
    from matplotlib.patches import Patch

    present = sorted({int(kind) for view in shown for kind in np.unique(view.boxes.kind[view.boxes.compute])})
    handles = []
    for kind in (KINDS[code] for code in present):
        colour = COLOURS.get(kind, OTHER_COLOUR)
        handles.append(Patch(facecolor=colour, label=f"{kind.value}  {KIND_NAMES.get(kind, '')}"))
    if any(view.boxes.chunks > 1 for view in shown):
        handles.append(Patch(facecolor="#606060", label="darker: later chunk"))
    if any((view.boxes.half > 0).any() for view in shown):
        handles.append(Patch(facecolor="white", edgecolor="#222222", label="fused pair"))
    if any(view.timeline.graph.program.slices > 1 for view in shown):
        handles.append(Patch(facecolor="white", edgecolor="#888888", hatch="////", label="slice"))
    if causes:
        seen = {gap.cause for view in shown for gap in view.gaps}
        for cause in (cause for cause in CAUSE_COLOURS if cause in seen):
            label = f"idle: {cause.replace('_', ' ')}"
            handles.append(Patch(facecolor=CAUSE_COLOURS[cause], edgecolor="#bbbbbb", linewidth=0.5, label=label))
    if memory and any(view.static_bytes is not None for view in shown):
        handles += [Patch(facecolor=colour, label=label) for colour, label in MEMORY_LEGEND]
    if critical:
        handles.append(Patch(facecolor="white", edgecolor="#d00000", label="critical path"))
    style: dict[str, Any] = {"fontsize": 8, "frameon": False, "handlelength": 1.2, "columnspacing": 1.2}
    figure.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 1 - 0.02 / total),
        ncols=math.ceil(len(handles) / math.ceil(len(handles) / 9)),
        **style,
    )


def _table(figure: Figure, shown: Sequence[View], rows: Sequence[Row], total: float) -> None:
    from matplotlib.transforms import Bbox

    axes = figure.add_axes((0.06, 0.1 / total, 0.88, _LINE * (len(rows) + 1) / total))
    axes.axis("off")
    head = ["", *(drawable(view.name) for view in shown), "difference"]
    body = [[row.name, *(row.text(value) for value in row.values), row.text(row.difference, sign=True)] for row in rows]
    table = axes.table(cellText=body, colLabels=head, cellLoc="right", edges="horizontal", bbox=Bbox.unit())
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    for (line, column), cell in table.get_celld().items():
        cell.set_linewidth(0.4)
        cell.set_edgecolor("#b0b0b0")
        if column == 0:
            cell.set_text_props(ha="left")
        if line == 0:
            cell.set_text_props(weight="bold")
