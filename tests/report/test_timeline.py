"""The HTML page: its data, its escapes, and how it behaves in a browser."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersim.report.scene import View
from clustersim.report.timeline import write_timeline
from clustersim.report.timeline_html import timeline_html
from tests.pipeline.replays import built, timed
from tests.report.drawings import view

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)")
TYPES = {"f8": "<f8", "i4": "<i4", "u2": "<u2", "u1": "<u1"}


def data_of(page: str) -> dict[str, Any]:
    """The page's data, read as the script reads it."""
    match = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    return dict(json.loads(match.group(1)))


def unpacked(packed: list[str]) -> np.ndarray:
    """A packed array."""
    return np.frombuffer(base64.b64decode(packed[1]), TYPES[packed[0]])


def dom(path: Path, anchor: str = "", *, real_time: bool = False) -> str:
    """The page's document after it has run in a browser (whose clock jumps ahead unless in real time)."""
    assert CHROMIUM is not None
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1400,900",
        f"--user-data-dir={path.parent / 'p'}",
    ]
    clock = [] if real_time else ["--virtual-time-budget=3000"]
    command = [CHROMIUM, *flags, *clock, "--dump-dom", path.as_uri() + anchor]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_page_holds_every_box_to_the_last_bit() -> None:
    shown = view("dualpipe")
    drawn = data_of(timeline_html(shown))["views"][0]
    arrays = {name: unpacked(packed) for name, packed in drawn["arrays"].items()}
    parts, timeline = shown.timeline.graph.parts, shown.timeline
    assert len(arrays["start"]) == len(parts.node)
    mine = sorted(zip(arrays["rank"], arrays["start"], arrays["stage"], arrays["kind"], arrays["unit"], strict=True))
    theirs = zip(parts.rank[parts.node], timeline.start[parts.node], parts.stage, parts.kind, parts.unit, strict=True)
    assert mine == sorted(theirs)
    for rank in range(4):  # sorted by start in each rank, as the page's search for what is visible needs
        begin, end = arrays["first"][rank], arrays["first"][rank + 1]
        assert (np.diff(arrays["start"][begin:end]) >= 0).all()


def test_what_an_op_waited_for_is_on_the_page() -> None:
    shown = view("1f1b", 2, 2)
    arrays = {n: unpacked(p) for n, p in data_of(timeline_html(shown))["views"][0]["arrays"].items()}

    def name(i: int) -> str:
        return f"{arrays['stage'][i]}{'F' if arrays['kind'][i] == 0 else 'B'}{arrays['unit'][i]}"

    waited = {name(i): name(w) if w >= 0 else None for i, w in enumerate(arrays["waited"].tolist())}
    assert waited["0F0"] is None
    assert waited["1F0"] == "0F0"
    assert waited["0B1"] == "1B1"


class Scripts(HTMLParser):
    """Counts script elements and collects the title."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.loads += [value for key, value in attrs if key in ("src", "href") and value]


def test_text_of_users_is_escaped_everywhere_and_nothing_is_loaded() -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)> __DATA__ __SCRIPT__"
    page = timeline_html([view("1f1b", title=evil), view("gpipe", title=evil, time_unit="<b>s")], title=evil)
    parser = Scripts()
    parser.feed(page)
    assert parser.scripts == 2
    assert parser.loads == []
    assert data_of(page)["views"][0]["title"] == evil
    assert page.count("<img") == 0


def test_same_input_same_bytes(tmp_path: Path) -> None:
    pages = [write_timeline(tmp_path / f"{n}.html", view("zb-v")).read_bytes() for n in range(2)]
    assert pages[0] == pages[1]


def test_views_are_compared_in_a_table() -> None:
    page = timeline_html([view("1f1b"), view("zb-h1")])
    assert '<th scope="col">difference</th>' in page
    assert '<th scope="row">makespan [s]</th><td>34.6</td>' in page
    assert ">difference</th>" not in timeline_html(view("1f1b"))


@needs_browser
def test_a_browser_draws_finds_and_escapes(tmp_path: Path) -> None:
    path = write_timeline(tmp_path / "two.html", [view("1f1b", title="<i>one"), view("dualpipe", title="two")])
    seen = dom(path, "#find=2F3&critical=1")
    assert re.search(r'data-boxes="(\d+)"', seen).group(1) == str(64 + len(view("dualpipe").boxes.op))  # type: ignore[union-attr]
    assert re.search(r'id="found"[^>]*>1 of \d+, rank 2<', seen)
    assert "<i>one" not in seen
    assert "no such op" in dom(path, "#find=9F9")


@pytest.mark.prove
@needs_browser
def test_a_hundred_thousand_ops_open_within_a_second(tmp_path: Path) -> None:
    """Time from navigation to the first complete drawing, by the page's own clock; the best of five, since other work on
    the machine counts too."""
    shown = View(timed(built("1f1b", 64, 784), latency=0.1))
    assert len(shown.boxes.op) > 100_000
    path = write_timeline(tmp_path / "large.html", shown)
    took = []
    for _ in range(5):
        seen = dom(path, real_time=True)
        took.append(int(re.search(r'data-ready-ms="(\d+)"', seen).group(1)))  # type: ignore[union-attr]
        if took[-1] < 1000:
            break
    assert min(took) < 1000


DRIVE = """<script>
setTimeout(() => {
  const canvas = document.getElementById("canvas"), area = canvas.getBoundingClientRect();
  const at = { clientX: area.left + 620, clientY: area.top + 35, bubbles: true, cancelable: true };
  canvas.dispatchEvent(new PointerEvent("pointermove", at));
  document.documentElement.dataset.before = document.getElementById("tip").textContent;
  canvas.dispatchEvent(new WheelEvent("wheel", { ...at, ctrlKey: true, deltaY: -2000 }));
  canvas.dispatchEvent(new PointerEvent("pointermove", { ...at, clientX: at.clientX + 200 }));
  document.documentElement.dataset.zoomed = document.getElementById("tip").textContent;
}, 100);
</script></body>"""


@needs_browser
def test_hovering_tells_and_the_wheel_zooms(tmp_path: Path) -> None:
    """At 620 of 1400 pixels stands the same op before and after zooming in there; 200 pixels on it still does."""
    path = tmp_path / "driven.html"
    path.write_text(timeline_html(view("1f1b")).replace("</body>", DRIVE))
    seen = dom(path)
    before, zoomed = (re.search(rf'data-{name}="([^"]+)"', seen).group(1) for name in ("before", "zoomed"))  # type: ignore[union-attr]
    assert re.match(r"0[FB]\d  (forward|backward)\nrank 0, stage 0, microbatch \d\n", before)
    assert "started after" in before
    assert zoomed == before
