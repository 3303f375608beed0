"""Figures: each returns Axes and draws its data; closed forms agree with the simulation and with known limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.axes import Axes

import clustersim
from clustersim import study
from clustersim.report import figures
from clustersim.scenario.load import load
from tests.report.drawings import view
from tests.report.reports import SMALL

STEADY = SMALL | {
    "cluster": SMALL["cluster"] | {"spare_nodes": 30},
    "checkpoint": {"engine": "sync", "interval": 1800.0, "stall": 60.0},
    "failures": [{"name": "crash", "component": "job", "mtbf": 4 * 3600.0, "severity": "process"}],
    "training": SMALL["training"] | {"duration": 40 * 86400.0},
    "simulation": {"replicas": 12},
}  # fmt: skip


def test_the_waterfall_ends_at_what_is_kept() -> None:
    axes = figures.waterfall({"train": 80.0, "rework": 15.0, "load": 5.0, "other": 0.0})
    assert [patch.get_x() for patch in axes.patches] == pytest.approx([0.85, 0.80, 0.0])
    assert [patch.get_width() for patch in axes.patches] == pytest.approx([0.15, 0.05, 0.80])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rework", "load", "train (kept)"]


def test_closed_forms_meet_their_limits() -> None:
    """No failures: τ ÷ (τ + d); the optimum of the synchronous form is the exact one; asynchronous without stall and
    persist time and synchronous without stall agree to first order in τ ÷ M."""
    assert figures.sync_ettr(600.0, 6.0, 1e12, 0.0) == pytest.approx(600 / 606, rel=1e-6)
    from clustersim.checkpoint.optimum import exact

    best = exact(60.0, 14400.0)
    fine = np.linspace(0.5 * best, 2 * best, 4001)
    heights = [figures.sync_ettr(x, 60.0, 14400.0, 300.0) for x in fine]
    assert fine[int(np.argmax(heights))] == pytest.approx(best, rel=2e-3)
    assert figures.async_ettr(10.0, 0.0, 0.0, 1e6, 0.0) == pytest.approx(1 - 10 / 2e6, abs=1e-9)


def test_simulated_ettr_lies_on_the_closed_form() -> None:
    """Synchronous saves, exponential failures, restarts that may fail: Daly's form within the 95 % interval, three times it at most."""
    job = load(STEADY)
    found = study.sweep(job, over={"checkpoint.interval": ["10 min", "30 min", "90 min"]})
    axes = figures.ettr_by_interval(found, job)
    labels = axes.get_legend_handles_labels()[1]
    assert any("Daly" in label for label in labels)
    assert any("95 % interval" in label for label in labels)
    back = figures.mean_restart_s(job)
    for outcome, interval in zip(found.outcomes, (600.0, 1800.0, 5400.0), strict=True):
        told = outcome.summaries()["ettr"]
        assert told is not None
        half = (told["ci95"][1] - told["ci95"][0]) / 2
        assert abs(told["mean"] - figures.sync_ettr(interval, 60.0, 4 * 3600.0, back)) < 3 * half + 0.002  # whole steps


def test_figures_of_a_run_count_its_log() -> None:
    result = clustersim.simulate(load(SMALL))
    axes = figures.failures_timeline(result)
    assert sum(len(lines.get_segments()) for lines in axes.collections) == int((result.events["event"] == "failure").sum())
    covered = figures.spares_coverage([result, result], spares=1).lines[0].get_ydata()
    assert np.all(np.diff(covered) >= -1e-12)
    assert covered[-1] == pytest.approx(1.0)
    assert covered[0] == pytest.approx(result.down_s.get(0, 0.0) / math.fsum(result.down_s.values()))


def test_memory_is_stacked_to_its_total() -> None:
    report = clustersim.step(load(SMALL))
    axes = figures.memory_by_stage(report)
    ranks = len(report.memory["stages"])
    tops = [max(patch.get_y() + patch.get_height() for patch in axes.patches if round(patch.get_x() + 0.4) == rank) for rank in range(ranks)]
    assert tops == pytest.approx([stage["total"] / 2**30 for stage in report.memory["stages"]])


def test_every_other_figure_is_axes(tmp_path: object) -> None:
    found = study.sweep(load(SMALL), over={"checkpoint.interval": ["2 min", "20 min"], "cluster.spare_nodes": [0, 1]}, replicas=3)
    heat = figures.sweep_heat_map(found, "ettr")
    assert sum("±" in text.get_text() for text in heat.texts) == 4
    measured = figures.predicted_against_measured([(1.0, 1.1), (2.0, 1.9), (4.0, 4.2)], "s")
    assert "median error 5.0%" in measured.get_title(loc="left")
    assert isinstance(figures.gantt_axes(view("1f1b")), Axes)
    own = figures.plain_axes()
    assert figures.waterfall({"train": 1.0}, own) is own


def test_names_start_no_formula() -> None:
    result = clustersim.simulate(load(SMALL | {"failures": [{"name": "$x", "component": "job", "mtbf": 36000.0, "severity": "process"}]}))
    figure = figures.failures_timeline(result).figure
    figure.savefig(__import__("io").BytesIO(), format="svg")
