"""Which inputs matter: Sobol indices, Morris effects, and luck told apart from ignorance.

*Luck* is what differs between replicas of one scenario; *ignorance* is what differs between scenarios drawn from the ranges
of the inputs. More replicas narrow the first, better measurements the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersim.errors import InputError, NegativeAnswer, Problem
from clustersim.rng import stream
from clustersim.study.executors import Executor
from clustersim.study.ranges import Range
from clustersim.study.runner import Progress
from clustersim.study.statistics import quantile
from clustersim.study.sweeping import Sweep, sweep


@dataclass
class Importance:
    """Share of the variance of a metric that each input explains alone (``first``) and with others (``total``)."""

    metric: str
    method: str
    paths: list[str]
    first: list[float]
    total: list[float]
    evaluations: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the most important input first."""
        rank = self.total if self.method == "sobol" else self.first
        order = sorted(range(len(self.paths)), key=lambda k: -rank[k])
        return {"metric": self.metric, "method": self.method, "evaluations": self.evaluations,
                "inputs": [{"path": self.paths[k], "first": self.first[k], "total": self.total[k]}
                           for k in order]}  # fmt: skip


@dataclass
class Spread:
    """A metric under uncertain inputs: its mean, and how much of its spread is luck and how much ignorance."""

    metric: str
    mean: float
    sd_inputs: float
    sd_luck: float
    interval90: tuple[float, float]
    """5th and 95th percentile over the drawn inputs of the mean over luck."""
    draws: int
    replicas: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"metric": self.metric, "mean": self.mean, "sd_inputs": self.sd_inputs, "sd_luck": self.sd_luck,
                "interval90": list(self.interval90), "draws": self.draws, "replicas": self.replicas}  # fmt: skip


def _means(table: Sweep, metric: str) -> NDArray[np.float64]:
    """Mean of a metric at each point, shape (points,).

    Raises:
        NegativeAnswer: a point failed: importance needs all of them.
    """
    values = []
    for outcome in table.outcomes:
        told = outcome.summaries().get(metric)
        if outcome.error is not None or told is None:
            raise NegativeAnswer(f"{outcome.label}: {outcome.error or f'{metric} is undefined'}; narrow the ranges")
        values.append(float(told["mean"]))
    return np.array(values)


