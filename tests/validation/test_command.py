"""`clustersim validate` as people use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clustersim.cli.app import app
from clustersim.validation.figure import figure
from clustersim.validation.page import page
from clustersim.validation.report import chosen_suites, run

HEADING = "row_id,gpu,n_gpus,model_name,seq_len,tp,pp,micro_batch,global_batch,precision,step_time_s,memory_gb"
ROWS = ("fast,H100-80GB,64,llama3-8b,8192,1,1,1,128,bf16,2.4,60", "tpu,TPU v5p,64,llama3-8b,8192,1,1,1,128,bf16,2.4,")


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["validate", *arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_a_suite_by_name() -> None:
    code, out, _ = invoke("korthikanti", "-q")
    assert code == 0
    head, line = out.splitlines()[:2]
    assert head.split()[:4] == ["suite", "rows", "median", "mape"]
    assert line.split()[0] == "korthikanti"
    assert all(len(text) <= 80 for text in out.splitlines())


def test_json_as_the_contract_has_it() -> None:
    code, out, _ = invoke("korthikanti", "llama3", "--json", "-q")
    document = json.loads(out)
    assert code == 0
    assert [suite["name"] for suite in document["suites"]] == ["korthikanti", "llama3"]
    suite = document["suites"][0]
    assert {
        "name",
        "rows",
        "median_abs_error_pct",
        "mape_pct",
        "spearman",
        "results",
        "bias_pct",
        "worst",
    } <= suite.keys()
    assert suite["results"][0].keys() == {
        "row_id",
        "metric",
        "measured",
        "predicted",
        "error_pct",
        "assumed",
        "skipped",
    }
    assert suite["rows"] == len([row for row in suite["results"] if row["skipped"] is None]) == 4


def test_ones_own_table(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("\n".join([HEADING, *ROWS]), encoding="utf-8")
    code, out, _ = invoke(str(file), "--json", "-q")
    suite = json.loads(out)["suites"][0]
    assert code == 0
    assert [(row["row_id"], row["metric"]) for row in suite["results"]] == [
        ("fast", "step_time_s"), ("tpu", "step_time_s"), ("fast", "memory_bytes")]  # fmt: skip
    assert suite["results"][1]["skipped"] == "no preset for the hardware 'TPU v5p'"
    assert abs(suite["results"][0]["error_pct"]) < 60


def test_what_was_assumed_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("\n".join([HEADING, *ROWS]), encoding="utf-8")
    _, out, _ = invoke(str(file), "--assumed", "--rows", "-q")
    assert "fast: " in out
    assert "network_gbps: 3200" in out


def test_over_its_bound_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    from clustersim.validation import report as module
    from clustersim.validation.results import Bound
    from clustersim.validation.suites import Suite, suite_named

    real = suite_named("korthikanti")
    assert real is not None
    strict = Suite(real.name, real.about, real.run, Bound(1e-6))
    monkeypatch.setattr(module, "suite_named", lambda name: strict)
    code, _, err = invoke("korthikanti", "-q")
    assert code == 1
    assert "median absolute error" in err


def test_a_misspelt_suite_names_the_nearest() -> None:
    from clustersim.errors import InputError

    with pytest.raises(InputError, match="did you mean 'korthikanti'"):
        chosen_suites(["korthikant"])


def test_a_wrong_cell_skips_its_row_and_says_where(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    wrong = ROWS[0].replace("fast", "wrong").replace("128", "many")
    file.write_text("\n".join([HEADING, wrong, ROWS[0]]), encoding="utf-8")
    code, out, _ = invoke(str(file), "--json", "-q")
    results = json.loads(out)["suites"][0]["results"]
    assert code == 0
    assert [(row["row_id"], row["skipped"] is None) for row in results] == [
        ("wrong", False), ("fast", True), ("wrong", False), ("fast", True)]  # fmt: skip
    assert results[0]["skipped"].endswith("mine.csv:2: global_batch: 'many' is no number")


@pytest.mark.parametrize("row", [ROWS[0].replace("128", "many"), ROWS[1]])
def test_a_table_of_which_nothing_can_be_compared_ends_with_1(row: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(f"{HEADING}\n{row}\n", encoding="utf-8")
    code, out, err = invoke(str(file), "-q")
    assert code == 1
    assert "mine.csv: no row could be compared: " in err
    assert ("'many' is no number" in err) or ("TPU v5p" in err)
    assert "cannot be read" in out or "no preset" in out


def test_figures_json_and_page_are_written(tmp_path: Path) -> None:
    code, _, _ = invoke("korthikanti", "korthikanti-memory", "-q", "-o", str(tmp_path / "out"))
    assert code == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"korthikanti.png", "korthikanti-memory.png", "validation.json", "validation.md"}


def test_the_figure_holds_every_scored_row() -> None:
    suite = run(chosen_suites(["zero-bubble-memory"])).suites[0]
    axes = figure(suite).axes[0]
    points = sum(len(collection.get_offsets()) for collection in axes.collections[:-1])
    assert points == len(suite.scored)
    assert "median error" in axes.get_title()


def test_the_page_lists_every_suite_and_source() -> None:
    text = page(run(chosen_suites(["korthikanti", "llama3"])))
    assert "| korthikanti | 4 | 0 |" in text
    assert "| vtrain | deepspeed-2022 |" in text
