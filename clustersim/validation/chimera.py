"""Suites of the Chimera paper's figures: schedules on Piz Daint (P100, Aries dragonfly) and on V100 nodes."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from clustersim.errors import ClusterSimError
from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.schedule import Schedule
from clustersim.pipeline.step import StepModel
from clustersim.validation.results import Result
from clustersim.validation.rows import Row, packaged
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.training import Training

BERT = {
    "layers": 48,
    "hidden": 1024,
    "ffn_hidden": 4096,
    "heads": 16,
    "vocab": 30522,
    "gated_mlp": False,
    "attention": "full",
    "positions": 512,
    "dropout": True,
    "norm": "layernorm",
    "biases": True,
}
GPT2 = {
    "layers": 64,
    "hidden": 1280,
    "ffn_hidden": 5120,
    "heads": 20,
    "vocab": 50257,
    "gated_mlp": False,
    "positions": 632,
    "dropout": True,
    "norm": "layernorm",
    "biases": True,
}
SCHEDULES: dict[str, Any] = {
    "GPipe": "gpipe",
    "DAPPLE": "1f1b",
    "PipeDream-2BW": "pipedream-2bw",
    "Chimera": "chimera",
    "Chimera direct": "chimera",
    "Chimera doubling": {"kind": "chimera", "concatenation": "forward-doubling"},
    "Chimera halving": {"kind": "chimera", "concatenation": "backward-halving"},
}
NONE = {
    "GEMS": "no schedule: GEMS has no op list here",
    "PipeDream": "no schedule: PipeDream updates after every microbatch, it has no step of a global batch",
}


HASWELL_HOST = {"host_forward": "2.4 ms", "host_backward": "4.4 ms"}
"""Host of Piz Daint with PyTorch of 2020: at microbatch 1 a layer costs 8.3 ms (forward and backward, 1F1B) to 8.2 ms
(with recomputation, GPipe) at 3 to 24 layers a stage (figure 10), where its kernels last 2.8 to 4 ms."""


GLOO_INFINIBAND = {"kind": "ethernet", "efficiency": 0.15, "latency": "3 ms", "startup": "2 ms"}
GLOO_V100 = {"preset": "dgx-1-v100", "intra_node": {"kind": "pcie", "bandwidth_per_direction": "15.75 GB/s"}}
"""What GLOO reaches on Aries (preset ``aries-dragonfly``) is taken for InfiniBand as well. The V100 nodes have
NVLink, but GLOO moves tensors through host memory: PCIe 3.0 and no peer access."""


class Case(NamedTuple):
    """One point of a figure."""

    model: str
    scheme: str
    nodes: int
    stages: int
    micro_batch: int
    batch: int
    recompute: bool
    length: int
    gpu: str = "P100"


def tuning() -> list[Result]:
    """Sequences a second of Bert-48 and GPT-2 by scheme, depth and microbatch (figures 10 and 11)."""
    return [
        _tuned(row, f"{table}_{index:04d}")
        for table in ("chimera-fig10", "chimera-fig11")
        for index, row in enumerate(packaged(table), start=1)
    ]


def _tuned(row: Row, name: str) -> Result:
    measured = row.number("throughput_seqs_per_s")
    if not measured:
        return Result(name, "sequences_per_s", skipped="did not run (out of memory)")
    case = Case(
        row.text("model") or "",
        row.text("scheme") or "",
        row.whole("num_nodes_1xP100") or 1,
        row.whole("D_stages") or 1,
        row.whole("B_micro_batch") or 0,
        row.whole("mini_batch_seqs") or 1,
        row.text("activation_recompute") == "yes",
        row.whole("seq_len_tokens") or 1,
    )
    return _result(case, name, measured, f"{case.model} {case.nodes} {case.batch}")


def scaling() -> list[Result]:
    """Sequences a second at growing numbers of GPUs (figures 14 to 16)."""
    return [
        _scaled(row, f"chimera-scaling_{index:04d}") for index, row in enumerate(packaged("chimera-scaling"), start=1)
    ]


def _scaled(row: Row, name: str) -> Result:
    measured, gpus = row.number("throughput_seqs_per_s"), row.whole("num_gpus") or 1
    depth = _depth(row.text("D_stages") or "", gpus)
    micro = row.text("B_micro_batch") or ""
    if not measured or depth is None or not micro.replace(".", "").isdigit():
        return Result(name, "sequences_per_s", skipped="no layout: no single depth or microbatch is given")
    case = Case(
        row.text("model") or "",
        row.text("scheme") or "",
        gpus,
        depth,
        int(float(micro)),
        row.whole("mini_batch_seqs") or 1,
        row.text("activation_recompute") == "yes",
        row.whole("seq_len_tokens") or 1,
        "V100" if "V100" in (row.text("gpu") or "") else "P100",
    )
    return _result(case, name, measured, f"{row.text('figure')} {gpus}")


def _depth(text: str, gpus: int) -> int | None:
    """``4``, or ``4 (16 GPU) / 8``: the first number where its note names this size, else the last."""
    plain = re.fullmatch(r"\d+", text.strip())
    if plain:
        return int(text)
    noted = re.fullmatch(r"(\d+) \((\d+) \w+\) / (\d+)", text.strip())
    if noted is None:
        return None
    return int(noted.group(1)) if int(noted.group(2)) == gpus else int(noted.group(3))


def large_batches() -> list[Result]:
    """Sequences a second at growing batches (figures 17 and 18), microbatch and depth as the legend gives them."""
    rows = packaged("chimera-large-batch")
    return [_large(row, f"chimera-large-batch_{index:04d}") for index, row in enumerate(rows, start=1)]


def _large(row: Row, name: str) -> Result:
    measured, words = row.number("throughput_seqs_per_s"), row.text("scheme_config") or ""
    found = re.fullmatch(r"(.+?) \(B=(\d+)(?:/\d+)?,(R,)?D=(\d+)(?:->(\d+))?\)", words)
    if not measured or found is None:
        return Result(name, "sequences_per_s", skipped="no layout: the legend names no single depth or microbatch")
    batch = row.whole("mini_batch_seqs") or 1
    depth = int(found.group(5) or found.group(4)) if batch > 512 else int(found.group(4))
    case = Case(
        row.text("model") or "",
        found.group(1),
        row.whole("num_nodes_1xP100") or 1,
        depth,
        int(found.group(2)),
        batch,
        found.group(3) is not None,
        row.whole("seq_len_tokens") or 1,
    )
    return _result(case, name, measured, f"{row.text('figure')} {batch}")


def _result(case: Case, name: str, measured: float, sweep: str) -> Result:
    metric = "sequences_per_s"
    if case.scheme in NONE:
        return Result(name, metric, skipped=NONE[case.scheme])
    try:
        seconds = _step(case).step_time().seconds
    except ClusterSimError as error:
        return Result(name, metric, skipped=f"no schedule: {error}")
    assumed = {"stack": "pytorch-2020", "network": "aries-dragonfly" if case.gpu == "P100" else "GLOO on InfiniBand"}
    return Result(name, metric, measured, case.batch / seconds, assumed, group=sweep, label=case.scheme)


def _step(case: Case) -> StepModel:
    replicas = case.nodes // case.stages
    shape = BERT if case.model.startswith("Bert") else GPT2
    node = "piz-daint-p100" if case.gpu == "P100" else GLOO_V100
    each = 1 if case.gpu == "P100" else 8
    cluster = Cluster.model_validate(
        {
            "nodes": -(-case.nodes // each),
            "node": node,
            "storage": "tectonic",
            "network": "aries-dragonfly" if each == 1 else GLOO_INFINIBAND,
        }
    )
    training = Training.model_validate(
        {
            "seq_len": case.length,
            "global_batch": case.batch,
            "micro_batch": case.micro_batch,
            "steps": 1,
            "precision": "fp32",
            "grad_dtype": "fp32",
            "stack": _stack(case),
            "recompute": "full" if case.recompute else "none",
        }
    )
    eager = case.scheme.startswith("Chimera")
    layout = Layout.model_validate(
        {"pp": case.stages, "dp": replicas, "zero": 0, "overlap": {"pp": True, "dp": eager}, "order": "tp-cp-pp-dp"}
    )
    return StepModel(
        model=TransformerModel.model_validate(shape),
        cluster=cluster,
        training=training,
        layout=layout,
        schedule=Schedule.build(SCHEDULES[case.scheme]),
    )


def _stack(case: Case) -> dict[str, Any]:
    """PyTorch of 2020, on Piz Daint's host."""
    return {"preset": "pytorch-2020", **(HASWELL_HOST if case.gpu == "P100" else {})}
