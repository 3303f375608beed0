"""Sweeps give the same bytes however they are run, cut off or resumed; one bad point never costs the rest."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clustersim.errors import InputError
from clustersim.report.study_text import sweep_text
from clustersim.scenario.schema import Scenario
from clustersim.study.executors import Dask, Processes, Serial
from clustersim.study.merging import merge
from clustersim.study.points import Template, scenario_at, written
from clustersim.study.replicas import run_replicas
from clustersim.study.runner import Runner, Task, job_of, run_task, task_size
from clustersim.study.statistics import Target
from clustersim.study.store import Store
from clustersim.study.sweeping import sweep

OVER = {"checkpoint.interval": ["5 min", "20 min", "1 h"], "cluster.spare_nodes": [0, 4]}


@pytest.fixture(scope="module")
def table(small: Scenario) -> str:
    return sweep(small, over=OVER, executor=Serial()).to_csv()


def test_rows_axes_and_statistics(table: str) -> None:
    lines = table.splitlines()
    assert len(lines) == 7
    assert lines[0].startswith(
        "checkpoint.interval,cluster.spare_nodes,replicas,error,mean_wall_s,sd_wall_s,p05_wall_s"
    )
    assert lines[1].startswith("5 min,0,8,,86400.0,0.0,")
    assert "nan" not in table.lower()


def test_two_processes_give_the_same_bytes(small: Scenario, table: str) -> None:
    assert sweep(small, over=OVER, executor=Processes(2)).to_csv() == table


def test_dask_gives_the_same_bytes(small: Scenario, table: str) -> None:
    pytest.importorskip("distributed")
    assert sweep(small, over=OVER, executor=Dask(None, 2)).to_csv() == table


def test_shards_meet_in_one_folder(small: Scenario, table: str, tmp_path: Path) -> None:
    for index in (2, 0):
        part = sweep(small, over=OVER, store=tmp_path, shard=(index, 3))
        assert not part.complete
    assert merge(tmp_path).found < 48
    assert not (tmp_path / "table.csv").exists()
    sweep(small, over=OVER, store=tmp_path, shard=(1, 3))
    merged = merge(tmp_path)
    assert (merged.found, merged.expected, merged.strangers, merged.conflicts) == (48, 48, 0, 0)
    assert (tmp_path / "table.csv").read_text() == table
    assert merged.frame().shape[0] == 48


def test_resume_runs_only_what_is_missing(small: Scenario, table: str, tmp_path: Path) -> None:
    sweep(small, over=OVER, store=tmp_path)
    shard = Store(tmp_path).shards()[0]
    whole = shard.read_bytes()
    lines = whole.splitlines(keepends=True)
    shard.write_bytes(b"".join(lines[:31]) + lines[31][:50])
    (tmp_path / "table.csv").unlink()
    calls: list[tuple[int, int]] = []
    again = sweep(small, over=OVER, store=tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls[0] == (30, 48)
    assert calls[-1] == (48, 48)
    assert again.to_csv() == table == (tmp_path / "table.csv").read_text()
    assert merge(tmp_path).contents.torn_lines == 1


def test_a_wrong_point_has_its_error_and_the_rest_completes(small: Scenario) -> None:
    found = sweep(small, over={"parallelism.tp": [1, 3]}, replicas=2)
    right, wrong = found.outcomes
    assert right.error is None
    assert wrong.error is not None
    assert "tp" in wrong.error
    assert found.rows()[1]["replicas"] == 0
    assert found.best() is right


def test_another_study_in_the_folder(small: Scenario, tmp_path: Path) -> None:
    sweep(small, over={"cluster.spare_nodes": [1]}, replicas=1, store=tmp_path)
    with pytest.raises(InputError, match="holds another study"):
        sweep(small, over={"cluster.spare_nodes": [2]}, replicas=1, store=tmp_path)


def test_stopping_rule_adds_replicas_at_round_ends(small: Scenario) -> None:
    target = Target("ettr", 0.012, True)
    found = sweep(small, over={"checkpoint.interval": ["20 min"]}, until=target, limit=200)
    count = len(found.outcomes[0].replicas)
    assert count in (20, 30, 45, 67, 100, 150, 200)
    assert target.reached(found.outcomes[0].column("ettr"))
    again = sweep(small, over={"checkpoint.interval": ["20 min"]}, until=target, limit=200, executor=Processes(2))
    assert again.to_csv() == found.to_csv()


def test_names_and_counts_do_not_change_a_replica(small: Scenario) -> None:
    renamed = small.replace("name", "other").replace("simulation.replicas", 3)
    assert job_of("a", renamed).hash == job_of("b", small).hash
    assert job_of("a", small.replace("cluster.spare_nodes", 5)).hash != job_of("a", small).hash


def test_stages_run_as_written_in_a_study_too(small: Scenario, tmp_path: Path) -> None:
    """Waiting for nodes comes before ``start``, so an order of another kind loses other stages to a second failure."""
    written_so = {"start": "9 min", "communicators": "7 min", "approve": "40 min", "check": "1 min"}
    failing = {"recovery": {"strategy": "restart", "stages": written_so}, "cluster.spare_nodes": 0,
               "failures": [{"name": "node", "component": "job", "mtbf": "3 h", "severity": "node"}]}  # fmt: skip
    scenario = small.replace(failing)
    alone = run_replicas(scenario, replicas=4)
    found = sweep(scenario, over={"cluster.spare_nodes": [0]}, replicas=4).outcomes[0]
    assert found.column("ettr") == alone.values("ettr")

    turned_stages = dict(reversed(written_so.items()))
    turned = scenario.replace("recovery.stages", turned_stages)
    assert run_replicas(turned, replicas=4).values("ettr") != alone.values("ettr")
    assert job_of("a", turned).hash != job_of("a", scenario).hash
    assert turned.sha256 != scenario.sha256

    both = sweep(scenario, over={"recovery.stages": [written_so, turned_stages]}, replicas=1, store=tmp_path).to_csv()
    merge(tmp_path)
    assert (tmp_path / "table.csv").read_text(encoding="utf-8") == both


def test_a_task_gives_each_replica_what_it_gives_alone(small: Scenario) -> None:
    from clustersim.study.runner import Shared

    shared = Shared((job_of("a", small).scenario,), 3)
    together = run_task(shared, Task(0, 0, 4))
    assert together == [run_task(shared, Task(0, r, r + 1))[0] for r in range(4)]


def test_templates_set_all_values_before_they_validate(small: Scenario) -> None:
    assert scenario_at(small, {}) == small
    changed = scenario_at(small, {"parallelism.tp": 8, "parallelism.pp": 4, "training.global_batch": 256})
    assert (changed.parallelism.tp, changed.parallelism.pp) == (8, 4)
    assert scenario_at(small, {"checkpoint.engine": "async"}).checkpoint.kind == "async"
    assert "restore" not in written(small)["checkpoint"]
    with pytest.raises(InputError, match="did you mean 'interval'"):
        scenario_at(small, {"checkpoint.intervall": "5 min"})


def test_files_refuse_bare_numbers_at_points(small_yaml: str) -> None:
    template = Template.read(small_yaml)
    assert template({"checkpoint.interval": "5 min"}).checkpoint.kind == "sync"
    with pytest.raises(InputError, match=r"--over checkpoint.interval.*needs a unit"):
        template({"checkpoint.interval": 5})


def test_task_sizes() -> None:
    assert task_size(10, 2) == 1
    assert task_size(2000, 2) == 63
    assert task_size(10**6, 1) == 64
    runner = Runner(0, shard=(0, 2))
    assert runner.shard == (0, 2)


def run_cli(arguments: list[str], **more: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "clustersim", *arguments], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, **more)  # type: ignore[call-overload,no-any-return]  # fmt: skip


def killed_and_resumed(small_yaml: str, folder: Path, moments: list[float], victim: str) -> str:
    """Start the sweep, kill the parent or a worker at each moment, then let it finish; the table."""
    arguments = ["sweep", small_yaml, "--over", "checkpoint.interval=5 min,20 min,1 h", "--over",
                 "cluster.spare_nodes=0,4", "-o", str(folder), "--workers", "2", "-q"]  # fmt: skip
    for moment in moments:
        process = run_cli(arguments, start_new_session=True)
        time.sleep(moment)
        if victim == "parent":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False)
            for child in children.stdout.split()[:1]:
                os.kill(int(child), signal.SIGKILL)
        process.wait()
    assert run_cli(arguments).wait() == 0
    return (folder / "table.csv").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a signal of Unix")
def test_kill_9_of_the_parent_and_resume(small_yaml: str, table: str, tmp_path: Path) -> None:
    assert killed_and_resumed(small_yaml, tmp_path / "study", [1.2, 1.6], "parent") == table


@pytest.mark.prove
@pytest.mark.parametrize("victim", ["parent", "worker"])
def test_kill_9_at_twenty_random_moments(small_yaml: str, table: str, tmp_path: Path, victim: str) -> None:
    rng = random.Random(11)
    for number in range(20):
        moments = [rng.uniform(0.3, 2.5)]
        assert killed_and_resumed(small_yaml, tmp_path / str(number), moments, victim) == table


def test_ctrl_c_keeps_what_is_finished(small_yaml: str, table: str, tmp_path: Path) -> None:
    arguments = ["sweep", small_yaml, "--over", "checkpoint.interval=5 min,20 min,1 h", "--over",
                 "cluster.spare_nodes=0,4", "-o", str(tmp_path), "--workers", "1", "--replicas", "400"]  # fmt: skip
    process = run_cli(arguments)
    for _ in range(200):
        time.sleep(0.05)
        if any(shard.stat().st_size for shard in Store(tmp_path).shards()):
            break
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    contents = Store(tmp_path).load()
    assert contents.records
    assert contents.torn_lines == 0


def test_no_two_points_look_alike_in_the_table(small: Scenario) -> None:
    found = sweep(small, over={"cluster.spare_nodes": [0], "checkpoint.interval": ["5 min", "20 min"]}, replicas=2)
    rows = sweep_text(found, "ettr").splitlines()[1:3]
    assert [row.split("  ")[0] for row in rows] == [
        "cluster.spare_nodes=0, checkpoint.interval=5 min", "cluster.spare_nodes=0, checkpoint.interval=20 min"
    ]  # fmt: skip
