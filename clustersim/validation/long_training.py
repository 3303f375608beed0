"""Suites of long-sequence training: whole steps by method of context parallelism (BurstEngine's tables)."""

from __future__ import annotations

import re
from typing import Any

from clustersim.errors import ClusterSimError
from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.step import StepModel
from clustersim.validation.long_context import A800_NODE, RING_WAIT
from clustersim.validation.results import Result
from clustersim.validation.rows import Row, packaged
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.stack import Stack
from clustersim.workload.training import Training

LAYERS = {"7b": 32, "13b": 40, "14b": 40}
NO_ATTENTION = {"kind": "selective", "ops": ["norm", "activation", "mlp"]}
"""Everything but attention is computed again: its output is kept (selective checkpointing of these systems)."""


def burstengine_training() -> list[Result]:
    """Tokens a second and GPU of 7B to 14B models on 8 to 64 A800, by method."""
    rows = packaged("burstengine-training")
    return [_result(row, f"burstengine_training_{index:04d}") for index, row in enumerate(rows, start=1)]


def _result(row: Row, name: str) -> Result:
    metric, measured = "tokens_per_s_per_gpu", row.number("tokens_per_s_per_gpu")
    reason = _unusable(row, measured)
    if reason is not None:
        return Result(name, metric, skipped=reason)
    method, gpus = row.text("method") or "", row.whole("num_gpus") or 1
    length, degree = row.whole("seq_len_tokens") or 1, row.whole("sp_degree") or row.whole("num_gpus") or 1
    try:
        step = _step(row, method, gpus, length, degree).step_time()
    except ClusterSimError as error:
        return Result(name, metric, skipped=f"cannot be run: {error}")
    assumed = {"fabric": "800 Gbit/s a node (not stated)", "sp_degree": f"{degree}", "recompute": str(_recompute(method)),
               "batch": "one sequence a group"}  # fmt: skip
    sweep = f"{row.text('model')} {gpus} {length}"
    return Result(name, metric, measured, step.tokens / step.seconds / gpus, assumed, group=sweep, label=method)


def _unusable(row: Row, measured: float | None) -> str | None:
    model, note = row.text("model") or "", row.text("note") or ""
    if not measured:
        return "out of memory"
    if model not in LAYERS:
        return "no model shape: layers and hidden size are not stated"
    if "fill-down" in note:
        return "suspected copy of another cell"
    if row.whole("num_gpus") is None:
        return "the number of GPUs is blank"
    if re.search("sparse|SWA", row.text("method") or "", re.IGNORECASE):
        return "sparse mask of unstated density"
    return None


def _step(row: Row, method: str, gpus: int, length: int, degree: int) -> StepModel:
    heads, hidden = row.whole("num_heads") or 1, row.whole("hidden") or 1
    model = TransformerModel.model_validate({
        "layers": LAYERS[row.text("model") or ""], "hidden": hidden, "ffn_hidden": row.whole("ffn_hidden"), "heads": heads,
        "vocab": row.whole("vocab") or 32000,
    })  # fmt: skip
    each = min(8, gpus)
    cluster = Cluster.model_validate({"nodes": gpus // each, "node": {**A800_NODE, "gpus": each, "nics": each},
                                      "network": "infiniband", "storage": "tectonic"})  # fmt: skip
    training = Training.model_validate({"seq_len": length, "global_batch": gpus // degree, "steps": 1, "precision": "bf16",
                                        "grad_dtype": "bf16", "recompute": _recompute(method)})  # fmt: skip
    stack = Stack.model_validate({"preset": "fsdp-2023", "fused_loss": "burst" in method.lower(), "ring_wait": RING_WAIT})
    return StepModel(model=model, cluster=cluster, training=training, layout=_layout(method, degree), schedule="1f1b", stack=stack)


def _recompute(method: str) -> Any:
    """Attention is kept where a method names its selective checkpointing, or is the system's best setting in the paper."""
    name = method.lower()
    if "w/o" in name:
        return "full"
    return NO_ATTENTION if re.search(r"ckpt|^burst-(ring|usp)|weak scaling", name) else "full"


def _layout(method: str, degree: int) -> Layout:
    name = method.lower()
    if "megatron-tp" in name or name == "megatron":
        return Layout(tp=degree, zero=1, sequence_parallel=True)
    burst = "burst" in name and ("baseline" not in name or "bwd_opt" in name)
    kind = ("usp" if "ulysses" in name and "burst" in name or "usp" in name else "ulysses" if "ulysses" in name else
            "ring" if name in ("megatron-cp", "baseline", "burst-baseline", "burst-baseline w. bwd_opt") else "double-ring")  # fmt: skip
    return Layout.model_validate({"cp": degree, "zero": 3, "context": {"kind": kind, "burst": burst}})
