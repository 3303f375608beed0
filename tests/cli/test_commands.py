"""Commands as a newcomer uses them: what is printed where, exit codes, JSON, files."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clustersim.cli.app import COMMANDS
from clustersim.scenario.load import load

Cli = Callable[..., Any]


class TestHelp:
    def test_lists_every_command_with_one_line(self, cli: Cli) -> None:
        ran = cli("--help")
        assert ran.code == 0
        assert all(f" {name} " in ran.out for name in COMMANDS)

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_has_help(self, cli: Cli, name: str) -> None:
        ran = cli(name, "-h")
        assert ran.code == 0
        assert "Usage: clustersim" in ran.out
        assert max(map(len, ran.out.splitlines())) <= 80

    def test_version(self, cli: Cli) -> None:
        assert cli("--version").out.startswith("clustersim 0.")

    def test_a_misspelt_command_names_the_nearest(self, cli: Cli) -> None:
        ran = cli("chek")
        assert ran.code == 2
        assert "did you mean 'check'?" in ran.err

    @pytest.mark.parametrize("arguments", [["run"], ["run", "x.yaml", "--replicas", "0"], ["run", "x.yaml", "--bogus"],
                                           ["run", "x.yaml", "--seed", "-1"], ["run", "x.yaml", "--workers", "two"]])  # fmt: skip
    def test_wrong_usage_is_exit_2(self, cli: Cli, arguments: list[str]) -> None:
        assert cli(*arguments).code == 2


class TestInit:
    def test_what_it_writes_checks_out(self, cli: Cli, tmp_path: Path) -> None:
        path = str(tmp_path / "job.yaml")
        assert cli("init", path).code == 0
        assert cli("check", path).code == 0
        text = Path(path).read_text()
        assert sum(line.lstrip().startswith("#") or " # " in line for line in text.splitlines()) > 15

    def test_an_existing_file_is_left_alone(self, cli: Cli, small: str) -> None:
        before = Path(small).read_text()
        ran = cli("init", small)
        assert (ran.code, ran.err) == (2, "small.yaml: exists already and is left alone; name another file\n")
        assert Path(small).read_text() == before

    def test_no_folder(self, cli: Cli, small: str) -> None:
        assert cli("init", "no/such/job.yaml").code == 2

    def test_to_standard_output(self, cli: Cli) -> None:
        assert cli("init", "-").out.startswith("# A training job")


class TestCheck:
    def test_what_is_right(self, cli: Cli, small: str) -> None:
        ran = cli("check", small)
        assert ran.code == 0
        assert ran.out.startswith("small.yaml: ok: llama3-8b, 16 GPUs = tp 2 × pp 1 × cp 1 × dp 8, 8 microbatches; the fullest GPU")

    def test_every_error_of_every_file(self, cli: Cli, small: str) -> None:
        Path("bad.yaml").write_text("naem: x\n")
        ran = cli("check", "bad.yaml", small, "nope.yaml")
        assert ran.code == 2
        assert len(ran.err.splitlines()) == 5
        assert "small.yaml: ok" in ran.out
        assert "Traceback" not in ran.err

    def test_json(self, cli: Cli, small: str) -> None:
        Path("bad.yaml").write_text(Path(small).read_text() + "naem: x\n")
        ran = cli("check", "bad.yaml", small, "--json")
        assert ran.code == 2
        bad, good = ran.json["scenarios"]
        assert (good["exit_code"], good["problems"]) == (0, [])
        assert bad["problems"][0] | {"text": ""} == {
            "file": "bad.yaml", "line": 10, "column": 1, "path": "naem",
            "message": "there is no key 'naem' here; did you mean 'name'?", "text": "",
        }  # fmt: skip

    def test_what_does_not_fit_in_memory_is_exit_3_and_says_what_would(self, cli: Cli, small: str) -> None:
        for command in ("check", "step", "run"):
            ran = cli(command, small, "--set", "model=llama3-70b", "--set", "parallelism.tp=1")
            assert ran.code == 3
            assert "does not fit: pipeline rank 0 of 1 needs" in ran.err
            assert "bytes" in ran.err


class TestRun:
    def test_summary_fits_a_terminal_and_says_what_matters(self, cli: Cli, small: str) -> None:
        ran = cli("run", small)
        assert ran.code == 0
        assert max(map(len, ran.out.splitlines())) <= 80
        for words in ("tokens trained", "ETTR", "MFU", "interruptions", "Where the time goes", "train  ", "Costs most:", "Change first:"):
            assert words in ran.out
        assert "\x1b" not in ran.out

    def test_time_to_train_for_a_run_of_steps(self, cli: Cli, small: str) -> None:
        ran = cli("run", small, "--set", "training.duration=null", "--set", "training.tokens=20e9")
        assert ran.code == 0
        assert "time to train" in ran.out

    def test_json_is_the_contract_s(self, cli: Cli, small: str) -> None:
        ran = cli("run", small, "--json")
        document = ran.json
        assert list(document) == [
            "scenario", "version", "seed", "replicas", "step", "run", "checkpoint", "recovery", "given_up", "warnings"
        ]  # fmt: skip
        assert document["checkpoint"]["interval_s"] == 600.0
        assert (document["scenario"], document["seed"], document["replicas"]) == ("small", 0, 4)
        for name in ("wall_s", "ettr", "goodput_tokens_per_s", "interruptions", "effective_mfu", "gpu_hours", "steps", "tokens",
                     "lost_work_s", "nodes_down_p99", "mtti_s"):  # fmt: skip
            assert set(document["run"][name]) == {"mean", "sd", "p05", "p50", "p95", "ci95"}
        wall = document["run"]["wall_s"]["mean"]
        assert sum(item["mean"] for item in document["run"]["ledger_s"].values()) == pytest.approx(wall, rel=1e-9)
        assert document["run"]["ettr"]["mean"] == pytest.approx(document["run"]["ledger_s"]["train"]["mean"] / wall)
        assert sum(document["step"]["breakdown_s"].values()) == pytest.approx(document["step"]["step_time_s"])

    def test_undefined_is_null(self, cli: Cli, small: str) -> None:
        document = cli("run", small, "--json", "--set", "failures=[]", "--replicas", "1").json
        assert document["run"]["mtti_s"] is None
        assert document["run"]["interruptions"] == {"mean": 0.0, "sd": 0.0, "p05": 0.0, "p50": 0.0, "p95": 0.0, "ci95": None}

    def test_options_rule_over_the_scenario(self, cli: Cli, small: str) -> None:
        document = cli("run", small, "--json", "--seed", "7", "--replicas", "2").json
        assert (document["seed"], document["replicas"]) == (7, 2)

    def test_several_scenarios_give_a_list(self, cli: Cli, small: str) -> None:
        ran = cli("run", small, small, "--json", "-o", "out", "--replicas", "1")
        assert [item["scenario"] for item in ran.json] == ["small", "small"]
        assert sorted(path.name for path in Path("out").iterdir()) == ["small-0", "small-1"]

    def test_the_same_bytes_for_any_number_of_workers_and_executor(self, cli: Cli, small: str) -> None:
        first = cli("run", small, "--json", "--workers", "1").out
        assert cli("run", small, "--json", "--executor", "processes", "--workers", "2").out == first
        assert cli("run", small, "--json", "--executor", "serial").out == first
        assert cli("run", small, "--json", "-o", "out").out == first

    def test_errors_of_all_scenarios_before_anything_runs(self, cli: Cli, small: str) -> None:
        ran = cli("run", small, "nope.yaml", "--set", "simulation.replicas=x", "-o", "out")
        assert ran.code == 2
        assert ran.out == ""
        assert len(ran.err.splitlines()) == 2
        assert not Path("out").exists()

    def test_a_run_that_is_hopeless_is_exit_1_with_the_reason(self, cli: Cli, small: str) -> None:
        ran = cli("run", small, "--set", "training.duration=null", "--set", "training.steps=100000",
                  "--set", "failures=[{name: x, component: job, mtbf: 20 s, severity: process}]", "--replicas", "2")  # fmt: skip
        assert ran.code == 1
        assert "2 of 2 replicas were given up" in ran.err
        assert "time to train   none: 2 replicas were given up" in ran.out
        assert "no progress" in ran.out

    def test_a_run_of_a_duration_without_progress_answers_with_a_warning(self, cli: Cli, small: str) -> None:
        ran = cli("run", small, "--set", "failures=[{name: x, component: job, mtbf: 20 s, severity: process}]",
                  "--replicas", "2", "--json")  # fmt: skip
        assert ran.code == 0
        assert ran.json["run"]["ettr"]["mean"] == 0.0
        assert ran.json["warnings"][0].startswith("2 of 2 replicas: no progress")
        assert ran.err.splitlines() == [f"Warning: {ran.json['warnings'][0]}"]

    def test_why_there_is_no_progress_where_nothing_is_saved(self, cli: Cli, small: str) -> None:
        ran = cli("run", small, "--set", "failures=[{name: x, component: job, mtbf: 20 s, severity: process}]",
                  "--set", "checkpoint=none", "--replicas", "2", "--json")  # fmt: skip
        assert ran.json["warnings"][0].endswith(" s to come back and nothing is ever saved")

    def test_the_interval_that_auto_means_is_printed(self, cli: Cli, small: str) -> None:
        ran = cli("run", small, "--set", "checkpoint.interval=auto", "--json")
        assert 0 < ran.json["checkpoint"]["interval_s"] < 86400
        assert "checkpoints     async, every " in cli("run", small, "--set", "checkpoint.interval=auto").out


class TestFiles:
    def test_everything_is_written(self, cli: Cli, small: str) -> None:
        import pandas as pd

        ran = cli("run", small, "-o", "out/deep", "--json")
        folder = Path("out/deep")
        assert sorted(path.name for path in folder.iterdir()) == [
            "events.parquet", "ledger.parquet", "report.html", "scenario.resolved.yaml", "summary.json"
        ]  # fmt: skip
        summary = json.loads((folder / "summary.json").read_text())
        assert {key: summary[key] for key in ran.json} == ran.json
        assert summary["provenance"]["scenario_sha256"] == load(small).sha256
        assert load(folder / "scenario.resolved.yaml") == load(small)
        ledger = pd.read_parquet(folder / "ledger.parquet")
        assert ledger.groupby("replica")["seconds"].sum().tolist() == pytest.approx([2 * 86400.0] * 4)
        events = pd.read_parquet(folder / "events.parquet")
        assert set(events["replica"]) == {0, 1, 2, 3}
        failures = events[(events["event"] == "failure")].groupby("replica").size().mean()
        assert failures >= summary["run"]["interruptions"]["mean"]

    def test_the_page_is_self_contained_and_escapes(self, cli: Cli, small: str) -> None:
        assert cli("run", small, "-o", "out", "--set", "name=<b>x</b>", "--set", "description=a & <script>b").code == 0
        page = Path("out/report.html").read_text()
        assert "<script>b" not in page
        assert "default-src 'none'" in page
        assert not re.search(r"(?:src|href)=[\"']?(?!#)", page.split("<main", 1)[1].split("<script", 1)[0])
        assert "&lt;b&gt;x&lt;/b&gt;" in page

    def test_a_second_run_replaces_the_first(self, cli: Cli, small: str) -> None:
        cli("run", small, "-o", "out")
        cli("run", small, "-o", "out", "--seed", "5")
        assert json.loads(Path("out/summary.json").read_text())["seed"] == 5
        assert len(list(Path("out").iterdir())) == 5

    @pytest.mark.parametrize(("out", "words"), [("small.yaml", "is a file; -o needs the name of a folder"),
                                                ("small.yaml/x", "cannot be written to: Not a directory"),
                                                ("/proc/x", "cannot be written to")])  # fmt: skip
    def test_a_folder_that_cannot_be(self, cli: Cli, small: str, out: str, words: str) -> None:
        ran = cli("run", small, "-o", out)
        assert ran.code == 2
        assert words in ran.err


    @pytest.mark.parametrize("arguments", [("run", "-o", "out"), ("run", "--trace", "run.json"), ("step", "--timeline", "t.html")])
    def test_a_full_disk_is_no_wrong_input(self, cli: Cli, small: str, arguments: tuple[str, ...],
                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        ran = cli(arguments[0], small, *arguments[1:])
        assert ran.code == 1
        assert ran.err.splitlines()[-1].startswith(f"clustersim: {arguments[2]}")
        assert ran.err.splitlines()[-1].endswith(": the disk is full")
        assert not list(Path.cwd().rglob(".*.tmp"))


class TestStep:
    def test_summary(self, cli: Cli, small: str) -> None:
        ran = cli("step", small)
        assert ran.code == 0
        assert max(map(len, ran.out.splitlines())) <= 80
        assert all(words in ran.out for words in ("step  ", "MFU", "HFU", "memory", "Where the step goes", "compute"))

    def test_json(self, cli: Cli, small: str) -> None:
        report = cli("step", small, "--json").json
        for key in ("step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu", "bubble_fraction",
                    "model_flops_per_step", "microbatches", "breakdown_s", "memory"):  # fmt: skip
            assert key in report
        assert {"peak_bytes", "limit_bytes", "stages"} <= set(report["memory"])

    @pytest.mark.parametrize("name", ["t.html", "t.json", "t.svg"])
    def test_timeline(self, cli: Cli, small: str, name: str) -> None:
        assert cli("step", small, "--timeline", name).code == 0
        assert Path(name).stat().st_size > 500

    def test_timeline_of_no_known_kind(self, cli: Cli, small: str) -> None:
        ran = cli("step", small, "--timeline", "t.bmp", "--json")
        assert (ran.code, ran.out) == (2, "")
        assert (cli("schedule", "evaluate", "gpipe", "--timeline", "t.bmp").out) == ""


class TestList:
    def test_kinds(self, cli: Cli) -> None:
        ran = cli("list")
        assert all(kind in ran.out for kind in ("gpus", "nodes", "models", "schedules", "engines", "strategies", "distributions"))

    @pytest.mark.parametrize(("kind", "names"), [("gpus", ["h100-sxm", "mi300x"]), ("engines", ["async", "sync", "none"]),
                                                 ("schedules", ["1f1b", "zb-v"]), ("failures", ["llama3-h100", "component"]),
                                                 ("networks", ["llama3-roce", "fat-tree"])])  # fmt: skip
    def test_names_with_one_line_each(self, cli: Cli, kind: str, names: list[str]) -> None:
        ran = cli("list", kind)
        assert ran.code == 0
        found = {line.split()[0]: line for line in ran.out.splitlines()}
        assert all(name in found and len(found[name].split()) > 2 for name in names)

    def test_sources(self, cli: Cli) -> None:
        ran = cli("list", "gpus", "--only", "h100-sxm")
        assert "source of memory_bandwidth: NVIDIA H100 datasheet" in ran.out
        assert "source of" not in cli("list", "gpus").out

    def test_parts_tell_what_they_follow(self, cli: Cli) -> None:
        assert "    source of order: Huang et al., GPipe, arXiv 1811.06965" in cli("list", "schedules", "--only", "gpipe").out
        assert "Wang et al., SOSP 2023" in cli("list", "engines", "--only", "gemini").out
        engines = {item["name"]: item["notes"] for item in cli("list", "engines", "--json").json}
        assert engines["gemini"].startswith("Wang et al., SOSP 2023")
        assert engines["none"] == ""

    def test_json(self, cli: Cli) -> None:
        gpus = {item["name"]: item for item in cli("list", "gpus", "--json").json}
        assert gpus["h100-sxm"]["values"]["memory_bandwidth"] == "3.35 TB/s"
        assert "memory" in gpus["h100-sxm"]["sources"]
        parts = {item["name"]: item for item in cli("list", "distributions", "--json").json}
        assert parts["lognormal"]["keys"]["median"] == {"required": True, "default": None}

    def test_engines_in_numbers_for_a_job(self, cli: Cli, small: str) -> None:
        from clustersim.checkpoint.engine import CheckpointEngine

        assert "clustersim list engines --for" in cli("list", "engines").out
        ran = cli("list", "engines", "--for", small)
        kinds = {kind for kind, part in CheckpointEngine.kinds.items() if part.kind == kind}
        assert kinds <= {line.split()[0].lstrip("! ").rstrip(":") for line in ran.out.splitlines() if line}
        assert max(map(len, ran.out.splitlines())) <= 80
        told = {document["engine"]: document for document in cli("list", "engines", "--for", small, "--json").json}
        assert kinds <= set(told)
        one = cli("list", "engines", "--only", "gemini", "--for", small, "--json").json
        assert [document["engine"] for document in one] == ["gemini"]
        assert one[0] == told["gemini"]
        assert {"stall_s", "durable_s", "stall_mean_s", "tiers", "host_memory_bytes", "interval_best_s"} <= set(one[0])
        assert cli("list", "gpus", "--for", small).code == 2

    def test_an_engine_that_a_job_cannot_have_says_why(self, cli: Cli, small: str, tmp_path: Path) -> None:
        path = tmp_path / "little-memory.yaml"
        path.write_text(f"extends: [{small}]\ncluster: {{node: {{host_memory: 1 GB}}}}\ncheckpoint: {{engine: sync}}\n")
        ran = cli("list", "engines", "--for", str(path))
        assert ran.code == 0
        assert any(line.startswith("! gemini: ") and "host memory a node" in line for line in ran.out.splitlines())

    def test_unknown(self, cli: Cli) -> None:
        assert "did you mean 'gpus'?" in cli("list", "gpu").err
        assert cli("list", "gpus", "--only", "h100").code == 2


class TestSchedule:
    def test_export_check_evaluate(self, cli: Cli, tmp_path: Path) -> None:
        path = str(tmp_path / "s.csv")
        assert cli("schedule", "export", "zb-h1", "--pp", "4", "-m", "8", "-o", path).code == 0
        assert cli("schedule", "check", path).code == 0
        by_file = cli("schedule", "evaluate", path, "--json").json
        assert by_file == cli("schedule", "evaluate", "zb-h1", "--pp", "4", "-m", "8", "--json").json
        assert {"makespan", "bubble", "rank_span", "peak_in_flight", "messages", "idle_by_cause"} <= set(by_file)

    @pytest.mark.parametrize(("arguments", "words"), [
        (("evaluate", "1f1b", "--pp", "100000", "-m", "100000"), "= 10,000,000,000 is more than 1,000,000"),
        (("export", "seq1f1b", "--pp", "4", "-m", "8", "--set", "slices=100000"), "= 3,200,000 is more than 1,000,000"),
        (("evaluate", "1f1c"), "there is no schedule '1f1c'; did you mean '1f1b'?"),
        (("evaluate", "1f1c.csv"), "1f1c.csv: cannot read the op list"),
        (("evaluate", "hanayo", "--chunks", "3"), "to be a multiple of 2 (w waves are v = 2w chunks), got 3"),
    ])  # fmt: skip
    def test_what_cannot_be_laid_out(self, cli: Cli, arguments: tuple[str, ...], words: str) -> None:
        ran = cli("schedule", *arguments)
        assert ran.code == 2
        assert words in ran.err

    def test_one_f_one_b_has_the_bubble_of_the_formula(self, cli: Cli) -> None:
        found = cli("schedule", "evaluate", "1f1b", "--pp", "8", "-m", "16", "--json").json
        assert found["bubble"]["work"] == pytest.approx(7 / 16)

    def test_a_faulty_list_is_exit_1_and_a_deadlock_3(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "s.csv"
        path.write_text("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n")
        assert cli("schedule", "check", str(path)).code == 1
        path.write_text("0F0,0B0\n1B0,1F0\n")
        ran = cli("schedule", "check", str(path))
        assert ran.code == 3
        assert "waits for ever" in ran.err

    @pytest.mark.parametrize("arguments", [["export", "zb-h9"], ["export", "1f1b", "--set", "foo=3"], ["evaluate", "nope.csv"],
                                           ["evaluate", "1f1b", "--costs", "F=x"], ["evaluate", "1f1b", "--costs", "F=-1"],
                                           ["evaluate", "1f1b", "--costs", "Q=1"], ["export", "dualpipe", "--pp", "3"]])  # fmt: skip
    def test_wrong_input_is_exit_2(self, cli: Cli, arguments: list[str]) -> None:
        ran = cli("schedule", *arguments)
        assert ran.code == 2
        assert "Traceback" not in ran.err


def test_schema_is_json(cli: Cli) -> None:
    assert cli("schema").json["title"] == "clustersim scenario"


def test_schedules_are_compared_side_by_side(cli: Callable[..., Any], tmp_path: Path) -> None:
    both = cli("schedule", "evaluate", "zb-h1", "1f1b", "--pp", "4", "--microbatches", "8", "--json").json
    assert [(item["schedule"], item["makespan"]) for item in both] == [("zb-h1", 27.0), ("1f1b", 33.0)]
    told = cli("schedule", "evaluate", "zb-h1", "1f1b", "--timeline", str(tmp_path / "two.svg"))
    assert "+22.22%" in told.out
    assert (tmp_path / "two.svg").stat().st_size > 1000


def test_hanging_communication_is_found(cli: Callable[..., Any], tmp_path: Path) -> None:
    """Both ranks send before they receive: buffered sends hide it, a rendezvous hangs unless messages are eager."""
    path = tmp_path / "late.csv"
    path.write_text(
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"
    )
    found = cli("schedule", "check", str(path), "--model", "rendezvous")
    assert found.code == 3
    assert "rank 0 at 0SEND_F1" in found.err
    assert cli("schedule", "check", str(path), "--model", "buffered").code == 0
    small = ("--eager-bytes", "1000", "--message-bytes", "500")
    assert cli("schedule", "check", str(path), *small).code == 0
    wrong = cli("schedule", "check", str(path), "--model", "streem")
    assert wrong.code == 2
    assert "did you mean 'stream'" in wrong.err


def test_designs_that_differ_in_saving_alone_are_told_in_numbers(cli: Callable[..., Any], small: str) -> None:
    for engine in ("async", "gemini"):
        Path(f"{engine}.yaml").write_text(f"extends: [{small}]\nname: {engine}\ncheckpoint: {{engine: {engine}, interval: 20 s}}\n")
    ran = cli("compare", "async.yaml", "gemini.yaml", "--replicas", "2")
    lines = ran.out.splitlines()
    header = next(line for line in lines if line.startswith("saving"))
    assert header.split() == ["saving", "stall", "first", "copy", "storage", "every", "auto", "memory", "load"]
    rows = {line.split()[0]: line for line in lines[lines.index(header) + 1 :] if line}
    assert "host" in rows["gemini"]
    assert "20 s" in rows["async"]
    both = cli("compare", "async.yaml", "gemini.yaml", "--replicas", "2", "--json").json
    assert [document["engine"] for document in both["checkpoint"]] == ["async", "gemini"]
    Path("other.yaml").write_text(f"extends: [{small}]\nname: other\ncheckpoint: {{interval: 20 s}}\ntraining: {{steps: 300}}\n")
    assert "\nsaving " not in cli("compare", "async.yaml", "other.yaml", "--replicas", "2").out
