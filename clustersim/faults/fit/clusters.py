"""Faults that start together: which fault is a primary, which follows it, and how large the groups are.

A fault whose start is within ``link_s`` of the fault before it (on whatever node) belongs to the same group; the first of
a group is the primary, the others its followers. The number of followers of a primary is fitted by a negative binomial
with mean ``followers`` and dispersion ``r`` (small: mostly none, now and then many; a Poisson number for r → ∞):

    P(0) = (r / (r + followers)) ** r,   variance = followers + followers² / r

A fault of a group whose node was repaired less than 7 days before is taken as a recurrence and not as a follower: in the
public trace a third of all that start together are such, a tenfold of what chance picks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from clustersim.faults.fit.calendar import WIDTHS_S, Periods, edges_of
from clustersim.faults.fit.describe import gaps_after_repair
from clustersim.faults.fit.families import Array
from clustersim.faults.fit.lifetimes import CHI2_95
from clustersim.faults.fit.log import FaultLog

LINK_S = 600.0
"""Starts closer than this count as one group (10 min: the window of the co-occurrence figure)."""
RECENT_S = 7 * 86400.0
"""A fault this soon after a repair is a recurrence (7 days: the window of the recurrence figure)."""


@dataclass(frozen=True)
class Clusters:
    """Groups of faults that start together.

    Attributes:
        primary: index of the fault that each one started with, shape ``(n,)``; its own index for the first of a group.
        follower: true for faults that another one brought with it, shape ``(n,)``.
        followers: mean number of followers of a primary, coincidences taken off.
        followers_ci95: profile likelihood interval of the same.
        dispersion: r of the negative binomial.
        spread_s: mean time from a primary to a follower of it.
        shared_repair: share of followers that were back together with their primary (within ``link_s``).
    """

    primary: np.ndarray
    follower: np.ndarray
    followers: float
    followers_ci95: tuple[float, float]
    dispersion: float
    spread_s: float
    shared_repair: float
    calendar: Periods
    """Factors on the mean number of followers by the time of the primary, their width chosen by AIC."""

    def without_calendar(self, window_s: float) -> Clusters:
        """The same with a constant mean."""
        return replace(self, calendar=Periods.flat(window_s))


def find_clusters(log: FaultLog, link_s: float = LINK_S) -> Clusters:
    """The groups of a log, and the parameters that draw such groups."""
    n = len(log)
    opens = np.ones(n, dtype=bool)
    opens[1:] = np.diff(log.start_s) > link_s
    primary = np.maximum.accumulate(np.where(opens, np.arange(n), 0))
    group = np.cumsum(opens) - 1
    follower = ~opens & ~_recent(log, RECENT_S)
    numbers = np.bincount(group, weights=follower).astype(np.float64)
    chance = len(numbers) / log.window_s * link_s  # followers that a Poisson process of the primaries' rate would feign
    raw, dispersion, ends = negative_binomial(numbers)
    mean = max(raw - chance, 0.0)
    delays = (log.start_s - log.start_s[primary])[follower]
    together = np.abs(log.end_s - log.end_s[primary])[follower] <= link_s
    share = float(together.mean()) if follower.any() else 0.0
    spread = float(delays.mean()) if follower.any() else 0.0
    interval = (max(ends[0] - chance, 0.0), max(ends[1] - chance, 0.0))
    calendar, dispersion = _calendar(numbers, log.start_s[opens], log.window_s, dispersion)
    return Clusters(primary, follower, mean, interval, dispersion, spread, share, calendar)


def _calendar(numbers: Array, times: Array, window_s: float, dispersion: float) -> tuple[Periods, float]:
    """Factors on the mean by period, and the dispersion that is left; one period where constant is best by AIC.

    Given the periods, the likeliest mean of each is the average of its counts, whatever the dispersion.
    """
    from scipy.optimize import minimize_scalar

    overall = float(numbers.mean())
    best, found = Periods.flat(window_s), dispersion
    if overall == 0:
        return best, found
    lowest = 2 * 2 - 2 * _log_nb(numbers, np.full(len(numbers), overall), dispersion)
    for width in WIDTHS_S:
        if window_s < 2 * width:
            continue
        edges = edges_of(window_s, width)
        period = Periods(edges, np.ones(len(edges) - 1)).index(times)
        count = np.bincount(period, minlength=len(edges) - 1)
        means = np.bincount(period, weights=numbers, minlength=len(count)) / np.maximum(count, 1)
        each = np.maximum(means, 1e-12)[period]
        r = minimize_scalar(lambda u, m=each: -_log_nb(numbers, m, math.exp(u)), bounds=(-7.0, math.log(1e3)), method="bounded")
        criterion = 2 * (len(count) + 1) + 2 * float(r.fun)
        if criterion < lowest:
            lowest, found = criterion, math.exp(float(r.x))
            best = Periods(edges, np.where(count > 0, means, overall) / overall)
    return best, found


def _recent(log: FaultLog, within_s: float) -> np.ndarray:
    """True for each fault whose node was repaired less than ``within_s`` before."""
    gaps, observed, following = gaps_after_repair(log)
    recent = np.zeros(len(log), dtype=bool)
    recent[following[observed & (gaps <= within_s)]] = True
    return recent


def negative_binomial(numbers: Array) -> tuple[float, float, tuple[float, float]]:
    """Maximum likelihood mean and dispersion of counts, and the 95 % profile interval of the mean.

    The dispersion is at most 1e3 (a Poisson distribution in all but name).
    """
    from scipy.optimize import brentq, minimize_scalar

    mean = float(numbers.mean())
    if mean == 0:
        return 0.0, 1.0, (0.0, CHI2_95 / 2 / len(numbers))

    def profile(m: float) -> tuple[float, float]:
        found = minimize_scalar(lambda u: -_log_nb(numbers, m, math.exp(u)), bounds=(-7.0, math.log(1e3)), method="bounded")
        return -float(found.fun), math.exp(float(found.x))

    top, dispersion = profile(mean)

    def drop(log_mean: float) -> float:
        return 2 * (top - profile(math.exp(log_mean))[0]) - CHI2_95

    ends = []
    for sign in (-1.0, 1.0):
        reach = 0.05
        while drop(math.log(mean) + sign * reach) < 0 and reach < 20:
            reach *= 2
        ends.append(math.exp(brentq(drop, math.log(mean), math.log(mean) + sign * reach, xtol=1e-4)))
    return mean, dispersion, (ends[0], ends[1])


def _log_nb(numbers: Array, mean: float | Array, r: float) -> float:
    from scipy.special import gammaln

    each = (gammaln(numbers + r) - gammaln(r) - gammaln(numbers + 1) + r * np.log(r / (r + mean))
            + numbers * np.log(mean / (r + mean)))  # fmt: skip
    return float(each.sum())
