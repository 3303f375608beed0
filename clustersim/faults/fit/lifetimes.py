"""Maximum likelihood for lifetimes of which some are cut off: censored, left truncated, or shorter than the log resolves.

A ``Lifetimes`` holds ``n`` times in seconds. Each is *observed* (it ended), or *censored* (it was still running when
observation stopped), and may have an *entry* age: the unit was already that old when observation began, so that the
likelihood is conditional on having survived to it (left truncation).

    log L = Σ_observed log f(t) + Σ_censored log S(t) - Σ log S(entry)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clustersim.faults.fit.families import FAMILIES, Array, Family

CHI2_95 = 3.841458820694124
"""95 % point of χ² with one degree of freedom: twice the drop in log likelihood at the ends of a profile interval."""


@dataclass(frozen=True)
class Lifetimes:
    """Times in seconds with what is known of their ends.

    Args:
        times: durations, shape ``(n,)``.
        observed: false where the end was not seen (right censored).
        entry: age at which each came under observation; 0 where from its birth.
    """

    times: Array
    observed: np.ndarray
    entry: Array

    @classmethod
    def of(cls, times: Any, observed: Any = None, entry: Any = None) -> Lifetimes:
        """Lifetimes from arrays or lists; all observed from birth unless said otherwise."""
        values = np.asarray(times, dtype=np.float64)
        seen = np.ones(len(values), dtype=bool) if observed is None else np.asarray(observed, dtype=bool)
        ages = np.zeros(len(values)) if entry is None else np.asarray(entry, dtype=np.float64)
        return cls(values, seen, ages)

    def positive(self) -> Lifetimes:
        """Without the times of 0, which no continuous family can explain (the log's resolution swallowed them)."""
        keep = self.times > 0
        return Lifetimes(self.times[keep], self.observed[keep], self.entry[keep])

    @property
    def complete(self) -> Array:
        """The times whose end was seen."""
        complete: Array = self.times[self.observed]
        return complete


@dataclass(frozen=True)
class Fit:
    """One family fitted to lifetimes.

    ``values`` belong to ``family.parameters``; ``intervals`` are 95 % profile likelihood intervals in the same order;
    ``ks`` is the largest distance between the fitted and the Kaplan–Meier distribution function.
    """

    family: Family
    values: tuple[float, ...]
    log_likelihood: float
    ks: float
    n: int
    censored: int
    intervals: tuple[tuple[float, float], ...] = field(default=())

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 k - 2 log L; the smallest is best."""
        return 2 * len(self.values) - 2 * self.log_likelihood

    @property
    def mean_s(self) -> float:
        """Mean of the fitted distribution in seconds."""
        return float(self.family.mean(*self.values))

    def row(self) -> dict[str, Any]:
        """The fit as plain data, one key a column."""
        named = dict(zip(self.family.parameters, self.values, strict=True))
        bounds = {name: list(ends) for name, ends in zip(self.family.parameters, self.intervals, strict=False)}
        return {"family": self.family.name, "parameters": named, "ci95": bounds, "mean_s": self.mean_s,
                "log_likelihood": self.log_likelihood, "aic": self.aic, "ks": self.ks, "n": self.n,
                "censored": self.censored}  # fmt: skip


def log_likelihood(family: Family, values: tuple[float, ...], data: Lifetimes) -> float:
    """Log likelihood of ``data`` under ``family`` with parameters ``values``."""
    total = float(family.logpdf(data.times[data.observed], *values).sum())
    if not data.observed.all():
        total += float(family.logsf(data.times[~data.observed], *values).sum())
    late = data.entry > 0
    if late.any():
        total -= float(family.logsf(data.entry[late], *values).sum())
    return total


def fit(data: Lifetimes, family: Family | str, *, intervals: bool = True) -> Fit:
    """The maximum likelihood fit of one family.

    Args:
        data: lifetimes; times of 0 are left out.
        family: a ``Family`` or its name.
        intervals: also find 95 % profile likelihood intervals.

    Raises:
        ValueError: when fewer than two ends were observed.
    """
    chosen = FAMILIES[family] if isinstance(family, str) else family
    data = data.positive()
    if data.observed.sum() < 2:
        raise ValueError(f"lifetimes need at least 2 ends that were seen, longer than 0; there are {int(data.observed.sum())}")
    start = np.log(_rescaled_start(chosen, data))
    best, value = _maximise(chosen, data, start)
    values = tuple(float(item) for item in np.exp(best))
    ends = tuple(_profile(chosen, data, best, value, index) for index in range(len(best))) if intervals else ()
    return Fit(chosen, values, value, kolmogorov(chosen, values, data), len(data.times), int((~data.observed).sum()), ends)


def compare(data: Lifetimes, families: tuple[str, ...] = tuple(FAMILIES), *, intervals: bool = True) -> list[Fit]:
    """All families fitted, best (smallest AIC) first; ties keep the order of ``families``."""
    return sorted((fit(data, name, intervals=intervals) for name in families), key=lambda item: item.aic)


def _rescaled_start(family: Family, data: Lifetimes) -> tuple[float, ...]:
    """The family's guess from complete times, its scale stretched by the exposure that censoring hides."""
    first = list(family.start(data.complete))
    exposure = float((data.times - data.entry).sum()) / max(float(data.complete.sum()), 1e-300)
    first[-1] *= max(exposure, 1e-6)
    return tuple(first)


def _maximise(family: Family, data: Lifetimes, start: Array, fixed: tuple[int, float] | None = None) -> tuple[Array, float]:
    """Log parameters of the highest likelihood, and that likelihood; one of them may be held."""
    from scipy.optimize import minimize

    free = [index for index in range(len(start)) if fixed is None or index != fixed[0]]

    def loss(inner: Array) -> float:
        full = np.array(start, dtype=np.float64)
        full[free] = inner
        if fixed is not None:
            full[fixed[0]] = fixed[1]
        value = -log_likelihood(family, tuple(np.exp(np.clip(full, -60, 60))), data)
        return value if math.isfinite(value) else 1e300

    if not free:
        return start, -loss(np.zeros(0))
    found = minimize(loss, np.asarray(start)[free], method="Nelder-Mead",
                     options={"xatol": 1e-7, "fatol": 1e-9, "maxiter": 2000})  # fmt: skip
    full = np.array(start, dtype=np.float64)
    full[free] = found.x
    if fixed is not None:
        full[fixed[0]] = fixed[1]
    return full, -float(found.fun)


def _profile(family: Family, data: Lifetimes, best: Array, top: float, index: int) -> tuple[float, float]:
    """Ends of the 95 % profile likelihood interval of parameter ``index``."""
    from scipy.optimize import brentq

    def drop(offset: float) -> float:
        held = best[index] + offset
        start = np.array(best)
        start[index] = held
        return 2 * (top - _maximise(family, data, start, (index, held))[1]) - CHI2_95

    ends = []
    for sign in (-1.0, 1.0):
        reach = 0.1
        while drop(sign * reach) < 0 and reach < 30:
            reach *= 2
        ends.append(math.exp(best[index] + (brentq(drop, 0.0, sign * reach, xtol=1e-4) if reach < 30 else sign * reach)))
    return ends[0], ends[1]


def kaplan_meier(data: Lifetimes) -> tuple[Array, Array]:
    """Product-limit estimate: the observed ends in order, and the survivor function just after each.

    Left truncation is respected: a unit is at risk from its entry age on.
    """
    ends, deaths = np.unique(data.complete, return_counts=True)
    at_risk = (np.searchsorted(np.sort(data.entry), ends, side="left")
               - np.searchsorted(np.sort(data.times), ends, side="left"))  # fmt: skip
    return ends, np.cumprod(1 - deaths / np.maximum(at_risk, 1))


def kolmogorov(family: Family, values: tuple[float, ...], data: Lifetimes) -> float:
    """Largest distance between the fitted distribution function and the product-limit estimate."""
    ends, survivor = kaplan_meier(data)
    fitted = 1 - np.exp(family.logsf(ends, *values))
    after, before = 1 - survivor, 1 - np.concatenate(([1.0], survivor[:-1]))
    return float(max(np.abs(fitted - after).max(), np.abs(fitted - before).max()))
