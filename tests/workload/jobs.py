"""Small jobs that the tests of the cost model share."""

from __future__ import annotations

from typing import Any

from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.step import StepModel
from clustersim.workload.layers import Slice
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.stack import Stack
from clustersim.workload.training import Training

STORAGE = {"kind": "shared-filesystem", "write_bandwidth": 1e12, "read_bandwidth": 1e12}


def gpt(layers: int = 8, hidden: int = 2048, heads: int = 16, seq: int = 2048, **more: Any) -> TransformerModel:
    """A GPT-3-like block: GELU, learned positions, biases, dropout."""
    data = {
        "layers": layers,
        "hidden": hidden,
        "ffn_hidden": 4 * hidden,
        "heads": heads,
        "vocab": 51200,
        "gated_mlp": False,
        "positions": seq,
        "biases": True,
        "norm": "layernorm",
        "dropout": True,
    }
    return TransformerModel.model_validate({**data, **more})


def llama(layers: int = 8, hidden: int = 2048, heads: int = 16, **more: Any) -> TransformerModel:
    """A Llama-like block: SwiGLU, rotary, no biases."""
    data = {"layers": layers, "hidden": hidden, "ffn_hidden": 3 * hidden, "heads": heads, "vocab": 32000}
    return TransformerModel.model_validate({**data, **more})


def cluster(nodes: int = 1, node: Any = "dgx-h100", **more: Any) -> Cluster:
    """A cluster of one node type."""
    return Cluster.model_validate({"nodes": nodes, "node": node, "storage": STORAGE, **more})


def training(**more: Any) -> Training:
    """A short job."""
    return Training.model_validate({"seq_len": 2048, "global_batch": 64, "steps": 1, **more})


def step(
    model: TransformerModel | None = None,
    nodes: int = 1,
    node: Any = "dgx-h100",
    layout: dict[str, Any] | None = None,
    schedule: Any = "1f1b",
    profile: Any = None,
    stack: Stack | None = None,
    **more: Any,
) -> StepModel:
    """A step model; ``more`` goes to ``training``."""
    return StepModel(
        model=model or llama(),
        cluster=cluster(nodes, node),
        training=training(**more),
        layout=Layout.model_validate(layout or {}),
        schedule=schedule,
        profile=profile,
        stack=stack,
    )


def cut(tokens: int = 2048, tp: int = 1, sequence_parallel: bool = False, **more: Any) -> Slice:
    """One sequence of ``tokens`` tokens on one GPU."""
    data = {
        "sequences": 1,
        "length": tokens,
        "tokens": tokens,
        "tp": tp,
        "cp": 1,
        "ep": 1,
        "expert_tp": 1,
        "sequence_parallel": sequence_parallel,
    }
    return Slice(**{**data, **more})
