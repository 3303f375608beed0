"""From a row to a job: what is read, what is assumed, what is skipped."""

from __future__ import annotations

from typing import Any

import pytest

from clustersim.pipeline.schedule import get_schedule
from clustersim.pipeline.step_memory import memory_report
from clustersim.validation.job import Job, job_of
from clustersim.validation.measured import measured_memory, measured_step
from clustersim.validation.predict import memory_result, predicted_memory, predicted_step, step_result
from clustersim.validation.rows import Row, packaged
from clustersim.validation.shapes import SkipRow
from clustersim.workload.flops import step_flop
from clustersim.workload.training import FullRecompute

BASE = {"gpu": "H100-80GB", "n_gpus": "64", "model_name": "llama3-8b", "seq_len": "8192", "tp": "2", "pp": "2",
        "micro_batch": "1", "global_batch": "128", "precision": "bf16"}  # fmt: skip


def job(**cells: str) -> Job:
    return job_of(Row({**BASE, **cells}))


def test_a_full_row_assumes_only_what_is_blank() -> None:
    read = job(vp="2", zero_stage="1", sequence_parallel="yes", activation_recompute="none", inter_node_net_gbps="3200",
               schedule="interleaved 1F1B")  # fmt: skip
    assert (read.layout.tp, read.layout.pp, read.layout.dp, read.layout.chunks) == (2, 2, 16, 2)
    assert read.cluster.nodes == 8
    assert read.cluster.node.network_bandwidth == pytest.approx(400e9)
    assert set(read.assumed) == {"model"}


def test_every_default_is_written_down() -> None:
    read = job(precision="", micro_batch="")
    assert {"precision", "micro_batch", "chunks", "zero", "sequence_parallel", "schedule", "recompute",
            "network_gbps"} <= read.assumed.keys()  # fmt: skip
    assert all("(" in text for text in read.assumed.values())


