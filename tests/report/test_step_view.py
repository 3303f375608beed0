"""A scenario's step as drawings show it: memory in bytes, over time, against what a GPU has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clustersim.pipeline.step import StepModel
from clustersim.pipeline.step_memory import UnitBytes, memory_report
from clustersim.report.gantt import gantt
from clustersim.report.scene import amount, comparison
from clustersim.report.step_view import step_view
from clustersim.report.timeline_html import timeline_html
from clustersim.scenario.load import load
from tests.report.reports import SMALL
from tests.report.test_timeline import data_of

FOUR = SMALL | {"parallelism": {"tp": 2, "pp": 4, "zero": 1}}
SCHEDULES: list[dict[str, Any]] = [
    {"schedule": "gpipe"},
    {"schedule": "1f1b"},
    {"schedule": "interleaved-1f1b", "chunks": 2},
    {"schedule": "zb-h1"},
    {"schedule": "zb-h2"},
    {"schedule": "zb-v"},
    {"schedule": "dualpipe"},
]


def model(**layout: Any) -> StepModel:
    return StepModel.of(load(FOUR | {"parallelism": FOUR["parallelism"] | layout}))


@pytest.mark.parametrize("layout", SCHEDULES, ids=lambda layout: layout["schedule"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_strip_peaks_where_the_memory_table_says(layout: dict[str, Any], recompute: str) -> None:
    """The strip follows the clock, the table the order of the list: they meet at every rank's peak."""
    changed = FOUR | {
        "parallelism": FOUR["parallelism"] | layout,
        "training": FOUR["training"] | {"recompute": recompute},
    }
    step = StepModel.of(load(changed))
    view, report = step_view(step), memory_report(step)
    assert [held.peak for held in view.memory] == pytest.approx([rank.total for rank in report.stages])
    assert view.limits == list(report.limits)
    for held, base, rank in zip(view.memory, view.base, report.stages, strict=True):
        assert base == pytest.approx(rank.total - rank.activations)
        assert held.bytes[-1] == pytest.approx(base)  # all that was taken is given back
        assert held.bytes.min() >= base * (1 - 1e-12)


def test_1f1b_holds_as_many_units_as_ranks_behind_it() -> None:
    """The classic: rank r of p holds p − r microbatches, here in bytes."""
    step = model(schedule="1f1b")
    view, kept = step_view(step), UnitBytes.of(step).kept
    for rank, (held, base) in enumerate(zip(view.memory, view.base, strict=True)):
        assert held.peak - base == pytest.approx((4 - rank) * kept[rank])
        levels = np.unique(np.round((held.bytes - base) / kept[rank], 6))
        assert levels.tolist() == list(range(4 - rank + 1))


def test_a_unit_that_waits_for_its_weight_gradient_is_held_in_part() -> None:
    changed = FOUR | {
        "parallelism": FOUR["parallelism"] | {"schedule": "zb-h1"},
        "training": FOUR["training"] | {"recompute": "none"},
    }
    step = StepModel.of(load(changed))
    view, sizes = step_view(step), UnitBytes.of(step)
    assert (sizes.pending < sizes.kept).all()
    changes = np.diff(view.memory[0].bytes)
    seen = {round(float(-change)) for change in changes if change < 0}
    assert round(float(sizes.kept[0] - sizes.pending[0])) in seen
    assert round(float(sizes.pending[0])) in seen


def test_offloaded_activations_are_not_held() -> None:
    offloaded = StepModel.of(load(FOUR | {"training": FOUR["training"] | {"offload": {"activations": 0.5}}}))
    here, there = step_view(model()), step_view(offloaded)
    for near, far, base, rest in zip(here.memory, there.memory, here.base, there.base, strict=True):
        assert far.peak - rest == pytest.approx((near.peak - base) / 2)


def test_drawings_say_bytes() -> None:
    view = step_view(model(schedule="1f1b"), title="a step")
    drawn = data_of(timeline_html(view))
    assert drawn["views"][0]["peaks"][0] == "peak " + amount(view.memory[0].peak, view)
    assert drawn["views"][0]["peaks"][0].endswith("GiB")
    assert drawn["views"][0]["base"] == view.base
    assert ["#5f6d7c", "memory that is always held"] in drawn["legend"]
    row = next(row for row in comparison([view]) if row.name == "peak memory of a rank [GiB]")
    assert row.values[0] == pytest.approx(memory_report(model(schedule="1f1b")).peak_bytes / 2**30)
    named = {text.get_text() for text in gantt(view).legends[0].get_texts()}
    assert {"memory that is always held", "activations held"} <= named
