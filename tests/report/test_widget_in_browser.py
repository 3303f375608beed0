"""The what-if alive: a kernel answers while sliders are moved in a headless Chromium."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.report.browser import Browser, browser, needs_browser
from tests.report.live import SCRIPT, Cell, live_cell
from tests.report.test_pages_in_browser import like_golden

pytest.importorskip("ipykernel")
pytest.importorskip("ipywidgets")
pytestmark = [needs_browser, pytest.mark.xdist_group("browser"),
              pytest.mark.skipif(not SCRIPT.exists(), reason="the widgets' JavaScript is not installed")]  # fmt: skip
SMALL_CELL = """
from clustersim.scenario.load import load
from clustersim.widgets import what_if
from tests.report.reports import SMALL
what_if(load(SMALL), replicas=3)
"""
MAIN_CELL = """
import clustersim
from clustersim.widgets import what_if
what_if(clustersim.load("scenarios/llama3-405b-16k.yaml"))
"""
ANSWER = "document.querySelector('.clustersim-what-if').textContent"
SLIDER = "[...document.querySelectorAll('.widget-label')].find((l) => l.textContent === '{}').parentElement"


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def cell() -> Iterator[Cell]:
    with live_cell(SMALL_CELL) as served:
        yield served


def until(holds: Callable[[], object], patience_s: float = 60.0) -> None:
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def shown(page: Browser, cell: Cell) -> None:
    page.open(cell.address)
    until(
        lambda: page.run(
            "document.documentElement.dataset.ready === 'yes' && document.querySelector('.clustersim-what-if svg') !== null"
        )
    )


def press(page: Browser, label: str, key: str) -> str:
    """A key on a slider's handle; the answer that follows."""
    before = page.run(ANSWER)
    page.run(f"{SLIDER.format(label)}.querySelector('.noUi-handle').focus()")
    page.key(key)
    until(lambda: page.run(ANSWER) != before)
    return str(page.run(ANSWER))


def ettr(answer: str) -> float:
    found = re.search(r"ETTR ([\d.]+)%", answer)
    assert found is not None
    return float(found[1])


def test_sliders_move_the_numbers(page: Browser, cell: Cell, tmp_path: Path) -> None:
    shown(page, cell)
    first = str(page.run(ANSWER))
    assert "(+0.00% against the scenario as it stands)" in first
    like_golden("what-if", page.screenshot(tmp_path / "shot.png"))
    rarer = press(page, "save every", "End")
    assert page.run(f"{SLIDER.format('save every')}.querySelector('.widget-readout').textContent") == "4 h"
    assert ettr(rarer) < ettr(first) - 1
    sooner = press(page, "save every", "ArrowLeft")
    assert ettr(sooner) > ettr(rarer)
    late = press(page, "failures noticed after", "End")
    assert ettr(late) < ettr(sooner)
    fewer = press(page, "spare nodes", "Home")
    assert ettr(fewer) <= ettr(late)
    assert page.complaints() == []
    assert {re.sub(r"^\w+://", "", address).split("/")[0] for address in page.requests() if not address.startswith("data:")} == {
        cell.address.removeprefix("http://").rstrip("/")}  # fmt: skip
    assert cell.errors == []


def test_a_slider_is_dragged_and_a_schedule_chosen(page: Browser, cell: Cell) -> None:
    shown(page, cell)
    before = page.run(ANSWER)
    handle = f"{SLIDER.format('spare nodes')}.querySelector('.noUi-handle').getBoundingClientRect()"
    x, y = page.run(f"(() => {{ const r = {handle}; return [r.left + r.width / 2, r.top + r.height / 2]; }})()")
    page.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    for step in range(1, 9):
        page.mouse("mouseMoved", x + 20 * step, y, button="left", buttons=1)
    page.mouse("mouseReleased", x + 160, y, button="left", clickCount=1)
    until(lambda: page.run(ANSWER) != before)
    assert int(page.run(f"{SLIDER.format('spare nodes')}.querySelector('.widget-readout').textContent")) > 1
    before = page.run(ANSWER)
    page.run(
        "(() => { const s = document.querySelector('.widget-dropdown select'); s.selectedIndex = [...s.options].findIndex((o) => o.text === 'zb-h1'); s.dispatchEvent(new Event('change', { bubbles: true })); })()"
    )
    until(lambda: page.run(ANSWER) != before)
    step_s = [float(re.search(r"step ([\d.]+) s", text)[1]) for text in (before, page.run(ANSWER))]  # type: ignore[index]
    assert step_s[1] < step_s[0]
    assert page.complaints() == []
    assert cell.errors == []


def test_an_impossible_choice_says_why(page: Browser, cell: Cell) -> None:
    """The slider offers microbatches that divide the batch; the largest does not fit in memory, or leaves a schedule too few."""
    shown(page, cell)
    told = press(page, "sequences a microbatch", "End")
    assert "ETTR" not in told
    assert "GiB" in told or "needs microbatches" in told
    assert "ETTR" in press(page, "sequences a microbatch", "Home")
    assert page.complaints() == []


@pytest.mark.prove
def test_the_kernel_answers_within_a_fifth_of_a_second(page: Browser) -> None:
    """The main job; time from the kernel's busy to its idle, the median of nine moves."""
    with live_cell(MAIN_CELL) as served:
        shown(page, served)
        served.busy_s.clear()
        for key in ("Home", *["ArrowRight"] * 8):
            press(page, "spare nodes", key)
        assert len(served.busy_s) >= 9
        assert statistics.median(sorted(served.busy_s)[-9:]) < 0.2
        assert page.complaints() == []
        assert served.errors == []
