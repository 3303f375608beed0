"""Down times: their family, and how the speed of repair changed over the calendar.

A repair needs an amount of work with one distribution for all; work is done at a speed that is constant within a period, so
that a slow month keeps all nodes down that wait in it, and a fast one sends them back together. With ``V`` the integral of the
speed, a repair from ``s`` to ``e`` has the likelihood ``f(V(e) - V(s)) · v(e)``. The work of a repair that does not hold is
``haste`` times that of one that does (each counts by the chance that it did not hold, as the joint fit of recurrence gives it).
AIC chooses the length of the periods. Where many repairs that began at different times end together (``returns``), the speed
has a period of its own of a few minutes: parts have come, and the backlog goes back at once.

Faults that were back together with their primary hold one repair, not several, and are left out. How many nodes are down
depends on the *mean* down time first (Little's law), and maximum likelihood of a family that does not fit the tail can miss it
by far (a lognormal can double it). Hence two rules: the smallest AIC among the families whose total expected down time within
the window is within 10 % of what was seen (if none is, the family that comes closest); and its scale is then set so that the
two are equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from clustersim.faults.fit.calendar import Periods, edges_of
from clustersim.faults.fit.clusters import Clusters
from clustersim.faults.fit.families import Array, Family
from clustersim.faults.fit.lifetimes import Fit, Lifetimes, compare
from clustersim.faults.fit.log import FaultLog
from clustersim.faults.fit.minimum import minimise
from clustersim.faults.fit.returns import MassReturn, mass_returns

MEAN_TOLERANCE = 0.10
SEARCHED_S = tuple(days * 86400.0 for days in (10, 15, 20, 30, 60, 90))


@dataclass(frozen=True)
class Repairs:
    """The fitted repair: ``family`` with ``values`` gives the work in seconds at the speed 1; ``mean_error`` is the relative
    error of the expected down time before the scale was matched; ``overall`` are fits without speeds and haste, best first;
    ``zeros`` are down times of 0 that no family was asked to explain."""

    family: Family
    values: tuple[float, ...]
    haste: float
    speed: Periods
    """Of all periods, those of mass returns included; its mean without them is 1."""
    steady: Periods
    """The same without mass returns."""
    surges: tuple[tuple[MassReturn, float], ...]
    """Mass returns, each with the factor on the steady speed while it lasts."""
    aic: float
    mean_error: float
    overall: list[Fit]
    zeros: int

    def surge_work_s(self, each: MassReturn, factor: float) -> float:
        """Work in seconds that is done at a mass return: repairs with less of it left end then."""
        return float((each.end_s - each.begin_s) * factor * self.steady.at(np.array([each.begin_s]))[0])


def fit_repairs(log: FaultLog, clusters: Clusters, failed: Array | None = None, *, calendar: bool = True,
                intervals: bool = True) -> Repairs:  # fmt: skip
    """The family and the periods of the repair time.

    Args:
        log: the faults.
        clusters: groups, of which each holds one repair.
        failed: of each fault the chance that its repair did not hold; null: haste is not asked for.
        calendar: let the speed change over time.
        intervals: also find intervals of the fits without speeds.

    Raises:
        ValueError: with fewer than two repairs.
    """
    shared = clusters.shared
    keep = ~shared & (log.down_s > 0)
    data = Lifetimes.of(log.down_s[keep], log.closed[keep])
    if (seen := int(data.observed.sum())) < 2:
        raise ValueError(f"the fit of repair times needs 2 repairs or more that have ended and took time, there are {seen}")
    overall = compare(data, intervals=intervals)
    returns = mass_returns(log, clusters) if calendar else ()
    widths = [width for width in SEARCHED_S if calendar and log.window_s >= 2 * width]
    layouts = [Layout.of(edges_of(log.window_s, width), returns) for width in (log.window_s, *widths)]
    weight = None if failed is None else failed[keep]
    fits = [min((_fit(start, data, log.start_s[keep], each, weight) for each in layouts), key=lambda found: found.aic)
            for start in overall]  # fmt: skip
    fits = [replace(fit, mean_error=_down_error(fit, data, log.start_s[keep], weight)) for fit in fits]
    truthful = [fit for fit in fits if abs(fit.mean_error) <= MEAN_TOLERANCE]
    chosen = min(truthful, key=lambda fit: fit.aic) if truthful else min(fits, key=lambda fit: abs(fit.mean_error))
    chosen = _matched(chosen, data, log.start_s[keep], weight)
    return replace(chosen, overall=overall, zeros=int((~shared & (log.down_s <= 0)).sum()))


@dataclass(frozen=True)
class Layout:
    """Periods of the speed: equal ones, cut where a mass return has a short one of its own.

    Attributes:
        steady: edges of the equal periods.
        edges: edges of all.
        owner: of each period between ``edges`` the number of its speed: that of the equal period, then of the mass returns.
        returns: the mass returns.
    """

    steady: Array
    edges: Array
    owner: np.ndarray
    returns: tuple[MassReturn, ...]

    @classmethod
    def of(cls, steady: Array, returns: tuple[MassReturn, ...]) -> Layout:
        """Equal periods with given edges, and the mass returns."""
        inner = [edge for edge in steady[1:-1] if not any(each.begin_s <= edge <= each.end_s for each in returns)]
        edges = np.unique([steady[0], steady[-1], *inner, *(end for each in returns for end in (each.begin_s, each.end_s))])
        middle = (edges[:-1] + edges[1:]) / 2
        owner = Periods(steady, np.ones(len(steady) - 1)).index(middle)
        for number, each in enumerate(returns):
            owner[(each.begin_s < middle) & (middle < each.end_s)] = len(steady) - 1 + number
        return cls(steady, edges, owner, returns)

    @property
    def speeds(self) -> int:
        """How many speeds there are to find."""
        return len(self.steady) - 1 + len(self.returns)


def _fit(start: Fit, data: Lifetimes, times: Array, layout: Layout, failed: Array | None) -> Repairs:
    """One shape and scale of the work, one haste, a speed a period of the calendar, by maximum likelihood.

    A mass return counts as two parameters, its time and its speed.
    """
    family, shapes, steady = start.family, len(start.values) - 1, len(layout.steady) - 1
    problem = _Work(start, data, times, layout, failed)
    first = np.concatenate([np.log(start.values[:-1]), [0.0], np.zeros(layout.speeds)])
    bounds = [(-3.0, 3.0)] * shapes + [(-4.0, 4.0) if failed is not None else (0.0, 0.0)]
    bounds += [(-6.0, 6.0)] * steady + [(-6.0, 20.0)] * len(layout.returns)
    first[shapes + 1 + steady :] = 5.0  # the search begins at a speed of e^5, some hours of work in two minutes
    best, loss = minimise(problem.loss, first, bounds, problem.gradient)
    head, speed = problem.split(best)
    lengths = np.diff(layout.steady)
    mean = float((np.exp(speed[:steady]) * lengths).sum() / lengths.sum())
    values = (*(float(item) for item in np.exp(head[:shapes])), start.values[-1] / mean)
    criterion = 2 * (shapes + (failed is not None) + steady + 2 * len(layout.returns)) + 2 * loss
    calm = Periods(layout.steady, np.exp(speed[:steady]) / mean)
    surges = tuple((each, math.exp(log_speed) / mean / float(calm.at(np.array([each.begin_s]))[0]))
                   for each, log_speed in zip(layout.returns, speed[steady:], strict=True))  # fmt: skip
    every = Periods(layout.edges, np.exp(speed)[layout.owner] / mean)
    return Repairs(family, values, math.exp(head[shapes]), every, calm, surges, criterion, math.nan, [], 0)


class _Work:
    """Minus the log likelihood of repairs whose work is done at a speed that changes, and its gradient.

    The parameters are the logarithms of the shape (if any), of the haste, and of the speeds; the scale stays, since speeds and
    scale say the same.
    """

    def __init__(self, start: Fit, data: Lifetimes, times: Array, layout: Layout, failed: Array | None) -> None:
        self.family, self.scale, self.shapes = start.family, start.values[-1], len(start.values) - 1
        self.seen = data.observed
        edges, owner, speeds = layout.edges, layout.owner, layout.speeds
        self.inside = _overlaps(times, times + data.times, edges) @ (owner[:, None] == np.arange(speeds)).astype(np.float64)
        last = np.clip(np.searchsorted(edges, times + data.times, side="left") - 1, 0, len(edges) - 2)
        self.ends = np.bincount(owner[last[self.seen]], minlength=speeds).astype(np.float64)
        self.weights = [(np.ones(len(times)), 0.0)] if failed is None else [(1 - failed, 0.0), (failed, 1.0)]

    def split(self, theta: Array) -> tuple[Array, Array]:
        """(shape and haste, speeds), all logarithms."""
        return theta[: self.shapes + 1], theta[self.shapes + 1 :]

    def _each(self, work: Array, shape: tuple[float, ...]) -> Array:
        """Log density of each repair's work (survivor function where the end was not seen) in units of its scale."""
        value = np.empty(len(work))
        value[self.seen] = self.family.logpdf(work[self.seen], *shape, 1.0)
        value[~self.seen] = self.family.logsf(work[~self.seen], *shape, 1.0)
        return value

    def _value(self, head: Array, work: Array) -> float:
        shape = tuple(np.exp(head[: self.shapes]))
        total = 0.0
        for weight, hasty in self.weights:
            shift = math.log(self.scale) + hasty * float(head[self.shapes])
            total += float(weight @ (self._each(work / math.exp(shift), shape) - shift * self.seen))
        return total

    def _done(self, speeds: Array) -> Array:
        return np.asarray(np.maximum(self.inside @ np.exp(speeds), 1e-3))

    def loss(self, theta: Array) -> float:
        """Minus the log likelihood."""
        head, speeds = self.split(theta)
        return -self._value(head, self._done(speeds)) - float(self.ends @ speeds)

    def gradient(self, theta: Array) -> Array:
        """Gradient of ``loss``: speeds by the chain rule over each repair's work, the rest by central differences."""
        head, speeds = self.split(theta)
        work, shape, step = self._done(speeds), tuple(np.exp(head[: self.shapes])), 1e-5
        slope = np.zeros(len(work))  # d log density ÷ d log work
        for weight, hasty in self.weights:
            unit = work / (self.scale * math.exp(hasty * head[self.shapes]))
            high, low = self._each(unit * math.exp(step), shape), self._each(unit * math.exp(-step), shape)
            slope += weight * (high - low) / (2 * step)
        first = np.empty(len(head))
        for index in range(len(head)):
            shift = np.zeros(len(head))
            shift[index] = step
            first[index] = (self._value(head + shift, work) - self._value(head - shift, work)) / (2 * step)
        return -np.concatenate([first, ((slope / work) @ self.inside) * np.exp(speeds) + self.ends])


