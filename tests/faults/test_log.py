"""Reading incident logs: units, calendar times, open ends, Slurm, and what is said of rows that cannot be read."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from clustersim.errors import InputError
from clustersim.faults.fit.log import FaultLog, read_log
from clustersim.faults.fit.sacct import hostlist


def write(folder: Path, text: str) -> Path:
    file = folder / "log.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_rows_are_sorted_and_units_are_read(tmp_path: Path) -> None:
    log = read_log(write(tmp_path, "node,start_h,end_h,class\nb,5,6,GPU\na,1,3,NIC\n"), population=10, window_s=36000)
    assert (log.nodes, log.node.tolist(), log.classes) == (("a", "b"), [0, 1], ("NIC", "GPU"))
    assert log.start_s.tolist() == [3600, 18000]
    assert (log.population, log.window_s) == (10, 36000)


def test_an_open_end_is_censored_at_the_window(tmp_path: Path) -> None:
    log = read_log(write(tmp_path, "node,start_s,end_s\na,10,\nb,20,30\n"), window_s=100)
    assert log.closed.tolist() == [False, True]
    assert log.down_s.tolist() == [90, 10]


def test_calendar_times_count_from_the_first_fault(tmp_path: Path) -> None:
    text = "node,start,end\na,2024-03-30T12:00:00,2024-03-30T13:00:00+00:00\nb,2024-03-30T14:00:00,2024-03-31T14:00:00\n"
    log = read_log(write(tmp_path, text))
    assert log.start_s.tolist() == [0, 7200]
    assert log.end_s.tolist() == [3600, 93600]


def test_every_bad_row_is_told(tmp_path: Path) -> None:
    file = write(tmp_path, "node,start_s,end_s\na,x,5\nb,9,3\nc,1,2\nd,nan,4\n")
    with pytest.raises(InputError) as caught:
        read_log(file)
    lines = [str(problem) for problem in caught.value.problems]
    assert [line.rsplit(":", 2)[0].rsplit(":", 1)[-1] for line in lines] == ["2", "5", "3"]
    assert "'x' is not a number" in lines[0]
    assert "ends 6 s before its start" in lines[2]


@pytest.mark.parametrize(("text", "said"), [
    ("node,begin_s,end_s\na,1,2\n", "column is missing"), ("node,start_s,end_s\n", "holds no rows"),
    ("machine,start_s,end_s\na,1,2\n", "node"),
])  # fmt: skip
def test_what_is_missing_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_log(write(tmp_path, text))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_log(tmp_path / "none.csv")
    with pytest.raises(InputError, match="not a file"):
        read_log(tmp_path)
    (tmp_path / "x.csv").write_bytes(b"node,start\n\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        read_log(tmp_path / "x.csv")


def test_hostlists() -> None:
    assert hostlist("gpu[001-003,7],cpu1") == ["gpu001", "gpu002", "gpu003", "gpu7", "cpu1"]
    assert hostlist("r[1-2]n[08-10]") == ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]
    assert hostlist("None assigned") == []


SACCT = """JobID|State|Start|End|NodeList|FailedNode
1|COMPLETED|2024-01-01T00:00:00|2024-01-01T04:00:00|n[1-2]|
2|NODE_FAIL|2024-01-01T01:00:00|2024-01-01T03:00:00|n[3-4]|n4
2.batch|NODE_FAIL|2024-01-01T01:00:00|2024-01-01T03:00:00|n3|
3|NODE_FAIL|2024-01-01T05:00:00|2024-01-01T06:00:00|n1|
4|COMPLETED|2024-01-01T09:00:00|2024-01-01T10:00:00|n4|
5|PENDING|Unknown|Unknown|None assigned|
"""


def test_sacct_output(tmp_path: Path) -> None:
    log = read_log(write(tmp_path, SACCT))
    assert log.nodes == ("n4", "n1")
    assert log.start_s.tolist() == [3 * 3600, 6 * 3600]
    assert log.end_s[0] == 9 * 3600  # the next job that ran on n4
    assert math.isinf(log.end_s[1])  # nothing ran on n1 again
    assert (log.population, log.window_s) == (4, 10 * 3600)


def test_sacct_must_say_which_node_failed(tmp_path: Path) -> None:
    text = SACCT.replace("n[3-4]|n4", "n[3-4]|")
    with pytest.raises(InputError, match="one of 2 nodes failed"):
        read_log(write(tmp_path, text))


def test_overlapping_faults_of_one_node_stay() -> None:
    log = FaultLog.of(["a", "a"], [0.0, 5.0], [10.0, 7.0], window_s=20.0)
    assert np.array_equal(log.node, [0, 0])
