"""α–β curves by size range: how many ranges the points support, and where they end."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from clustersim.calibrate.linear import Floats, held_out, nonnegative, quality
from clustersim.workload.fitted import MeasuredCurve, Quality, Range

LEAST_POINTS = 3
"""Points that a range needs: two coefficients and one to contradict them."""
MOST_RANGES = 4


def fit_curve(
    op: str,
    sizes: Sequence[float],
    seconds: Sequence[float],
    *,
    group: int = 1,
    place: Literal["inside", "across", "device"] = "device",
    beside: str = "",
) -> MeasuredCurve:
    """The curve of latency and rate by size range; points of one size count as their median.

    The number of ranges is the one with the best Bayesian information criterion, which charges two coefficients and a
    border for each more; the borders are optimal (dynamic programming).

    Raises:
        ValueError: fewer than three sizes, or a time that is not above 0.
    """
    x, y = _medians(sizes, seconds)
    if len(x) < LEAST_POINTS:
        raise ValueError(f"{op}: needs at least {LEAST_POINTS} sizes, there are {len(x)}")
    if not (y > 0).all() or not np.isfinite(y).all():
        raise ValueError(f"{op}: every measured time must be above 0")
    kept = held_out(len(x))
    parts = _split(x[~kept], y[~kept])
    made = [_range(part, *_coefficients(x[~kept][part], y[~kept][part]), x[~kept]) for part in parts]
    curve = MeasuredCurve(op=op, group=group, place=place, beside=beside, ranges=tuple(made),
                          quality=Quality(points=1, residual=0.0))  # fmt: skip
    fitted = np.array([curve.seconds(size) for size in x])
    return curve.model_copy(update={"quality": quality(fitted[~kept], y[~kept], fitted[kept], y[kept])})


def _medians(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[Floats, Floats]:
    x, y = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    unique = np.unique(x)
    return unique, np.array([float(np.median(y[x == size])) for size in unique])


def _coefficients(x: Floats, y: Floats) -> tuple[float, float]:
    alpha, beta = nonnegative(np.column_stack([np.ones(len(x)), x]), y, rounds=2)
    return float(alpha), float(beta)


def _loss(x: Floats, y: Floats) -> float:
    alpha, beta = _coefficients(x, y)
    return float(np.sum((np.log(y / np.maximum(alpha + beta * x, 1e-300))) ** 2))


def _split(x: Floats, y: Floats) -> list[slice]:
    """Slices of the points, one a range."""
    count = len(x)
    most = min(MOST_RANGES, count // LEAST_POINTS)
    if most < 2:
        return [slice(0, count)]
    loss = {(i, j): _loss(x[i:j], y[i:j]) for i in range(count) for j in range(i + LEAST_POINTS, count + 1)}
    best: list[dict[int, tuple[float, list[int]]]] = [{0: (0.0, [0])}]
    for _ in range(most):
        row: dict[int, tuple[float, list[int]]] = {}
        for end in range(LEAST_POINTS, count + 1):
            ways = [(total + loss[start, end], [*cuts, end]) for start, (total, cuts) in best[-1].items()
                    if (start, end) in loss]  # fmt: skip
            if ways:
                row[end] = min(ways)
        best.append(row)
    ranked = [(_criterion(row[count][0], count, ranges), row[count][1])
              for ranges, row in enumerate(best) if ranges and count in row]  # fmt: skip
    cuts = min(ranked)[1]
    return [slice(a, b) for a, b in itertools.pairwise(cuts)]


def _criterion(loss: float, count: int, ranges: int) -> float:
    """Bayesian information criterion. A loss below 0.1 % a point is as good as none; a border counts twice, since the
    best of many is taken."""
    return count * math.log(loss / count + 1e-6) + (4 * ranges - 2) * math.log(count)


def _range(part: slice, alpha: float, beta: float, x: Floats) -> Range:
    """Ranges meet halfway (in the logarithm) between their neighbouring points."""
    low = x[part.start] if part.start == 0 else math.sqrt(x[part.start - 1] * x[part.start])
    high = x[-1] if part.stop == len(x) else math.sqrt(x[part.stop - 1] * x[part.stop])
    return Range(low=float(low), high=float(high), latency=alpha, rate=1 / beta if beta > 0 else None)