def _down_error(fit: Repairs, data: Lifetimes, times: Array, failed: Array | None, log_factor: float = 0.0) -> float:
    """Relative error of the expected down time within the window, with the scale times exp(``log_factor``)."""
    values = (*fit.values[:-1], fit.values[-1] * math.exp(log_factor))
    return _expected_down(replace(fit, values=values), times, failed) / float(data.times.sum()) - 1


def _matched(fit: Repairs, data: Lifetimes, times: Array, failed: Array | None) -> Repairs:
    """The same with the scale at which the expected down time within the window is what was seen."""
    from scipy.optimize import brentq

    def error(log_factor: float) -> float:
        return _down_error(fit, data, times, failed, log_factor)

    if error(-2.0) * error(2.0) > 0:
        return fit
    factor = math.exp(brentq(error, -2.0, 2.0, xtol=1e-4))
    return replace(fit, values=(*fit.values[:-1], fit.values[-1] * factor))


def _overlaps(starts: Array, ends: Array, edges: Array) -> Array:
    """Seconds of each stretch in each period, shape ``(stretches, periods)``; the last period has no end."""
    low, high = edges[:-1], np.append(edges[1:-1], math.inf)
    shared: Array = np.clip(np.minimum(ends[:, None], high) - np.maximum(starts[:, None], low), 0.0, None)
    return shared


def _expected_down(fit: Repairs, times: Array, failed: Array | None) -> float:
    """Expected down time of all repairs within the window, in seconds: the integral of their survivor functions."""
    moments = np.linspace(0.0, float(fit.speed.edges[-1]), 400)
    done = fit.speed.cumulated(moments)
    work = done[None, :] - fit.speed.cumulated(times)[:, None]
    slow = np.zeros(len(times)) if failed is None else failed
    total = np.zeros(len(moments))
    for weight, factor in ((1 - slow, 1.0), (slow, fit.haste)):
        scaled = (*fit.values[:-1], fit.values[-1] * factor)
        survivor = np.where(work > 0, np.exp(fit.family.logsf(np.maximum(work, 1e-3), *scaled)), (work == 0) * 1.0)
        total += (weight[:, None] * survivor).sum(axis=0)
    return float(np.trapezoid(total, moments))