@pytest.mark.parametrize(("cells", "reason"), [
    ({"gpu": "TPU v5p"}, "no preset for the hardware 'TPU v5p'"), ({"gpu": ""}, "no preset for the hardware 'not named'"),
    ({"model_name": "GPT 20B"}, "no model shape"), ({"tp": ""}, "no layout"), ({"pp": ""}, "no layout"),
    ({"global_batch": ""}, "no batch"), ({"seq_len": ""}, "sequence length is blank"), ({"n_gpus": "2", "tp": "8"}, "more than"),
    ({"model_name": "Nemotron-H-56B"}, "state-space"), ({"n_gpus": ""}, "number of GPUs is blank"),
])  # fmt: skip
def test_rows_that_cannot_be_run_say_why(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(SkipRow, match=reason):
        job(**cells)
    result = step_result(Row({**BASE, "step_time_s": "1", **cells}))
    assert result.skipped is not None
    assert reason in result.skipped
    assert result.error_pct is None


def test_columns_make_the_model_and_override_a_preset() -> None:
    shape = {"n_layers": "30", "hidden": "3072", "n_heads": "32", "vocab": "51200"}
    gpt = job(model_name="GPT 3.6B", **shape).model
    assert (gpt.gated_mlp, gpt.tied_embeddings, gpt.ffn_hidden, gpt.biases) == (False, True, 12288, True)
    assert job(n_layers="8", model_name="Llama-3.1-8B").model.layers == 8
    unknown = job(model_name="ours", ffn_hidden="8192", **shape)
    assert unknown.model.gated_mlp
    assert "model.gated_mlp" in unknown.assumed


@pytest.mark.parametrize(
    ("billions", "gated", "tied"),
    [("1.34", True, True), ("1.61", True, False), ("1.08", False, True), ("5", False, True)],
)
def test_a_name_that_tells_nothing_leaves_the_style_to_the_count(billions: str, gated: bool, tied: bool) -> None:
    """16 layers of 2,048 with an MLP of 8,192 and 131,072 words: 1.34 billion only if it is gated and the head tied."""
    shape = {"n_layers": "16", "hidden": "2048", "n_heads": "32", "ffn_hidden": "8192", "vocab": "131072"}
    model = job(model_name=f"{billions}B", params_b=billions, **shape).model
    assert (model.gated_mlp, model.tied_embeddings) == (gated, tied)


def test_key_value_heads_that_do_not_divide_are_noted_and_a_wrong_shape_is_skipped() -> None:
    shape = {"model_name": "GPT 175B", "n_layers": "96", "hidden": "12288", "vocab": "64000"}
    read = job(**shape, n_heads="128", n_kv_heads="96")
    assert read.model.kv == 128
    assert "model.kv_heads" in read.assumed
    with pytest.raises(SkipRow, match="no model of this shape"):
        job(**{**shape, "model_name": "ours"}, n_heads="7")


def test_experts_from_columns() -> None:
    model = job(model_name="Internal-352B MoE", n_layers="60", hidden="4096", ffn_hidden="14336", n_heads="32", vocab="65536",
                n_experts="32", top_k="3").model  # fmt: skip
    assert model.moe is not None
    assert (model.moe.experts, model.moe.top_k, model.moe.expert_ffn_hidden) == (32, 3, 14336)


def test_a_batch_that_does_not_divide_is_rounded_and_noted() -> None:
    read = job(global_batch="130")
    assert read.training.global_batch == 128
    assert "the nearest to 130" in read.assumed["global_batch"]


@pytest.mark.parametrize(("cells", "kind"), [
    ({}, "1f1b"), ({"vp": "2"}, "interleaved-1f1b"), ({"schedule": "ZB-1p"}, "zb-auto"), ({"pp": "1"}, "1f1b"),
    ({"schedule": "interleaved 1F1B", "vp": "1"}, "1f1b"), ({"schedule": "ZB-V", "vp": "2"}, "zb-v"),
])  # fmt: skip
def test_schedules(cells: dict[str, str], kind: str) -> None:
    assert job(**cells).schedule.kind == get_schedule(kind).kind


def test_fsdp_rows_say_by_hfu_over_mfu_how_much_they_recompute() -> None:
    read = job(model_name="Llama2-13b", tp="1", pp="1", zero_stage="3", activation_recompute="selective", mfu_pct="61",
               hfu_pct="69")  # fmt: skip
    assert isinstance(read.training.recompute, FullRecompute)
    assert read.training.recompute.layers == round(40 * 3 * (69 / 61 - 1))


def test_measured_step_prefers_time_then_tokens_then_rates() -> None:
    cells: dict[str, Any] = {
        "step_time_s": "2.5",
        "tokens_per_s_per_gpu": "7000",
        "tflops_per_gpu": "400",
        "mfu_pct": "40",
    }
    assert measured_step(job(**cells)) == 2.5
    del cells["step_time_s"]
    assert measured_step(job(**cells)) == pytest.approx(128 * 8192 / (7000 * 64))
    del cells["tokens_per_s_per_gpu"]
    read = job(**cells)
    flop = step_flop(read.model, read.training)
    assert measured_step(read) == pytest.approx(flop.model / (400e12 * 64))
    del cells["tflops_per_gpu"]
    assert measured_step(job(**cells)) == pytest.approx(flop.model / (0.4 * 989e12 * 64))
    with pytest.raises(SkipRow, match="no measurement"):
        measured_step(job())


def test_sources_that_count_recomputation_are_taken_at_their_word() -> None:
    row = next(row for row in packaged("megatron-papers") if row.row_id == "megatron_papers_0024")
    read = job_of(row)
    assert measured_step(read) == pytest.approx(24.817, rel=1e-3)  # the paper's own formula, worked in the row's note


def test_memory_counts_in_gib_and_by_the_sources_counter() -> None:
    row = Row({**BASE, "memory_gb": "50"})
    assert measured_memory(job_of(row)) == 50 * 2**30
    result = memory_result(row)
    assert result.predicted is not None
    assert result.metric == "memory_bytes"
    assert result.assumed["memory"].startswith("reserved")


def test_memory_of_the_first_node_leaves_out_the_last_stages() -> None:
    """Megatron's stages lie node after node: four GPUs a node and two replicas put two of four stages on the first."""
    row = {"source": "BigScience tr3", "gpu": "V100-32GB", "gpus_per_node": "4", "n_gpus": "8", "tp": "1", "pp": "4",
           "model_name": "llama2-7b", "precision": "fp16", "micro_batch": "8", "activation_recompute": "full"}  # fmt: skip
    read = job(**row)
    stages = [stage.total for stage in memory_report(read.step()).stages]
    assert max(stages) == stages[-1]
    assert predicted_memory(read) == max(stages[:2])


def test_recipes_that_ran_are_predicted_to_fit() -> None:
    """All of these were run. Gradients of 4 bytes, or a 16-bit copy of weights held in fp8, would turn 58 of them away."""
    rows = [row for table in ("dgxc", "nemo-h100") for row in packaged(table)]
    reports = []
    for row in rows:
        try:
            reports.append(memory_report(job_of(row).step()))
        except SkipRow:
            continue
    assert len(reports) > 200
    assert sum(not report.fits for report in reports) <= 0.01 * len(reports)


def test_a_source_names_the_precisions_whose_weights_are_held_in_them_alone() -> None:
    """Megatron-Bridge's recipes do so in fp8 and mxfp8, not in nvfp4; and 16 bits have no narrower copy to hold."""
    found = {
        words: job(source="Megatron-Bridge performance summary", gpu="GB200", precision=words).training.narrow_weights
        for words in ("BF16", "FP8-CS", "MXFP8", "NVFP4")
    }
    assert found == {"BF16": False, "FP8-CS": True, "MXFP8": True, "NVFP4": False}


def test_doubling_the_batch_nearly_doubles_the_step() -> None:
    once, twice = (predicted_step(job(global_batch=str(batch))) for batch in (512, 1024))
    assert 1.8 < twice / once < 2.0


def test_notes_name_shards_overlap_and_expert_cuts() -> None:
    shared = job(note="optimizer-state shard group zero1=8 (8 GPUs, replicated across groups)")
    assert shared.layout.shard.optimizer == 8
    assert job(note="HSDP; batch 2 per GPU").layout.shard.parameters == 8
    assert job(note="async TP").layout.overlap.tp
    moe = job(model_name="mixtral-8x7b", ep="4", note="ETP=1")
    assert (moe.layout.ep, moe.layout.expert_tp) == (4, 1)


@pytest.mark.parametrize("column", ["step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_pct"])
@pytest.mark.parametrize("value", ["0", "-3"])
def test_what_nothing_can_measure_is_skipped_and_said(column: str, value: str) -> None:
    result = step_result(Row({**BASE, "step_time_s": "", column: value}))
    assert result.skipped == f"no measurement: {column} {value} is not above 0"
    assert result.error_pct is None
