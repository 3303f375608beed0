"""Replicas: placed by index, the same for any number of workers, little memory, Ctrl-C keeps what is done."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersim.scenario.load import load
from clustersim.study.executors import Processes, Serial
from clustersim.study.replicas import ReplicaTable, run_replicas

SCENARIO = load(
    {
        "model": "llama3-8b",
        "cluster": {"nodes": 2, "spare_nodes": 1, "node": "dgx-h100", "storage": "tectonic"},
        "training": {"seq_len": 4096, "global_batch": 64, "duration": 86400, "recompute": "selective"},
        "parallelism": {"tp": 2},
        "checkpoint": {"engine": "async", "interval": 600},
        "failures": [{"name": "crash", "component": "job", "mtbf": 4 * 3600, "severity": "process"}],
    }
)


def text(table: ReplicaTable) -> str:
    return json.dumps(table.to_dict(), allow_nan=False)


def test_the_same_bytes_however_it_is_run() -> None:
    expected = text(run_replicas(SCENARIO, replicas=12, workers=1))
    assert text(run_replicas(SCENARIO, replicas=12, executor=Serial())) == expected
    assert text(run_replicas(SCENARIO, replicas=12, executor=Processes(2))) == expected
    assert text(run_replicas(SCENARIO, replicas=12, on_result=lambda replica, result: None)) == expected


def test_a_replica_depends_on_its_index_alone() -> None:
    few, many = run_replicas(SCENARIO, replicas=3), run_replicas(SCENARIO, replicas=8)
    assert many.values("ettr")[:3] == few.values("ettr")
    assert len(set(many.values("ettr"))) > 4


def test_statistics_against_numpy_and_student() -> None:
    from scipy import stats

    table = run_replicas(SCENARIO, replicas=9)
    values = np.array(table.values("ettr"))
    found = table.to_dict()["ettr"]
    assert found["mean"] == pytest.approx(values.mean(), rel=1e-12)
    assert found["sd"] == pytest.approx(values.std(ddof=1), rel=1e-9)
    assert [found["p05"], found["p50"], found["p95"]] == pytest.approx(np.quantile(values, [0.05, 0.5, 0.95]).tolist())
    low, high = stats.t.interval(0.95, 8, values.mean(), values.std(ddof=1) / 3)
    assert found["ci95"] == pytest.approx([low, high])


def test_undefined_values_are_null_and_left_out_of_means() -> None:
    table = ReplicaTable("x", 0)
    table.add(({"a": 1.0, "b": None}, {"train": 5.0}, None, False))
    table.add(({"a": 3.0, "b": None}, {"train": 5.0, "new": 1.0}, "no progress", True))
    found = table.to_dict()
    assert found["b"] is None
    assert found["a"]["mean"] == 2.0
    assert found["ledger_s"]["new"]["mean"] == 0.5
    assert (table.verdicts, table.hopeless) == ({1: "no progress"}, 1)
    frame = table.to_frame()
    assert frame["ledger_new_s"].tolist() == [0.0, 1.0]
    assert math.isnan(frame["b"][0])


def test_results_come_in_order_with_events() -> None:
    seen: list[tuple[int, bool]] = []
    run_replicas(SCENARIO, replicas=3, on_result=lambda replica, result: seen.append((replica, len(result.events) > 0)))
    assert seen == [(0, True), (1, True), (2, True)]


def test_progress_ends_at_all() -> None:
    calls: list[tuple[int, int]] = []
    run_replicas(SCENARIO, replicas=5, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(n, 5) for n in range(1, 6)]


def test_ctrl_c_keeps_the_finished() -> None:
    def stop(replica: int, result: Any) -> None:
        if replica == 3:
            raise KeyboardInterrupt

    table = run_replicas(SCENARIO, replicas=9, on_result=stop)
    assert (table.interrupted, table.replicas) == (True, 3)
    assert table.to_dict()["ettr"] is not None


def test_a_replica_leaves_a_row_of_floats_and_nothing_else() -> None:
    """Bytes held a replica: a column each of 8 bytes, whatever happened in it (events, failures, steps)."""
    table = run_replicas(SCENARIO, replicas=6)
    columns = [*table.columns.values(), *table.ledger.values()]
    assert all(column.itemsize == 8 and len(column) == 6 for column in columns)
    assert len(columns) < 60


def test_no_file_of_the_package_is_left_open(tmp_path: Path) -> None:
    """Warnings are errors: an unclosed Parquet writer would fail here."""
    from clustersim.report.events import ParquetLog

    log = ParquetLog(tmp_path / "e.parquet", tmp_path / "l.parquet")
    run_replicas(SCENARIO, replicas=2, on_result=log.add)
    log.close()
    assert (tmp_path / "e.parquet").stat().st_size > 0
