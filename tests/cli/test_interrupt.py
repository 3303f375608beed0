"""Ctrl-C and ``kill`` in studies: exit 130, what is kept and where, and that the same command goes on from there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clustersim.cli.resuming import Kept, resumable
from clustersim.cli.talk import Talk
from clustersim.study.store import Store

MODULE = [sys.executable, "-W", "error", "-m", "clustersim"]
REPLICAS = 600
STUDIES: dict[str, tuple[list[str], list[str]]] = {
    # a study of some seconds; the files in which its results stand
    "sweep": (["sweep", "small.yaml", "--over", "checkpoint.interval=5 min,10 min"], ["table.csv"]),
    "optimum": (["sweep", "small.yaml", "--optimum", "checkpoint.interval=1 min..1 h"], ["optimum.json"]),
    "compare": (["compare", "small.yaml", "other.yaml"], ["differences.csv", "compare.json"]),
    "plan": (["plan", "small.yaml", "--space", "tp=2,4", "--space", "schedules=1f1b", "--over", "checkpoint.interval=5 min,10 min"],
             ["plan.csv", "plan.json"]),
}  # fmt: skip


def started(study: str, out: str | None, workers: str = "2", replicas: int = REPLICAS) -> subprocess.Popen[str]:
    more = ["--replicas", str(replicas // {"optimum": 8, "plan": 6}.get(study, 1)), "--workers", workers]
    command = [*MODULE, *STUDIES[study][0], *more, *(["-o", out] if out else [])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def records(folder: str) -> int:
    return len(Store(folder).load().records)


def cut_off(study: str, how: str, workers: str, replicas: int = REPLICAS) -> tuple[int, str, float, float]:
    """Exit code and last word of a study that is cut off as its first records are kept, the seconds until then, and those that
    its end took."""
    process, begin = started(study, "cut", workers, replicas), time.monotonic()
    deadline = begin + 120
    while not any(path.stat().st_size for path in Path("cut").glob("records-*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    start = time.monotonic()
    if how == "Ctrl-C":  # a terminal sends it to the whole group of processes
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.terminate()
    out, errors = process.communicate(timeout=120)
    assert out == ""
    assert "Traceback" not in errors
    return process.returncode, errors.splitlines()[-1], start - begin, time.monotonic() - start


@pytest.fixture
def folder(small: str) -> str:
    Path("other.yaml").write_text(f"extends: {small}\nname: other\ncluster: {{spare_nodes: 2}}\n")
    return small


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("study", "how", "workers"),
    [("sweep", "Ctrl-C", "2"), ("compare", "kill", "2"), ("plan", "Ctrl-C", "1"),
     *(pytest.param(*more, marks=pytest.mark.prove) for more in
       [("sweep", "kill", "1"), ("optimum", "kill", "2"), ("compare", "Ctrl-C", "1"), ("plan", "kill", "2")])],
)  # fmt: skip
def test_the_same_command_goes_on_to_the_same_results(study: str, how: str, workers: str) -> None:
    code, last, _, _ = cut_off(study, how, workers)
    assert code == 130
    told = re.fullmatch(
        r"interrupted; ([\d,]+) of ([\d,]+) replicas( of this round)? are finished and kept in cut: the same command goes on from there", last
    )
    assert told is not None, last
    kept = records("cut")
    done, total = (int(number.replace(",", "")) for number in told.groups()[:2])
    assert 0 < done <= kept + 64 * 2  # a task may end as the word is said
    assert done < total or study == "plan"
    before = {path.name: path.read_bytes() for path in Path("cut").glob("records-*")}
    process = started(study, "cut", workers)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    whole = started(study, "whole", workers)
    _, errors = whole.communicate(timeout=300)
    assert whole.returncode == 0, errors
    for name in STUDIES[study][1]:
        assert Path("cut", name).read_bytes() == Path("whole", name).read_bytes()
    # It went on: what had been kept still stands, and no replica of it was run again.
    assert all(Path("cut", name).read_bytes() == content for name, content in before.items())
    texts = [path.read_text() for path in Path("cut").glob("records-*")]
    lines = sum("columns" not in line for text in texts for line in text.splitlines())
    assert records("cut") == records("whole") == lines


@pytest.mark.usefixtures("folder")
def test_its_end_does_not_wait_for_what_is_under_way(small: str) -> None:
    """Tasks of 64 replicas are under way in both workers, more wait: the study ends without them, and so do the workers."""
    Path(small).write_text(Path(small).read_text().replace("duration: 2 d", "duration: 20 d").replace("mtbf: 9 h", "mtbf: 1 h"))
    code, last, first, seconds = cut_off("sweep", "Ctrl-C", "2", replicas=4000)
    assert (code, " of 8,000 replicas are finished and kept in cut" in last) == (130, True)
    assert seconds < first / 2  # a task takes most of ``first``, and each worker would have begun another two


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("study", STUDIES)
def test_without_a_folder_it_says_that_nothing_is_kept(study: str, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def interrupting(talk: Talk, label: str) -> Iterator[Callable[[int, int], None]]:
        def tell(done: int, total: int) -> None:
            if done:
                raise KeyboardInterrupt

        yield tell

    monkeypatch.setattr(Talk, "progress", interrupting)
    ran = cli(*STUDIES[study][0], "--replicas", "4", "--workers", "1")
    assert (ran.code, ran.out) == (130, "")
    told = r"interrupted; \d of \d+ replicas( of this round)? were finished, and none is kept: with -o DIR they are, and .*"
    assert re.fullmatch(told, ran.err.splitlines()[-1])


class TestWords:
    def test_what_is_told(self, tmp_path: Path) -> None:
        kept = Kept(str(tmp_path), "replicas")
        assert kept.sentence() == "interrupted before a replica was finished; nothing is kept"
        (tmp_path / "records-x.jsonl").write_text("")
        assert kept.sentence() == f"interrupted; the replicas that were finished before are kept in {tmp_path}: the same command goes on from there"
        calls: list[tuple[int, int]] = []
        kept.counting(lambda done, total: calls.append((done, total)))(1200, 6000)
        assert calls == [(1200, 6000)]
        assert kept.sentence() == f"interrupted; 1,200 of 6,000 replicas are finished and kept in {tmp_path}: the same command goes on from there"
        nowhere = Kept(None, "replicas of this round")
        nowhere.counting(None)(3, 4)
        assert nowhere.sentence().startswith("interrupted; 3 of 4 replicas of this round were finished, and none is kept: with -o DIR")

    def test_other_errors_pass(self) -> None:
        with pytest.raises(ZeroDivisionError), resumable(None):
            raise ZeroDivisionError


def test_a_plan_s_folder_takes_another_plan_and_no_other_study(small: str) -> None:
    from clustersim.cli.main import guarded

    plan = ["plan", small, "-q", "--space", "tp=2", "--space", "schedules=1f1b", "--layouts", "1", "--replicas", "4", "--workers", "1"]
    assert guarded([*plan, "-o", "out"]) == 0
    kept = records("out")
    assert guarded([*plan, "-o", "out"]) == 0
    assert records("out") == kept
    assert guarded([*plan, "-o", "out", "--seed", "7"]) == 0
    assert records("out") == 2 * kept
    assert guarded(["sweep", small, "--over", "cluster.spare_nodes=0,1", "--replicas", "1", "-o", "out"]) == 2
    assert guarded(["results", "out"]) == 2
    assert guarded(["sweep", small, "--over", "cluster.spare_nodes=0,1", "--replicas", "1", "-o", "other"]) == 0
    assert guarded([*plan, "-o", "other"]) == 2
