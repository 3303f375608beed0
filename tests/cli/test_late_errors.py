"""Errors that come up after loading: told at the place of the key, whoever wrote it, with the exit code of their kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]

HEAD = """\
name: late
model: llama3-8b
cluster:
  nodes: 1
  node: dgx-h100
  storage: {kind: shared-filesystem, write_bandwidth: 20 GB/s, read_bandwidth: 20 GB/s, capacity: 1 TB}
"""
TRAINING = "training: {seq_len: 8192, global_batch: 128, steps: 2000, recompute: full}\n"
LAYOUT = "parallelism: {tp: 2, zero: 1, sequence_parallel: true}\n"
SAVES = "checkpoint: {engine: async, interval: 10 min}\n"
FAILURES = "failures: [{name: crash, component: job, mtbf: 200 h, severity: process}]\n"


def job(training: str = TRAINING, parallelism: str = LAYOUT, checkpoint: str = SAVES, failures: str = FAILURES) -> str:
    return HEAD + training + parallelism + checkpoint + failures


def training(text: str) -> str:
    return f"training: {{seq_len: 8192, global_batch: 128, recompute: full, {text}}}\n"


LATE: dict[str, tuple[str, int, str]] = {
    # a scenario, with @ where the error points to; exit code; path and the first words
    "shard of parameters": (job(parallelism="parallelism: {tp: 2, shard: {parameters: @3}}\n"), 2,
                            "parallelism.shard.parameters: 3 must divide 4"),
    "shard of gradients": (job(parallelism="parallelism:\n  tp: 2\n  shard:\n    gradients: @3\n"), 2,
                           "parallelism.shard.gradients: 3 must divide 4"),
    "shard of the optimizer": (job(parallelism="parallelism: {tp: 2, shard: {optimizer: @3}}\n"), 2,
                               "parallelism.shard.optimizer: 3 must divide 4"),
    "Ulysses": (job(parallelism="parallelism: {cp: 4, context: {kind: ulysses, ulysses: @3}}\n"), 2,
                "parallelism.context.ulysses: 3 must divide cp 4"),
    "USP": (job(parallelism="parallelism: {cp: 4, context: {kind: usp, ulysses: @3}}\n"), 2,
            "parallelism.context.ulysses: 3 must divide cp 4"),
    "vocabulary on two chains": (
        job(parallelism="parallelism: {pp: 4, schedule: {kind: dualpipe, vocabulary_parallel: @algorithm-1}}\n"), 2,
        "parallelism.schedule.vocabulary_parallel: needs one chain, dualpipe has 2"),
    "gathers without an end": (
        job(parallelism="parallelism: {pp: 2, zero: 3, schedule: {kind: pipedream-2bw, fsdp: @true}}\n"), 2,
        "parallelism.schedule.fsdp: needs a step with an end"),
    "a list that waits for itself": (
        job(training=training("steps: 10").replace("128", "8"), parallelism="parallelism: {pp: 2, schedule: @{kind: csv, file: dead.csv}}\n"), 3,
        "parallelism.schedule: deadlock: rank 0 waits at 0B0 for 1B0"),
    "a list with a stage that nobody runs": (
        job(training=training("steps: 10").replace("128", "8"), parallelism="parallelism: {pp: 2, schedule: @{kind: csv, file: odd.csv}}\n"), 3,
        "parallelism.schedule: deadlock: rank 0 waits at 0B0 for 1B0 (which no rank runs)"),
    "memory": (job(parallelism="parallelism: @{zero: 0}\n"), 3, "parallelism: does not fit: pipeline rank 0 of 1 needs"),
    "memory, a block of lines": (job(parallelism="parallelism:\n  @zero: 0\n"), 3, "parallelism: does not fit"),
    "a duration of ages": (job(training=training("duration: @20000 y")), 2, "training.duration: makes a run of 20,000 years"),
    "tokens of ages": (job(training=training("tokens: @1e20")), 2, "training.tokens: makes a run of"),
    "steps of ages": (job(training=training("steps: @1000000000000")), 2, "training.steps: makes a run of"),
    "a unit that slipped": (job(failures="failures:\n  - {name: gpu, component: gpu, mtbf: @1 us}\n"), 2,
                            "failures.0.mtbf: makes 'gpu' strike"),
    "the second cause": (job(failures="failures:\n  - {name: a, component: gpu, mtbf: 1 y}\n  - {name: b, component: gpu, mtbf: @1 us}\n"), 2,
                         "failures.1.mtbf: makes 'b' strike"),
    "maintenance all the time": (job(failures="failures: [{kind: maintenance, first: 0 s, every: @1 us, length: 1 s}]\n"), 2,
                                 "failures.0.every: makes 'maintenance' strike"),
    "a restless calendar": (
        job(failures="failures: [{kind: fleet, name: f, component: gpu, mtbf: 100 h, calendar: @[{kind: periodic, period: 1 s, factors: [1, 2]}]}]\n"), 2,
        "failures.0.calendar: a calendar changes 6.3e+09 times in a century"),
    "a restless speed of repair": (
        job(failures="failures: [{kind: fleet, name: f, component: gpu, mtbf: 100 h, repair_speed: @[{kind: periodic, period: 1 s, factors: [1, 2]}]}]\n"), 2,
        "failures.0.repair_speed: a calendar changes 6.3e+09 times in a century"),
    "no room on storage": (job(checkpoint="checkpoint: {engine: async, keep: @100}\n"), 3, "checkpoint.keep: 100 needs room for 101 saves"),
    "no room, the engine as a mapping": (job(checkpoint="checkpoint: {engine: {kind: async, keep: @100}}\n"), 3,
                                         "checkpoint.engine.keep: 100 needs room for 101 saves"),
    "an impatient watchdog": (job(checkpoint="checkpoint:\n  engine: sync\n  watchdog: @1 ms\n"), 3,
                              "checkpoint.watchdog: a save stalls training for"),
    "no room in host memory": (job(checkpoint="checkpoint:\n  @engine: async\n  resident: 10 TB\n"), 3,
                               "checkpoint: engine async holds"),
}  # fmt: skip
LISTS = {
    "dead.csv": "0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1\n",
    "odd.csv": "0F0,0B0,0F1,0B1\n7F0,7B0,7F1,7B1\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in LISTS.items():
        Path(name).write_text(text)
    return tmp_path


def written(marked: str, name: str = "job.yaml") -> str:
    """Write a scenario; where its mark stands, as ``file:line:column``."""
    before = marked[: marked.index("@")]
    Path(name).write_text(marked.replace("@", ""))
    return f"{name}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("marked", "code", "words"), LATE.values(), ids=LATE)
class TestEveryKind:
    def test_run_and_check_tell_the_place(self, cli: Cli, marked: str, code: int, words: str) -> None:
        place = written(marked)
        for command in (["check", "job.yaml"], ["run", "job.yaml", "--replicas", "1"]):
            ran = cli(*command)
            assert (ran.code, ran.out) == (code, "")
            assert ran.err.startswith(f"{place}: {words}")

    def test_json_of_check_has_it_in_fields(self, cli: Cli, marked: str, code: int, words: str) -> None:
        file, line, column = written(marked).split(":")
        problem = cli("check", "job.yaml", "--json").json["scenarios"][0]["problems"][0]
        assert (problem["file"], problem["line"], problem["column"]) == (file, int(line), int(column))
        assert f"{problem['path']}: {problem['message']}".startswith(words)


SHARD = job(parallelism="parallelism: {tp: 2, shard: {optimizer: @3}}\n")
OFTEN = job(failures="failures:\n  - {name: gpu, component: gpu, mtbf: @1 us}\n")


@pytest.mark.usefixtures("folder")
class TestEveryCommand:
    """One error of the step and one of the run's set-up, by whatever command meets them."""

    @pytest.mark.parametrize("marked", [SHARD, OFTEN], ids=["step", "run"])
    @pytest.mark.parametrize(
        "more",
        [
            ["compare", "job.yaml", "good.yaml"],
            ["compare", "good.yaml", "job.yaml"],
            ["run", "good.yaml", "job.yaml"],
            ["sweep", "job.yaml", "--over", "checkpoint.interval=5 min,10 min", "--workers", "1"],
            ["sweep", "job.yaml", "--over", "checkpoint.interval=5 min,10 min", "--workers", "2"],
            ["sweep", "job.yaml", "--optimum", "checkpoint.interval=5 min..10 min"],
            ["importance", "job.yaml", "--range", "checkpoint.interval=5 min..10 min", "--draws", "2", "--replicas", "2"],
        ],
        ids=lambda more: " ".join(more[:4]),
    )
    def test_tells_the_place_and_runs_nothing(self, cli: Cli, marked: str, more: list[str]) -> None:
        place = written(marked)
        Path("good.yaml").write_text(job())
        ran = cli(*more, *(["--replicas", "1"] if "importance" not in more else []))
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(place)

    def test_leaves_no_folder_that_is_in_the_way(self, cli: Cli) -> None:
        written(SHARD)
        over = ["--over", "checkpoint.interval=5 min,10 min", "--replicas", "1", "--workers", "1", "-o", "study"]
        assert cli("sweep", "job.yaml", *over).code == 2
        assert not Path("study").exists()
        Path("job.yaml").write_text(job())
        assert cli("sweep", "job.yaml", *over).code == 0

    def test_both_of_two(self, cli: Cli) -> None:
        places = [written(SHARD, "a.yaml"), written(OFTEN, "b.yaml")]
        ran = cli("compare", "a.yaml", "b.yaml")
        assert ran.code == 2
        assert [line.startswith(place) for line, place in zip(ran.err.splitlines(), places, strict=True)] == [True, True]

    def test_step_and_plan(self, cli: Cli) -> None:
        place = written(SHARD)
        assert cli("step", "job.yaml").err.startswith(f"{place}: parallelism.shard.optimizer: ")
        place = written(job(training=training("steps: 10, step_time: @5 s")))
        ran = cli("plan", "job.yaml", "-q")
        assert (ran.code, ran.err.startswith(f"{place}: training.step_time: gives every layout the same step")) == (2, True)

    def test_plan_of_what_fits_nowhere(self, cli: Cli) -> None:
        place = written(job().replace("llama3-8b", "llama3-405b").replace("cluster:\n  nodes", "cluster:\n  @nodes"))
        ran = cli("plan", "job.yaml", "-q", "--space", "tp=8", "--space", "schedules=1f1b")
        assert ran.code == 3
        assert ran.err.startswith(f"{place}: cluster: none of ")

    def test_plan_whose_run_cannot_be_set_up(self, cli: Cli) -> None:
        place = written(OFTEN)
        ran = cli("plan", "job.yaml", "-q", "--space", "tp=2", "--layouts", "1", "--replicas", "1")
        assert (ran.code, ran.err.startswith(f"{place}: failures.0.mtbf: ")) == (2, True)

    def test_engines_of_a_job(self, cli: Cli) -> None:
        place = written(OFTEN)
        assert f"! async: {place}: failures.0.mtbf: makes 'gpu' strike" in cli("list", "engines", "--for", "job.yaml").out

    def test_a_point_of_a_sweep(self, cli: Cli) -> None:
        """The values of a point stand in its option; the others complete."""
        Path("good.yaml").write_text(job())
        ran = cli("sweep", "good.yaml", "--over", "failures.0.mtbf=1 ns,200 h", "--replicas", "1", "--json")
        assert ran.code == 1
        wrong, right = ran.json["points"]
        assert wrong["error"].startswith("--over failures.0.mtbf: failures.0.mtbf: makes 'crash' strike")
        assert right["error"] is None

    def test_points_of_which_one_is_wrong_and_one_impossible(self, cli: Cli) -> None:
        """No point is left to be run: both are told, and nothing is answered."""
        Path("good.yaml").write_text(job())
        ran = cli("sweep", "good.yaml", "--over", "training.micro_batch=32,3", "--replicas", "1")
        assert (ran.code, ran.out) == (2, "")
        assert "parallelism: does not fit" in ran.err
        assert "training.global_batch: 128 must be a multiple of micro_batch 3" in ran.err

    def test_a_range(self, cli: Cli) -> None:
        Path("good.yaml").write_text(job())
        ran = cli("importance", "good.yaml", "--range", "failures.0.mtbf=1 ns..2 ns", "--draws", "2", "--replicas", "2")
        assert ran.code == 2
        assert ran.err.startswith("--range failures.0.mtbf: failures.0.mtbf: makes 'crash' strike")


