"""How deep a slow-down is: the family of factors by which work takes longer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from clustersim.part import Part


class Factor(Part, family="factor"):
    """A distribution over factors of at least 1 (1.25: a quarter longer)."""

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """A bare number is a constant."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return {"kind": "constant", "value": value}
        return super().short_form(value)

    @classmethod
    def short_schema(cls) -> list[dict[str, Any]]:
        """JSON Schema of the short forms: a bare factor beside those of every family."""
        return [{"type": "number", "minimum": 1}, *super().short_schema()]

    def sample(self, rng: np.random.Generator) -> float:
        """One factor."""
        raise TypeError(f"{type(self).__name__} draws nothing")

    def mean(self) -> float:
        """Expected factor."""
        raise TypeError(f"{type(self).__name__} has no mean")


class ConstantFactor(Factor, kind="constant"):
    """Always the same."""

    value: float = Field(ge=1)

    def sample(self, rng: np.random.Generator) -> float:
        return self.value

    def mean(self) -> float:
        return self.value


class UniformFactor(Factor, kind="uniform"):
    """Between ``low`` and ``high`` alike."""

    low: float = Field(ge=1)
    high: float = Field(ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> UniformFactor:
        if self.high < self.low:
            raise ValueError("'high' must be at least 'low'")
        return self

    def sample(self, rng: np.random.Generator) -> float:
        return float(rng.uniform(self.low, self.high))

    def mean(self) -> float:
        return (self.low + self.high) / 2


class LognormalFactor(Factor, kind="lognormal"):
    """1 + a lognormal excess with the given median and standard deviation of the logarithm."""

    median_excess: float = Field(gt=0)
    sigma: float = Field(ge=0)

    def sample(self, rng: np.random.Generator) -> float:
        return 1 + self.median_excess * math.exp(self.sigma * float(rng.standard_normal()))

    def mean(self) -> float:
        return 1 + self.median_excess * math.exp(self.sigma**2 / 2)
