"""Statistics one can decide with: summaries, paired differences, verdicts, stopping rules, quantiles with intervals.

Replicas are independent, so intervals of a mean are Student's: mean ± t(n−1) · s/√n. Two designs run under one seed see
the same failures (common random numbers): their replicas are paired, and the interval is that of the mean difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

MINIMUM_REPLICAS = 20
"""Stopping earlier makes 95 % intervals cover 91 % (n = 3) to 94 % (n = 10): the spread is underestimated by luck."""

BETTER: dict[str, Literal["high", "low"]] = {
    "ettr": "high", "goodput_tokens_per_s": "high", "effective_mfu": "high", "tokens": "high", "steps": "high",
    "mtti_s": "high", "wall_s": "low", "interruptions": "low", "lost_work_s": "low", "gpu_hours": "low",
    "nodes_down_p99": "low", "cost": "low", "energy_kwh": "low", "gpu_hours_per_btoken": "low",
}  # fmt: skip
"""Which direction is better, for the metrics where one is."""


def t_quantile(p: float, degrees: float) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, p))


def mean_of(values: Sequence[float]) -> float:
    """Arithmetic mean, summed exactly so that the order of replicas cannot show."""
    return math.fsum(values) / len(values)


def sd_of(values: Sequence[float]) -> float:
    """Standard deviation with n − 1; 0 for a single value."""
    return _spread(values, mean_of(values)) if len(values) > 1 else 0.0


def _spread(values: Sequence[float], centre: float) -> float:
    return math.sqrt(math.fsum([(value - centre) * (value - centre) for value in values]) / (len(values) - 1))


def mean_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Student interval of the mean; None for fewer than two values (no spread is known)."""
    n = len(values)
    if n < 2:
        return None
    half = t_quantile(0.5 + level / 2, n - 1) * sd_of(values) / math.sqrt(n)
    centre = mean_of(values)
    return centre - half, centre + half


def quantile(ordered: Sequence[float], p: float) -> float:
    """Linear interpolation between order statistics (Hyndman and Fan's type 7, numpy's default)."""
    place = (len(ordered) - 1) * p
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def quantile_interval(values: Sequence[float], p: float, level: float = 0.95) -> tuple[float, float] | None:
    """Distribution-free interval of a quantile: order statistics whose ranks are binomial quantiles.

    Returns None where so few values cannot bound it (0.05 and 0.95 need 59 and more for a two-sided bound).
    """
    from scipy.special import bdtr

    n, ordered = len(values), sorted(values)
    tail = (1 - level) / 2
    ranks = range(n + 1)
    below = [float(bdtr(rank, n, p)) for rank in ranks]  # P(at most `rank` values lie below the quantile)
    low = max((rank for rank in ranks if rank == 0 or below[rank - 1] <= tail), default=0)
    high = next((rank for rank in ranks if below[rank] >= 1 - tail), n)
    if low == 0 or high >= n:
        return None
    return ordered[low - 1], ordered[high]


def summary(values: Sequence[float | None]) -> dict[str, Any] | None:
    """``{"mean","sd","p05","p50","p95","ci95"}`` of the values that are defined; None when none is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    ordered, n = sorted(known), len(known)
    centre = mean_of(known) if ordered[0] != ordered[-1] else float(ordered[0])
    spread = _spread(known, centre) if n > 1 and ordered[0] != ordered[-1] else 0.0
    half = t_quantile(0.975, n - 1) * spread / math.sqrt(n) if n > 1 else 0.0
    return {"mean": centre, "sd": spread, "p05": quantile(ordered, 0.05), "p50": quantile(ordered, 0.5),
            "p95": quantile(ordered, 0.95), "ci95": [centre - half, centre + half] if n > 1 else None}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """Paired difference a − b of one metric: its mean, 95 % interval, verdict, and replicas that would decide."""

    a: str
    b: str
    metric: str
    mean: float
    ci95: tuple[float, float] | None
    relative: float | None
    verdict: Literal["a", "b", "undecided"]
    replicas: int
    replicas_needed: int | None

    def to_dict(self) -> dict[str, Any]:
        """As in the contract's ``compare`` document."""
        return {"a": self.a, "b": self.b, "metric": self.metric, "mean": self.mean,
                "ci95": None if self.ci95 is None else list(self.ci95), "relative": self.relative,
                "verdict": self.verdict, "replicas": self.replicas,
                "replicas_needed": self.replicas_needed}  # fmt: skip


def difference(
    a: str, b: str, metric: str, of_a: Sequence[float | None], of_b: Sequence[float | None]
) -> Difference | None:
    """Paired comparison of replicas of two scenarios; replicas in which either is undefined are left out.

    The verdict names the better one when the 95 % interval of the mean difference excludes 0 and the metric has a better
    direction. None when fewer than two pairs are defined.
    """
    pairs = [(x, y) for x, y in zip(of_a, of_b, strict=False) if x is not None and y is not None]
    if len(pairs) < 2:
        return None
    deltas = [x - y for x, y in pairs]
    centre, spread = mean_of(deltas), sd_of(deltas)
    interval = mean_interval(deltas)
    assert interval is not None
    base = mean_of([y for _, y in pairs])
    decided = interval[0] > 0 or interval[1] < 0
    verdict: Literal["a", "b", "undecided"] = "undecided"
    if decided and metric in BETTER:
        verdict = "a" if (centre > 0) == (BETTER[metric] == "high") else "b"
    needed = None if decided else replicas_to_decide(centre, spread, len(pairs))
    return Difference(a, b, metric, centre, interval, centre / abs(base) if base else None, verdict, len(pairs), needed)


def replicas_to_decide(mean: float, sd: float, have: int, level: float = 0.95) -> int | None:
    """Replicas beyond ``have`` after which the interval would exclude 0 if mean and spread stay; None if none would.

    Solves n ≥ (t(n−1) s / mean)², iterating because t depends on n.
    """
    if sd == 0 or mean == 0:
        return None
    n = have
    for _ in range(50):
        need = math.ceil((t_quantile(0.5 + level / 2, max(n - 1, 1)) * sd / mean) ** 2)
        if need == n:
            break
        n = max(need, 2)
        if n > 10_000_000:
            return None
    return max(n - have, 1)


@dataclass(frozen=True, slots=True)
class Target:
    """Stop when the 95 % half-width of ``metric``'s mean is within ``width`` (of the mean when ``relative``)."""

    metric: str
    width: float
    relative: bool

    def reached(self, values: Sequence[float | None]) -> bool:
        """True with at least ``MINIMUM_REPLICAS`` values and an interval narrow enough."""
        known = [value for value in values if value is not None]
        interval = mean_interval(known)
        if interval is None or len(known) < MINIMUM_REPLICAS:
            return False
        half = (interval[1] - interval[0]) / 2
        return half <= (abs(mean_of(known)) if self.relative else 1.0) * self.width