def _points(ranges: Sequence[Range], shares: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Scenario values at shares of each range; ``shares``: (points, inputs), each in (0, 1)."""
    inside = np.clip(shares, 1e-6, 1 - 1e-6)
    return [{span.path: span.value(float(share)) for span, share in zip(ranges, row, strict=True)} for row in inside]


def sobol(scenario: Any, ranges: Sequence[Range], *, metric: str = "goodput_tokens_per_s", base: int = 64,
          replicas: int = 4, seed: int | None = None, executor: Executor | None = None,
          progress: Progress | None = None) -> Importance:  # fmt: skip
    """Sobol indices by Saltelli's design (``scipy.stats.sobol_indices``), (inputs + 2) · ``base`` scenarios.

    Raises:
        InputError: no ranges, or ``base`` no power of two.
    """
    from scipy.stats import sobol_indices, uniform

    _need(ranges)
    if len(ranges) < 2:
        raise InputError(Problem("--range", "sobol shares the spread among inputs: give at least two ranges"))
    if base < 2 or base & (base - 1):
        raise InputError(Problem("--base", f"{base} must be a power of two, such as 64"))
    seed = scenario.simulation.seed if seed is None else seed
    evaluated = 0

    def metric_at(shares: NDArray[np.float64]) -> NDArray[np.float64]:
        nonlocal evaluated
        flat = np.moveaxis(shares, 0, -1).reshape(-1, len(ranges))
        evaluated += len(flat)
        unique, back = np.unique(flat, axis=0, return_inverse=True)
        table = sweep(scenario, points=_points(ranges, unique), replicas=replicas, seed=seed,
                      executor=executor, progress=progress, option="--range")  # fmt: skip
        return _means(table, metric)[back.reshape(-1)].reshape(1, *shares.shape[1:])

    shares_of: Any = uniform()
    found = sobol_indices(
        func=metric_at, n=base, dists=[shares_of] * len(ranges), rng=stream(seed, 0, "importance/sobol")
    )
    return Importance(metric, "sobol", [span.path for span in ranges], [float(x) for x in np.ravel(found.first_order)],
                      [float(x) for x in np.ravel(found.total_order)], evaluated)  # fmt: skip


def morris(scenario: Any, ranges: Sequence[Range], *, metric: str = "goodput_tokens_per_s", paths: int = 10, levels: int = 6,
           replicas: int = 4, seed: int | None = None, executor: Executor | None = None,
           progress: Progress | None = None) -> Importance:  # fmt: skip
    """Morris' elementary effects: ``first`` is the mean absolute effect over a whole range, ``total`` its spread.

    (inputs + 1) · ``paths`` scenarios; cheap where Sobol indices cost too much (Morris 1991, Campolongo 2007).
    """
    _need(ranges)
    seed = scenario.simulation.seed if seed is None else seed
    rng, count = stream(seed, 0, "importance/morris"), len(ranges)
    step = levels / (2 * (levels - 1))
    shares, order = [], []
    for _ in range(paths):
        row = rng.integers(levels // 2, size=count) / (levels - 1)
        turns = rng.permutation(count)
        shares.append(row.copy())
        for turn in turns:
            row[turn] += step
            shares.append(row.copy())
        order.append(turns)
    table = sweep(scenario, points=_points(ranges, np.array(shares)), replicas=replicas, seed=seed, executor=executor,
                  progress=progress, option="--range")  # fmt: skip
    heights = _means(table, metric).reshape(paths, count + 1)
    effects = np.zeros((paths, count))
    for number, turns in enumerate(order):
        effects[number, turns] = np.diff(heights[number]) / step
    return Importance(metric, "morris", [span.path for span in ranges], [float(x) for x in np.abs(effects).mean(axis=0)],
                      [float(x) for x in effects.std(axis=0, ddof=1)], len(shares))  # fmt: skip


def spread(scenario: Any, ranges: Sequence[Range], *, metric: str = "goodput_tokens_per_s", draws: int = 32,
           replicas: int = 4, seed: int | None = None, executor: Executor | None = None,
           progress: Progress | None = None) -> Spread:  # fmt: skip
    """Carry uncertain inputs to the answer: a Latin hypercube of ``draws`` scenarios, ``replicas`` replicas each.

    Variance components of a one-way random-effects layout: luck is the mean variance within a draw, ignorance the
    variance of the draws' means less luck ÷ replicas.
    """
    from scipy.stats import qmc

    _need(ranges)
    if replicas < 2:
        raise InputError(Problem("--replicas", "at least 2 replicas a draw are needed to tell luck from ignorance"))
    seed = scenario.simulation.seed if seed is None else seed
    sample = qmc.LatinHypercube(d=len(ranges), rng=stream(seed, 0, "importance/inputs")).random(draws)
    table = sweep(scenario, points=_points(ranges, sample), replicas=replicas, seed=seed, executor=executor,
                  progress=progress, option="--range")  # fmt: skip
    means = _means(table, metric)
    within = float(np.mean([outcome.summaries()[metric]["sd"] ** 2 for outcome in table.outcomes]))  # type: ignore[index]
    between = max(0.0, float(means.var(ddof=1)) - within / replicas)
    ordered = sorted(float(mean) for mean in means)
    return Spread(metric, float(means.mean()), between**0.5, within**0.5, (quantile(ordered, 0.05), quantile(ordered, 0.95)),
                  draws, replicas)  # fmt: skip


def _need(ranges: Sequence[Range]) -> None:
    if not ranges:
        raise InputError(Problem("--range", "needs at least one range, such as checkpoint.interval='5 min..20 min'"))
    paths = [span.path for span in ranges]
    for path in paths:
        if paths.count(path) > 1:
            raise InputError(Problem(f"--range {path}", "is given twice"))
