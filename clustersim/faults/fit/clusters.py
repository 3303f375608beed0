"""Faults that belong together: which fault is a primary, which follows it, and how large the groups are.

Faults belong to the same group

* if they start within ``LINK_S`` of each other (a chain of such, on whatever nodes), or
* if they start within ``EVENT_S`` of each other and are back within ``LINK_S`` of each other: one cause that took its time to
  take all of its nodes, and one repair.

The first of a group is the primary, the others its followers: those that were back together with it *share its repair*, the
others have one of their own. The number of either that a primary has is fitted by a negative binomial with mean ``m`` and
dispersion ``r`` (small: mostly none, now and then many; a Poisson number for r → ∞):

    P(0) = (r / (r + m)) ** r,   variance = m + m² / r

Coincidences are taken off the means: as many starts as a Poisson process of the same rate would have within ``LINK_S``, and
as many common ends as there are when every fault is given the down time of another one.

A fault of a group whose node was repaired less than 7 days before is taken as a recurrence and not as a follower: in the
public trace a third of all that start together are such, a tenfold of what chance picks. The followers among them that chance
picks are made up for: the means are divided by the share of node-time that lies further than 7 days behind a repair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from clustersim.faults.fit.calendar import WIDTHS_S, Periods, edges_of
from clustersim.faults.fit.describe import gaps_after_repair
from clustersim.faults.fit.families import EXPONENTIAL, Array, Family
from clustersim.faults.fit.lifetimes import CHI2_95, Lifetimes, compare
from clustersim.faults.fit.log import FaultLog

LINK_S = 600.0
"""Starts closer than this count as one group (10 min: the window of the co-occurrence figure); ends as one return."""
EVENT_S = 6 * 3600.0
"""Faults that are back together count as one group if they started within this of each other."""
RECENT_S = 7 * 86400.0
"""A fault this soon after a repair is a recurrence (7 days: the window of the recurrence figure)."""
_TURNS = 20
"""Rearrangements of the down times over which coincidences are averaged."""
_LEAST_DELAYS = 10
"""Delays from which on more than their mean is fitted."""


@dataclass(frozen=True)
class Followers:
    """How many follow a primary, and when.

    Attributes:
        mean: mean number for each primary, coincidences taken off.
        ci95: profile likelihood interval of the same.
        dispersion: r of the negative binomial.
        delay: family of the time from the primary to a follower; ``delay_values`` its parameters, seconds.
        calendar: factors on the mean by the time of the primary, their width chosen by AIC.
    """

    mean: float
    ci95: tuple[float, float]
    dispersion: float
    delay: Family
    delay_values: tuple[float, ...]
    calendar: Periods


@dataclass(frozen=True)
class Clusters:
    """Groups of faults.

    Attributes:
        primary: index of the fault that each one started with, shape ``(n,)``; its own index for the first of a group.
        follower: true for faults that another one brought with it, shape ``(n,)``.
        shared: true for followers that were back together with their primary, shape ``(n,)``.
        together: those of ``shared``.
        apart: the other followers.
        ci95: profile likelihood interval of the mean number of followers, both kinds together.
    """

    primary: np.ndarray
    follower: np.ndarray
    shared: np.ndarray
    together: Followers
    apart: Followers
    ci95: tuple[float, float]

    @property
    def followers(self) -> float:
        """Mean number of followers of a primary."""
        return self.together.mean + self.apart.mean

    def without_calendar(self, window_s: float) -> Clusters:
        """The same with constant means."""
        flat = Periods.flat(window_s)
        return replace(self, together=replace(self.together, calendar=flat), apart=replace(self.apart, calendar=flat))


def find_clusters(log: FaultLog) -> Clusters:
    """The groups of a log, and the parameters that draw such groups."""
    primary = _primaries(log)
    follower = (primary != np.arange(len(log))) & ~_recent(log, RECENT_S)
    ends = np.where(np.isfinite(log.end_s), log.end_s, np.nan)
    shared = follower & (np.abs(ends - ends[primary]) <= LINK_S)
    firsts = np.unique(primary)
    starts = len(firsts) / log.window_s * LINK_S  # followers that a Poisson process of the primaries' rate would feign
    feigned = _feigned(log) / max(len(firsts), 1)
    seen = 1 - min(len(log) * RECENT_S / (log.population * log.window_s), 0.5)  # of followers, those not taken as recurrences
    low, high = negative_binomial(_counts(primary, follower, firsts))[2]
    return Clusters(primary, follower, shared, _followers(log, primary, shared, firsts, feigned, seen),
                    _followers(log, primary, follower & ~shared, firsts, starts, seen),
                    (max(low - starts - feigned, 0.0) / seen, max(high - starts - feigned, 0.0) / seen))  # fmt: skip


def _primaries(log: FaultLog) -> np.ndarray:
    """Of each fault the first one of its group."""
    n = len(log)
    first = np.arange(n)
    opens = np.ones(n, dtype=bool)
    opens[1:] = np.diff(log.start_s) > LINK_S
    chain = np.maximum.accumulate(np.where(opens, np.arange(n), 0))
    links = [(row, int(chain[row])) for row in range(n)] + _common_ends(log.start_s, log.end_s)

    def root(row: int) -> int:
        while first[row] != row:
            first[row] = first[first[row]]
            row = int(first[row])
        return row

    for row, other in links:
        low, high = sorted((root(row), root(other)))
        first[high] = low
    return np.array([root(row) for row in range(n)], dtype=np.int64)


def _common_ends(start_s: Array, end_s: Array) -> list[tuple[int, int]]:
    """Pairs (later, earlier) of faults, sorted by start, that start within ``EVENT_S`` and are back within ``LINK_S`` of each
    other."""
    pairs: list[tuple[int, int]] = []
    early, apart = np.flatnonzero(np.isfinite(end_s)), 1
    while len(early := early[early + apart < len(start_s)]):
        early = early[start_s[early + apart] - start_s[early] <= EVENT_S]
        found = early[np.abs(end_s[early + apart] - end_s[early]) <= LINK_S]
        pairs += zip((found + apart).tolist(), found.tolist(), strict=True)
        apart += 1
    return pairs


def _feigned(log: FaultLog) -> float:
    """Faults that would join a group by a common end if down times had nothing to do with each other."""
    n = len(log)
    down = log.end_s - log.start_s
    joined = 0
    for turn in range(1, _TURNS + 1):
        rolled = log.start_s + np.roll(down, turn * n // (_TURNS + 1))
        pairs = _common_ends(log.start_s, rolled)
        joined += len({later for later, row in pairs if log.start_s[later] - log.start_s[row] > LINK_S})
    return joined / _TURNS


def _counts(primary: np.ndarray, member: np.ndarray, firsts: np.ndarray) -> Array:
    """Members of each group, as many entries as ``firsts``."""
    numbers = np.bincount(primary[member], minlength=int(firsts.max(initial=0)) + 1).astype(np.float64)
    return np.asarray(numbers[firsts])


def _followers(log: FaultLog, primary: np.ndarray, member: np.ndarray, firsts: np.ndarray, chance: float,
               seen: float) -> Followers:  # fmt: skip
    """The law of one kind of followers; ``chance``: coincidences a primary; ``seen``: share of them that is told."""
    numbers = _counts(primary, member, firsts)
    raw, dispersion, (low, high) = negative_binomial(numbers)
    calendar, dispersion = _calendar(numbers, log.start_s[firsts], log.window_s, dispersion)
    family, values = _delay((log.start_s - log.start_s[primary])[member], log.resolution_s)
    interval = (max(low - chance, 0.0) / seen, max(high - chance, 0.0) / seen)
    return Followers(max(raw - chance, 0.0) / seen, interval, dispersion, family, values, calendar)


def _delay(delays: Array, resolution_s: float) -> tuple[Family, tuple[float, ...]]:
    """Family and parameters of the delays; of a few only their mean."""
    delays = np.maximum(delays, max(resolution_s / 2, 1.0))
    if len(delays) < _LEAST_DELAYS:
        return EXPONENTIAL, (float(delays.mean()) if len(delays) else 1.0,)
    best = compare(Lifetimes.of(delays), intervals=False)[0]
    return best.family, best.values


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
        far = math.log(mean) + sign * reach
        # one group may be all there is: then its size says next to nothing, and the interval ends where the search does
        ends.append(math.exp(far if drop(far) < 0 else brentq(drop, math.log(mean), far, xtol=1e-4)))
    return mean, dispersion, (ends[0], ends[1])


def _log_nb(numbers: Array, mean: float | Array, r: float) -> float:
    from scipy.special import gammaln

    each = (gammaln(numbers + r) - gammaln(r) - gammaln(numbers + 1) + r * np.log(r / (r + mean))
            + numbers * np.log(mean / (r + mean)))  # fmt: skip
    return float(each.sum())
