"""What offloading adds to a step: the optimizer on the host or NVMe, streamed weights, copied activations."""

from __future__ import annotations

from clustersim.hardware.node import Node
from clustersim.pipeline.step_plan import Plan
from clustersim.workload.build import Blocks
from clustersim.workload.cost import LayerCost
from clustersim.workload.kept import stage_kept_bytes, unit_of
from clustersim.workload.offload import (
    Host,
    activation_copies_exposed,
    gradient_flush_seconds,
    nvme_flush_seconds,
    nvme_update_seconds,
    streamed_seconds,
    update_seconds,
)
from clustersim.workload.optimizer import OPTIMIZER_SHARE
from clustersim.workload.stages import StageContent
from clustersim.workload.training import Offload


def host_of(node: Node, offload: Offload, gpus: int) -> Host:
    """The host as one of its GPUs sees it."""
    copy = node.device_to_host
    return Host(offload.host_memory_rate, min(node.gpus, gpus), copy, copy, node.local_disk_read, node.local_disk_write)


def offloaded_update(plan: Plan, count: float, optimizer_bytes: float, backward: float) -> tuple[float, float]:
    """Seconds that moving gradients adds behind the backward, and of the update itself, for ``count`` parameters."""
    offload, node = plan.training.offload, plan.cluster.node
    host = host_of(node, offload, plan.cluster.gpus)
    if offload.optimizer == "nvme":
        flush = nvme_flush_seconds(count, host)
        update = nvme_update_seconds(count, host, overlap=offload.overlap)
        return max(0.0, flush - backward) if offload.overlap else flush, update
    flush = gradient_flush_seconds(count * offload.ratio, host, asynchronous=offload.overlap, backward=backward)
    rate = node.gpu.memory_bandwidth * OPTIMIZER_SHARE / optimizer_bytes
    update = update_seconds(
        count, host, ratio=offload.ratio, gpu_every=offload.gpu_every, overlap=offload.overlap, gpu_rate=rate
    )
    return flush, update


def offload_exposed(plan: Plan, blocks: Blocks, content: StageContent, cost: LayerCost) -> tuple[float, float]:
    """Seconds that streamed weights and copied activations add to a stage's forward and backward of one unit.

    In the forward they go opposite ways, each at its own rate beside the same computation: the longer one shows. In the
    backward both come in and share the link by their bytes.
    """
    offload, node = plan.training.offload, plan.cluster.node
    weights = 2.0 * blocks.parameters[content.moe > 0].total if offload.parameters != "none" and content.layers else 0.0
    unit = unit_of(plan.cut, blocks.pricer.stack, plan.training.precision)
    kept = offload.activations * stage_kept_bytes(plan.model, unit, plan.training.recompute, content)
    share = kept / (kept + weights * content.layers) if offload.overlap and kept and weights else 0.0
    ahead, back = cost.forward.total, cost.input_gradient.total + cost.weight_gradient.total + cost.recompute.total
    forward = backward = 0.0
    if weights:
        rate = node.device_to_host
        if offload.parameters == "nvme":
            rate = min(rate, node.local_disk_read / node.gpus)
        for seconds, times in ((ahead, 0), (back, 1)):
            own = min(rate, node.device_to_host * (1.0 - share)) if times else rate
            whole = streamed_seconds(content.layers, seconds / content.layers, weights, own, overlap=offload.overlap)
            forward, backward = (forward, backward + whole - seconds) if times else (whole - seconds, backward)
    if kept:
        inward = node.device_to_host * (share if weights and offload.overlap else 1.0)
        out, into = activation_copies_exposed(kept, ahead, back, node.device_to_host, inward, overlap=offload.overlap)
        if offload.overlap:
            return max(forward, out), max(backward, into)
        forward, backward = forward + out, backward + into
    return forward, backward
