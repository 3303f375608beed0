"""Seconds of the optimizer step on the GPU."""

from __future__ import annotations

from clustersim.workload.device import Device
from clustersim.workload.stack import Stack
from clustersim.workload.stages import LocalParameters
from clustersim.workload.training import Muon, Optimizer

OPTIMIZER_SHARE = 0.8
"""Share of the memory bandwidth that multi-tensor optimizer kernels reach (many small tensors: below the copy
kernels' 0.85)."""
NEWTON_SCHULZ_STEPS = 5
"""Matrix iterations of Muon; each is three products of a matrix with itself."""


def update_seconds(
    parameters: LocalParameters,
    shards: float,
    expert_shards: float,
    device: Device,
    stack: Stack,
    optimizer: Optimizer,
    cut_weights: bool,
) -> float:
    """Seconds of the optimizer step on one GPU.

    Bytes scale with the optimizer's state against Adam's 12 bytes. ZeRO shards all but what touches every local
    parameter (writing the updated weights back); where weights are cut too (ZeRO 3) nothing but the shard is touched.
    """
    scale = (
        (optimizer.state_bytes_per_param + 50.0) / 62.0
        if stack.optimizer_bytes >= 50
        else (optimizer.state_bytes_per_param + 21.0) / 33.0
    )
    whole = stack.optimizer_bytes * scale
    everywhere = min(whole, stack.optimizer_bytes_replicated)
    rate = device.gpu.memory_bandwidth * OPTIMIZER_SHARE
    seconds = 0.0
    for count, over in ((parameters.dense, shards), (parameters.expert, expert_shards)):
        if over <= 1:
            seconds += count * whole / rate
        elif cut_weights:
            seconds += count / over * whole / rate
        else:
            seconds += count * (everywhere + (whole - everywhere) / over) / rate
    return seconds + muon_seconds(parameters, shards, device, optimizer)


def gradient_copy_seconds(parameters: LocalParameters, device: Device, stack: Stack) -> float:
    """Seconds in which a GPU packs its gradients into buckets for their reduction, and copies them back."""
    return parameters.total * stack.gradient_copy_bytes / (device.gpu.memory_bandwidth * OPTIMIZER_SHARE)


def muon_seconds(parameters: LocalParameters, shards: float, device: Device, optimizer: Optimizer) -> float:
    """Seconds that Muon's orthogonalisation adds: five Newton-Schulz steps of three products over every matrix.

    A matrix of n × k costs about 3 · 2 · n · k · min(n, k) FLOP a step; min(n, k) is taken as √(parameters of 12
    matrices).
    """
    if not isinstance(optimizer, Muon):
        return 0.0
    count = parameters.total / max(1.0, shards)
    side: float = (parameters.total / 12) ** 0.5
    return 6.0 * NEWTON_SCHULZ_STEPS * count * side / device.unit("bf16").flop_per_s
