"""Lemons and recurrence told apart: one likelihood for both, since each explains part of what the other does.

While node ``i`` is up its hazard at time ``t``, at age ``a`` since its last repair, is

    w_i · λ · c(t)  +  r(a),      r(a) = p f(a) / (1 - p F(a))

with ``w_i`` a gamma frailty of mean 1 and shape ``k`` (small: few nodes have most faults), ``λ`` the base rate, ``c`` the
calendar, and ``r`` the hazard of a repair that did not hold: with probability ``p`` the fault comes back after a time with
density ``f``; ``p`` is another where the fault that was repaired had itself come back (within 7 days): what was not found
once is harder to find. Followers of another node's fault end an up time without being an event. The frailty
is integrated out exactly: for a node with events ``j`` and exposure ``A = λ Σ ∫ c``,

    L_i = Σ_m e_m Γ(k + m) / Γ(k) · k^k / (k + A)^(k + m) · Π (1 - p F),    Σ_m e_m w^m = Π_j (w λ c_j + r_j)

Both ``c`` and ``p`` may change over the calendar. The factors of ``p`` are those of the recurrence figure itself; those of
``c`` are updated between maximisations (an EM step) from the share of each event that the base hazard explains. Its periods
lie between change points, or, where first faults are not spread evenly, all have one length: AIC of the joint fit decides.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from clustersim.faults.fit.calendar import (
    WIDTHS_S,
    Periods,
    best_edges,
    cells_of,
    change_points,
    constant_rate_p,
    edges_of,
)
from clustersim.faults.fit.clusters import RECENT_S, Clusters
from clustersim.faults.fit.families import FAMILIES, Array, Family
from clustersim.faults.fit.log import FaultLog
from clustersim.faults.fit.minimum import minimise

ROUNDS = 8
UPDATES = 5
"""EM steps of the calendar between two maximisations of the other parameters."""
LARGEST_SHAPE = 1e4
"""A frailty of this shape is no frailty."""
UNEVEN_P = 0.01
"""Periods of one length are tried where first faults spread so unevenly by chance at most this often."""


@dataclass(frozen=True)
class Spells:
    """Up times of all nodes, one entry each: node, begin, end (seconds), age at the end since repair (NaN before the first
    repair), and whether the end was a primary."""

    node: np.ndarray
    begin: Array
    end: Array
    age: Array
    event: np.ndarray
    again: np.ndarray
    """Whether the fault that was repaired before the spell had itself come back."""
    fault: np.ndarray
    """Index of the fault that was repaired before the spell; −1: none."""
    fault_s: Array
    """Start of that fault; the spell's own begin where there was none."""
    faults: int
    population: int
    window_s: float


@dataclass(frozen=True)
class Recurrent:
    """The joint fit. Times in seconds; ``ci95`` maps a parameter's name to its interval (normal on the log or logit scale)."""

    rate: float
    frailty: float
    probability: float
    persistence: float
    """The probability where the fault had itself come back."""
    delay: Family
    delay_values: tuple[float, float]
    calendar: Periods
    again: Periods
    """Factors on both probabilities by the time of the fault."""
    failed: Array
    """Of each fault of the log: the chance that its repair did not hold (0 where the repair was not seen)."""
    log_likelihood: float
    ci95: dict[str, tuple[float, float]]
    regular: bool = False
    """Whether all periods of the calendar have one length."""

    @property
    def theta(self) -> Array:
        """The parameters on the scale on which each is free."""
        logits = [math.log(share) - math.log1p(-share) for share in (self.probability, self.persistence)]
        return np.array([math.log(self.rate), math.log(self.frailty), logits[0], *np.log(self.delay_values), logits[1]])

    @property
    def aic(self) -> float:
        """Akaike's criterion: six parameters, and for each further period of a calendar its level, and its edge where that was
        sought."""
        periods, again = len(self.calendar.factors) - 1, len(self.again.factors) - 1
        return 2 * (6 + (periods if self.regular else 2 * periods) + 2 * again) - 2 * self.log_likelihood


