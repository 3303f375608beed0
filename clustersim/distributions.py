"""Distributions of a duration: ``30 s`` or ``{kind: lognormal, median: 20 h, mean: 133 h}``.

One class a distribution writes only its mathematics; the base class checks what it draws, so that a plug-in cannot return
a negative time unnoticed.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from clustersim.part import Part
from clustersim.units import DURATION, PositiveSeconds, Seconds, Unit


class Distribution(Part, family="distribution"):
    """A distribution over non-negative durations, in seconds."""

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """A quantity (``30 s``) or, from Python, a number of seconds is a constant."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return {"kind": "constant", "value": value}
        if isinstance(value, str) and value not in cls.kinds:
            return {"kind": "constant", "value": value}
        return super().short_form(value)

    @classmethod
    def short_schema(cls) -> list[dict[str, Any]]:
        """A quantity."""
        return [Unit(DURATION).schema()]

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """``size`` independent values in seconds, shape ``(size,)``."""
        raise TypeError(f"{type(self).__name__} draws nothing")

    def mean_s(self) -> float:
        """Expected value in seconds."""
        raise TypeError(f"{type(self).__name__} has no mean")

    def sample(self, rng: np.random.Generator) -> float:
        """One value in seconds, checked to be finite and at least 0.

        Raises:
            ValueError: naming the distribution that drew something else.
        """
        value = float(self.draw(rng, 1)[0])
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{self.kind} distribution drew {value}, which is no duration")
        return value


class Constant(Distribution, kind="constant"):
    """Always the same duration."""

    value: Seconds

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        return np.full(size, self.value)

    def sample(self, rng: np.random.Generator) -> float:
        """The value; no random number is drawn."""
        return self.value

    def mean_s(self) -> float:
        return self.value

    def dump(self) -> Any:
        """The short form: a quantity (a subclass, which a plug-in may bring, keeps its kind)."""
        return DURATION.format(self.value) if type(self) is Constant else super().dump()


class Exponential(Distribution, kind="exponential"):
    """Memoryless, with the given mean."""

    mean: Seconds

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        return rng.exponential(self.mean, size)

    def mean_s(self) -> float:
        return self.mean


class Uniform(Distribution, kind="uniform"):
    """Any duration between ``low`` and ``high`` alike."""

    low: Seconds
    high: Seconds

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.high < self.low:
            raise ValueError("'high' must be at least 'low'")
        return self

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        return rng.uniform(self.low, self.high, size)

    def mean_s(self) -> float:
        return (self.low + self.high) / 2


class Lognormal(Distribution, kind="lognormal"):
    """Logarithm is normal; give ``median`` and either ``mean`` or ``sigma`` (of the logarithm).

    ``mean = median · exp(sigma²/2)``.
    """

    median: PositiveSeconds
    mean: PositiveSeconds | None = None
    sigma: float | None = Field(default=None, ge=0, le=10)

    @model_validator(mode="after")
    def _one_of(self) -> Lognormal:
        if (self.mean is None) == (self.sigma is None):
            raise ValueError("needs exactly one of 'mean' and 'sigma' beside 'median'")
        if self.mean is not None and self.mean < self.median:
            raise ValueError("'mean' of a lognormal is at least its 'median'")
        return self

    @property
    def sigma_log(self) -> float:
        """Standard deviation of the logarithm."""
        if self.sigma is not None:
            return self.sigma
        assert self.mean is not None
        return math.sqrt(2 * math.log(self.mean / self.median))

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        return rng.lognormal(math.log(self.median), self.sigma_log, size)

    def mean_s(self) -> float:
        return self.median * math.exp(self.sigma_log**2 / 2)


class Shaped(Distribution):
    """A distribution with a ``shape`` and either its ``scale`` or its ``mean``."""

    shape: float = Field(ge=0.05, le=1000)
    scale: PositiveSeconds | None = None
    mean: PositiveSeconds | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.mean is None) == (self.scale is None):
            raise ValueError("needs exactly one of 'scale' and 'mean' beside 'shape'")
        return self

    @property
    def unit_mean(self) -> float:
        """Mean at a scale of 1."""
        raise TypeError(f"{type(self).__name__} has no mean")

    @property
    def scale_s(self) -> float:
        """Scale in seconds."""
        if self.scale is not None:
            return self.scale
        assert self.mean is not None
        return self.mean / self.unit_mean

    def mean_s(self) -> float:
        return self.scale_s * self.unit_mean


class Weibull(Shaped, kind="weibull"):
    """Weibull with ``shape`` k and either ``scale`` or ``mean``; ``mean = scale · Γ(1 + 1/k)``."""

    @property
    def unit_mean(self) -> float:
        """Γ(1 + 1/k)."""
        return math.gamma(1 + 1 / self.shape)

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        return self.scale_s * rng.weibull(self.shape, size)


class Gamma(Shaped, kind="gamma"):
    """Gamma with ``shape`` k and either ``scale`` or ``mean``; ``mean = shape · scale``."""

    @property
    def unit_mean(self) -> float:
        """The shape."""
        return self.shape

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        return rng.gamma(self.shape, self.scale_s, size)


class Empirical(Distribution, kind="empirical"):
    """Measured durations, each drawn with the same probability."""

    values: tuple[Seconds, ...] = Field(min_length=1)

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        return np.asarray(self.values)[rng.integers(len(self.values), size=size)]

    def mean_s(self) -> float:
        return math.fsum(self.values) / len(self.values)
