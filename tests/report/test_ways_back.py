"""How strategies come back, told side by side and in the summary of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clustersim.cli.main import guarded
from clustersim.recovery.strategy import RecoveryStrategy
from clustersim.report.recovery_section import recovery_section
from clustersim.report.summary import recovery_lines, wrapped
from clustersim.report.ways_back import strategies_text
from clustersim.run.outlook import outlook
from clustersim.run.prepared import Prepared
from tests.run.synthetic import build

STAGES = {"diagnose": 30.0, "reschedule": 90.0, "start": 60.0, "communicators": 65.0, "warm_up": 108.0}
STRATEGIES = sorted(name for name, part in RecoveryStrategy.kinds.items()
                    if part.kind == name and part.__module__.startswith("clustersim."))  # fmt: skip


def told(strategy: str) -> dict[str, Any]:
    causes = [
        {"component": "node", "severity": "node", "mtbf": 1e6},
        {"component": "job", "severity": "process", "mtbf": 5e5},
    ]
    made = build(nodes=8, spares=2, failures=causes, recovery={"kind": strategy, "stages": STAGES}, duration=1e5,
                 checkpoint={"kind": "sync", "interval": 600.0, "stall": 5.0})  # fmt: skip
    return outlook(Prepared(made, 5.0))


def of(mean: float) -> dict[str, Any]:
    return {"mean": mean, "ci95": None}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_strategy_is_told_with_stages_hardware_and_interval(strategy: str) -> None:
    found = told(strategy)
    text = " ".join(" ".join(recovery_lines(found)).replace("\u00a0", " ").split())
    assert f"recovery {strategy}; after detection" in text
    assert "2 spare nodes" in text
    for way in found["ways"][:3]:
        assert f"{way['path']} " in text
        for stage, seconds in way["stages_s"].items():
            assert seconds >= 0
            assert f"{stage} " in text
    assert sum(way["share"] for way in found["ways"]) == pytest.approx(1)
    assert ("of memory a node" in text) == (found["extra_memory_bytes_per_node"] > 0)
    assert ("sent each step" in text) == (found["network_bytes_per_node_per_step"] > 0)
    assert ("sent in a recovery" in text) == (found["network_bytes_per_recovery"] > 0)
    assert ("would suit it" in text) == (found["best_interval_s"] is not None)
    assert all(len(line) <= 80 for part in recovery_lines(found) for line in wrapped(part))


def test_a_table_of_all_strategies_fits_a_terminal() -> None:
    runs = [{"steps_lost": of(1234.0), "ledger_s.checkpoint_stall": of(512.0)}] * len(STRATEGIES)
    lines = strategies_text(STRATEGIES, [told(strategy) for strategy in STRATEGIES], runs).split("\n")
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].split() == [
        "coming",
        "back",
        "mean",
        "redone",
        "stall",
        "spares",
        "memory",
        "a",
        "step",
        "a",
        "time",
        "saves",
    ]
    rows = {line.split()[0]: line.split() for line in lines[1 : len(STRATEGIES) + 1]}
    assert sorted(rows) == STRATEGIES
    assert all({"1,234", "8.5"} <= set(row) for row in rows.values())


def test_strategies_alike_are_told_once_and_without_a_table() -> None:
    runs = [{"steps_lost": of(1.0)}] * 2
    lines = strategies_text(["one", "other"], [told("restart"), told("restart")], runs).split("\n")
    assert lines[0] == "one, other: strategy restart"
    assert "coming back" not in "\n".join(lines)
    assert strategies_text(["one"], [None], [None]) == ""


def test_compare_prints_it_and_holds_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = Path(__file__).parents[2] / "scenarios" / "8-gpus-8b.yaml"
    files = []
    for strategy in ("restart", "fftrainer"):
        keys = "cluster: {nodes: 2, spare_nodes: 1}\nparallelism: {dp: null}\ntraining: {duration: 5 d, tokens: null}\n"
        causes = "failures: [{name: a, component: node, mtbf: 1 d, severity: node}]\n"
        files.append(str(tmp_path / f"{strategy}.yaml"))
        Path(files[-1]).write_text(
            f"extends: [{base}]\nname: {strategy}\nrecovery: {{strategy: {strategy}}}\n{keys}{causes}"
        )
    assert guarded(["compare", *files, "--replicas", "2", "--workers", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if line.startswith("coming back"))
    row = next(line for line in lines[lines.index(header) + 1 :] if line.startswith("fftrainer"))
    assert "GB" in row
    assert guarded(["compare", *files, "--replicas", "2", "--workers", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [found["strategy"] for found in document["recovery"]] == ["restart", "fftrainer"]
    assert all("steps_lost" in run and "ettr" in run for run in document["runs"])
    assert {
        "spare_nodes",
        "extra_memory_bytes_per_node",
        "network_bytes_per_recovery",
        "best_interval_s",
        "ways",
    } <= set(document["recovery"][1])


def test_the_page_of_a_run_tells_it() -> None:
    html = recovery_section(told("adaptive"))
    assert '<section id="recovery"' in html
    assert "in-process" in html
    assert "hot-spare" in html
    assert "2 spare nodes" in html
    assert recovery_section({**told("restart"), "ways": []}) == recovery_section(None) == ""
