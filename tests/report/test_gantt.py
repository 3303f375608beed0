"""The Gantt chart: what is on it, and that it is where it belongs."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from clustersim.errors import InputError
from clustersim.report import gantt as module
from clustersim.report.gantt import gantt
from clustersim.report.heat import _coverage
from clustersim.report.scene import CAUSE_COLOURS, COLOURS, View, comparison, shade, text_colour, views
from clustersim.report.timeline import write_timeline
from tests.pipeline.replays import built, timed
from tests.report.drawings import view


def polygons(figure: object, panel: int = 0) -> list[PolyCollection]:
    """The polygon collections of one panel."""
    axes = figure.axes[panel]  # type: ignore[attr-defined]
    return [one for one in axes.collections if isinstance(one, PolyCollection)]


def widths(collection: PolyCollection) -> np.ndarray:
    """Width of each rectangle."""
    return np.array([path.vertices[:, 0].max() - path.vertices[:, 0].min() for path in collection.get_paths()])


def test_boxes_have_true_widths_and_stand_on_their_rank() -> None:
    shown = view("1f1b")
    boxes = next(one for one in polygons(gantt(shown)) if len(one.get_paths()) == 64)
    assert sorted(widths(boxes).round(9).tolist()) == [1.0] * 32 + [2.0] * 32
    tops = {round(float(path.vertices[:, 1].min()), 6) for path in boxes.get_paths()}
    assert len(tops) == 4
    colours = {to_hex(colour) for colour in boxes.get_facecolor()}
    assert colours == {COLOURS[kind] for kind in COLOURS if kind.value in "FB"}


def test_every_box_carries_its_microbatch() -> None:
    texts = [text.get_text() for text in gantt(view("zb-h1")).axes[0].texts]
    for unit in range(8):
        assert texts.count(str(unit)) == 4 * 3  # F, I, W on every rank


def test_fused_pairs_are_boxed_and_halved() -> None:
    shown = view("dualpipe")
    collections = polygons(gantt(shown))
    fused = int(shown.timeline.graph.fused.sum())
    outlines = [one for one in collections if len(one.get_facecolor()) == 0 and len(one.get_paths()) == fused]
    assert len(outlines) == 1
    assert widths(outlines[0]) == pytest.approx(3.0)


def test_slices_are_hatched() -> None:
    hatches = {one.get_hatch() for one in polygons(gantt(view("seq1f1b", slices=2)))}
    assert "////" in hatches
    assert not {one.get_hatch() for one in polygons(gantt(view("1f1b")))} - {None}


def test_idle_is_tinted_by_cause_and_named() -> None:
    figure = gantt(view("1f1b"))
    gaps = polygons(figure)[0]
    assert {to_hex(colour) for colour in gaps.get_facecolor()} == {
        CAUSE_COLOURS[cause] for cause in ("fill", "drain", "dependency", "latency")
    }
    named = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"idle: fill", "idle: drain", "idle: dependency", "idle: latency"} <= named
    plain = gantt(view("1f1b"), causes=False).legends[0].get_texts()
    assert not any("idle" in text.get_text() for text in plain)


def test_memory_strip_shows_peak_and_limit() -> None:
    shown = view("1f1b", limit=3.0, activation_bytes=2**30)
    texts = [text.get_text() for text in gantt(shown).axes[0].texts]
    assert [text for text in texts if text.startswith("peak")] == [f"peak {n} GiB" for n in (4, 3, 2, 1)]
    assert shown.over == [True] * 4  # 3 bytes
    fits = dataclasses.replace(shown, limit=[4 * 2**30, 2**30, 2**31, 2**30])
    assert fits.over == [False, True, False, False]
    dashed = [line for line in gantt(fits).axes[0].lines if line.get_linestyle() == "--"]
    assert [line.get_color() for line in dashed] == ["#404040", "#c00000", "#404040", "#404040"]
    with pytest.raises(InputError, match="one a rank"):
        _ = dataclasses.replace(shown, limit=[1.0]).limits


def test_two_schedules_share_one_axis_and_a_table() -> None:
    figure = gantt([view("1f1b"), view("zb-h1")])
    first, second, table = figure.axes
    assert first.get_xlim() == second.get_xlim() == (0, pytest.approx(34.6))
    cells = {(row, column): cell.get_text().get_text() for (row, column), cell in table.tables[0].get_celld().items()}
    assert [cells[0, column] for column in range(4)] == ["", "1f1b", "zb-h1", "difference"]
    assert cells[1, 1] == "34.6"
    assert float(cells[1, 3]) == pytest.approx(float(cells[1, 2]) - 34.6)


def test_differences_know_what_is_undefined() -> None:
    nothing = View(timed(built("1f1b", 2, 2), F=0, I=0, W=0))
    rows = comparison([nothing, view("1f1b", 2, 2)])
    undefined = [row for row in rows if row.values[0] is None]
    assert len(undefined) == 3
    assert undefined[0].text(undefined[0].values[0]) == "–"
    assert undefined[0].difference is None


def test_the_critical_path_is_outlined() -> None:
    shown = view("1f1b")
    red = [
        one for one in polygons(gantt(shown, critical=True)) if "#d00000" in {to_hex(c) for c in one.get_edgecolor()}
    ]
    assert len(red[0].get_paths()) == len(shown.critical)


def test_many_ops_fold_to_heat_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLD_AT", 10)
    axes = gantt(view("1f1b")).axes[0]
    assert len(axes.images) == 4
    image = np.asarray(axes.images[3].get_array())
    busy = image[0, :, 3].mean()
    assert busy == pytest.approx(24 / 34.6, abs=2e-3)  # rank 3 computes 8 · 3 of 34.6


def test_coverage_is_exact() -> None:
    share = _coverage(np.array([0.5, 2.0]), np.array([1.25, 4.0]), np.ones(2), 5)
    assert share == pytest.approx([0.5, 0.25, 1, 1, 0])


def test_user_text_is_no_markup(tmp_path: Path) -> None:
    """A title with dollars and tags is printed as it is: no formula, no element."""
    given = view("1f1b", title="a $\\frac{1}{0$ <script> & b")
    root = ElementTree.parse(write_timeline(tmp_path / "x.svg", given)).getroot()
    assert not root.findall(".//{http://www.w3.org/2000/svg}script")


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_same_input_same_bytes(tmp_path: Path, kind: str) -> None:
    written = [write_timeline(tmp_path / f"{n}.{kind}", view("1f1b")).read_bytes() for n in range(2)]
    assert written[0] == written[1]


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.html, \.png, \.svg, \.json"):
        write_timeline(tmp_path / "x.pdf", view("1f1b"))
    with pytest.raises(InputError, match="cannot write"):
        write_timeline(tmp_path / "no" / "x.json", view("1f1b"))
    with pytest.raises(InputError, match="no timeline"):
        views([])


def test_shades_are_apart_and_readable() -> None:
    for kind in range(7):
        several = {shade(kind, chunk, 4) for chunk in range(4)}
        assert len(several) == 4
    assert text_colour("#ffffff") == "#000000"
    assert text_colour("#202020") == "#ffffff"


def test_matplotlib_is_imported_only_to_draw() -> None:
    modules = "clustersim.report.timeline, clustersim.report.scene, clustersim.report.gantt"
    code = f"import sys, {modules}; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
