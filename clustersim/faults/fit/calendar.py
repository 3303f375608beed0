"""Rates that change over the calendar: piecewise-constant factors, their edges chosen by BIC."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from clustersim.faults.fit.families import Array

DAY = 86400.0
WIDTHS_S = tuple(days * DAY for days in (7, 10, 15, 20, 30, 60, 90))


@dataclass(frozen=True)
class Periods:
    """Edges of periods in seconds (first 0, last the window) and the factor of each; the factors' mean over time is 1."""

    edges: Array
    factors: Array

    @classmethod
    def flat(cls, window_s: float) -> Periods:
        """One period with the factor 1."""
        return cls(np.array([0.0, window_s]), np.ones(1))

    @classmethod
    def of(cls, edges: Array, factors: Array) -> Periods:
        """Periods with the factors scaled to a time-weighted mean of 1."""
        lengths = np.diff(edges)
        mean = float((lengths * factors).sum() / lengths.sum())
        return cls(edges, factors / mean if mean > 0 else np.ones(len(factors)))

    def index(self, times: Array) -> np.ndarray:
        """Number of the period in which each time lies."""
        return np.clip(np.searchsorted(self.edges, times, side="right") - 1, 0, len(self.factors) - 1)

    def at(self, times: Array) -> Array:
        """Factor at each time."""
        return np.asarray(self.factors[self.index(times)], dtype=np.float64)

    def cumulated(self, times: Array) -> Array:
        """Integral of the factor from 0 to each time, in seconds."""
        at_edges = np.concatenate([[0.0], np.cumsum(np.diff(self.edges) * self.factors)])
        return np.asarray(np.interp(times, self.edges, at_edges), dtype=np.float64)


def edges_of(window_s: float, width_s: float) -> Array:
    """Edges of equal periods; a last one shorter than half a width joins the one before."""
    number = max(1, math.floor(window_s / width_s + 0.5))
    return np.append(np.arange(number) * width_s, window_s)


def change_points(number: Array, exposure: Array, cell_s: float, window_s: float, kind: str) -> Array:
    """Edges of the periods of constant rate, by dynamic programming over cells of equal length.

    The best partition minimises minus twice the log likelihood plus the logarithm of the number of events for each parameter
    (BIC; AIC finds changes in noise, since an edge may be put anywhere): a level for each period, and for each edge its place.

    Args:
        number: events in each cell, shape ``(cells,)``.
        exposure: what they are counted against: seconds (``kind="poisson"``) or trials (``"binomial"``).
        cell_s: length of a cell; the last may be longer or shorter.
        window_s: where the last cell ends.
    """
    cells = len(number)
    events, trials = np.concatenate([[0.0], np.cumsum(number)]), np.concatenate([[0.0], np.cumsum(exposure)])
    best = np.full(cells + 1, math.inf)
    penalty = 2 * math.log(max(float(events[-1]), 2.0))
    best[0], before = -penalty, np.zeros(cells + 1, dtype=np.int64)
    for end in range(1, cells + 1):
        found, at_risk = events[end] - events[:end], trials[end] - trials[:end]
        total = best[:end] - 2 * _log_likelihood(found, at_risk, kind) + penalty
        before[end] = int(np.argmin(total))
        best[end] = total[before[end]]
    edges, at = [window_s], int(before[cells])
    while at > 0:
        edges.append(at * cell_s)
        at = int(before[at])
    return np.array([0.0, *edges[::-1]])


def _log_likelihood(found: Array, at_risk: Array, kind: str) -> Array:
    """Log likelihood at the likeliest rate (terms that do not depend on the partition left out)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind == "poisson":
            return np.where(found > 0, found * np.log(found / at_risk) - found, 0.0)
        missed = at_risk - found
        hits = np.where(found > 0, found * np.log(found / at_risk), 0.0)
        return hits + np.where(missed > 0, missed * np.log(missed / at_risk), 0.0)


def cells_of(window_s: float) -> tuple[int, float]:
    """(number, length in seconds) of the cells on which change points are sought: 5 days, more for windows over 2 years."""
    length = max(5 * DAY, window_s / 150)
    return max(1, int(window_s / length + 0.5)), length


def best_edges(times: Array, window_s: float) -> Array:
    """Edges of the periods of constant Poisson rate; one period if constant is best."""
    cells, length = cells_of(window_s)
    edges = np.append(np.arange(cells) * length, window_s)
    return change_points(np.histogram(times, edges)[0].astype(np.float64), np.diff(edges), length, window_s, "poisson")


def constant_rate_p(times: Array, window_s: float, number: int = 12) -> float:
    """Chance of so uneven counts in ``number`` equal periods if the rate were constant (χ² test)."""
    from scipy.stats import chisquare

    found = np.histogram(times, np.linspace(0, window_s, number + 1))[0]
    return float(chisquare(found).pvalue) if found.sum() else 1.0
