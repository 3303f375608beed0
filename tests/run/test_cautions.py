"""What is legal and can hardly be meant is told once, at its key, and only where it matters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clustersim.run.cautions import cautions
from clustersim.run.prepared import Prepared
from clustersim.run.simulate import run_replica
from tests.run.synthetic import build, job_failure, planted

SAVES = {"kind": "sync", "interval": 10.0, "stall": 1.0}
NODE = {"component": "node", "mtbf": 500.0, "detection": 0.0}
SPIKE = {"kind": "loss-spike", "mtbf": 50.0, "latency": 5.0}
SILENT = {"kind": "silent-corruption", "component": "node", "mtbf": 500.0, "latency": 5.0}
SLOW = {"kind": "fail-slow", "component": "node", "mtbf": 500.0, "length": 50.0, "depth": 2.0}


def paths(step: float = 1.0, **keys: Any) -> list[str]:
    keys.setdefault("steps", 100)
    if keys["steps"] is None:
        del keys["steps"]
    return [problem.path for problem in cautions(Prepared(build(**keys), step))]


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # path; keys of a run of 100 s with steps of 1 s that are told, and the like that are not
    "interval": ("checkpoint.interval", {"checkpoint": {**SAVES, "interval": 100.0}, "failures": [job_failure(50.0)]},
                 {"checkpoint": {**SAVES, "interval": 99.0}, "failures": [job_failure(50.0)]}),
    "interval in steps": ("checkpoint.interval", {"checkpoint": {**SAVES, "interval": {"steps": 100}}, "failures": [job_failure(50.0)]},
                          {"checkpoint": {**SAVES, "interval": {"steps": 99}}, "failures": [job_failure(50.0)]}),
    "interval of a run without failures": ("checkpoint.interval", {"checkpoint": {**SAVES, "interval": 500.0}, "failures": [job_failure(50.0)]},
                                           {"checkpoint": {**SAVES, "interval": 500.0}}),
    "interval that follows from costs": ("checkpoint.interval", {"checkpoint": {**SAVES, "interval": 500.0}, "failures": [job_failure(1e9)]},
                                         {"checkpoint": {**SAVES, "interval": "auto"}, "failures": [job_failure(1e9)]}),
    "lead": ("checkpoint.interval.lead", {"checkpoint": {**SAVES, "interval": {"kind": "predicted", "lead": 100.0}}, "failures": [job_failure(50.0)]},
             {"checkpoint": {**SAVES, "interval": {"kind": "predicted", "lead": 99.0}}, "failures": [job_failure(50.0)]}),
    "MTBF": ("failures.0.mtbf", {"failures": [job_failure(0.99)]}, {"failures": [job_failure(1.01)]}),
    "MTBF of many units": ("failures.0.mtbf", {"nodes": 4, "failures": [{**NODE, "severity": "process", "mtbf": 3.9}]},
                           {"nodes": 4, "failures": [{**NODE, "severity": "process", "mtbf": 4.1}]}),
    "MTBF of storage": ("failures.0.mtbf", {"failures": [job_failure(0.5)]},
                        {"failures": [{"component": "job", "severity": "storage", "mtbf": 0.5, "repair": 0.1}]}),
    "all together": ("failures", {"failures": [job_failure(1.9, name="a"), job_failure(1.9, name="b")]},
                     {"failures": [job_failure(2.1, name="a"), job_failure(2.1, name="b")]}),
    "the second cause": ("failures.1.mtbf", {"failures": [job_failure(50.0), job_failure(0.5)]}, {"failures": [job_failure(50.0), job_failure(5.0)]}),
    "maintenance": ("failures.0.every", {"failures": [{"kind": "maintenance", "first": 0.0, "every": 0.5, "length": 0.1}]},
                    {"failures": [{"kind": "maintenance", "first": 0.0, "every": 5.0, "length": 0.1}]}),
    "detection": ("failures.0.detection", {"failures": [job_failure(50.0, 100.0)]}, {"failures": [job_failure(50.0, 99.0)]}),
    "detection that a heartbeat cuts short": ("failures.0.detection", {"failures": [job_failure(50.0, 500.0)], "recovery": {"heartbeat": 200.0}},
                                              {"failures": [job_failure(50.0, 500.0)], "recovery": {"heartbeat": 5.0}}),
    "repair of a cause": ("failures.0.repair", {"failures": [{**NODE, "repair": 100.0}]}, {"failures": [{**NODE, "repair": 99.0}]}),
    "repair of a process": ("failures.0.repair", {"failures": [{**NODE, "repair": 500.0}]},
                            {"failures": [{**NODE, "severity": "process", "repair": 500.0}]}),
    "an outage of storage": ("failures.0.repair", {"failures": [{"component": "job", "severity": "storage", "mtbf": 50.0, "repair": 100.0}]},
                             {"failures": [{"component": "job", "severity": "storage", "mtbf": 50.0, "repair": 9.0}]}),
    "a class of a fleet": ("failures.0.classes.1.repair",
                           {"failures": [{**NODE, "kind": "fleet", "classes": [{"name": "a", "share": 1}, {"name": "b", "share": 1, "repair": 100.0}]}]},
                           {"failures": [{**NODE, "kind": "fleet", "classes": [{"name": "a", "share": 1}, {"name": "b", "share": 1, "repair": 9.0}]}]}),
    "repair": ("repair.time", {"failures": [NODE], "repair": 100.0}, {"failures": [NODE], "repair": 99.0}),
    "repair that no cause needs": ("repair.time", {"failures": [NODE], "repair": 500.0},
                                   {"failures": [{**NODE, "repair": 5.0}, job_failure(50.0)], "repair": 500.0}),
    "repair that ends at times": ("repair.time", {"failures": [NODE], "repair": {"kind": "uniform", "low": 100.0, "high": 900.0}},
                                  {"failures": [NODE], "repair": {"kind": "uniform", "low": 50.0, "high": 900.0}}),
    "maintenance to the end": ("failures.0.length", {"failures": [{"kind": "maintenance", "first": 50.0, "length": 100.0}]},
                               {"failures": [{"kind": "maintenance", "first": 50.0, "length": 99.0}]}),
    "preemption to the end": ("failures.0.length", {"failures": [{"kind": "preemption", "mtbf": 500.0, "length": 100.0}]},
                              {"failures": [{"kind": "preemption", "mtbf": 500.0, "length": 99.0}]}),
    "latency of a spike": ("failures.0.latency", {"failures": [{**SPIKE, "latency": 100.0}]}, {"failures": [{**SPIKE, "latency": 99.0}]}),
    "latency of a corruption": ("failures.0.latency", {"failures": [{**SILENT, "latency": 100.0}]}, {"failures": [{**SILENT, "latency": 99.0}]}),
    "latency beside a check": ("failures.0.latency", {"failures": [{**SILENT, "latency": 100.0}]},
                               {"failures": [{**SILENT, "latency": 100.0, "check": {"every": 9.0}}]}),
    "a rare check": ("failures.0.check.every", {"failures": [{**SILENT, "check": {"every": 100.0}}]}, {"failures": [{**SILENT, "check": {"every": 99.0}}]}),
    "margin": ("failures.0.margin", {"failures": [{**SPIKE, "margin": 100}]}, {"failures": [{**SPIKE, "margin": 99}]}),
    "margin beyond what is kept": ("failures.0.margin", {"failures": [{**SPIKE, "margin": 31}], "checkpoint": {**SAVES, "keep": 3}},
                                   {"failures": [{**SPIKE, "margin": 30}], "checkpoint": {**SAVES, "keep": 3}}),
    "skip": ("failures.0.skip", {"failures": [{**SPIKE, "skip": 100}]}, {"failures": [{**SPIKE, "skip": 99}]}),
    "a slow watch": ("failures.0.watch", {"failures": [{**SLOW, "watch": {"every": 25.0, "rounds": 5}}]},
                     {"failures": [{**SLOW, "watch": {"every": 24.0, "rounds": 5}}]}),
    "a stage": ("recovery.stages.start", {"failures": [job_failure(50.0)], "stages": {"start": 100.0}},
                {"failures": [job_failure(50.0)], "stages": {"start": 99.0}}),
    "a stage that nothing needs": ("recovery.stages.start", {"failures": [job_failure(50.0)], "stages": {"start": 500.0}}, {"stages": {"start": 500.0}}),
}  # fmt: skip


@pytest.mark.parametrize(("path", "told", "fine"), CASES.values(), ids=CASES)
def test_each_is_told_and_its_neighbour_is_not(path: str, told: dict[str, Any], fine: dict[str, Any]) -> None:
    assert paths(**told) == [path]
    assert paths(**fine) == []


@pytest.mark.parametrize("length", [{"steps": 100}, {"duration": 100.0, "steps": None}, {"tokens": 800.0, "steps": None}])
def test_however_the_run_is_bounded(length: dict[str, Any]) -> None:
    keys = {"checkpoint": SAVES, "failures": [job_failure(50.0, 100.0)], **length}
    assert paths(**keys) == ["failures.0.detection"]
    assert paths(**{**keys, "failures": [job_failure(50.0, 99.0)]}) == []


def test_a_run_shorter_than_a_step_says_that_alone() -> None:
    assert paths(step=5.0, duration=4.9, steps=None, failures=[job_failure(1.0, 500.0)]) == ["training.duration"]
    assert paths(step=5.0, duration=5.0, steps=None) == []


class TestTheyAreTrue:
    """What a caution says is what a run does."""

    def run(self, **keys: Any) -> Any:
        return run_replica(Prepared(build(**keys), 1.0), 0, 0)

    @pytest.mark.parametrize(("interval", "lost"), [(100.0, 99.5), (50.0, 48.5)])
    def test_an_interval_as_long_as_the_run_saves_nothing(self, interval: float, lost: float) -> None:
        found = self.run(checkpoint={**SAVES, "interval": interval}, failures=[planted(99.5)], steps=100)
        assert found.lost_work_s == pytest.approx(lost)

    def test_a_detection_as_long_as_the_run_holds_the_job_to_its_end(self) -> None:
        found = self.run(checkpoint=SAVES, failures=[planted(20.0, detection=100.0)], duration=100.0)
        assert found.ledger_s["detect"] == pytest.approx(80.0)

    def test_a_repair_as_long_as_the_run_brings_no_node_back(self) -> None:
        found = self.run(checkpoint=SAVES, failures=[planted(20.0, severity="node", lasting=100.0)], duration=100.0)
        assert found.ledger_s["wait_for_nodes"] == pytest.approx(80.0)

    def test_a_margin_beyond_what_is_kept_goes_back_to_the_oldest_copy(self) -> None:
        """Where it is within, the rollback goes back by it; beyond, by no more than what is kept."""
        keys: dict[str, Any] = {"checkpoint": {**SAVES, "stall": 0.0, "keep": 3}, "steps": 200}
        lost = {margin: self.run(failures=[{**SPIKE, "latency": 0.5, "mtbf": 90.0, "margin": margin}], **keys).lost_work_s
                for margin in (0, 20, 31, 150)}  # fmt: skip
        assert lost[0] < lost[20] <= lost[31] == lost[150]


JOB = """\
name: job
model: llama3-8b
cluster: {nodes: 2, spare_nodes: 1, node: dgx-h100, storage: tectonic}
training: {seq_len: 4096, global_batch: 64, duration: 1 h, recompute: selective}
parallelism: {tp: 2, zero: 1}
checkpoint: {engine: async, interval: 3 h}
failures: [{name: gpu, component: gpu, mtbf: 20 h}]
simulation: {replicas: 2}
"""
TOLD = "job.yaml:6:39: checkpoint.interval: the first save is due after 3 h of training, and the run is over after 1 h: nothing is saved in it"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    from clustersim.cli.main import guarded

    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(JOB)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = guarded(arguments)
        return (code, *capsys.readouterr())

    return run


class TestCommands:
    def test_run_says_it_once(self, cli: Callable[..., tuple[int, str, str]]) -> None:
        import json

        code, out, err = cli("run", "job.yaml", "--json")
        assert code == 0
        assert err.splitlines() == [f"Warning: {sentence}" for sentence in json.loads(out)["warnings"]]
        assert cli("run", "job.yaml", "--json", "-q")[2] == ""
        assert json.loads(out)["warnings"].count(TOLD) == 1
        code, out, _ = cli("run", "job.yaml")
        assert " ".join(out.split()).count(f"Warning: {TOLD}") == 1

    def test_check_says_it_and_ends_with_0(self, cli: Callable[..., tuple[int, str, str]]) -> None:
        import json

        code, _, err = cli("check", "job.yaml")
        assert (code, err) == (0, f"Warning: {TOLD}\n")
        assert cli("check", "job.yaml", "-q") == (0, "", "")
        assert json.loads(cli("check", "job.yaml", "--json")[1])["scenarios"][0]["warnings"] == [TOLD]

    def test_studies_say_it_beside_their_answer(self, cli: Callable[..., tuple[int, str, str]]) -> None:
        Path("b.yaml").write_text("extends: job.yaml\nname: b\ncluster: {spare_nodes: 2}\n")
        more = ["--replicas", "1", "--workers", "1"]
        assert cli("compare", "job.yaml", "b.yaml", *more)[2].splitlines() == [f"Warning: {TOLD}"]
        assert cli("sweep", "job.yaml", "--over", "cluster.spare_nodes=0,1", *more)[2].splitlines() == [f"Warning: {TOLD}"]
        assert cli("compare", "job.yaml", "b.yaml", *more, "-q")[2] == ""

    def test_not_what_the_points_of_a_study_set(self, cli: Callable[..., tuple[int, str, str]]) -> None:
        more = ["--replicas", "1", "--workers", "1"]
        for points in (["--over", "checkpoint.interval=5 min,10 min"], ["--optimum", "checkpoint.interval=5 min..10 min"]):
            assert cli("sweep", "job.yaml", *points, *more)[2] == ""
            assert "repair.time: takes 2 h" in cli("sweep", "job.yaml", *points, "--set", "repair.time=2 h", *more)[2]

    @pytest.mark.parametrize(
        ("memory", "over", "told"),
        [
            ("48 GB", "cluster.spare_nodes=1", "fits tightly"),
            ("48 GB", "parallelism.zero=1,2", ""),
            ("640 GB", "cluster.spare_nodes=1", "the first save"),
            ("640 GB", "training.duration=1 h,9 h", ""),
        ],
    )
    def test_not_what_the_points_have_otherwise(self, cli: Callable[..., tuple[int, str, str]], memory: str, over: str, told: str) -> None:
        """Another layout has its own memory, and an interval that outlasts a run may end within a longer one."""
        text = JOB.replace("3 h", "10 min") if memory == "48 GB" else JOB
        Path("job.yaml").write_text(text)
        ran = cli("sweep", "job.yaml", "--set", f"cluster.node.gpu.memory={memory}", "--over", over, "--replicas", "1", "--workers", "1")
        assert told in ran[2]
        assert bool(told) == bool(ran[2])

    def test_a_plan_has_other_layouts(self, cli: Callable[..., tuple[int, str, str]]) -> None:
        """What is wrong with the layout that it starts from hides nothing else, and is not told."""
        more = ["--space", "tp=8", "--space", "schedules=1f1b", "--layouts", "1", "--replicas", "1", "--workers", "1"]
        Path("job.yaml").write_text(JOB + "repair: {time: 2 h}\n")
        for layout in ("tp=2", "tp=1"):
            errors = cli("plan", "job.yaml", "--set", "cluster.node.gpu.memory=48 GB", "--set", f"parallelism.{layout}", *more)[2]
            assert "fits tightly" not in errors
            assert "repair.time: takes 2 h" in errors

    def test_not_what_is_nowhere_written(self, cli: Callable[..., tuple[int, str, str]]) -> None:
        """A repair of a day is the default, and an hour is a short run: nobody's slip."""
        assert "repair.time" not in cli("check", "job.yaml")[2]
        assert "repair.time" in cli("check", "job.yaml", "--set", "repair.time=1 d")[2]
