"""Write timelines to a file; its ending says as what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clustersim.errors import InputError
from clustersim.pipeline.replay import Timeline
from clustersim.report.files import write_output
from clustersim.report.scene import View

FORMATS = (".html", ".png", ".svg", ".json")


def require_ending(path: str | Path) -> str:
    """What a timeline is written as, by the file's ending: for a command to ask before it computes.

    Raises:
        InputError: the ending is none of ``FORMATS``.
    """
    kind = Path(path).suffix.lower()
    if kind not in FORMATS:
        raise InputError(f"a timeline is written as {', '.join(FORMATS)}: '{Path(path).name}' ends in none of them")
    return kind


def write_timeline(
    path: str | Path,
    timelines: Timeline | View | Sequence[Timeline | View],
    *,
    title: str = "",
    memory: bool = True,
    causes: bool = True,
    critical: bool = False,
) -> Path:
    """Draw timelines into a file.

    Args:
        path: ends in ``.html`` (interactive page), ``.png`` or ``.svg`` (Gantt chart), or ``.json`` (Chrome/Perfetto
        trace).
        timelines: one or several, plain or as ``View`` with title, memory sizes and limit; several share one time axis.
        title: of the HTML page.
        memory: show what each rank holds.
        causes: tint idle stretches by cause (PNG and SVG; the page has a switch).
        critical: outline the critical path (PNG and SVG; the page has a switch).

    Returns:
        The path. A drawing depends only on its timelines: the same input gives the same bytes.

    Raises:
        InputError: the ending is none of these, or no file can have this name.
        OSError: the file cannot be written.
    """
    path = Path(path)
    kind = require_ending(path)
    if kind == ".html":
        from clustersim.report.timeline_html import timeline_html

        content = timeline_html(timelines, title=title, memory=memory).encode()
    elif kind == ".json":
        from clustersim.report.perfetto import perfetto_json

        content = perfetto_json(timelines, memory=memory).encode()
    else:
        content = _picture(timelines, kind[1:], memory, causes, critical)
    write_output(path, content)
    return path


def _picture(
    timelines: Timeline | View | Sequence[Timeline | View], kind: str, memory: bool, causes: bool, critical: bool
) -> bytes:
    import io

    import matplotlib

    from clustersim.report.gantt import gantt
    from clustersim.shown import save_figure

    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": "clustersim"}):
        figure = gantt(timelines, memory=memory, causes=causes, critical=critical)
        save_figure(figure, buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()