def spells_of(log: FaultLog, clusters: Clusters) -> Spells:
    """The up times that a log shows, nodes without any fault included."""
    order = np.lexsort((log.start_s, log.node))
    node, begin, end, age, event, again, fault = [], [], [], [], [], [], []
    last, free, repaired, came_back, before = -1, 0.0, False, False, -1
    floor = log.resolution_s / 2 or 1.0

    def add(which: int, until: float, is_event: bool) -> None:
        node.append(which)
        begin.append(min(free, until))
        end.append(until)
        age.append(max(until - free, floor) if repaired else math.nan)
        event.append(is_event)
        again.append(came_back)
        fault.append(before)

    for row in [*order, None]:
        current = -2 if row is None else int(log.node[row])
        if current != last and last >= 0 and free < log.window_s:
            add(last, log.window_s, False)
        if row is None:
            break
        if current != last:
            last, free, repaired, came_back, before = current, 0.0, False, False, -1
        add(current, float(log.start_s[row]), not bool(clusters.follower[row]))
        came_back = repaired and age[-1] <= RECENT_S
        free, repaired, before = max(free, float(log.end_s[row])), True, int(row)
    before_ = np.array(fault, dtype=np.int64)
    return Spells(np.array(node, dtype=np.int64), np.array(begin), np.array(end), np.array(age), np.array(event, dtype=bool),
                  np.array(again, dtype=bool), before_, np.where(before_ >= 0, log.start_s[before_], np.array(begin)),
                  len(log), log.population, log.window_s)  # fmt: skip


def fit_recurrent(log: FaultLog, clusters: Clusters, *, calendar: bool = True,
                  families: tuple[str, ...] = ("weibull", "lognormal"), intervals: bool = True) -> Recurrent:  # fmt: skip
    """The joint fit of base rate, calendar, frailty and recurrence; of the delay families the one with the smaller AIC.

    Raises:
        ValueError: with fewer than 3 primaries, or no time in which a node is up.
    """
    spells = spells_of(log, clusters)
    if spells.event.sum() < 3:
        raise ValueError(f"the joint fit needs at least 3 primary faults, there are {int(spells.event.sum())}")
    if not (spells.end > spells.begin).any() and spells.population == int(spells.node.max()) + 1:
        raise ValueError("all nodes are down all the time: the log shows no time in which one could have failed")
    fresh = spells.end[spells.event & ~(spells.age <= RECENT_S)]
    window = spells.window_s
    edges = best_edges(fresh, window) if calendar else np.array([0.0, window])
    fits = [_fit_family(spells, FAMILIES[name], edges, calendar) for name in families]
    best = min(fits, key=lambda found: found.aic)
    if calendar and constant_rate_p(fresh, window) < UNEVEN_P:
        grids = [edges_of(window, width) for width in WIDTHS_S if window >= 2 * width]
        regular = [replace(_fit_family(spells, best.delay, each, calendar, best.theta), regular=True) for each in grids]
        best = min([best, *regular], key=lambda found: found.aic)
    return replace(best, ci95=_intervals(spells, best)) if intervals else best


