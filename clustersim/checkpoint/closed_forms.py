"""Closed forms of checkpointing under exponential failures: what a run must come to where their assumptions hold.

λ = 1/M. All times in one unit.
"""

from __future__ import annotations

import math


def sync_goodput(mtbf: float, interval: float, stall: float, restart: float, restart_fails: bool = True) -> float:
    """Useful ÷ wall time of blocking saves.

    τ ÷ (M e^{R/M} (e^{(τ+d)/M} − 1)) where failures strike the restart too, τ ÷ ((M + R)(e^{(τ+d)/M} − 1)) where not
    (Daly 2006).
    """
    after = mtbf * math.exp(restart / mtbf) if restart_fails else mtbf + restart
    return interval / (after * math.expm1((interval + stall) / mtbf))


def async_goodput(mtbf: float, interval: float, stall: float, persist: float, restart: float) -> float:
    """Useful ÷ wall time of saves that are durable ``persist`` after their stall, one in flight, restart undisturbed.

    τ e^{−(τ+s+P)/M} ÷ ((1 − e^{−(τ+s)/M})(M + R)); τ ≥ P.
    """
    period = interval + stall
    return interval * math.exp(-(period + persist) / mtbf) / (-math.expm1(-period / mtbf) * (mtbf + restart))


def lost_per_failure(interval: float, stall: float, persist: float) -> float:
    """First-order work lost at a failure: τ² ÷ (2(τ+s)) + τ(s+P) ÷ (τ+s)."""
    return interval**2 / (2 * (interval + stall)) + interval * (stall + persist) / (interval + stall)


def meta_ettr(nodes: int, rate: float, interval: float, write: float, restart: float) -> float:
    """Meta's estimator (Kokolis et al. 2024, arXiv 2410.21680), small losses only.

    (1 − N r (u₀ + Δt/2)) ÷ (1 + w/Δt), ``rate`` failures a node and unit of time.
    """
    return (1 - nodes * rate * (restart + interval / 2)) / (1 + write / interval)


def two_level_goodput(interval: float, rounds: int, stalls: tuple[float, float], rates: tuple[float, float],
                      restarts: tuple[float, float]) -> float:  # fmt: skip
    """Useful ÷ wall time of two levels: every save on the first, every ``rounds``-th on the second too.

    A failure of class 1 goes back to the last save, one of class 2 to the last on the second level; failures strike
    training and saves, not restarts. With i intervals since the last save on the second level, L_i = τ + C₁ (+ C₂ for
    i = k − 1), P_i = e^{−λ L_i}, E_i the mean time of a failure within L_i, q = λ₁ ÷ λ:
    V_i (1 − (1 − P_i) q₁) = P_i (L_i + V_{i+1}) + (1 − P_i)(E_i + q₁ R₁ + q₂ R₂ + q₂ V₀), V_k = 0. Goodput = k τ ÷ V₀.
    Each V_i is written as a + b V₀ and solved from the end.
    """
    rate = rates[0] + rates[1]
    one, two = rates[0] / rate, rates[1] / rate
    a, b = 0.0, 0.0
    for i in range(rounds - 1, -1, -1):
        length = interval + stalls[0] + (stalls[1] if i == rounds - 1 else 0.0)
        kept = math.exp(-rate * length)
        failed = -math.expm1(-rate * length)
        struck = 1 / rate - length * kept / failed
        scale = 1 - failed * one
        a = (kept * (length + a) + failed * (struck + one * restarts[0] + two * restarts[1])) / scale
        b = (kept * b + failed * two) / scale
    return rounds * interval * (1 - b) / a


def two_level_optimum(stalls: tuple[float, float], rates: tuple[float, float]) -> tuple[float, float]:
    """First-order optimum: τ* = √(2 C₁ ÷ λ₁), and k τ* = √(2 C₂ ÷ λ₂)."""
    return math.sqrt(2 * stalls[0] / rates[0]), math.sqrt(2 * stalls[1] / rates[1])


def relative_mfu(step: float, stall: float) -> float:
    """MFU with a stall at every step ÷ MFU without: t ÷ (t + stall)."""
    return step / (step + stall)
