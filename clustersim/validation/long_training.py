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

FLAT_RINGS = ("megatron-cp", "baseline", "burst-baseline", "burst-baseline w. bwd_opt")
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
    assumed = {
        "fabric": "800 Gbit/s a node (not stated)",
        "sp_degree": f"{degree}",
        "recompute": str(_recompute(method)),
        "batch": "one sequence a group",
    }
    sweep = f"{row.text('model')} {gpus} {length}"
    return Result(name, metric, measured, step.tokens / step.seconds / gpus, assumed, group=sweep, label=method)


def _unusable(row: Row, measured: float | None) -> str | None:
    model, note = row.text("model") or "", row.text("note") or ""
    if not measured:
        return "did not run (out of memory)"
    if model not in LAYERS:
        return "no model shape: layers and hidden size are not stated"
    if "fill-down" in note:
        return "no measurement: suspected copy of another cell"
    if row.whole("num_gpus") is None:
        return "no layout: the number of GPUs is blank"
    if re.search("sparse|SWA", row.text("method") or "", re.IGNORECASE):
        return "no model shape: the density of the sparse mask is not stated"
    return None


def _step(row: Row, method: str, gpus: int, length: int, degree: int) -> StepModel:
    heads, hidden = row.whole("num_heads") or 1, row.whole("hidden") or 1
    model = TransformerModel.model_validate(
        {
            "layers": LAYERS[row.text("model") or ""],
            "hidden": hidden,
            "ffn_hidden": row.whole("ffn_hidden"),
            "heads": heads,
            "vocab": row.whole("vocab") or 32000,
        }
    )
    each = min(8, gpus)
    cluster = Cluster.model_validate(
        {
            "nodes": gpus // each,
            "node": {**A800_NODE, "gpus": each, "nics": each},
            "network": "infiniband",
            "storage": "tectonic",
        }
    )
    training = Training.model_validate(
        {
            "seq_len": length,
            "global_batch": gpus // degree,
            "steps": 1,
            "precision": "bf16",
            "grad_dtype": "bf16",
            "recompute": _recompute(method),
        }
    )
    stack = Stack.model_validate(
        {"preset": "fsdp-2023", "fused_loss": "burst" in method.lower(), "ring_wait": RING_WAIT}
    )
    return StepModel(
        model=model, cluster=cluster, training=training, layout=_layout(method, degree), schedule="1f1b", stack=stack
    )


def _recompute(method: str) -> Any:
    """Attention is kept where a method names its selective checkpointing, or is the system's best setting in the
    paper."""
    name = method.lower()
    if "w/o" in name:
        return "full"
    return NO_ATTENTION if re.search(r"ckpt|^burst-(ring|usp)|weak scaling", name) else "full"


def _layout(method: str, degree: int) -> Layout:
    name = method.lower()
    if "megatron-tp" in name or name == "megatron":
        return Layout(tp=degree, zero=1, sequence_parallel=True)
    burst = "burst" in name and ("baseline" not in name or "bwd_opt" in name)
    if "usp" in name or ("ulysses" in name and "burst" in name):
        kind = "usp"
    elif "ulysses" in name:
        kind = "ulysses"
    else:
        kind = "ring" if name in FLAT_RINGS else "double-ring"
    return Layout.model_validate({"cp": degree, "zero": 3, "context": {"kind": kind, "burst": burst}})


PCIE_NODE = {
    "preset": "dgx-a100",
    "intra_node": {"kind": "pcie", "bandwidth_per_direction": "31.5 GB/s"},
    "nics": 1,
    "nic_bandwidth": "200 Gbit/s",
}
RING_HOST = {"host_forward": "5.5 ms", "host_backward": "9 ms", "ring_wait": "0.4 ms"}
TENSOR_HOST = {"host_forward": "10 ms", "host_backward": "14 ms"}
"""The logs' rows of 1,024 and 2,048 tokens do not depend on the length: rings last 0.75 to 1.1 s, so that the host
issues a layer's forward, recomputation and backward in about 20 ms; tensor parallelism 1.2 to 1.7 s, with six blocking
collectives a layer more."""
SHAPES = {"7b": (32, 4096, 32, 11008), "13b": (40, 5120, 40, 13824)}


def burst_logs() -> list[Result]:
    """Seconds of a training pass (forward and backward) of LLaMA on eight and 32 A100 without NVLink, by method."""
    rows = [row for row in packaged("burst-logs") if row.text("kind") == "train"]
    return [_logged(row, f"burst_logs_{index:04d}") for index, row in enumerate(rows, start=1)]


def _logged(row: Row, name: str) -> Result:
    measured, method = row.number("step_time_s"), row.text("method") or ""
    if not measured:
        return Result(name, "seconds", skipped="failed or out of memory")
    if not (row.text("batch_size") or "").strip():
        return Result(name, "seconds", skipped="no batch: the cell is blank")
    gpus = row.whole("total_gpus_from_filename") or 8
    batch = int(float((row.text("batch_size") or "1").split()[0]))
    step = _logged_step(row, method, gpus, batch)
    time = step.step_time()
    outside = 0.0 if "zero" in method else time.breakdown["dp"] + time.breakdown["optimizer"]
    sweep = f"{row.text('model')} {gpus} {batch} {row.text('seq_len_tokens')}"
    assumed = {"machine": "A100 80 GB on PCIe 4.0, 200 Gbit/s a node (not stated)", "recompute": "full"}
    return Result(name, "seconds", measured, time.seconds - outside, assumed, group=sweep, label=method)


def _logged_step(row: Row, method: str, gpus: int, batch: int) -> StepModel:
    layers, hidden, heads, ffn = SHAPES[row.text("model") or "7b"]
    causal = row.text("mask_tag") == "causal"
    model = TransformerModel.model_validate(
        {
            "layers": layers,
            "hidden": hidden,
            "ffn_hidden": ffn,
            "heads": heads,
            "vocab": 32000,
            "attention": "causal" if causal else "full",
        }
    )
    each = min(8, gpus)
    cluster = Cluster.model_validate(
        {"nodes": gpus // each, "node": {**PCIE_NODE, "gpus": each}, "network": "infiniband", "storage": "tectonic"}
    )
    training = Training.model_validate(
        {
            "seq_len": row.whole("seq_len_tokens"),
            "global_batch": batch,
            "micro_batch": batch,
            "steps": 1,
            "precision": "bf16",
            "grad_dtype": "bf16",
            "recompute": "full",
        }
    )
    flash = "flash" in method
    host = TENSOR_HOST if method.startswith("tp") else RING_HOST
    stack = Stack.model_validate({"preset": "fsdp-2023", "attention": "flash-2" if flash else "unfused", **host})
    if method.startswith("tp"):
        layout = Layout(tp=gpus, zero=0, sequence_parallel="sp" in method)
    else:
        kind = "double-ring" if "burst" in method and gpus > 8 else "ring"
        layout = Layout.model_validate(
            {
                "cp": gpus,
                "zero": 3 if "zero" in method else 0,
                "overlap": {"dp": False},
                "context": {"kind": kind, "burst": "burst" in method},
            }
        )
    return StepModel(model=model, cluster=cluster, training=training, layout=layout, schedule="1f1b", stack=stack)
