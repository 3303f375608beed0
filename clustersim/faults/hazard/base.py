"""The base hazard of a fleet: streams of faults of groups of machines, or units with an age.

The faults of a memoryless lifetime are one Poisson process a group of machines (the job's, and each block of 64 spares), read
on the calendar's clock and thinned by the frailties, so that a machine that has no fault costs nothing beyond its frailty.
Ages need one draw a unit, made for all at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clustersim.faults.hazard.calendar import LONGEST_S, Clock
from clustersim.faults.hazard.lifetime import Array, ages_after_burn_in, stationary_ages
from clustersim.faults.process import Site

if TYPE_CHECKING:
    from clustersim.faults.fleet import FleetFailure

_BATCH = 256


class Group(NamedTuple):
    """Machines that share streams: ``size`` of them exist from ``first`` on, numbers are drawn for ``drawn``."""

    ids: tuple[int, ...]
    first: int
    size: int
    drawn: int


class BaseStream:
    """Base faults of a group with a memoryless lifetime: a Poisson process on the calendar's clock."""

    def __init__(self, cause: FleetFailure, site: Site, group: Group, each: int, clock: Clock) -> None:
        self._group, self._clock = group, clock
        self._rng = site.streams(f"failure/{cause.name}", *group.ids)
        weights = self._weights = cause.weights(site, group.ids, group.drawn)
        self._cumulated: Array | None = None if weights is None else np.cumsum(weights)
        self._unit_s = cause.mtbf / each
        self._total = float(group.drawn if weights is None else self._cumulated[-1])  # type: ignore[index]
        self._last = clock.read(LONGEST_S if math.isinf(site.horizon_s) else site.horizon_s)
        self._reading = 0.0
        self._gaps: list[float] = []
        self._aims: list[int] = []
        self.next_s, self.node = 0.0, 0
        self.advance()

    def advance(self) -> None:
        """Move to the next fault on a machine that exists; never, where none comes in a time that is asked for: all frailty
        may lie with machines that do not exist."""
        while True:
            if self._reading > self._last or self._total == 0:
                self.next_s, self.node = math.inf, self._group.first
                return
            if not self._gaps:
                self._refill()
            self._reading += self._gaps.pop()
            at = self._aims.pop()
            if at < self._group.size:
                self.next_s, self.node = self._clock.when(self._reading), self._group.first + at
                return

    def reweigh(self, node: int, weight: float) -> None:
        """Another machine stands in for ``node``; faults that are drawn already stay."""
        at = node - self._group.first
        if self._weights is None or not 0 <= at < self._group.size:
            return
        self._weights[at] = weight
        self._cumulated = np.cumsum(self._weights)
        self._total = float(self._cumulated[-1])
        self._gaps, self._aims = [], []  # the next fault stays, those behind it are drawn anew

    def _refill(self) -> None:
        self._gaps = self._rng.exponential(self._unit_s / self._total, _BATCH).tolist()
        points = self._rng.random(_BATCH) * self._total
        where = points.astype(np.int64) if self._cumulated is None else np.searchsorted(self._cumulated, points, side="right")
        self._aims = np.minimum(where, self._group.drawn - 1).tolist()


class Units:
    """Machines' units with an age: when each fails next, on the calendar's clock, given its frailty."""

    def __init__(self, cause: FleetFailure, site: Site, groups: list[Group], each: int, clock: Clock) -> None:
        self.cause, self.each, self.clock, self.horizon_s = cause, each, clock, site.horizon_s
        ages, weights, thresholds = [], [], []
        for group in groups:
            rng = site.streams(f"failure/{cause.name}", *group.ids)
            factor = cause.weights(site, group.ids, group.drawn)
            weight = np.repeat(np.ones(group.drawn) if factor is None else np.maximum(factor, 1e-12), each)
            age = self._ages(weight, rng)
            keep = group.size * each
            ages.append(age[:keep])
            weights.append(weight[:keep])
            thresholds.append(rng.exponential(size=len(weight))[:keep])
        self.weight = np.concatenate(weights)
        self.born = -np.concatenate(ages)  # the time at which the age was 0
        self.rng = site.streams(f"failure/{cause.name}", 2)
        self.first_s = self.next_failure(np.arange(len(self.weight)), 0.0, np.concatenate(thresholds))

    def _ages(self, weight: Array, rng: np.random.Generator) -> Array:
        life, mtbf = self.cause.lifetime, self.cause.mtbf
        match self.cause.ages.start:
            case "new":
                return np.zeros(len(weight))
            case "burn-in":
                assert self.cause.ages.burn_in is not None
                return ages_after_burn_in(life, mtbf, weight, self.cause.ages.burn_in, rng)
            case _:
                return stationary_ages(life, mtbf, weight, rng)

    def next_failure(self, units: np.ndarray, now_s: float, thresholds: Array) -> Array:
        """Times at which units that are up from ``now_s`` on have used up their ``thresholds`` of hazard."""
        life, mtbf, clock = self.cause.lifetime, self.cause.mtbf, self.clock
        born, left = self.born[units], thresholds / self.weight[units]
        at = np.full(len(units), now_s)
        times = np.full(len(units), math.inf)
        segment = int(np.searchsorted(clock.edges, now_s, side="right")) - 1
        open_ = np.arange(len(units))
        while len(open_):
            factor = float(clock.factors[segment])
            end = float(clock.edges[segment + 1]) if segment + 1 < len(clock.edges) else math.inf
            used = life.cumulative(at[open_] - born[open_], mtbf)
            reached = np.full(len(open_), math.inf)
            if factor > 0:
                reached = born[open_] + life.age_at(used + left[open_] / factor, mtbf)
            done = reached <= end
            times[open_[done]] = np.maximum(reached[done], at[open_[done]])
            if math.isinf(end) or end > self.horizon_s:
                break
            rest = ~done
            spent = factor * (life.cumulative(end - born[open_[rest]], mtbf) - used[rest])
            open_ = open_[rest]
            left[open_] -= spent
            at[open_] = end
            segment += 1
        return times

    def renew(self, unit: int, now_s: float, as_new: bool) -> float:
        """The next failure of a unit that is up again at ``now_s``."""
        if as_new:
            self.born[unit] = now_s
        return float(self.next_failure(np.array([unit]), now_s, self.rng.exponential(size=1))[0])
