"""Core attention: how many query-key pairs, in how many FLOP and seconds, by kernel generation.

A kernel *generation* is a property of the software stack: ``unfused`` (two batched products and a softmax through
memory: Megatron until 2022), ``flash-1`` and ``triton`` (2022–23), ``flash-2`` (2023), ``cudnn`` and ``flash-3``
(2024 on). The share of the bf16 peak that a flash kernel reaches at head size 128 on a long sequence stands in the
GPU preset (``efficiency.attention_forward`` / ``attention_backward``); it falls with the head size as (d/128)^0.35
and with the sequence as s/(s+400).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from clustersim.workload.gemm import MatrixUnit, gemm_seconds
from clustersim.workload.model import Attention, Causal, Full, Linear, SlidingWindow

HEAD_EXPONENT = 0.2
"""Rate against head size: eight A100 at 131,072 tokens reach 185 TFLOP/s with heads of 128 and 140 with 32 (long-context-
attention benchmark of FlashAttention-2, feifeibear, 56118e0: 47.6 and 63 ms of equal work)."""
SEQUENCE_HALF = 400.0
"""Sequence length at which a flash kernel reaches half of its long-sequence rate (FlashAttention-2, figures 4 to 7)."""
BACKWARD_FLOP = 2.5
"""Five products backward (one of them the scores again) against two forward: Dao et al. 2022."""
LINEAR_CHUNK = 64
"""Chunk of the chunked linear attention kernel (tokens)."""


class AttentionShape(NamedTuple):
    """Core attention of one layer on one GPU for one microbatch."""

    sequences: float
    heads: float
    """Query heads on this GPU."""
    kv_heads: float
    length: int
    """Tokens of the whole sequence (before context parallelism)."""
    head_dim: int
    """Size of queries and keys."""
    value_dim: int
    share: float
    """Part of this sequence's pairs that falls to this GPU (1 ÷ cp)."""


def pairs_per_sequence(attention: Attention, length: int, mask_share: float = 1.0) -> float:
    """Query-key pairs that a mask keeps in one sequence; ``mask_share`` is the part that document masks leave.

    Causal masks count s²/2, as every published FLOP formula does (the diagonal's half is ignored).
    """
    s = float(length)
    if isinstance(attention, Full):
        return s * s * mask_share
    if isinstance(attention, Linear):
        return 0.0
    if isinstance(attention, SlidingWindow) and is_windowed(attention, length):
        w = float(attention.window)
        return (s * w - w * w / 2) * mask_share
    return s * s / 2 * mask_share


def core_flop(attention: Attention, shape: AttentionShape, mask_share: float = 1.0, full: bool = False) -> float:
    """Forward FLOP of core attention on this GPU; ``full`` counts the whole square, as unfused kernels compute it."""
    widths = shape.head_dim + shape.value_dim
    if isinstance(attention, Linear):
        tokens = shape.sequences * shape.length * shape.share
        return 2.0 * tokens * shape.heads * (2.0 * shape.head_dim * shape.value_dim + LINEAR_CHUNK * widths / 2)
    kind: Attention = Full() if full else attention
    pairs = pairs_per_sequence(kind, shape.length, 1.0 if full else mask_share)
    return 2.0 * widths * pairs * shape.sequences * shape.heads * shape.share


def flash_rate(efficiency: float, peak: float, head_dim: int, length: int) -> float:
    """FLOP/s of a flash kernel: share of peak × head-size law × length law."""
    by_head: float = (min(head_dim, 128) / 128.0) ** HEAD_EXPONENT
    return peak * efficiency * by_head * length / (length + SEQUENCE_HALF)


class UnfusedBytes(NamedTuple):
    """Memory traffic of unfused attention, bytes an element of the score matrix."""

    forward: float
    backward: float


SOFTMAX = UnfusedBytes(4.0, 6.0)
"""Fused scale-mask-softmax reads and writes 2 bytes forward; backward reads two operands and writes one."""
PLAIN_SOFTMAX = UnfusedBytes(18.0, 11.0)
"""Without the fused kernel: casts to fp32 and back, a masked fill and the softmax, each through memory. Read off the
passes of arXiv 2401.10241 Table 9, which lie 14 to 25 bytes a score above the fused count forward, 3 to 14 backward."""
DROPOUT = UnfusedBytes(5.0, 5.0)
"""Attention dropout: read, write, and a mask byte."""
LAYOUT_FORWARD, LAYOUT_BACKWARD = 1.3, 1.15
"""Extra traffic of the batched products' and softmax' strided views; from Korthikanti et al. 2022 Table 4: selective
recompute costs 1.3 ms a layer, which is a second forward of this core."""


@lru_cache(maxsize=1 << 12)
def unfused_forward_seconds(
    sequences: float,
    heads: float,
    length: int,
    head_dim: int,
    value_dim: int,
    dropout: bool,
    unit: MatrixUnit,
    fused_softmax: bool = True,
) -> float:
    """Seconds of unfused core attention forward: Q·Kᵀ, softmax (and dropout) through memory, P·V."""
    batch = max(1, round(sequences * heads))
    scores = sequences * heads * float(length) * length
    per_element = (
        (SOFTMAX if fused_softmax else PLAIN_SOFTMAX).forward + (DROPOUT.forward if dropout else 0.0)
    ) * LAYOUT_FORWARD
    memory = scores * per_element / unit.memory_per_s + (2 if dropout else 1) * unit.launch_s
    products = gemm_seconds(length, length, head_dim, batch, unit) + gemm_seconds(
        length, value_dim, length, batch, unit
    )
    return products + memory


@lru_cache(maxsize=1 << 12)
def unfused_backward_seconds(
    sequences: float,
    heads: float,
    length: int,
    head_dim: int,
    value_dim: int,
    dropout: bool,
    unit: MatrixUnit,
    fused_softmax: bool = True,
) -> float:
    """Seconds of unfused core attention backward: four products, softmax and dropout gradients through memory."""
    batch = max(1, round(sequences * heads))
    scores = sequences * heads * float(length) * length
    per_element = (
        (SOFTMAX if fused_softmax else PLAIN_SOFTMAX).backward + (DROPOUT.backward if dropout else 0.0)
    ) * LAYOUT_BACKWARD
    memory = scores * per_element / unit.memory_per_s + (2 if dropout else 1) * unit.launch_s
    wide = gemm_seconds(length, length, value_dim, batch, unit) + gemm_seconds(length, value_dim, length, batch, unit)
    return wide + 2 * gemm_seconds(length, head_dim, length, batch, unit) + memory


def is_windowed(attention: Attention, length: int) -> bool:
    """Whether a token of a sequence of ``length`` sees its last ones only."""
    return isinstance(attention, SlidingWindow) and attention.window < length


def is_causal(attention: Attention) -> bool:
    """Whether a token sees only earlier ones."""
    return isinstance(attention, (Causal, SlidingWindow))
