"""Suite of sequence-level pipelines: tokens a second of a 7B model on 32 A100 (Seq1F1B's table)."""

from __future__ import annotations

from typing import Any

from clustersim.errors import ClusterSimError
from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.schedule import Schedule
from clustersim.pipeline.step import StepModel
from clustersim.validation.results import Result
from clustersim.validation.rows import Row, packaged
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.training import Training

KINDS = {"1F1B": "1f1b", "1F1B-I": "interleaved-1f1b", "Seq1F1B": "seq1f1b", "Seq1F1B-I": "seq1f1b-i"}


def seq1f1b() -> list[Result]:
    """Tokens a second of all GPUs, by schedule, microbatches and sequence length."""
    return [_result(row, f"seq1f1b_{index:04d}") for index, row in enumerate(packaged("seq1f1b"), start=1)]


def _result(row: Row, name: str) -> Result:
    metric, measured = "tokens_per_s", row.number("throughput_tokens_per_s_total")
    if not measured:
        return Result(name, metric, skipped="did not run (out of memory)")
    try:
        step = _step(row).step_time()
    except ClusterSimError as error:
        return Result(name, metric, skipped=f"cannot be run: {error}")
    assumed = {"layout": "tp 8, pp 4 (from memory in the source)", "vocab": "32000", "recompute": "none"}
    sweep = f"{row.text('seq_len_tokens')} {row.text('num_microbatches')}"
    return Result(
        name, metric, measured, step.tokens / step.seconds, assumed, group=sweep, label=row.text("method") or ""
    )


def _step(row: Row) -> StepModel:
    hidden = row.whole("hidden") or 1
    model = TransformerModel.model_validate(
        {
            "layers": row.whole("num_layers"),
            "hidden": hidden,
            "ffn_hidden": 4 * hidden,
            "heads": row.whole("num_heads"),
            "vocab": 32000,
            "gated_mlp": False,
        }
    )
    cluster = Cluster.model_validate(
        {"nodes": 4, "node": "dgx-a100", "network": "infiniband-hdr", "storage": "tectonic"}
    )
    training = Training.model_validate(
        {
            "seq_len": row.whole("seq_len_tokens"),
            "steps": 1,
            "precision": "bf16",
            "global_batch": row.whole("num_microbatches"),
            "stack": "megatron-2023",
        }
    )
    kind, slices = KINDS[row.text("method") or ""], row.whole("seq_splits_k") or 1
    schedule: dict[str, Any] = {"kind": kind, **({"slices": slices} if "seq" in kind else {})}
    layout = Layout(tp=8, pp=4, chunks=row.whole("virtual_stages_per_device") or 1, sequence_parallel=True)
    return StepModel(model=model, cluster=cluster, training=training, layout=layout, schedule=Schedule.build(schedule))
