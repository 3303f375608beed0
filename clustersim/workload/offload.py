"""Optimizer state, gradients, parameters and activations off the GPU: four queues and the host memory they share.

Queues: GPU, copies out (device to host), copies in (host to device), host (CPU optimizer); NVMe reads and writes are
two more. A task list per chunk (a DeepSpeed sub-group) flows through them in order; each queue does one thing at a
time. All ranks of a node share its memory bandwidth, whatever moves the bytes: the CPU optimizer, DMA copies, casts.

Bytes a parameter: CPU Adam 30 (fp32 weight, two moments and gradient read 16, three written 12, 16-bit copy written 2;
ZeRO-Offload, arXiv 2101.06840); casting a 16-bit gradient into the fp32 buffer 12 (2 staged in, 2 read, 4 written twice
because a cached store first reads its line); state that a GPU updates instead moves 14 in (state 12, gradient 2) and 12
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

CPU_ADAM_BYTES = 30.0
CAST_BYTES = 12.0
GPU_STATE_IN, GPU_STATE_OUT = 14.0, 12.0
WEIGHT_COPY_IN = 4.0
"""Updated fp32 weights copied to the GPU and cast there, where the stack does not overlap it."""
HOST_SHARE = 0.34
"""CPU Adam's share of the datasheet memory bandwidth: Deep Optimizer States logs, 13B, 1 to 4 A100 on one EPYC 7543P
(204.8 GB/s): 7.9, 6.0 and 5.8 s a step fit 70 GB/s; the two-socket node of the same logs fits 0.32."""
CAST_SECONDS = 0.45e-9
"""One process casts one gradient into pageable memory in 0.45 ns (same logs, one GPU: backward with and without the
cast)."""

Task = tuple[str, float]


def queue_seconds(chunks: Sequence[Sequence[Task]]) -> float:
    """Makespan of chunks whose tasks (queue, seconds) run in order, chunks in order on each queue."""
    free: dict[str, float] = {}
    last = 0.0
    for chunk in chunks:
        now = 0.0
        for queue, seconds in chunk:
            now = max(now, free.get(queue, 0.0)) + seconds
            free[queue] = now
        last = max(last, now)
    return last


class Host(NamedTuple):
    """A host as one of its GPUs sees it when all of them are at work."""

    memory_rate: float
    """Bytes/s of host memory that all ranks of the node share (sustained, not the datasheet's)."""
    ranks: int
    """Ranks of the job on the node."""
    copy_out: float
    """Device to pinned host memory, bytes/s a GPU."""
    copy_in: float
    disk_read: float = 8e9
    """Bytes/s of the node's disks, all ranks together."""
    disk_write: float = 4e9

    def memory_seconds(self, size: float) -> float:
        """Seconds in which this rank's ``size`` bytes pass through host memory while all ranks do the same."""
        return size * self.ranks / self.memory_rate


def gradient_flush_seconds(parameters: float, host: Host, *, asynchronous: bool, backward: float = 0.0) -> float:
    """Seconds that moving ``parameters`` 16-bit gradients to fp32 buffers on the host adds to the backward pass.

    Synchronous (DeepSpeed): copy out, then cast in pageable memory, all exposed. Asynchronous (cast on the GPU, 4 bytes
    each into pinned buffers): copies hide behind ``backward`` seconds of computation.
    """
    if asynchronous:
        return max(0.0, 4 * parameters / host.copy_out - backward)
    copy = 2 * parameters / host.copy_out
    return copy + parameters * max(CAST_SECONDS, CAST_BYTES * host.ranks / host.memory_rate)


def update_seconds(parameters: float, host: Host, *, ratio: float = 1.0, gpu_every: int | None = None,
                   overlap: bool = False, gpu_rate: float = 0.0, subgroup: float = 1e8) -> float:  # fmt: skip
    """Seconds of one optimizer step over ``parameters`` of this rank with state in host memory.

    ``ratio``: share of the parameters whose state is on the host (DeepSpeed TwinFlow), the rest is updated on the GPU
    at ``gpu_rate`` parameters/s first. ``gpu_every`` = k: every k-th sub-group's state is copied to the GPU, updated
    there and copied back (Deep Optimizer States, arXiv 2410.21316) beside the CPU's. ``overlap``: copies of updated
    weights run beside the update. Bounded below by all bytes through host memory.
    """
    on_gpu = parameters * (1 - ratio) / gpu_rate if ratio < 1 and gpu_rate else 0.0
    count = max(1, round(parameters * ratio / subgroup))
    each = parameters * ratio / count
    adam = host.memory_seconds(CPU_ADAM_BYTES * each)
    weights = ("in", (2.0 if overlap else WEIGHT_COPY_IN) * each / host.copy_in)
    moved = 0.0
    chunks: list[list[Task]] = []
    for index in range(count):
        if gpu_every and index % gpu_every == gpu_every - 1:
            moved += GPU_STATE_IN + GPU_STATE_OUT
            gpu = each / gpu_rate if gpu_rate else 0.0
            chunks.append(
                [
                    ("in", GPU_STATE_IN * each / host.copy_in),
                    ("gpu", gpu),
                    ("out", GPU_STATE_OUT * each / host.copy_out),
                ]
            )
        elif overlap:
            moved += CPU_ADAM_BYTES + 2
            chunks.append([("host", adam), weights])
        else:
            moved += CPU_ADAM_BYTES
            chunks.append([("host", adam), ("host", weights[1])])
    return on_gpu + max(queue_seconds(chunks), host.memory_seconds(moved * each))


def nvme_update_seconds(parameters: float, host: Host, *, overlap: bool = False, subgroup: float = 1e8) -> float:
    """Seconds of one optimizer step whose state streams from and to the node's disks (ZeRO-Infinity, arXiv 2104.07857).

    A parameter reads 12 bytes of state and 2 of gradient and writes 12. Without ``overlap`` reading, updating and
    writing of a sub-group take turns (DeepSpeed without pipelined reads and writes), else they are three queues.
    """
    count = max(1, round(parameters / subgroup))
    each = parameters / count
    read, write = 14 * each * host.ranks / host.disk_read, 12 * each * host.ranks / host.disk_write
    adam = host.memory_seconds(CPU_ADAM_BYTES * each)
    if not overlap:
        return count * (read + adam + write)
    return queue_seconds([[("read", read), ("host", adam), ("write", write)]] * count)


def nvme_flush_seconds(parameters: float, host: Host) -> float:
    """Seconds to write ``parameters`` 16-bit gradients to the node's disks behind the backward pass."""
    return 2 * parameters * host.ranks / host.disk_write


def streamed_seconds(layers: int, compute: float, size: float, rate: float, *, overlap: bool = True) -> float:
    """Seconds of a pass whose layers' weights (``size`` bytes each) come from the host at ``rate``, one layer ahead.

    T = first copy + Σ max(compute, copy) of the others + last compute (the layer window of Superpipeline and ATOM).
    """
    copy = size / rate
    if not overlap:
        return layers * (compute + copy)
    return queue_seconds([[("in", copy), ("gpu", compute)]] * layers)


def activation_copies_exposed(size: float, forward: float, backward: float, out_rate: float, in_rate: float,
                              *, overlap: bool = True) -> tuple[float, float]:  # fmt: skip
    """Seconds that copying ``size`` bytes of activations out (behind the forward) and back (ahead of the backward)
    adds.

    Both hide behind the computation beside them; without ``overlap`` all of it shows.
    """
    leave, back = size / out_rate, size / in_rate
    if not overlap:
        return leave, back
    return max(0.0, leave - forward), max(0.0, back - backward)
