"""Suites of context parallelism: attention kernels over Ulysses × ring splits, and rings of one and two levels."""

from __future__ import annotations

from typing import NamedTuple

from clustersim.hardware.collectives import Group, collective_time
from clustersim.hardware.network import Network
from clustersim.hardware.node import Node
from clustersim.validation.results import Result
from clustersim.validation.rows import Row, packaged
from clustersim.workload.attention import flash_rate
from clustersim.workload.context_parallel import (
    ContextGroup,
    RingWork,
    context_group,
    ring_bytes,
    ring_pass_seconds,
)
from clustersim.workload.device import Device

HOST_STEP, HOST_EXCHANGE = 0.5e-3, 0.6e-3
"""Host time of one ring step and of one all-to-all with its permutations in the benchmark's Python: its rows of 512
and 8,192 tokens, where kernels are shorter than their launches (8x1, 4x2 and 1x8 of eight A100)."""
MERGE_BYTES = 32.0
"""Bytes an output element that folding one block's result into the running one moves in fp32 without a fused kernel."""


class Attention(NamedTuple):
    """Core attention of one call over all ranks."""

    batch: float
    length: int
    heads: int
    kv_heads: int
    head_dim: int

    def flop(self, causal: bool) -> float:
        """Forward FLOP over all ranks."""
        return 4.0 * self.batch * self.length**2 * self.heads * self.head_dim * (0.5 if causal else 1.0)