class _Likelihood:
    """Log likelihood of spells at given parameters and calendar; holds what does not change between calls."""

    def __init__(self, spells: Spells, family: Family) -> None:
        self.spells, self.family = spells, family
        self.repaired = ~np.isnan(spells.age)
        self.ages = np.where(self.repaired, spells.age, 1.0)
        index = np.flatnonzero(spells.event)
        rank = np.arange(len(index)) - np.searchsorted(spells.node[index], spells.node[index], side="left")
        self.index, self.rank = index, rank
        self.nodes = int(spells.node.max()) + 1
        self.untouched = spells.population - self.nodes

    def chances(self, theta: Array, again: Periods) -> Array:
        """Probability that the repair before each spell did not hold."""
        each = np.where(self.spells.again, 1 / (1 + math.exp(-theta[5])), 1 / (1 + math.exp(-theta[2])))
        return np.minimum(again.at(self.spells.fault_s) * each, 1 - 1e-9)

    def parts(self, theta: Array, periods: Periods, again: Periods) -> tuple[Array, Array, Array, Array]:
        """(exposure of each named node, base hazard and recurrence hazard of each event, log survival of recurrence)."""
        rate, probability = math.exp(theta[0]), self.chances(theta, again)
        values = (math.exp(theta[3]), math.exp(theta[4]))
        survivor = np.exp(self.family.logsf(self.ages, *values))
        alive = np.where(self.repaired, 1 - probability * (1 - survivor), 1.0)
        density = np.where(self.repaired, probability * np.exp(self.family.logpdf(self.ages, *values)), 0.0)
        exposure = rate * (periods.cumulated(self.spells.end) - periods.cumulated(self.spells.begin))
        per_node = np.bincount(self.spells.node, weights=exposure, minlength=self.nodes).astype(np.float64)
        base = rate * periods.at(self.spells.end[self.index])
        return per_node, base, (density / alive)[self.index], np.log(alive)

    def __call__(self, theta: Array, periods: Periods, again: Periods) -> float:
        exposure, base, back, alive = self.parts(theta, periods, again)
        shape = math.exp(theta[1])
        total = float(alive.sum()) + float(self._frail(exposure, base, back, shape).sum())
        idle = math.exp(theta[0]) * float(periods.cumulated(np.array([self.spells.window_s]))[0])
        return total - self.untouched * shape * math.log1p(idle / shape)

    def _coefficients(self, base: Array, again: Array) -> Array:
        """log e_m of each node's polynomial in w, shape ``(nodes, most events + 1)``."""
        most = int(self.rank.max()) + 1
        table = np.full((self.nodes, most + 1), -np.inf)
        table[:, 0] = 0.0
        with np.errstate(divide="ignore"):
            log_base, log_again = np.log(base), np.log(again)
        for step in range(most):
            rows = self.rank == step
            node = self.spells.node[self.index[rows]]
            old = table[node]
            new = old + log_again[rows, None]
            new[:, 1:] = np.logaddexp(new[:, 1:], old[:, :-1] + log_base[rows, None])
            table[node] = new
        return table

    def _frail(self, exposure: Array, base: Array, again: Array, shape: float) -> Array:
        from scipy.special import gammaln

        table = self._coefficients(base, again)
        power = np.arange(table.shape[1])
        rising = gammaln(shape + power) - gammaln(shape)
        terms = (table + rising - power * np.log(shape + exposure)[:, None]
                 - shape * np.log1p(exposure / shape)[:, None])  # fmt: skip
        return np.asarray(np.logaddexp.reduce(terms, axis=1), dtype=np.float64)

    def posterior(self, theta: Array, periods: Periods, again: Periods) -> Array:
        """Mean frailty of each named node given all that it did."""
        from scipy.special import gammaln

        exposure, base, back, _ = self.parts(theta, periods, again)
        shape = math.exp(theta[1])
        table = self._coefficients(base, back)
        power = np.arange(table.shape[1])
        terms = table + gammaln(shape + power) - power * np.log(shape + exposure)[:, None]
        weight = np.exp(terms - np.logaddexp.reduce(terms, axis=1)[:, None])
        return np.asarray((weight * (shape + power)).sum(axis=1) / (shape + exposure), dtype=np.float64)


def _fit_family(spells: Spells, family: Family, edges: Array, calendar: bool, start: Array | None = None) -> Recurrent:
    """The fit with one family of the delay and periods with given edges, from where another one ended (null: from a guess)."""
    likelihood = _Likelihood(spells, family)
    up = float((spells.end - spells.begin).sum()) + likelihood.untouched * spells.window_s
    theta = np.array([math.log(spells.event.sum() / up / 1.5), 0.3, -0.8, -0.7 if family.name == "weibull" else 0.8,
                      math.log(2 * 86400.0), -0.4]) if start is None else start  # fmt: skip
    bounds = [(-40, 0), (-5, math.log(LARGEST_SHAPE)), (-12, 6), (-3, 3), (0, 25), (-12, 6)]
    periods, again = Periods.of(edges, np.ones(len(edges) - 1)), Periods.flat(spells.window_s)
    if calendar:
        again = _again(spells)
    value = -math.inf
    for turn in range(ROUNDS if calendar else 1):
        for _ in range(UPDATES if calendar else 0):
            periods = _calendar(likelihood, theta, periods, again)
        theta, loss = minimise(functools.partial(_loss, likelihood, periods, again), theta, bounds)
        improved, value = -loss - value, -loss
        if turn > 2 and abs(improved) < 1e-2:
            break
    failed = np.zeros(spells.faults + 1)  # the last one takes what has no fault before it
    failed[spells.fault] = _failed(likelihood, theta, periods, again)
    return Recurrent(math.exp(theta[0]), math.exp(theta[1]), 1 / (1 + math.exp(-theta[2])), 1 / (1 + math.exp(-theta[5])),
                     family, (math.exp(theta[3]), math.exp(theta[4])), periods, again, failed[:-1], value, {})  # fmt: skip


def _loss(likelihood: _Likelihood, periods: Periods, again: Periods, theta: Array) -> float:
    return -likelihood(theta, periods, again)


def _shares(likelihood: _Likelihood, theta: Array, periods: Periods, again: Periods) -> tuple[Array, Array]:
    """Expected frailty of each named node, and the share of each event that its base hazard explains."""
    weight = likelihood.posterior(theta, periods, again)
    _, base, back, _ = likelihood.parts(theta, periods, again)
    own = weight[likelihood.spells.node[likelihood.index]] * base
    return weight, own / (own + back)


