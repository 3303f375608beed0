"""All suites: their accuracy is held by a golden summary, so that it cannot slip (or improve) unseen.

After an intended change write it anew with ``UPDATE_GOLDEN=1 pytest tests/validation``, and look at the difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from clustersim.validation.predict import step_result
from clustersim.validation.report import Report, chosen_suites, run
from clustersim.validation.rows import Row, packaged
from clustersim.validation.suites import SUITES, irregular_vtrain

GOLDEN = Path(__file__).parent.parent / "golden" / "validation.json"
FIGURES = ("rows", "skipped", "median_abs_error_pct", "mape_pct", "bias_pct")
MARGIN = 0.15
"""Percentage points that a figure may move unseen."""


@pytest.fixture(scope="module")
def report() -> Report:
    return run(chosen_suites([]))


def summary(report: Report) -> dict[str, dict[str, float | None]]:
    found = {}
    for suite in report.suites:
        figures = suite.dump()
        found[suite.name] = {key: figures[key] if figures[key] is None else round(figures[key], 2) for key in FIGURES}
    return found


def test_accuracy_is_what_the_golden_summary_says(report: Report) -> None:
    now = summary(report)
    if os.environ.get("UPDATE_GOLDEN"):
        lines = [f"  {json.dumps(name)}: {json.dumps(figures)}" for name, figures in now.items()]
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert now.keys() == golden.keys()
    moved = [f"{name}.{key}: {golden[name][key]} -> {now[name][key]}" for name in now for key in FIGURES
             if (now[name][key] is None) != (golden[name][key] is None)
             or abs((now[name][key] or 0) - (golden[name][key] or 0)) > (0 if key in FIGURES[:2] else MARGIN)]  # fmt: skip
    assert not moved, "\n".join(moved)


def test_no_suite_is_empty_and_no_skip_is_silent(report: Report) -> None:
    for suite in report.suites:
        assert suite.scored, suite.name
        assert all(result.error_pct is not None or result.skipped for result in suite.results), suite.name


def test_memory_of_the_papers_formula(report: Report) -> None:
    """Korthikanti's tables are formulas: 3 % is the bound of the whole table, every row keeps it."""
    suite = next(suite for suite in report.suites if suite.name == "korthikanti-memory")
    assert len(suite.scored) == 36
    assert max(map(abs, suite.errors)) < 3


def test_skips_are_only_of_the_allowed_kinds(report: Report) -> None:
    allowed = ("no preset for the hardware", "no model shape", "no layout", "no batch", "no measurement", "a hybrid of",
               "one step of a cumulative ablation", "the sequence length is blank", "a message of no bytes",
               "no time and no bandwidth", "no schedule", "did not run", "failed or out of memory")  # fmt: skip
    reasons = {result.skipped for suite in report.suites for result in suite.results if result.skipped}
    assert all(reason.startswith(allowed) for reason in reasons), reasons


def test_the_model_knows_no_row(report: Report) -> None:
    """Near-zero bias in every suite at once would mean that constants were fitted to them."""
    biases = [suite.bias_pct for suite in report.suites if suite.scored and suite.scored[0].metric == "step_time_s"]
    assert sum(bias is not None and abs(bias) < 1 for bias in biases) < len(biases) / 2


def test_every_bound_is_kept(report: Report) -> None:
    assert report.over == []


def test_rows_outside_the_bound_on_the_choice() -> None:
    """All 25 pipelines of TP 2 and 4, whether predicted well or not, and four runs without a pipeline."""
    rows = packaged("vtrain-multi")
    apart = [row for row in rows if irregular_vtrain(row)]
    pipelines = [row for row in rows if row.text("tp") in ("2", "4") and row.text("pp") != "1"]
    assert (len(pipelines), len(apart)) == (25, 29)
    assert set(map(id, pipelines)) <= set(map(id, apart))
    assert all(row.text("pp") == "1" for row in apart if row not in pipelines)
    only = next(suite for suite in SUITES if suite.bound.regret is not None)
    assert (only.name, [suite.name for suite in SUITES if suite.bound.regret is not None]) == ("vtrain-layouts", [only.name])


def test_runs_without_a_pipeline_outside_that_bound_are_those_that_leave_their_sweep() -> None:
    """Measured ÷ predicted of the nearest of the next microbatch sizes: theirs is off by over a tenth, any other by 5 % at most."""
    sweeps: dict[tuple[str | None, str | None], list[tuple[Row, float]]] = {}
    for row in packaged("vtrain-multi"):
        if row.text("pp") == "1":
            result = step_result(row)
            assert result.measured and result.predicted
            key = row.text("model_name"), row.text("tp")
            sweeps.setdefault(key, []).append((row, result.measured / result.predicted))
    off = {True: [], False: []}  # type: dict[bool, list[float]]
    for rows in sweeps.values():
        rows.sort(key=lambda pair: pair[0].whole("micro_batch") or 0)
        for place, (row, ratio) in enumerate(rows):
            beside = [other for _, other in rows[max(0, place - 1) : place] + rows[place + 1 : place + 2]]
            if beside:
                off[irregular_vtrain(row) is not None].append(min(abs(ratio / other - 1) for other in beside))
    assert len(off[True]) == 4
    assert min(off[True]) > 0.1
    assert max(off[False]) < 0.05


def test_names_are_unique_and_bounds_positive() -> None:
    assert len({suite.name for suite in SUITES}) == len(SUITES)
    assert all(bound is None or bound > 0 for suite in SUITES for bound in (suite.bound.median, suite.bound.mape))
