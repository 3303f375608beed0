"""A timeline as one self-contained HTML page: zoom, hover, search, no network.

All numbers travel as base64 of typed arrays, so that 100,000 ops open in well under a second; all text from users is
escaped.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from clustersim.pipeline.dependencies import KINDS
from clustersim.pipeline.idle import Binding
from clustersim.pipeline.replay import Timeline
from clustersim.report.page import heading
from clustersim.report.scene import (
    CAUSE_COLOURS,
    COLOURS,
    KIND_NAMES,
    MEMORY_LEGEND,
    OTHER_COLOUR,
    Ints,
    Row,
    View,
    amount,
    comparison,
    shade,
    text_colour,
    views,
)

_HATCHED = "repeating-linear-gradient(135deg,#fff 0 3px,#888 3px 4px)"
_CAUSES = list(CAUSE_COLOURS)
_TYPES = {"f8": "<f8", "i4": "<i4", "u2": "<u2", "u1": "<u1"}


def timeline_html(
    timelines: Timeline | View | Sequence[Timeline | View], *, title: str = "", memory: bool = True
) -> str:
    """The page as text.

    Args:
        timelines: one or several, stacked on one time axis, with a table of differences if several.
        title: of the page; else the views' titles.
        memory: a strip under each rank with what it holds.
    """
    shown = views(timelines)
    heading = title or " · ".join(view.name for view in shown)
    part = timeline_part(shown, heading=f"<h1>{html.escape(heading)}</h1>", memory=memory)
    return _filled(_asset("timeline.html"), {"__TITLE__": html.escape(heading[:200]), "__PART__": part})


def timeline_part(
    timelines: Timeline | View | Sequence[Timeline | View], *, heading: str = "", memory: bool = True, table: bool = True
) -> str:  # fmt: skip
    """The timeline as a part of a page that defines its colours (``--bg``, ``--ink``, ``--soft``, ``--bad``).

    Args:
        timelines: one or several, stacked on one time axis.
        heading: HTML before the tools.
        memory: a strip under each rank with what it holds.
        table: the numbers below, with differences if there are several.
    """
    shown = views(timelines)
    data = {
        "unit": shown[0].time_unit,
        "memory": memory,
        "kinds": [[kind.value, KIND_NAMES.get(kind, kind.value.lower())] for kind in KINDS],
        "causes": [[cause.replace("_", " "), colour] for cause, colour in CAUSE_COLOURS.items()],
        "legend": _legend(shown, memory),
        "views": [_view(view) for view in shown],
    }
    parts = {
        "__HEADING__": heading,
        "__TABLE__": _table(shown, comparison(shown)) if table else "",
        "__DATA__": json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "__SCRIPT__": _asset("timeline.js"),
    }
    return _filled(_asset("timeline_part.html"), parts)


def _asset(name: str) -> str:
    return (files("clustersim.report") / "assets" / name).read_text(encoding="utf-8")


def _filled(page: str, parts: dict[str, str]) -> str:
    """``page`` with its marks replaced; split first, so that no text that a user gave is searched for marks."""
    pieces = [page]
    for mark, text in parts.items():
        pieces = [piece for part in pieces for piece in _split(part, mark, text)]
    return "".join(pieces)


class _Done(str):
    """Text that is in place: no mark is looked for in it."""


def _split(part: str, mark: str, text: str) -> list[str]:
    if isinstance(part, _Done):
        return [part]
    around = part.split(mark)
    result: list[str] = [around[0]]
    for after in around[1:]:
        result += [_Done(text), after]
    return result


def _pack(array: npt.NDArray[Any], kind: str) -> list[str]:
    return [kind, base64.b64encode(np.ascontiguousarray(array, dtype=_TYPES[kind]).tobytes()).decode("ascii")]


def _view(view: View) -> dict[str, Any]:
    timeline, graph, boxes = view.timeline, view.timeline.graph, view.boxes
    by = np.lexsort((boxes.half, boxes.start, boxes.rank))
    place = np.empty(len(by), dtype=np.int64)
    place[by] = np.arange(len(by))
    first = np.searchsorted(boxes.rank[by], np.arange(graph.ranks + 1))
    length = boxes.end - boxes.start
    longest = [float(length[by[first[r] : first[r + 1]]].max(initial=0.0)) for r in range(graph.ranks)]
    bubble = view.numbers["bubble"]["step"]  # type: ignore[index]
    said = f"makespan {timeline.makespan:.6g} {view.time_unit}".rstrip()
    return {
        "title": view.name,
        "said": said + ("" if bubble is None else f", idle {100 * bubble:.1f} % of the step"),
        "ranks": graph.ranks,
        "slices": graph.program.slices,
        "makespan": timeline.makespan,
        "longest": longest,
        "colours": _colours(boxes.chunks),
        "limits": view.limits,
        "over": view.over,
        "peaks": ["peak " + amount(held.peak, view) for held in view.memory],
        "memory_top": view.memory_top,
        "base": view.base,
        "bytes": view.memory_unit == "bytes",
        "arrays": _arrays(view, by, place, first) | _gap_arrays(view) | _memory_arrays(view),
    }


def _arrays(view: View, by: Ints, place: Ints, first: Ints) -> dict[str, list[str]]:
    boxes, graph = view.boxes, view.timeline.graph
    critical = np.zeros(graph.ops, dtype=np.bool_)
    critical[view.critical] = True
    heads = place[: graph.ops]
    return {
        "start": _pack(boxes.start[by], "f8"),
        "end": _pack(boxes.end[by], "f8"),
        "rank": _pack(boxes.rank[by], "u2"),
        "stage": _pack(boxes.stage[by], "u2"),
        "kind": _pack(boxes.kind[by], "u1"),
        "chunk": _pack(boxes.chunk[by], "u2"),
        "microbatch": _pack(boxes.microbatch[by], "i4"),
        "slice": _pack(boxes.slice[by], "i4"),
        "unit": _pack(graph.parts.unit[by], "i4"),
        "half": _pack(boxes.half[by], "u1"),
        "compute": _pack(boxes.compute[by], "u1"),
        "waited": _pack(_waited(view, heads)[boxes.op[by]], "i4"),
        "critical": _pack(heads[np.flatnonzero(critical)], "i4"),
        "first": _pack(first, "i4"),
    }


def _waited(view: View, heads: Ints) -> Ints:
    """(ops,) the box of the op that decided each op's start, −1 for none (or for a transfer's op that sent it)."""
    graph, binding = view.timeline.graph, Binding(view.timeline)
    source = binding.sources.copy()
    for _ in range(2):  # through a transfer or barrier to the op behind it
        beyond = source >= graph.ops
        source[beyond] = source[source[beyond]]
    source = source[: graph.ops]
    return np.where((source >= 0) & (source < graph.ops), heads[np.clip(source, 0, graph.ops - 1)], -1)


def _gap_arrays(view: View) -> dict[str, list[str]]:
    gaps, zero = view.gaps, view.timeline.first_start
    return {
        "gap_start": _pack(np.array([gap.start - zero for gap in gaps]), "f8"),
        "gap_end": _pack(np.array([gap.end - zero for gap in gaps]), "f8"),
        "gap_rank": _pack(np.array([gap.rank for gap in gaps]), "u2"),
        "gap_cause": _pack(np.array([_CAUSES.index(gap.cause) for gap in gaps]), "u1"),
    }


def _memory_arrays(view: View) -> dict[str, list[str]]:
    counts = np.cumsum([0, *(len(held.bytes) for held in view.memory)])
    return {
        "memory_time": _pack(np.concatenate([held.time_s - view.timeline.first_start for held in view.memory]), "f8"),
        "memory_value": _pack(np.concatenate([held.bytes for held in view.memory]), "f8"),
        "memory_first": _pack(counts, "i4"),
    }


def _colours(chunks: int) -> list[list[list[str]]]:
    """Colour and text colour of every kind on every chunk."""
    table = [[shade(kind, chunk, chunks) for chunk in range(chunks)] for kind in range(len(KINDS))]
    return [[[colour, text_colour(colour)] for colour in row] for row in table]


def _legend(shown: Sequence[View], memory: bool) -> list[list[str]]:
    present = sorted({int(kind) for view in shown for kind in np.unique(view.boxes.kind[view.boxes.compute])})
    kinds = [KINDS[code] for code in present]
    entries = [[COLOURS.get(kind, OTHER_COLOUR), f"{kind.value} {KIND_NAMES.get(kind, '')}"] for kind in kinds]
    if any(view.boxes.chunks > 1 for view in shown):
        entries.append(["#606060", "darker: later chunk"])
    if any((view.boxes.half > 0).any() for view in shown):
        entries.append(["#ffffff", "outlined: fused pair"])
    if any(view.timeline.graph.program.slices > 1 for view in shown):
        entries.append([_HATCHED, "hatched: later slices of a sequence"])
    if memory:
        entries += MEMORY_LEGEND if any(view.static_bytes is not None for view in shown) else MEMORY_LEGEND[1:]
    seen = {gap.cause for view in shown for gap in view.gaps}
    return entries + [[CAUSE_COLOURS[cause], f"idle: {cause.replace('_', ' ')}"] for cause in _CAUSES if cause in seen]


def _table(shown: Sequence[View], rows: Sequence[Row]) -> str:
    heads = ["", *(view.name for view in shown), *(["difference"] if len(shown) > 1 else [])]
    lines = ["<table><caption>In numbers</caption><thead><tr>"]
    lines += [heading(head) if head else "<td></td>" for head in heads]
    lines.append("</tr></thead><tbody>")
    for row in rows:
        cells = [row.name, *(row.text(value) for value in row.values)]
        if len(shown) > 1:
            cells.append(row.text(row.difference, sign=True))
        rest = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells[1:])
        lines.append(f'<tr><th scope="row">{html.escape(cells[0])}</th>{rest}</tr>')
    lines.append("</tbody></table>")
    return "".join(lines)
