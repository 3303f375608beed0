"""Seconds of a matrix product: tiles, waves, split-K, and the memory floor.

``C[M,N] = A[M,K] · B[K,N]``, ``batch`` of them at once. A kernel cuts C into tiles of ``bm`` × ``bn``; each streaming
multiprocessor (SM) works on one tile at a time, so ⌈tiles ÷ SMs⌉ *waves* run one after the other, the last partly
empty. A tile of depth K costs 2·bm·bn·(K + K0) FLOP at the SM's share of the sustained peak, K0 standing for its
prologue and epilogue. Small tiles reuse operands less and reach a smaller share of that rate. The kernel library
takes the best tile. Where tiles are fewer than SMs, K is split over several SMs at a loss (the partial sums go
through memory).

The wave model is the one of NVIDIA's "Matrix Multiplication Background User's Guide" (tile and wave quantisation); tile
shares are CUTLASS' usual ratios; the sustained peak is the GPU preset's ``efficiency.gemm``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

TILES: tuple[tuple[int, int, float], ...] = (
    (256, 128, 1.0),
    (128, 256, 1.0),
    (128, 128, 0.95),
    (128, 64, 0.80),
    (64, 128, 0.80),
    (64, 64, 0.60),
)
"""(bm, bn, share of the sustained rate)."""

SPLIT_DEPTH = 1024
"""Least K that a split leaves to each SM."""
SPLIT_SHARE = 0.85
"""Rate of a split product: its partial sums are written and added up."""


class MatrixUnit(NamedTuple):
    """What a matrix product runs on: the numbers of one GPU type in one precision."""

    flop_per_s: float
    """Sustained peak of the whole GPU (datasheet peak × ``efficiency.gemm`` × clock factor)."""
    sms: int
    memory_per_s: float
    """Bytes/s that operands stream at (datasheet bandwidth × ``efficiency.memory``)."""
    launch_s: float
    depth_overhead: float
    """K0: prologue and epilogue of a tile as extra depth."""


@lru_cache(maxsize=1 << 16)
def gemm_seconds(
    m: int, n: int, k: int, batch: int, unit: MatrixUnit, in_bytes: float = 2.0, out_bytes: float = 2.0
) -> float:
    """Seconds of ``batch`` products C[m,n] = A[m,k]·B[k,n] with operands of ``in_bytes`` and results of
    ``out_bytes``."""
    if min(m, n, k, batch) <= 0:
        return 0.0
    per_sm = unit.flop_per_s / unit.sms
    best = min(_tile_seconds(m, n, k, batch, unit, per_sm, tile) for tile in TILES)
    floor = batch * ((m * k + k * n) * in_bytes + m * n * out_bytes) / unit.memory_per_s
    return max(best, floor) + unit.launch_s


def _tile_seconds(
    m: int, n: int, k: int, batch: int, unit: MatrixUnit, per_sm: float, tile: tuple[int, int, float]
) -> float:
    bm, bn, share = tile
    tiles = -(-m // bm) * -(-n // bn) * batch
    depth, rate = float(k), per_sm * share
    if tiles < unit.sms:
        splits = min(unit.sms // tiles, k // SPLIT_DEPTH)
        if splits > 1:
            depth, rate, tiles = k / splits, rate * SPLIT_SHARE, tiles * splits
    waves = math.ceil(tiles / unit.sms)
    return waves * 2.0 * bm * bn * (depth + unit.depth_overhead) / rate


def gemm_flop(m: int, n: int, k: int, batch: int = 1) -> float:
    """FLOP of the product: 2·M·N·K each."""
    return 2.0 * m * n * k * batch
