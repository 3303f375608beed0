"""``clustersim fit failures`` as people call it."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from clustersim.cli.main import guarded

FILE = str(resources.files("clustersim.faults") / "data" / "infinitehbd.csv")


def test_json_and_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = guarded(["fit", "failures", FILE, "--nodes", "400", "--constant", "--replicas", "2", "--json", "-o", str(tmp_path)])
    assert code == 0
    document = json.loads(capsys.readouterr().out)
    assert document["log"]["faults"] == 584
    assert document["check"]["down_p99"]["log"] == 31
    assert document["block"]["failures"][0]["kind"] == "fleet"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["failures.yaml", "fit.json", "fit.png"]
    assert json.loads((tmp_path / "fit.json").read_text()) == document
    assert (tmp_path / "fit.png").read_bytes()[:4] == b"\x89PNG"


def test_a_bad_file_is_told_without_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log.csv"
    file.write_text("node,start_s,end_s\na,5,1\n", encoding="utf-8")
    assert guarded(["fit", "failures", str(file)]) == 2
    error = capsys.readouterr().err
    assert f"{file}:2" in error
    assert "before its start" in error
    assert "Traceback" not in error


def test_a_log_that_watches_no_time_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log.csv"
    file.write_text("node,start,end\n" + 3 * "a,2024-05-01T00:00:00Z,2024-05-01T00:00:00Z\n", encoding="utf-8")
    assert guarded(["fit", "failures", str(file)]) == 2
    error = capsys.readouterr().err
    assert "every fault is at one instant" in error
    assert "Traceback" not in error


def test_too_few_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log.csv"
    file.write_text("node,start_s,end_s\na,1,2\n", encoding="utf-8")
    assert guarded(["fit", "failures", str(file), "--nodes", "5"]) == 2
    assert "at least 3 primary faults" in capsys.readouterr().err


DOWN_ALL_THE_TIME = "".join(f"a,{day},{day + 3},\n" for day in range(30))
OVERLAPPING = "a,10,40,\na,20,60,\na,55,70,\na,90,,\n"


@pytest.mark.parametrize(("rows", "nodes", "words"), [
    (DOWN_ALL_THE_TIME, 1, "all nodes are down all the time"),
    (OVERLAPPING, 500, None),
    (OVERLAPPING, 1, None),
])  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_odd_logs_end_in_a_block_or_in_a_sentence(rows: str, nodes: int, words: str | None, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    # Faults of nodes that are down, periods in which none is up, simulated logs without a fault.
    file = tmp_path / "log.csv"
    file.write_text(f"node,start_d,end_d,class\n{rows}", encoding="utf-8")
    replicas = "3" if nodes > 1 else "0"
    code = guarded(["fit", "failures", str(file), "--replicas", replicas, "--json", "-q", "--nodes", str(nodes)])
    out, error = capsys.readouterr()
    if words is None:
        assert (code, error) == (0, "")
        assert json.loads(out)["block"]["failures"]
    else:
        assert (code, error.startswith(f"{file}: {words}")) == (2, True)
