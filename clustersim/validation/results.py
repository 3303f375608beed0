"""What a suite found: one result a row, and the figures of the whole."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from clustersim.validation.rows import Row


@dataclass(frozen=True)
class Result:
    """One row: measured against predicted, or why it was skipped."""

    row_id: str
    metric: str
    measured: float | None = None
    predicted: float | None = None
    assumed: dict[str, str] = field(default_factory=dict)
    skipped: str | None = None
    group: str = ""
    """Rows of one sweep share it: rank order is counted inside."""
    label: str = ""
    unranked: str | None = None
    """Why the row does not count where the choice of a layout is bounded; it counts in every error."""

    @property
    def error_pct(self) -> float | None:
        """predicted ÷ measured − 1, in %; negative: predicted too low."""
        if self.measured is None or self.predicted is None:
            return None
        return 100.0 * (self.predicted / self.measured - 1.0)

    def dump(self) -> dict[str, Any]:
        """JSON form, as the contract has it."""
        return {"row_id": self.row_id, "metric": self.metric, "measured": self.measured, "predicted": self.predicted,
                "error_pct": self.error_pct, "assumed": dict(self.assumed), "skipped": self.skipped}  # fmt: skip


@dataclass(frozen=True)
class Bound:
    """The most error that a suite may show, in %."""

    median: float | None = None
    mape: float | None = None
    regret: float | None = None


@dataclass(frozen=True)
class SuiteResult:
    """All results of a suite and its bound."""

    name: str
    about: str
    results: tuple[Result, ...]
    bound: Bound = field(default_factory=Bound)

    @property
    def scored(self) -> list[Result]:
        """Rows that were run."""
        return [result for result in self.results if result.error_pct is not None]

    @property
    def errors(self) -> list[float]:
        """Their errors in %."""
        return [error for result in self.scored if (error := result.error_pct) is not None]

    @property
    def median_abs_error_pct(self) -> float | None:
        """Median of absolute errors."""
        return statistics.median(map(abs, self.errors)) if self.errors else None

    @property
    def mape_pct(self) -> float | None:
        """Mean of absolute errors."""
        return statistics.fmean(map(abs, self.errors)) if self.errors else None

    @property
    def bias_pct(self) -> float | None:
        """Median signed error; negative: predicted too low."""
        return statistics.median(self.errors) if self.errors else None

    @property
    def p90_pct(self) -> float | None:
        """The absolute error that nine rows in ten stay below."""
        ordered = sorted(map(abs, self.errors))
        return ordered[min(len(ordered) - 1, math.ceil(0.9 * len(ordered)) - 1)] if ordered else None

    @property
    def spearman(self) -> float | None:
        """Rank correlation of predicted and measured: mean over sweeps of at least four rows, weighted by rows."""
        groups: dict[str, list[Result]] = {}
        for result in self.scored:
            groups.setdefault(result.group, []).append(result)
        parts = [(len(rows), rank_correlation(rows)) for rows in groups.values() if len(rows) >= 4]
        known = [(count, value) for count, value in parts if value is not None]
        total = sum(count for count, _ in known)
        return sum(count * value for count, value in known) / total if total else None

    @property
    def regret_pct(self) -> float | None:
        """What taking the predicted best of a sweep costs against the measured best, in %: the mean over sweeps."""
        return statistics.fmean(self.regrets) if self.regrets else None

    @property
    def regrets(self) -> list[float]:
        """That cost of each sweep of at least four rows."""
        return _regrets(self.scored)

    @property
    def ranked(self) -> list[Result]:
        """Rows that were run and count where the choice of a layout is bounded."""
        return [result for result in self.scored if result.unranked is None]

    @property
    def worst(self) -> list[Result]:
        """The three rows with the largest errors."""
        return sorted(self.scored, key=lambda result: -abs(result.error_pct or 0.0))[:3]

    @property
    def over(self) -> list[str]:
        """Sentences on bounds that are exceeded."""
        found = []
        for name, value, most in (
            ("median absolute error", self.median_abs_error_pct, self.bound.median),
            ("mean absolute error", self.mape_pct, self.bound.mape),
            ("cost of the predicted best layout", max(_regrets(self.ranked), default=None), self.bound.regret),
        ):
            if most is not None and value is not None and value > most:
                found.append(f"{self.name}: {name} {value:.1f} % is over {most:g} %")
        return found

    @property
    def choice(self) -> str | None:
        """What the predicted best layout costs in each sweep, in words; None where that is not bounded."""
        if self.bound.regret is None or not self.regrets:
            return None
        text = f"the predicted best layout costs {_listed(self.regrets)} %, by sweep, over all rows"
        apart = [result.unranked for result in self.scored if result.unranked is not None]
        if apart:
            text += (f"; {_listed(_regrets(self.ranked))} % (bound {self.bound.regret:g}) without {len(apart)} rows: "
                     + "; ".join(dict.fromkeys(apart)))  # fmt: skip
        return text

    def dump(self) -> dict[str, Any]:
        """JSON form, as the contract has it, with bias, bounds and the worst three."""
        return {
            "name": self.name, "rows": len(self.scored), "skipped": len(self.results) - len(self.scored),
            "median_abs_error_pct": self.median_abs_error_pct, "mape_pct": self.mape_pct, "bias_pct": self.bias_pct,
            "p90_abs_error_pct": self.p90_pct, "spearman": self.spearman,
            "regret_pct": self.regret_pct, "regret_worst_pct": max(self.regrets, default=None),
            "regret_ranked_worst_pct": max(_regrets(self.ranked), default=None),
            "unranked": len(self.scored) - len(self.ranked),
            "bound_median_pct": self.bound.median, "bound_mape_pct": self.bound.mape, "within_bound": not self.over,
            "worst": [result.row_id for result in self.worst], "results": [result.dump() for result in self.results],
        }  # fmt: skip


def _regrets(results: Sequence[Result]) -> list[float]:
    groups: dict[str, list[Result]] = {}
    for result in results:
        if result.group:
            groups.setdefault(result.group, []).append(result)
    costs = []
    for rows in groups.values():
        if len(rows) >= 4:
            chosen = min(rows, key=lambda result: result.predicted or math.inf)
            best = min(result.measured or math.inf for result in rows)
            costs.append(100.0 * ((chosen.measured or math.inf) / best - 1.0))
    return costs


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def rank_correlation(rows: Sequence[Result]) -> float | None:
    """Spearman's coefficient of predicted against measured; ties share their mean rank; None where one never varies."""
    first = _ranks([result.measured or 0.0 for result in rows])
    second = _ranks([result.predicted or 0.0 for result in rows])
    try:
        return statistics.correlation(first, second)
    except statistics.StatisticsError:
        return None


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda index: values[index])
    ranks, start = [0.0] * len(values), 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for index in order[start : end + 1]:
            ranks[index] = (start + end) / 2
        start = end + 1
    return ranks


def skip(row: Row, metric: str, reason: str) -> Result:
    """A row that was not run."""
    return Result(row.row_id, metric, skipped=reason)
