"""The store keeps what is finished through any crash, and mixes nothing up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clustersim.errors import InputError
from clustersim.report.folder import ResultFolder
from clustersim.study.merging import merge
from clustersim.study.store import MANIFEST, Store, canonical, record_key, write_atomically


def record(key: str, value: float = 1.0) -> tuple[str, int, dict[str, float]]:
    return key, 0, {"ettr": value}


def test_keys_depend_on_each_part() -> None:
    keys = {record_key("h", 0, 0, "1"), record_key("h", 0, 1, "1"), record_key("h", 1, 0, "1"), record_key("g", 0, 0, "1"),
            record_key("h", 0, 0, "2")}  # fmt: skip
    assert len(keys) == 5
    assert record_key("h", 0, 0, "1") == record_key("h", 0, 0, "1")


def test_canonical_refuses_nan_and_ignores_order() -> None:
    assert canonical({"b": 1, "a": [1.5]}) == canonical({"a": [1.5], "b": 1})
    with pytest.raises(ValueError, match="JSON"):
        canonical(float("nan"))


def test_records_survive_and_torn_lines_are_counted(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.open_study({"points": 1})
        store.append([record("a"), record("b")])
        store.append([record("c")])
    shard = store.shards()[0]
    whole = shard.read_bytes()
    for cut in range(len(whole)):
        shard.write_bytes(whole[:cut])
        contents = Store(tmp_path).load()
        lines = whole[:cut].count(b"\n") - 1  # the first names the columns
        assert list(contents.records) == ["a", "b", "c"][: max(lines, 0)]
        assert contents.torn_lines == (0 if whole[:cut].endswith(b"\n") or cut == 0 else 1)


def test_an_altered_line_is_no_record(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.open_study({})
        store.append([record("a", 0.5)])
    shard = store.shards()[0]
    shard.write_bytes(shard.read_bytes().replace(b"0.5", b"0.6"))
    contents = store.load()
    assert contents.records == {}
    assert contents.torn_lines == 1


def test_columns_may_change_and_a_lost_header_costs_its_records_only(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append([("a", 0, {"x": 1.0}), ("b", 1, {"x": 2.0, "y": None}), ("c", 2, {"x": 3.0, "y": 4.0})])
    assert dict(store.load().records["b"].metrics) == {"x": 2.0, "y": None}
    shard = store.shards()[0]
    lines = shard.read_bytes().splitlines(keepends=True)
    shard.write_bytes(b"".join([lines[0][1:], *lines[1:]]))
    contents = store.load()
    assert list(contents.records) == ["b", "c"]
    assert contents.torn_lines == 2


def test_two_writers_and_duplicates(tmp_path: Path) -> None:
    with Store(tmp_path) as one, Store(tmp_path) as two:
        one.open_study({"x": 1})
        two.open_study({"x": 1})
        one.append([record("a")])
        two.append([record("a"), record("b", 2.0)])
    assert len(one.shards()) == 2
    contents = one.load()
    assert sorted(contents.records) == ["a", "b"]
    assert contents.conflicts == []
    with Store(tmp_path) as three:
        three.append([record("b", 3.0)])
    assert one.load().conflicts == ["b"]


def test_another_study_in_the_folder_is_refused(tmp_path: Path) -> None:
    Store(tmp_path).open_study({"scenario": "x", "seed": 0})
    with pytest.raises(InputError, match="differs in seed"):
        Store(tmp_path).open_study({"scenario": "x", "seed": 1})
    (tmp_path / MANIFEST).write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be read"):
        Store(tmp_path).manifest()
    with pytest.raises(InputError, match="is no study"):
        Store(tmp_path / "elsewhere").manifest()


def test_more_replicas_extend_a_study_and_fewer_are_another(tmp_path: Path) -> None:
    Store(tmp_path).open_study({"scenario": "x", "replicas": 20})
    Store(tmp_path).open_study({"scenario": "x", "replicas": 50})
    assert Store(tmp_path).manifest() == {"scenario": "x", "replicas": 50}
    with pytest.raises(InputError, match="differs in replicas"):
        Store(tmp_path).open_study({"scenario": "x", "replicas": 20})


def test_what_an_error_says_makes_no_other_study(tmp_path: Path) -> None:
    """It names a line of a file, which moves with a comment above it; which points are wrong does not."""
    Store(tmp_path).open_study({"errors": [None, "job.yaml:3:1: x: is wrong"]})
    Store(tmp_path).open_study({"errors": [None, "job.yaml:4:1: x: is wrong"]})
    assert Store(tmp_path).manifest() == {"errors": [None, "job.yaml:4:1: x: is wrong"]}
    with pytest.raises(InputError, match="differs in errors"):
        Store(tmp_path).open_study({"errors": ["job.yaml:4:1: x: is wrong", None]})


def test_records_without_a_manifest_are_refused(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append([record("a")])
    with pytest.raises(InputError, match="holds records but no"):
        Store(tmp_path).open_study({})


def test_write_atomically_leaves_the_old_file_when_it_fails(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    write_atomically(target, "old\n")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "half \ud800")
    assert target.read_text() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


WRITER = """
import sys
from clustersim.study.store import Store
store = Store(sys.argv[1])
store.open_study({"x": 1})
print("ready", flush=True)
for number in range(10**9):
    store.append([(str(number), number, {"pad": "x" * 200})])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a signal of Unix")
def test_kill_9_loses_no_whole_record(tmp_path: Path) -> None:
    for moment in (0.01, 0.03, 0.07):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(moment)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    contents = Store(tmp_path).load()
    keys = sorted(int(key) for key in contents.records)
    assert keys
    assert keys == list(range(len(keys)))
    assert contents.torn_lines <= 3
    assert contents.conflicts == []
    assert json.loads((tmp_path / MANIFEST).read_text()) == {"x": 1}


@pytest.mark.parametrize("change", [
    {"hashes": None}, {"hashes": ["a"]}, {"points": [1, 2]}, {"points": 3}, {"seed": "x"}, {"replicas": -1}, {"version": None},
    {"errors": [None]}, {"study": 5}, {"paths": "x"},
])  # fmt: skip
def test_a_study_that_does_not_fit_together_is_told(change: dict[str, Any], tmp_path: Path) -> None:
    right = {"study": "sweep", "version": "1", "seed": 0, "replicas": 2, "paths": ["x"], "points": [{"x": 1}, {"x": 2}],
             "hashes": ["a", "b"], "errors": [None, None]}  # fmt: skip
    (tmp_path / MANIFEST).write_text(json.dumps(right), encoding="utf-8")
    assert merge(tmp_path).found == 0
    (tmp_path / MANIFEST).write_text(json.dumps(right | change), encoding="utf-8")
    with pytest.raises(InputError, match=r"study\.json is no study"):
        merge(tmp_path)


def test_a_run_and_a_study_do_not_share_a_folder(tmp_path: Path) -> None:
    # Each would replace the other's report.html.
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="holds the result of a run"):
        Store(tmp_path / "run").open_study({"study": "sweep"})
    Store(tmp_path / "study").open_study({"study": "sweep"})
    with pytest.raises(InputError, match="holds a study"):
        ResultFolder(str(tmp_path / "study"))
