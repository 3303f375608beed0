"""The scripts that need torch, tiny and end to end on a CPU: formats and refusals; times are not asserted here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from clustersim.calibrate.build import build_profile  # noqa: E402
from clustersim.calibrate.load import load  # noqa: E402


def test_measure_writes_files_that_fit(tmp_path: Path) -> None:
    from calibration.__main__ import main

    out = tmp_path / "m"
    assert main(["gemm", "launch", "storage", "-o", str(out), "--device", "cpu", "--quick", "--budget", "20 s"]) == 0
    files = [load(path) for path in sorted(out.glob("*.jsonl"))]
    assert [item.kind for item in files] == ["gemm", "launch", "storage"]
    assert not files[0].skipped
    assert {"median_s", "p25_s", "p75_s", "samples", "state", "flop_per_s"} <= set(files[0].records[0])
    assert files[0].header["versions"]["torch"] == str(torch.__version__)
    profile = build_profile(files, "tiny")
    assert profile.surface("gemm", "fp32") is not None
    assert profile.curve("storage-write") is not None
    assert profile.startup["launch"] > 0
    assert not (out / "scratch").exists()


def test_a_second_run_takes_the_files_up_and_a_budget_of_nothing_skips(tmp_path: Path) -> None:
    from calibration.__main__ import main

    arguments = ["copy", "-o", str(tmp_path), "--device", "cpu", "--quick", "--budget"]
    assert main([*arguments, "0 s"]) == 0
    empty = load(tmp_path / "copy.jsonl")
    assert not empty.records
    assert "out of time" in empty.skipped[0]
    assert main([*arguments, "20 s"]) == 0
    full = load(tmp_path / "copy.jsonl")
    assert len(full.records) == len(empty.skipped)
    assert main([*arguments, "20 s"]) == 0
    assert load(tmp_path / "copy.jsonl").records == full.records


def test_wrong_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from calibration.__main__ import main
    from calibration.verify import main as verify

    assert main(["gemm", "-o", str(tmp_path), "--budget", "ten"]) == 2
    assert "--budget" in capsys.readouterr().err
    assert verify(["pipelines", "-o", str(tmp_path)]) == 2
    assert "there is no part 'pipelines'" in capsys.readouterr().err
    (tmp_path / "verify.json").write_text("{")
    assert verify(["single", "-o", str(tmp_path), "--quick", "--budget", "1s"]) == 2
    assert "verify.json: is damaged" in capsys.readouterr().err
    (tmp_path / "gemm.jsonl").write_text('{"type":"header"}\n')
    assert main(["gemm", "-o", str(tmp_path), "--device", "cpu", "--budget", "5 s"]) == 2
    assert "gemm.jsonl:1: checksum is wrong" in capsys.readouterr().err


def test_every_kind_offers_points_with_distinct_keys(tmp_path: Path) -> None:
    from calibration.__main__ import KINDS
    from calibration.device import Device
    from calibration.plan import Context

    for quick in (True, False):
        for points, _ in KINDS.values():
            keys = [json.dumps(point.key, sort_keys=True) for point in points(Context(Device("cpu"), quick, tmp_path))]
            assert len(keys) == len(set(keys)) > 0


def test_input_and_weight_gradients_together_are_the_backward() -> None:
    from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

    from calibration.gpt import Block, GptSize

    torch.set_num_threads(1)
    torch.manual_seed(0)
    size = GptSize(hidden=32, heads=2, length=8)
    layer, x = Block(size), torch.randn(1, 8, 32, requires_grad=True)
    layer(x).sum().backward()
    whole = {name: p.grad.clone() for name, p in layer.named_parameters() if p.grad is not None}
    layer.zero_grad()
    y = layer(x)
    groups = stage_backward_input([y], [torch.ones_like(y)], [x], layer.parameters())[1]
    stage_backward_weight(layer.parameters(), groups)
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(parameter.grad, whole[name])


def test_stages_together_are_the_model() -> None:
    from calibration.gpt import GptSize, batch_of, stages_of

    size = GptSize(hidden=32, heads=2, layers=4, length=8, vocabulary=16)
    tokens, _ = batch_of(size, 2)
    found = []
    for count in (1, 2, 4):
        x = tokens
        for stage in stages_of(size, count):
            x = stage(x)
        found.append(x.shape)
    assert set(found) == {torch.Size([2, 8, 16])}
    with pytest.raises(ValueError, match="do not divide"):
        stages_of(size, 3)


def test_a_restarted_trainer_goes_on_where_it_saved(tmp_path: Path) -> None:
    from calibration.gpt import GptSize
    from calibration.trainer import Trainer

    torch.set_num_threads(1)
    size = GptSize(hidden=32, heads=2, layers=1, length=8, vocabulary=16, batch=1)
    first = Trainer(size, tmp_path)
    assert not first.restore()
    for _ in range(3):
        first.step()
    first.save()
    second = Trainer(size, tmp_path)
    assert second.restore()
    assert second.step_number == 3
    first.step()
    second.step()
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_saves_that_were_measured_reach_a_scenario(tmp_path: Path) -> None:
    """Measured, fitted, named under `calibration:`: the scenario's engine plans, copies and writes as this machine does."""
    from calibration.__main__ import main
    from clustersim.cli.main import guarded
    from clustersim.scenario.load import load as scenario_of
    from clustersim.scenario.measured import measured_values

    out, profile = tmp_path / "m", tmp_path / "mine.yaml"
    assert main(["storage", "checkpoint", "copy", "-o", str(out), "--device", "cpu", "--quick", "--budget", "60 s"]) == 0
    files = [str(path) for path in sorted(out.glob("*.jsonl"))]
    assert guarded(["fit", "profile", *files, "-o", str(profile), "--files-on", "shared", "-q"]) == 0
    (tmp_path / "job.yaml").write_text(
        "model: llama3-8b\ncluster: {nodes: 2, node: dgx-h100, storage: tectonic}\ncalibration: mine.yaml\n"
        "training: {seq_len: 4096, global_batch: 64, duration: 1 d}\nparallelism: {tp: 8}\n"
        "checkpoint: {engine: async, interval: 10 min}\n")  # fmt: skip
    scenario = scenario_of(str(tmp_path / "job.yaml"))
    assert scenario.calibration is not None
    found = {item.path: item for item in measured_values(scenario.calibration, "async")}
    assert set(scenario.calibration.used_for) == set(found)  # on a busy machine some curves are too wild to be used
    names = [f"checkpoint-dcp-{name}" for name in ("async-blocking", "async-lost", "async-durable", "save", "load")]
    assert all(scenario.calibration.curve(op) for op in (*names, "storage-write", "copy-host pinned=False"))
    if "checkpoint.planning" in found:
        assert scenario.checkpoint.planning == pytest.approx(found["checkpoint.planning"].value)
    if "cluster.node.pinned_bandwidth_per_gpu" in found:
        assert scenario.calibration.used_for["cluster.node.pinned_bandwidth_per_gpu"].instead_of == "46.8 GB/s"


