"""What a study refuses before it runs anything: an axis that is wrong everywhere, unknown metrics, designs that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clustersim.cli.main import guarded
from clustersim.errors import DoesNotFit, InputError
from clustersim.scenario.load import load
from clustersim.study.axes import points_from_csv
from clustersim.study.comparison import compare
from clustersim.study.importance import sobol, spread
from clustersim.study.ranges import Range
from clustersim.study.sweeping import sweep

TINY: dict[str, Any] = {
    "model": {"name": "m", "layers": 2, "hidden": 256, "ffn_hidden": 1024, "heads": 4, "vocab": 1000},
    "cluster": {"nodes": 1, "node": {"preset": "dgx-h100", "gpus": 1}, "storage": "tectonic"},
    "training": {"seq_len": 512, "global_batch": 64, "steps": 10},
    "simulation": {"replicas": 2},
}


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(load(TINY).resolved())
    return str(path)


def test_an_axis_that_is_wrong_at_every_point_is_wrong_input(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["sweep", tiny, "-q", "--workers", "1", "--over", "checkpoint.intervall=1min,2min"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and told[0].startswith("--over checkpoint.intervall: ") and "interval" in told[0]


def test_one_wrong_point_costs_only_itself(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["sweep", tiny, "-q", "--workers", "1", "--over", "checkpoint.engine=none,asink"]) == 1
    assert "1 of 2 points have an error" in capsys.readouterr().err


@pytest.mark.parametrize("axis", ["simulation.seed=1,2", "simulation.replicas=1,3"])
def test_seed_and_replicas_are_no_axes(tiny: str, axis: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["sweep", tiny, "-q", "--workers", "1", "--over", axis]) == 2
    assert "give --seed or --replicas" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [
    ["sweep", "--over", "cluster.spare_nodes=0,1", "--until", "ettrr=1%"],
    ["sweep", "--over", "cluster.spare_nodes=0,1", "--metric", "ettrr"],
    ["importance", "--range", "checkpoint.interval=1min..2min", "--metric", "ettrr"],
])  # fmt: skip
def test_unknown_metrics_name_the_nearest_before_anything_runs(
    tiny: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded([arguments[0], tiny, "-q", *arguments[1:]]) == 2
    assert "did you mean 'ettr'?" in capsys.readouterr().err


def test_a_design_that_does_not_fit_is_no_design() -> None:
    large = {**TINY["model"], "layers": 100, "hidden": 16384, "ffn_hidden": 65536}
    small, big = load(TINY), load({**TINY, "name": "big", "model": large})
    with pytest.raises(DoesNotFit, match=r"^big: "):
        compare([small, big], replicas=2)
    found = sweep(small, points=[{"model": TINY["model"]}, {"model": large}], replicas=2)
    assert found.outcomes[0].error is None
    assert "does not fit" in str(found.outcomes[1].error)
    with pytest.raises(DoesNotFit):
        sweep(small, points=[{"model": large}], replicas=2)


def test_inputs_of_importance() -> None:
    span = Range.parse("training.global_batch=64..128")
    with pytest.raises(InputError, match="at least two ranges"):
        sobol(load(TINY), [span], base=2)
    with pytest.raises(InputError, match="is given twice"):
        spread(load(TINY), [span, span])


@pytest.mark.parametrize(("content", "words"), [
    (b"a.b,a.b\n1,2\n", "'a.b' heads two columns"),
    (b",a\n1,2\n", "names no path"),
    (b"\xff\xfe", "no UTF-8"),
    (None, "No such file"),
])  # fmt: skip
def test_tables_of_points(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        points_from_csv(path)
    assert caught.value.problems[0].file == str(path)


def test_blank_lines_of_a_table_are_no_points(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text("a.b\n1\n\n2\n\n")
    assert points_from_csv(path) == [{"a.b": 1}, {"a.b": 2}]


@pytest.mark.parametrize(("space", "words"), [
    ("tp=0", "must be greater than 0"), ("tp=x", "is not a whole number"), ("zero=7", "must be at most 3"),
    ("micro_batch=-1", "must be greater than 0"),
])  # fmt: skip
def test_spaces_of_a_plan(tiny: str, space: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["plan", tiny, "-q", "--space", space]) == 2
    told = capsys.readouterr().err
    assert words in told and "Input should" not in told


@pytest.mark.parametrize("values", ["1e400..2", "nan..2", "0..inf"])
def test_ends_of_a_range_are_finite(tiny: str, values: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["sweep", tiny, "-q", "--over", f"cluster.spare_nodes={values}"]) == 2
    assert "is not a finite number" in capsys.readouterr().err


def test_one_replica_decides_nothing_and_says_so(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["compare", tiny, tiny, "-q", "--replicas", "1", "--workers", "1"]) == 0
    assert "give --replicas 2 or more" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["run"], ["sweep", "--over", "cluster.spare_nodes=0,1"], ["compare", "TINY"], ["plan"]])
@pytest.mark.parametrize("folder", ["", " ", "TINY", "TINY/below"])
def test_results_go_into_a_folder_that_has_a_name(
    tiny: str, command: list[str], folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [word.replace("TINY", tiny) for word in [command[0], "TINY", *command[1:], "-q", "-o", folder]]
    assert guarded(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""  # before anything runs
    words = {"TINY": "is a file; -o needs the name of a folder", "TINY/below": "cannot be written to: Not a directory"}
    assert words.get(folder, "folder is empty") in " ".join(told.err.split())
