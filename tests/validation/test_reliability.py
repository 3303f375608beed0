"""Published cases of failures and recovery: every row within its bound, told as a table and as JSON."""

from __future__ import annotations

import json

import pytest

from clustersim.validation import reliability
from clustersim.validation.reliability_case import Case, folder, told, within
from clustersim.validation.reliability_clusters import fleet, lablup, marin
from clustersim.validation.reliability_jobs import bloom, byterobust, opt
from clustersim.validation.reliability_systems import fftrainer, megascale

QUICK = (bloom, byterobust, opt, fftrainer, megascale, marin, fleet, lablup)


def test_bounds() -> None:
    assert within("s", "c", 10.0, 10.9, 0.1, "x").holds
    assert not within("s", "c", 10.0, 11.1, 0.1, "x").holds
    assert not Case("s", "c", 1.0, 2.0, None, 1.5, "x").holds
    assert told("s", "c", 0.0, 2.0, "x").deviation is None
    assert [
        row.ours for row in reliability.failed([within("s", "c", 1.0, 2.0, 0.1, "x"), told("s", "c", 1.0, 9.0, "x")])
    ] == [2.0]


def test_the_quick_cases_are_within_their_bounds() -> None:
    assert folder() is not None
    rows = reliability.cases(QUICK)
    assert [f"{row.suite}, {row.case}: {row.ours:g} for {row.published:g}" for row in reliability.failed(rows)] == []
    assert sum(row.scored for row in rows) >= 25
    lines = reliability.table(rows)
    assert all(len(line) <= 80 for line in lines)
    document = json.loads(json.dumps(reliability.dump(rows), allow_nan=False))
    assert document["suites"][0]["within_bound"] is True
    assert {"row_id", "metric", "measured", "predicted", "error_pct", "assumed", "skipped"} <= set(
        document["suites"][0]["results"][0]
    )


@pytest.mark.prove
def test_all_cases_are_within_their_bounds() -> None:
    rows = reliability.cases()
    assert [f"{row.suite}, {row.case}: {row.ours:g} for {row.published:g}" for row in reliability.failed(rows)] == []
    assert sum(row.scored for row in rows) >= 110


@pytest.mark.prove
def test_the_picture(tmp_path: object) -> None:
    from pathlib import Path

    from clustersim.validation.reliability_figure import save_figure

    path = Path(str(tmp_path)) / "cases.png"
    save_figure(reliability.cases((bloom, megascale)), path)
    assert path.stat().st_size > 10_000


def test_a_case_gives_its_published_number_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    from clustersim.cli.main import guarded

    place = folder()
    assert place is not None
    assert guarded(["run", str(place / "papers" / "airesim-default.yaml"), "--replicas", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["step"]["step_time_s"] == pytest.approx(1.0)
    assert document["run"]["wall_s"]["mean"] / 3600 == pytest.approx(9866, rel=0.02)
    assert document["run"]["ettr"]["mean"] == pytest.approx(0.623, rel=0.02)