@pytest.mark.prove
def test_a_real_trace_of_torch_is_read(tmp_path: Path) -> None:
    """In a process of its own: the profiler leaves warnings behind."""
    code = f"""
import torch
from torch.profiler import ProfilerActivity, profile, schedule
torch.set_num_threads(1)
a = torch.randn(256, 256, requires_grad=True)
def save(p):
    p.export_chrome_trace({str(tmp_path / "trace.json")!r})
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=2), on_trace_ready=save) as p:
    for _ in range(3):
        torch.nn.functional.gelu(a @ a).sum().backward()
        p.step()
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)
    records = load(tmp_path / "trace.json").records
    assert len(records) == 2
    for record in records:
        assert record["groups_s"]["gemm"] > 0
        assert sum(record["groups_s"].values()) <= 1.001 * record["step_s"]


def test_buckets_of_ddp() -> None:
    from calibration.data_parallel_proof import buckets

    mib = 2.0**20
    assert buckets([mib / 4, mib / 4]) == [mib / 2]
    assert buckets([30 * mib, 1 * mib]) == [1 * mib, 30 * mib]
    assert sum(buckets([mib] * 40)) == 40 * mib


def test_kill_times_are_seeded_poisson_arrivals() -> None:
    from calibration.kill_proof import Killed, kill_times

    assert kill_times(3, 5.0, 100.0) == kill_times(3, 5.0, 100.0)
    count = sum(len(kill_times(seed, 5.0, 100.0)) for seed in range(200))
    assert abs(count - 4000) < 4 * 4000**0.5  # Poisson: four standard deviations
    seen = Killed(20.0, kills=[1.0, 2.0, 9.0], ready=[4.5, 11.0])
    assert seen.down == [2.5, 2.0]
