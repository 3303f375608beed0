"""Suites of offload: DeepSpeed ZeRO-3 with state on the host or on NVMe, and the systems that improve on it."""

from __future__ import annotations

from typing import NamedTuple

from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.dependencies import CODE
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.step import StepModel
from clustersim.validation.results import Result
from clustersim.validation.rows import Row, packaged
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.offload import (
    HOST_SHARE,
    Host,
    gradient_flush_seconds,
    nvme_flush_seconds,
    nvme_update_seconds,
    update_seconds,
)
from clustersim.workload.stack import Stack
from clustersim.workload.training import Training


class Machine(NamedTuple):
    """A node of the logs."""

    node: dict[str, object]
    memory: float
    """Datasheet bandwidth of host memory, bytes/s."""
    why: str


POLARIS = Machine(
    {"preset": "dgx-a100-40g", "gpus": 4, "nics": 2, "nic_bandwidth": "100 Gbit/s"},
    204.8e9,
    "Polaris: four A100 of 40 GB, one EPYC 7543P (eight channels of DDR4-3200), Slingshot 10 (two cards of 100 Gbit/s)",
)
TWO_SOCKETS = Machine(
    {"preset": "dgx-a100", "gpus": 4, "nics": 2, "nic_bandwidth": "200 Gbit/s"},
    409.6e9,
    "A100 by the folder's name; a node of two EPYC sockets is assumed",
)
HOPPER = Machine(
    {"preset": "dgx-h100", "gpus": 4, "nics": 4},
    614.4e9,
    "not stated; the paper's second machine: four H100, two Xeon 8468 (sixteen channels of DDR5-4800)",
)
HOOK_SECONDS = 2.8e-3
"""ZeRO-3's hooks around a layer's pass (fetch, wait, release), on top of its kernels: forward passes of one sequence
last 90 to 220 ms more than their work, 2.6 to 3.1 ms a layer (7B, 8B and 13B of the same logs)."""
OTHER_SECONDS = 0.45
"""What an iteration holds beside forward, backward and update (scaling, norms, logging): the logs' total less their
parts, 0.35 to 0.57 s from 7B to 30B."""
GPU_UPDATE = 0.8 / 30.0
"""Parameters that a GPU updates a byte of its memory bandwidth: 30 bytes each at 0.8 of the datasheet."""


def machine_of(row: Row) -> Machine:
    """The node that a row ran on."""
    if "Polaris" in (row.text("gpu") or ""):
        return POLARIS
    if "A100" in (row.text("gpu") or ""):
        return TWO_SOCKETS
    words = f"{row.text('source')} {row.text('system') or row.text('method')}"
    return HOPPER if "twinflow" in words or "NVMe" in words or "MLP-Offload" in words else POLARIS


def offload() -> list[Result]:
    """Milliseconds of an iteration of the Deep Optimizer States logs."""
    return [_iteration(row, f"offload_{index:04d}") for index, row in enumerate(packaged("offload"), start=1)]


def mlp_offload() -> list[Result]:
    """Milliseconds of an iteration with state on NVMe (MLP-Offload's artifact)."""
    return [_iteration(row, f"mlp_offload_{index:04d}") for index, row in enumerate(packaged("mlp-offload"), start=1)]


def _iteration(row: Row, name: str) -> Result:
    measured, system = row.number("iteration_ms"), row.text("system") or row.text("method") or ""
    if not measured:
        return Result(name, "iteration_ms", skipped="blank")
    machine, ranks = machine_of(row), row.whole("dp") or 1
    step = _step(row, machine, ranks)
    table = step.costs.table.sum(axis=2)
    forward, backward = float(table[CODE[Kind.F]].sum()), float(table[CODE[Kind.B]].sum())
    rounds = row.whole("grad_accum") or 1
    extra, update = _offloaded(row, system, step, machine, ranks, backward)
    hooks = HOOK_SECONDS * 3 * (row.whole("layers") or 1)
    seconds = rounds * (forward + backward + hooks) + extra + update + OTHER_SECONDS
    sweep = f"{row.text('model_label_billion')} {ranks} {row.text('micro_batch_seqs')} {rounds}"
    return Result(name, "iteration_ms", measured, 1e3 * seconds, {"machine": machine.why}, group=sweep, label=system)


def _offloaded(
    row: Row, system: str, step: StepModel, machine: Machine, ranks: int, backward: float
) -> tuple[float, float]:
    """Seconds that the gradients' way to the host adds to a backward, and of the optimizer."""
    node = step.plan.cluster.node
    tp = row.whole("tp") or 1
    each = sum(held.total for held in step.costs.rank_parameters) / ranks
    host = Host(
        HOST_SHARE * machine.memory,
        min(ranks * tp, 4),
        node.device_to_host,
        node.device_to_host,
        node.local_disk_read,
        node.local_disk_write,
    )
    if "NVMe" in system:
        return nvme_flush_seconds(each, host), nvme_update_seconds(each, host)
    if "MLP-Offload" in system:
        # Its second path, a parallel file system beside the disk, is as fast as the disk (artifact's configuration).
        twice = host._replace(disk_read=2 * host.disk_read, disk_write=2 * host.disk_write)
        return 0.0, nvme_update_seconds(each, twice, overlap=True)
    ratio = row.number("cpu_offload_ratio") or 1.0
    ours = "Deep Optimizer" in system
    flush = gradient_flush_seconds(each * ratio, host, asynchronous=ours or "async" in system, backward=backward)
    every = int(row.number("opt_gaps") or 0) if ours else 0
    rate = GPU_UPDATE * node.gpu.memory_bandwidth
    return flush, update_seconds(each, host, ratio=ratio, gpu_every=every or None, overlap=ours, gpu_rate=rate)


def _step(row: Row, machine: Machine, ranks: int) -> StepModel:
    hidden, tp = row.whole("hidden") or 1, row.whole("tp") or 1
    model = TransformerModel.model_validate(
        {
            "layers": row.whole("layers"),
            "hidden": hidden,
            "ffn_hidden": 4 * hidden,
            "heads": row.whole("heads"),
            "vocab": 50304,
            "gated_mlp": False,
            "positions": row.whole("seq_len_tokens"),
            "tied_embeddings": True,
        }
    )
    nodes = -(-ranks * tp // 4)
    cluster = Cluster.model_validate(
        {"nodes": nodes, "node": machine.node, "network": "slingshot", "storage": "tectonic"}
    )
    micro = row.whole("micro_batch_seqs") or 1
    training = Training.model_validate(
        {
            "seq_len": row.whole("seq_len_tokens"),
            "global_batch": micro * ranks,
            "micro_batch": micro,
            "steps": 1,
            "precision": "fp16",
            "grad_dtype": "fp16",
            "recompute": "full",
        }
    )
    stack = Stack.model_validate({"preset": "deepspeed-2022", "attention": "flash-2", "dp_overlaps": True})
    layout = Layout(dp=ranks, tp=tp, zero=3 if ranks > 1 else 0)
    return StepModel(model=model, cluster=cluster, training=training, layout=layout, schedule="1f1b", stack=stack)
