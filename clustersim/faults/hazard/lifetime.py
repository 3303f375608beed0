"""How the hazard of one unit depends on its age.

A lifetime is its cumulative hazard ``H(age)`` and the inverse of it, so that the age at the next failure of a unit of age
``a`` is ``H⁻¹(H(a) + E)`` with ``E`` exponential of mean 1; a multiplier on the hazard (frailty, calendar) divides ``E``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from clustersim.part import Part
from clustersim.units import PositiveSeconds, Seconds

Array = NDArray[np.float64]


class Lifetime(Part, family="lifetime"):
    """The law of the time between failures of one unit, in units of the ``mtbf`` that stands beside it."""

    @property
    def memoryless(self) -> bool:
        """True where the hazard does not depend on the age."""
        return False

    def cumulative(self, age_s: Array, mtbf_s: float) -> Array:
        """Cumulative hazard up to each age; ``age_s`` in seconds, any shape."""
        raise TypeError(f"{type(self).__name__} has no hazard")

    def age_at(self, hazard: Array, mtbf_s: float) -> Array:
        """Age in seconds at which the cumulative hazard is reached: the inverse of ``cumulative``."""
        return invert(lambda age: self.cumulative(age, mtbf_s), hazard, mtbf_s)

    def mean_s(self, mtbf_s: float) -> float:
        """Mean life in seconds: the integral of exp(-H)."""
        grid = age_grid(self, mtbf_s)
        survivor = np.exp(-self.cumulative(grid, mtbf_s))
        return float(np.trapezoid(survivor, grid))


class ExponentialLife(Lifetime, kind="exponential"):
    """Memoryless: constant hazard 1 ÷ mtbf."""

    @property
    def memoryless(self) -> bool:
        return True

    def cumulative(self, age_s: Array, mtbf_s: float) -> Array:
        return age_s / mtbf_s

    def age_at(self, hazard: Array, mtbf_s: float) -> Array:
        return hazard * mtbf_s

    def mean_s(self, mtbf_s: float) -> float:
        return mtbf_s


class WeibullLife(Lifetime, kind="weibull"):
    """Weibull with mean ``mtbf``: hazard falls with age for ``shape`` < 1, rises for > 1."""

    shape: float = Field(ge=0.05, le=1000)

    def scale_s(self, mtbf_s: float) -> float:
        """Scale in seconds, ``mtbf / Γ(1 + 1/shape)``."""
        return mtbf_s / math.gamma(1 + 1 / self.shape)

    def cumulative(self, age_s: Array, mtbf_s: float) -> Array:
        return np.asarray((age_s / self.scale_s(mtbf_s)) ** self.shape)

    def age_at(self, hazard: Array, mtbf_s: float) -> Array:
        return np.asarray(self.scale_s(mtbf_s) * hazard ** (1 / self.shape))

    def mean_s(self, mtbf_s: float) -> float:
        return mtbf_s


class GammaLife(Lifetime, kind="gamma"):
    """Gamma with mean ``mtbf``."""

    shape: float = Field(ge=0.05, le=1000)

    def cumulative(self, age_s: Array, mtbf_s: float) -> Array:
        from scipy.special import gammaincc

        return -np.log(np.maximum(gammaincc(self.shape, age_s * self.shape / mtbf_s), 1e-300))

    def age_at(self, hazard: Array, mtbf_s: float) -> Array:
        from scipy.special import gammainccinv

        return np.asarray(gammainccinv(self.shape, np.exp(-np.minimum(hazard, 690.0))) * mtbf_s / self.shape)

    def mean_s(self, mtbf_s: float) -> float:
        return mtbf_s


class LognormalLife(Lifetime, kind="lognormal"):
    """Lognormal with mean ``mtbf`` and standard deviation ``shape`` of the logarithm."""

    shape: float = Field(gt=0, le=10)

    def cumulative(self, age_s: Array, mtbf_s: float) -> Array:
        from scipy.special import log_ndtr

        with np.errstate(divide="ignore"):
            z = (np.log(age_s / mtbf_s) + self.shape**2 / 2) / self.shape
        return -np.asarray(log_ndtr(-z))

    def age_at(self, hazard: Array, mtbf_s: float) -> Array:
        from scipy.special import ndtri_exp

        z = -ndtri_exp(-np.asarray(hazard, dtype=np.float64))
        return np.asarray(mtbf_s * np.exp(self.shape * z - self.shape**2 / 2))

    def mean_s(self, mtbf_s: float) -> float:
        return mtbf_s


class BathtubLife(Lifetime, kind="bathtub"):
    """Infant mortality, useful life and wear-out as competing causes.

    ``H(a) = -ln(1 - infant) · (1 - exp(-a / infant_time)) + a / mtbf + (a / wear_out) ** wear_out_shape``: a share
    ``infant`` of the units has an early failure, ``mtbf`` is that of the useful life, and ``wear_out`` the characteristic
    life of the Weibull that ends it (null: none).
    """

    infant: float = Field(default=0.0, ge=0, lt=1)
    infant_time: PositiveSeconds = 14 * 86400.0
    wear_out: PositiveSeconds | None = None
    wear_out_shape: float = Field(default=4.0, gt=1)

    def cumulative(self, age_s: Array, mtbf_s: float) -> Array:
        early = -math.log1p(-self.infant) * -np.expm1(-age_s / self.infant_time)
        late = 0.0 if self.wear_out is None else (age_s / self.wear_out) ** self.wear_out_shape
        return np.asarray(early + age_s / mtbf_s + late)


class StepLife(Lifetime, kind="steps"):
    """Piecewise-constant hazard over age: from age ``ages[i]`` on it is ``factors[i]`` ÷ mtbf (the first age is 0)."""

    ages: tuple[Seconds, ...] = Field(min_length=1)
    factors: tuple[float, ...] = Field(min_length=1)

    def model_post_init(self, context: Any, /) -> None:
        """Check that the steps are a function of age that reaches every level of hazard."""
        if len(self.ages) != len(self.factors) or self.ages[0] != 0 or list(self.ages) != sorted(set(self.ages)):
            raise ValueError("'ages' must begin with 0, rise, and be as many as 'factors'")
        if min(self.factors) < 0 or self.factors[-1] <= 0:
            raise ValueError("'factors' must be at least 0 and the last greater than 0")

    def _knots(self) -> tuple[Array, Array]:
        edges, factors = np.array(self.ages), np.array(self.factors)
        return edges, np.concatenate([[0.0], np.cumsum(np.diff(edges) * factors[:-1])])

    def cumulative(self, age_s: Array, mtbf_s: float) -> Array:
        edges, sums = self._knots()
        at = np.searchsorted(edges, age_s, side="right") - 1
        return np.asarray((sums[at] + (age_s - edges[at]) * np.array(self.factors)[at]) / mtbf_s)

    def age_at(self, hazard: Array, mtbf_s: float) -> Array:
        edges, sums = self._knots()
        total = np.asarray(hazard, dtype=np.float64) * mtbf_s
        at = np.searchsorted(sums, total, side="right") - 1
        return np.asarray(edges[at] + (total - sums[at]) / np.array(self.factors)[at])


def invert(cumulative: Any, hazard: Array, scale_s: float) -> Array:
    """Solve ``cumulative(age) = hazard`` for each element by bisection, to 1 part in 10¹² of the age."""
    target = np.asarray(hazard, dtype=np.float64)
    low, high = np.zeros_like(target), np.full_like(target, scale_s)
    while np.any(short := cumulative(high) < target):
        low, high = np.where(short, high, low), np.where(short, 2 * high, high)
    for _ in range(200):
        middle = (low + high) / 2
        below = cumulative(middle) < target
        low, high = np.where(below, middle, low), np.where(below, high, middle)
        if np.all(high - low <= 1e-12 * high):
            break
    return (low + high) / 2


def age_grid(life: Lifetime, mtbf_s: float, points: int = 2048) -> Array:
    """Ages from 0 to where one unit in 10¹³ survives, close together near 0."""
    last = float(life.age_at(np.array([30.0]), mtbf_s)[0])
    return np.concatenate([[0.0], np.geomspace(last * 1e-14, last, points)])


def stationary_ages(life: Lifetime, mtbf_s: float, weights: Array, rng: np.random.Generator) -> Array:
    """Ages of units met at a random time, given the multiplier on the hazard of each.

    The age of a renewal process in equilibrium has the density ``S(a)^w ÷ ∫ S^w``; it is drawn by inversion on a grid.
    Multipliers are rounded to one of 64 values (within 1 % unless they span more than six orders of magnitude).
    """
    grid = age_grid(life, mtbf_s)
    hazard = life.cumulative(grid, mtbf_s)
    uniform = rng.random(len(weights))
    low = max(float(weights.min()), float(weights.max()) * 1e-6)
    levels = np.geomspace(low, max(float(weights.max()), low * (1 + 1e-9)), 64)
    nearest = np.clip(np.searchsorted(np.sqrt(levels[1:] * levels[:-1]), weights), 0, 63)
    ages = np.empty(len(weights))
    for level in np.unique(nearest):
        own = nearest == level
        last = float(life.age_at(np.array([30.0 / levels[level]]), mtbf_s)[0])
        points, sums = (grid, hazard) if last <= grid[-1] else _longer(life, mtbf_s, last)
        survivor = np.exp(-levels[level] * sums)
        mass = np.concatenate([[0.0], np.cumsum(np.diff(points) * (survivor[1:] + survivor[:-1]) / 2)])
        ages[own] = np.interp(uniform[own] * mass[-1], mass, points)
    return ages


def _longer(life: Lifetime, mtbf_s: float, last: float) -> tuple[Array, Array]:
    points = np.concatenate([[0.0], np.geomspace(last * 1e-16, last, 2048)])
    return points, life.cumulative(points, mtbf_s)


def ages_after_burn_in(life: Lifetime, mtbf_s: float, weights: Array, length_s: float, rng: np.random.Generator) -> Array:
    """Ages of units after ``length_s`` of operation from new, those that failed meanwhile replaced by new ones."""
    born = np.zeros(len(weights))
    open_ = np.arange(len(weights))
    while len(open_):
        lives = life.age_at(rng.exponential(size=len(open_)) / weights[open_], mtbf_s)
        failed = born[open_] + lives <= length_s
        born[open_[failed]] += lives[failed]
        open_ = open_[failed]
    return length_s - born