@pytest.mark.usefixtures("folder")
class TestWhoWroteIt:
    def test_the_file_that_is_extended(self, cli: Cli) -> None:
        place = written(SHARD, "base.yaml")
        Path("child.yaml").write_text("extends: base.yaml\nname: child\n")
        assert cli("step", "child.yaml").err.startswith(f"{place}: parallelism.shard.optimizer: 3 must divide 4")

    def test_the_file_that_overrides(self, cli: Cli) -> None:
        Path("base.yaml").write_text(job(parallelism="parallelism: {tp: 2, shard: {optimizer: 2}}\n"))
        place = written("extends: base.yaml\nname: child\nparallelism: {shard: {optimizer: @3}}\n", "child.yaml")
        assert cli("step", "child.yaml").err.startswith(f"{place}: parallelism.shard.optimizer: 3 must divide 4")

    def test_an_option(self, cli: Cli) -> None:
        Path("good.yaml").write_text(job())
        ran = cli("step", "good.yaml", "--set", "parallelism.shard.optimizer=3")
        assert ran.err.startswith("--set parallelism.shard.optimizer=3: parallelism.shard.optimizer: 3 must divide 4")

    def test_standard_input(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        import io
        import sys

        place = written(SHARD, "f").removeprefix("f")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SHARD.replace("@", "").encode())))
        assert cli("step", "-").err.startswith(f"<stdin>{place}: parallelism.shard.optimizer: ")

    def test_a_preset(self, cli: Cli) -> None:
        """What a preset says is shown where its name stands, with a word on it."""
        place = written(job(failures="failures: @llama3-h100\n"))
        ran = cli("check", "job.yaml", "--set", "cluster.nodes=131072", "--set", "training.global_batch=1048576",
                  "--set", "training.steps=null", "--set", "training.duration=9000 y")  # fmt: skip
        assert ran.code == 2
        assert ran.err.startswith(f"{place}: failures.0.mtbf: makes '")
        assert ran.err.endswith("(mtbf is not written here: what 'llama3-h100' stands for counts)\n")

    def test_a_default(self, cli: Cli) -> None:
        """What is not written at all is shown at what was: the block, or the top of the file."""
        Path("job.yaml").write_text(HEAD + TRAINING.replace("recompute: full", "recompute: none"))
        ran = cli("step", "job.yaml")
        assert ran.code == 3
        assert ran.err.startswith("job.yaml:1:1: parallelism: does not fit")
        assert ran.err.endswith(" (parallelism is not written here: its default counts)\n")
        place = written(job(checkpoint="checkpoint: @{engine: async}\n").replace("1 TB", "0.2 TB"))
        ran = cli("check", "job.yaml")
        assert ran.err.startswith(f"{place}: checkpoint.keep: 1 needs room for 2 saves")
        assert ran.err.endswith(" (keep is not written here: its default counts)\n")