def kernel_seconds(
    attention: Attention,
    ranks: int,
    ring: int,
    device: Device,
    *,
    backward: bool = False,
    causal: bool = True,
    kernel: str = "flash-2",
) -> float:
    """Seconds of all blocks of one rank if the work is even; blocks of ``length`` ÷ ring tokens set the kernel's
    rate."""
    share = device.flash_shares(kernel)[1 if backward else 0]
    rate = flash_rate(share, device.peak("bf16"), attention.head_dim, attention.length // ring)
    return (2.5 if backward else 1.0) * attention.flop(causal) / ranks / rate


def pass_seconds(
    attention: Attention,
    place: ContextGroup,
    device: Device,
    *,
    balanced: bool,
    causal: bool = True,
    backward: bool = False,
    burst: bool = False,
    fused_merge: bool = False,
    kernel: str = "flash-2",
) -> float:
    """Seconds of one pass on the GPU: kernels, ring messages behind them, merges; exchanges of heads apart."""
    ring, ulysses = place.ring.size, place.ulysses.size
    ranks = ring * ulysses
    even = kernel_seconds(attention, ranks, ring, device, backward=backward, causal=causal, kernel=kernel)
    elements = attention.batch * attention.length * attention.heads * attention.head_dim / ranks
    merge = (
        0.0
        if fused_merge or ring == 1
        else MERGE_BYTES * elements / device.memory_rate * (0.5 if causal and balanced else 1.0)
    )
    tokens = attention.batch * attention.length / ring
    kv = max(1.0, attention.kv_heads / ulysses) * attention.head_dim
    sizes = ring_bytes(
        tokens, attention.heads / ulysses * attention.head_dim, kv, attention.heads / ulysses, 2.0, burst=burst
    )
    work = RingWork(even / (ring * (0.5 if causal else 1.0)), sizes.backward if backward else sizes.forward, merge)
    return ring_pass_seconds(work, place, causal=causal, balanced=balanced)


def exchange_seconds(attention: Attention, place: ContextGroup, *, packed: bool) -> float:
    """Seconds of the all-to-alls of one forward pass: queries, keys, values (packed: in one), and the output."""
    group = place.ulysses
    if group.size == 1:
        return 0.0
    ranks = place.ring.size * group.size
    query = 2.0 * attention.batch * attention.length * attention.heads * attention.head_dim / ranks
    key = query * attention.kv_heads / attention.heads
    sent = [query + 2 * key, query] if packed else [query, key, key, query]
    return sum(collective_time("all-to-all", size, group) for size in sent)


USP_MACHINES = {
    "8x A100-SXM4-80GB NVLink": {"preset": "dgx-a100"},
    "4x A100-80GB PCIe": {
        "preset": "dgx-a100",
        "gpus": 4,
        "intra_node": {"kind": "pcie", "bandwidth_per_direction": "15.75 GB/s"},
    },
    "8x L20 PCIe": {
        "preset": "dgx-a100",
        "gpu": "l20",
        "intra_node": {"kind": "pcie", "bandwidth_per_direction": "31.5 GB/s"},
    },
}


def usp() -> list[Result]:
    """Seconds of one forward call for every split of the ranks (the table's iterations a second, inverted)."""
    return [_usp(row, f"usp_{index:04d}") for index, row in enumerate(packaged("usp"), start=1)]


def _usp(row: Row, name: str) -> Result:
    rate = row.number("iterations_per_s")
    if not rate:
        return Result(name, "seconds", skipped="did not run (out of memory)")
    machine = row.text("hardware") or ""
    node = Node.model_validate(USP_MACHINES[machine])
    ranks, heads = row.whole("num_gpus") or 1, row.whole("num_heads") or 1
    ring, ulysses = row.whole("ring_degree") or 1, row.whole("ulysses_degree") or 1
    attention = Attention(
        row.whole("batch") or 1,
        row.whole("seq_len_tokens_global") or 1,
        heads,
        heads // (row.whole("gqa_group_num") or 1),
        row.whole("head_dim") or 1,
    )
    group = Group(ranks, ranks, ranks, node, Network.build("infiniband"))
    place = context_group(group, "usp", ulysses)
    balanced, packed = row.text("ring_variant") != "basic", row.text("packing") == "qkvpack"
    gpu = pass_seconds(attention, place, Device(node.gpu), balanced=balanced) + exchange_seconds(
        attention, place, packed=packed
    )
    host = ring * HOST_STEP + (0 if ulysses == 1 else (2 if packed else 4) * HOST_EXCHANGE)
    sweep = " ".join(
        row.text(key) or ""
        for key in ("hardware", "seq_len_tokens_global", "num_heads", "head_dim", "ring_variant", "packing")
    )
    return Result(name, "seconds", 1 / rate, max(gpu, host), {"kernel": "flash-2", "mask": "causal"}, group=sweep)


FULL_SHARES = (0.69, 0.62)
"""Forward and backward share of an A100's peak without a mask (no half-empty diagonal blocks): the one-GPU columns of
BurstAttention's README, 215 TFLOP/s forward and 199 for both passes."""
RING_WAIT = 1.5e-3
"""What a ring step adds in these implementations: the stream waits for the message, the next kernels are launched
after it. BurstAttention's README, eight GPUs, 64k and 128k tokens: 1.2 to 2.1 ms a step beyond the kernels."""
A800_NODE = {"preset": "hgx-a800", "nics": 8, "nic_bandwidth": "100 Gbit/s"}


def _full_pass(
    attention: Attention, place: ContextGroup, device: Device, *, backward: bool, burst: bool, fused: bool
) -> float:
    """Seconds of one pass without a mask, kernels at the shares measured on one GPU."""
    ring, ranks = place.ring.size, place.ring.size * place.ulysses.size
    share = FULL_SHARES[1 if backward else 0]
    rate = flash_rate(share, device.peak("bf16"), attention.head_dim, attention.length // ring)
    seconds = (2.5 if backward else 1.0) * attention.flop(causal=False) / ranks / rate
    local = attention.batch * attention.length * attention.heads * attention.head_dim / ranks
    merge = 0.0 if fused or ring == 1 else MERGE_BYTES * local / device.memory_rate
    width = attention.heads / place.ulysses.size * attention.head_dim
    tokens = attention.batch * attention.length / ring
    sizes = ring_bytes(tokens, width, width, attention.heads / place.ulysses.size, 2.0, burst=burst)
    work = RingWork(seconds / ring, sizes.backward if backward else sizes.forward, merge)
    return ring_pass_seconds(work, place, causal=False, balanced=True) + (RING_WAIT * ring if ring > 1 else 0.0)


def burst_attention() -> list[Result]:
    """Milliseconds of BurstAttention on eight A100: forward, and forward with backward."""
    results = []
    node = Node.preset("dgx-a100")
    place = context_group(Group(8, 8, 8, node, Network.build("infiniband")), "ring")
    for index, row in enumerate(packaged("burst-attention"), start=1):
        attention = Attention(
            row.whole("batch") or 1,
            row.whole("seq_len_tokens_global") or 1,
            row.whole("num_heads") or 1,
            row.whole("num_heads") or 1,
            row.whole("head_dim") or 1,
        )
        passes = [
            _full_pass(attention, place, Device(node.gpu), backward=b, burst=True, fused=True) for b in (False, True)
        ]
        for metric, seconds in (("burst_forward_ms", passes[0]), ("burst_fwd_bwd_ms", sum(passes))):
            results.append(
                Result(
                    f"burst_attention_{index:04d}_{metric.split('_')[1]}",
                    metric,
                    row.number(metric),
                    1e3 * seconds,
                    {"mask": "none"},
                    group=metric,
                )
            )
    return results


METHODS = {
    "Megatron-CP": ("ring", False, False),
    "Megatron-RingAttention": ("ring", False, False),
    "LoongTrain-DoubleRing": ("double-ring", False, False),
    "DoubleRing": ("double-ring", False, False),
    "LoongTrain-USP": ("usp", False, False),
    "USP": ("usp", False, False),
    "BurstAttention": ("double-ring", True, True),
}
"""Kind of context parallelism, whether the backward sends Burst's three tensors, whether merging is fused."""


def burstengine_kernel() -> list[Result]:
    """TFLOP/s a GPU of forward and backward attention of 40 heads on 8 and 32 A800, by method."""
    return [
        _burstengine(row, f"burstengine_kernel_{index:04d}")
        for index, row in enumerate(packaged("burstengine-kernel"), start=1)
    ]


def _burstengine(row: Row, name: str) -> Result:
    measured = row.number("tflops_per_gpu")
    if not measured:
        return Result(name, "tflops", skipped="did not run")
    kind, burst, fused = METHODS[row.text("implementation") or ""]
    node = Node.model_validate(A800_NODE)
    ranks, heads = row.whole("num_gpus") or 1, row.whole("num_heads") or 1
    attention = Attention(row.whole("batch") or 1, row.whole("seq_len_tokens_global") or 1, heads, heads, 128)
    place = context_group(Group(ranks, min(8, ranks), ranks, node, Network.build("infiniband")), kind)  # type: ignore[arg-type]
    seconds = sum(
        _full_pass(attention, place, Device(node.gpu), backward=b, burst=burst, fused=fused) for b in (False, True)
    )
    seconds += 2 * exchange_seconds(attention, place, packed=False)
    tflops = 3.5 * attention.flop(causal=False) / ranks / seconds / 1e12
    return Result(
        name,
        "tflops",
        measured,
        tflops,
        {"mask": "none", "fabric": "800 Gbit/s a node (not stated)"},
        group=f"{ranks} {attention.length} {'first' if int(name[-4:]) <= 14 else 'second'} series",
    )
