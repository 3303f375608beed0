"""The best time between checkpoints: Young, Daly, and the exact optimum of exponential failures.

Symbols: τ training time between saves, d what a save stalls, M mean time between interruptions.
"""

from __future__ import annotations

import math


def young(dump_s: float, mtbf_s: float) -> float:
    """Young 1974: √(2 d M), seconds."""
    return math.sqrt(2 * dump_s * mtbf_s)


def daly_first_order(dump_s: float, mtbf_s: float) -> float:
    """Daly 2006, first order: √(2 d M) − d, seconds."""
    return max(young(dump_s, mtbf_s) - dump_s, 0.0)


def daly(dump_s: float, mtbf_s: float) -> float:
    """Daly 2006, higher order: √(2dM) (1 + √(d/2M)/3 + (d/2M)/9) − d for d < 2M, else M; seconds."""
    if dump_s >= 2 * mtbf_s:
        return mtbf_s
    part = dump_s / (2 * mtbf_s)
    return young(dump_s, mtbf_s) * (1 + math.sqrt(part) / 3 + part / 9) - dump_s


def exact(dump_s: float, mtbf_s: float) -> float:
    """The exact optimum under exponential failures, τ = M (1 + W₀(−e^{−(1 + d/M)})), seconds.

    It maximises τ ÷ (e^{(τ+d)/M} − 1) and does not depend on the restart time; the goodput of asynchronous saves has
    the same optimum with the stall for d. Found as the root of τ = M (1 − e^{−(τ+d)/M}), which is free of the
    cancellation that Lambert's W suffers near its branch point.
    """
    if dump_s == 0:
        return 0.0
    ratio = dump_s / mtbf_s
    x = min(math.sqrt(2 * ratio), 1.0)
    for _ in range(60):
        error = x + math.expm1(-(x + ratio))
        step = error / -math.expm1(-(x + ratio))
        x -= step
        if abs(step) <= 1e-15 * x:
            break
    return x * mtbf_s