def _calendar(likelihood: _Likelihood, theta: Array, periods: Periods, again: Periods) -> Periods:
    """Factors from the events that the base explains, over the exposure weighted by expected frailty."""
    spells = likelihood.spells
    weight, share = _shares(likelihood, theta, periods, again)
    number = np.bincount(periods.index(spells.end[likelihood.index]), weights=share, minlength=len(periods.factors))
    shape, idle = math.exp(theta[1]), math.exp(theta[0]) * spells.window_s
    exposure = likelihood.untouched * shape / (shape + idle) * np.diff(periods.edges)
    for at, (low, high) in enumerate(zip(periods.edges[:-1], periods.edges[1:], strict=True)):
        inside = np.clip(np.minimum(spells.end, high) - np.maximum(spells.begin, low), 0, None)
        exposure[at] += float((weight[spells.node] * inside).sum())
    seen = exposure > 0  # of a period in which no node is up nothing is known
    return Periods.of(periods.edges, np.divide(number + 0.5, exposure, out=np.ones(len(exposure)), where=seen))


def _failed(likelihood: _Likelihood, theta: Array, periods: Periods, again: Periods) -> Array:
    """Of each spell: the chance that the repair before it did not hold; 0 where there was none."""
    _, share = _shares(likelihood, theta, periods, again)
    chance = likelihood.chances(theta, again)
    survivor = np.exp(likelihood.family.logsf(likelihood.ages, math.exp(theta[3]), math.exp(theta[4])))
    failed = chance * survivor / (chance * survivor + 1 - chance)  # did not hold, and has not come back yet
    failed[likelihood.index] = (1 - share) + share * failed[likelihood.index]
    return np.where(likelihood.repaired, failed, 0.0)


def _again(spells: Spells) -> Periods:
    """Factors on the probability: the share of repairs that were followed by a fault of the node within 7 days, by the time of
    the fault that was repaired, over the share of all; in periods chosen by AIC. Repairs of the last 7 days are left out."""
    known = ~np.isnan(spells.age) & ((spells.end - spells.begin > RECENT_S) | spells.event)
    came, times = (spells.event & (spells.age <= RECENT_S))[known], spells.fault_s[known]
    if not 0 < came.sum() < len(came):
        return Periods.flat(spells.window_s)
    cells, length = cells_of(spells.window_s)
    cell = Periods(np.append(np.arange(cells) * length, spells.window_s), np.ones(cells)).index(times)
    number, trials = np.bincount(cell, weights=came, minlength=cells), np.bincount(cell, minlength=cells)
    edges = change_points(number.astype(np.float64), trials.astype(np.float64), length, spells.window_s, "binomial")
    period = Periods(edges, np.ones(len(edges) - 1)).index(times)
    mean = float(came.mean())
    hits, repairs = np.bincount(period, weights=came, minlength=len(edges) - 1), np.bincount(period, minlength=len(edges) - 1)
    return Periods(edges, (hits + mean) / (repairs + 1) / mean)


def _intervals(spells: Spells, fit: Recurrent) -> dict[str, tuple[float, float]]:
    """95 % intervals from the curvature of the log likelihood, on the scale on which each parameter is free."""
    names = ("rate", "frailty", "probability", "delay_shape", "delay_scale", "persistence")
    likelihood, theta = _Likelihood(spells, fit.delay), fit.theta
    curvature = _hessian(lambda at: -likelihood(at, fit.calendar, fit.again), theta)
    try:
        covariance = np.linalg.inv(curvature)
    except np.linalg.LinAlgError:
        return {}
    ends = {}
    for position, name in enumerate(names):
        if not covariance[position, position] > 0:
            continue
        half = 1.959963984540054 * math.sqrt(covariance[position, position])
        low, high = theta[position] - half, theta[position] + half
        if name in ("probability", "persistence"):
            ends[name] = (1 / (1 + math.exp(min(-low, 700.0))), 1 / (1 + math.exp(min(-high, 700.0))))
        else:
            ends[name] = (math.exp(low), math.exp(min(high, 700.0)))
    return ends


def _hessian(function, at: Array, step: float = 1e-3) -> Array:  # type: ignore[no-untyped-def]
    n = len(at)
    result = np.zeros((n, n))
    unit = np.eye(n) * step
    centre = function(at)
    for i in range(n):
        for j in range(i, n):
            if i == j:
                value = (function(at + unit[i]) - 2 * centre + function(at - unit[i])) / step**2
            else:
                value = (function(at + unit[i] + unit[j]) - function(at + unit[i] - unit[j])
                         - function(at - unit[i] + unit[j]) + function(at - unit[i] - unit[j])) / (4 * step**2)  # fmt: skip
            result[i, j] = result[j, i] = value
    return result
