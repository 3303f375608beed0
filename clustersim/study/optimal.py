"""The best value along one axis, with its interval, and how flat the optimum is.

All points see the same failures, so the curve of means is smooth although each point is noisy. Around the best point
a curve a + b·ln x + c·x + d/x is fitted: a price that falls with x, one that grows with it, and what bends them.
Resampling the replicas (all points together) gives the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clustersim.errors import InputError, NegativeAnswer, Problem
from clustersim.rng import stream
from clustersim.study.executors import Executor
from clustersim.study.ranges import Range
from clustersim.study.runner import Progress
from clustersim.study.statistics import BETTER
from clustersim.study.store import Store
from clustersim.study.sweeping import Sweep, sweep

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESAMPLES = 1000
WINDOW = math.log(4.0)
"""The curve is fitted to points within this factor of the best."""


@dataclass
class Optimum:
    """Where ``metric`` is best along ``path`` (values in SI units), and how much it matters."""

    path: str
    metric: str
    value: float
    ci95: tuple[float, float]
    best: float
    flat: tuple[float, float]
    """Values between which the fitted metric is within 0.1 % of its best."""
    at_edge: bool
    """True when the best lies at an end of the range: look further there."""
    shown: str
    sweep: Sweep
    references: dict[str, float]
    """Closed forms for comparison, where there are any (Young, Daly, exact), in SI units."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data; values in SI units, ``shown`` with a unit."""
        return {"path": self.path, "metric": self.metric, "value": self.value, "shown": self.shown,
                "ci95": list(self.ci95), "best": self.best, "flat": list(self.flat), "at_edge": self.at_edge,
                "references": self.references}  # fmt: skip


def _terms(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """1, u, cosh u and sinh u: with u = ln x they span 1, ln x, x and 1/x, the terms of the waste of saving."""
    return np.stack([np.ones_like(u), u, np.cosh(u), np.sinh(u)], axis=1)


def _peaks(logs: NDArray[np.float64], curves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm at which the curve fitted around the highest point of each row is largest.

    Args:
        logs: (points,) increasing.
        curves: (curves, points).

    Returns:
        (curves,) arguments, on a grid of 2,001 a window. Curves with the same highest point share one design matrix.
    """
    tops = np.argmax(curves, axis=1)
    found = np.empty(len(curves))
    for top in np.unique(tops):
        near, rows = np.abs(logs - logs[top]) <= WINDOW, tops == top
        terms = min(4, int(near.sum()))
        design = _terms(logs[near] - logs[top])[:, :terms]
        coefficients = np.linalg.lstsq(design, curves[np.ix_(rows, near)].T, rcond=None)[0]
        fine = np.linspace(logs[near][0], logs[near][-1], 2001)
        heights = _terms(fine - logs[top])[:, :terms] @ coefficients
        found[rows] = fine[np.argmax(heights, axis=0)]
    return found


def find_peak(
    values: NDArray[np.float64], replicas: NDArray[np.float64], seed: int
) -> tuple[float, tuple[float, float]]:
    """Value at which the mean over replicas is highest, and the 95 % interval of that value (percentile bootstrap).

    Args:
        values: (points,) increasing, positive.
        replicas: (replicas, points) the metric, higher is better; replicas are resampled whole, all points together.
        seed: of the resampling.
    """
    logs, count = np.log(values), len(replicas)
    centre = float(_peaks(logs, replicas.mean(axis=0, keepdims=True))[0])
    rng = stream(seed, 0, "optimum/resample")
    weights = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES) / count
    low, high = np.quantile(_peaks(logs, weights @ replicas), [0.025, 0.975])
    return math.exp(centre), (math.exp(min(low, centre)), math.exp(max(high, centre)))


def _grid(span: Range, count: int) -> list[float]:
    shares = np.linspace(0.0, 1.0, count)
    values = [span.low * (span.high / span.low) ** float(share) for share in shares]
    return sorted({float(round(value)) for value in values}) if span.whole else values


def _as_value(span: Range, number: float) -> Any:
    if span.dimension is not None:
        return span.dimension.format(float(f"{number:.12g}"))
    return round(number) if span.whole else float(f"{number:.12g}")


def optimum(scenario: Any, span: Range, *, metric: str = "goodput_tokens_per_s", points: int = 17,
            replicas: int | None = None, seed: int | None = None, executor: Executor | None = None,
            store: Store | Path | str | None = None, progress: Progress | None = None,
            references: dict[str, float] | None = None) -> Optimum:  # fmt: skip
    """Find the value of ``span.path`` between its ends at which the mean of ``metric`` is best.

    Raises:
        InputError: a range that reaches 0 or below.
        NegativeAnswer: fewer than four points have a result.
    """
    if span.low <= 0:
        raise InputError(
            Problem(f"--optimum {span.path}", "the optimum is searched on a logarithmic axis: the low end must be above 0")
        )
    numbers = _grid(span, points)
    table = sweep(scenario, points=[{span.path: _as_value(span, number)} for number in numbers], replicas=replicas,
                  seed=seed, executor=executor, store=store, progress=progress, option="--optimum")  # fmt: skip
    usable = [(number, outcome.column(metric)) for number, outcome in zip(numbers, table.outcomes, strict=True)
              if outcome.error is None and None not in outcome.column(metric)]  # fmt: skip
    if len(usable) < 4:
        errors = [outcome.error for outcome in table.outcomes if outcome.error is not None]
        why = f"; {errors[0]}" if errors else ""
        raise NegativeAnswer(
            f"{metric} is known at {len(usable)} of {len(numbers)} points of {span.path}: too few for an optimum{why}"
        )
    values = np.array([number for number, _ in usable])
    sign = 1.0 if BETTER.get(metric, "high") == "high" else -1.0
    heights = sign * np.array([column for _, column in usable], dtype=float).T
    return _told(span, metric, values, heights, sign, table, references or {})


def _told(span: Range, metric: str, values: NDArray[np.float64], heights: NDArray[np.float64], sign: float, table: Sweep,
          references: dict[str, float]) -> Optimum:  # fmt: skip
    value, interval = find_peak(values, heights, table.seed)
    logs, means = np.log(values), heights.mean(axis=0)
    best = float(np.interp(math.log(value), logs, means))
    good = values[means >= max(best, float(means.max())) - 0.001 * abs(best)]
    return Optimum(span.path, metric, value, interval, sign * best, (float(good[0]), float(good[-1])),
                   bool(np.argmax(means) in (0, len(means) - 1)), str(_as_value(span, float(f"{value:.3g}"))),
                   table, references)  # fmt: skip
