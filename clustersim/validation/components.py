"""Suites of components: matrix products, one layer, collectives. What the step is made of, measured alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, cast

from clustersim.hardware.cluster import Cluster
from clustersim.hardware.collectives import Algorithm, Group, Op, collective_time
from clustersim.hardware.gpu import Gpu
from clustersim.hardware.network import Network
from clustersim.hardware.node import Node
from clustersim.pipeline.step import StepModel
from clustersim.validation.names import NODES, gpu_preset, precision_of_words
from clustersim.validation.results import Result, skip
from clustersim.validation.rows import Row, packaged
from clustersim.workload.device import Device
from clustersim.workload.gemm import gemm_flop, gemm_seconds
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.precision import element_bytes
from clustersim.workload.stack import Stack
from clustersim.workload.training import Training

NETWORKS = (
    (r"p6-b200", "efa-v4"),
    (r"p5", "efa-v2"),
    (r"p4d", "efa-v1"),
    (r"jean zay", "omni-path"),
    (r"", "infiniband"),
)


def _named(rows: list[Row], prefix: str, one: Callable[[Row, str], Result]) -> list[Result]:
    return [one(row, f"{prefix}_{index:04d}") for index, row in enumerate(rows, start=1)]


def mamf() -> list[Result]:
    """TFLOP/s of the best matrix product: ours is what a long run sustains, so somewhat less."""
    return _named(packaged("mamf"), "mamf", _best_product)


def _best_product(row: Row, name: str) -> Result:
    words = row.text("accelerator") or ""
    preset = "h200" if "GH200" in words else gpu_preset(words)
    if preset is None:
        return Result(name, "tflops", skipped=f"no preset for the hardware '{words}'")
    precision = precision_of_words(row.text("dtype") or "") or "bf16"
    m, n, k = (row.whole(key) or 1 for key in ("m", "n", "k"))
    width = element_bytes(precision)
    seconds = gemm_seconds(m, n, k, 1, Device(Gpu.preset(preset)).unit(precision), width, 2.0)
    return Result(name, "tflops", row.number("measured_tflops"), gemm_flop(m, n, k) / seconds / 1e12,
                  {"gpu": preset}, group=precision)  # fmt: skip


def korthikanti_layer() -> list[Result]:
    """Forward and backward of one 22B layer with and without recomputation and sequence parallelism."""
    results = []
    for index, row in enumerate(packaged("korthikanti-layer"), start=1):
        case = row.text("case") or ""
        forward, backward = _layer(case)
        for metric, value in (("forward_ms", forward), ("backward_ms", backward)):
            results.append(Result(f"korthikanti_layer_{index:04d}_{metric.split('_')[0]}", metric, row.number(metric),
                                  1e3 * value, {"stack": "megatron-2021"}))  # fmt: skip
    return results


def _layer(case: str) -> tuple[float, float]:
    """Seconds of a layer's forward, and of its backward with recomputation."""
    parallel = "sequence parallel" in case or "+ SP" in case
    recompute = "full" if "full" in case else "selective" if "selective" in case else "none"
    cluster = Cluster.model_validate({"nodes": 1, "node": "dgx-a100", "storage": "tectonic"})
    training = Training.model_validate({"seq_len": 2048, "global_batch": 4, "micro_batch": 4, "steps": 1, "precision": "fp16",
                                        "recompute": recompute})  # fmt: skip
    step = StepModel(model=TransformerModel.preset("megatron-22b"), cluster=cluster, training=training, schedule="1f1b",
                     layout=Layout(tp=8, sequence_parallel=parallel), stack=Stack.preset("megatron-2021"))  # fmt: skip
    layer = next(iter(step.costs.blocks.values())).dense_layer
    backward = layer.input_gradient.total + layer.weight_gradient.total + layer.recompute.total
    return layer.forward.total, backward


def vtrain_allreduce() -> list[Result]:
    """All-reduce inside a node by size and number of GPUs."""
    return _named(packaged("vtrain-allreduce"), "vtrain_allreduce", _collective)


def collectives() -> list[Result]:
    """All-reduce (and one gather and scatter) of many machines, by size."""
    return _named(packaged("collectives"), "collectives", _collective)


def _collective(row: Row, name: str) -> Result:
    words = row.text("gpu") or ""
    assumed: dict[str, str] = {}
    preset = gpu_preset(words)
    if preset is None:
        preset, assumed["gpu"] = "a100-80g", "a100-80g (not stated; the rates are those of 8 x 100 Gbit/s)"
    size = row.number("size_bytes")
    if size is None:
        size, assumed["size_bytes"] = 4e9, "4 GB (the script's default)"
    if size == 0:
        return skip(row, "time_us", "a message of no bytes")
    op = cast(Op, (row.text("collective") or "all_reduce").replace("_", "-"))
    ranks = row.whole("n_gpus") or 1
    measured = _measured(row, op, size, ranks)
    if not measured:
        return Result(name, "time_us", skipped="no time and no bandwidth")
    ring = "off" in (row.text("algo") or "").lower()
    chosen: Algorithm | Literal["auto"] = "ring" if ring else "auto"
    predicted = collective_time(op, size, _group(row, preset, ranks), algorithm=chosen)
    group = f"{row.text('source')} {ranks} x {preset}"
    return Result(name, "time_us", 1e6 * measured, 1e6 * predicted, assumed, group=group)


def _measured(row: Row, op: str, size: float, ranks: int) -> float | None:
    printed = row.number("time_us")
    if printed:
        return printed * 1e-6
    bus = row.number("busbw_gbytes_s")
    factor = 2 * (ranks - 1) / ranks if op == "all-reduce" else (ranks - 1) / ranks
    return size * factor / (bus * 1e9) if bus else None


def _group(row: Row, preset: str, ranks: int) -> Group:
    each = row.whole("gpus_per_node") or 8
    rate = row.number("inter_node_net_gbps") or 800.0
    intra: dict[str, Any] = {"in_network_reduction": False} if not preset.startswith(("h", "b")) else {}
    shape = {
        "preset": NODES.get(preset, "rtx-4090-8"),
        "gpu": preset,
        "gpus": each,
        "nics": each,
        "nic_bandwidth": rate * 1e9 / 8 / each,
    }
    if intra:
        shape["intra_node"] = intra
    words = (row.text("system") or "").lower()
    network = next(value for pattern, value in NETWORKS if re.search(pattern, words))
    return Group(ranks, min(ranks, each), ranks, Node.model_validate(shape), Network.build(network))
