"""Published figures of checkpoint systems: bounds, orders, medians."""

from __future__ import annotations

import collections
import statistics

import pytest

from clustersim.validation import checkpointing
from clustersim.validation.checkpointing import Case


@pytest.fixture(scope="module")
def rows() -> list[Case]:
    return checkpointing.cases()


def of(rows: list[Case], suite: str) -> list[Case]:
    found = [row for row in rows if row.suite == suite]
    assert found
    return found


def test_every_row_holds_its_bound(rows: list[Case]) -> None:
    assert checkpointing.failed(rows) == []
    assert len(rows) > 130


def test_a_row_beyond_its_bound_is_found() -> None:
    assert checkpointing.failed([Case("s", "c", 10.0, 20.1, 1.0, "")])
    assert not checkpointing.failed([Case("s", "c", 10.0, 5.0, 1.0, ""), Case("s", "c", 10.0, 99.0, None, "")])
    assert checkpointing.failed([Case("s", "c", 10.0, 4.9, 1.0, "")])


def test_runtimes_of_datastates(rows: list[Case]) -> None:
    runtimes = of(rows, "DataStates runtime")
    assert len(runtimes) == 32
    assert statistics.median(abs(row.deviation) for row in runtimes) <= 0.15
    cells: dict[str, list[Case]] = collections.defaultdict(list)
    for row in runtimes:
        cells[row.case.rsplit(", ", 1)[0]].append(row)
    for cell in cells.values():  # the order of the methods in every cell
        by_published = [row.case for row in sorted(cell, key=lambda row: row.published)]
        assert by_published == [row.case for row in sorted(cell, key=lambda row: row.ours)]


def test_blocking_throughput_of_datastates(rows: list[Case]) -> None:
    # The same configuration appears with values 2 × apart: the median within a factor 2, and 4 of 5 rows.
    factors = [max(row.ours / row.published, row.published / row.ours) for row in of(rows, "DataStates throughput")]
    assert statistics.median(factors) <= 2
    assert sum(factor <= 2 for factor in factors) >= 0.75 * len(factors)
    lazy = [row for row in of(rows, "DataStates throughput") if row.case.endswith("DataStates-LLM")]
    assert all(0.5 <= row.ours / row.published <= 2 for row in lazy)


def test_order_and_interval_of_gockpt(rows: list[Case]) -> None:
    speeds = [row for row in of(rows, "GoCkpt") if row.case.startswith("tokens/s")]
    assert len(speeds) == 5
    by_published = [row.case for row in sorted(speeds, key=lambda row: row.published)]
    assert by_published == [row.case for row in sorted(speeds, key=lambda row: row.ours)]


def test_the_order_of_gockpt_in_runs() -> None:
    # The same failures for all, each at its best interval.
    from clustersim.run.simulate import run_replica
    from clustersim.validation.checkpoint_jobs import GOCKPT, v100s

    ettr = {}
    for method in GOCKPT:
        best, _ = checkpointing.gockpt_best(method)
        job = v100s(method, best)
        ettr[method] = statistics.fmean(run_replica(job, 2, index, events=False).ettr for index in range(12))
    assert list(ettr) == sorted(ettr, key=lambda method: -ettr[method])


def test_other_suites_stay_close(rows: list[Case]) -> None:
    medians = checkpointing.medians(rows)
    assert medians["TRANSOM"] <= 0.15
    assert medians["ByteRobust"] <= 0.05
    assert medians["stall and persist"] <= 0.5
