"""What makes failures of machines depend on each other: frailty, recurrence, bursts."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from clustersim.distributions import Distribution, Exponential
from clustersim.faults.hazard.calendar import Calendar
from clustersim.part import Block
from clustersim.units import PositiveSeconds


class Ages(Block):
    """How old units are at the start: ``new``, ``stationary`` (met at a random time of a long operation), or after a
    burn-in of a given length in which early failures were replaced.

    Short forms: ``new``, ``stationary``, ``{burn_in: 7 d}``.
    """

    start: Literal["new", "stationary", "burn-in"] = "stationary"
    burn_in: PositiveSeconds | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"start": value}
        if isinstance(value, dict) and "burn_in" in value and "start" not in value:
            return {"start": "burn-in", **value}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        """The mapping, or one of the two words."""
        return {"anyOf": [{"enum": ["new", "stationary"]}, handler(schema)]}

    def model_post_init(self, context: Any, /) -> None:
        """A burn-in has a length, and nothing else has one."""
        if (self.start == "burn-in") != (self.burn_in is not None):
            raise ValueError("'burn_in' is the length of a burn-in: write {burn_in: 7 d}, new, or stationary")


class Frailty(Block):
    """Lemons: the hazard of each machine is multiplied by a gamma variable of mean 1 and this ``shape``.

    Small shapes make few machines have most faults; the number of faults a machine has is then negative binomial with
    dispersion ``shape``. Over 400 nodes of a public trace the counts alone give 0.93.
    """

    shape: float = Field(ge=0.001, le=1e6)

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Multipliers of ``size`` machines; the first n are the same whatever ``size``."""
        return rng.gamma(self.shape, 1 / self.shape, size)


class Recurrence(Block):
    """A repair that does not hold: with ``probability`` the fault of the same machine comes back ``delay`` after it."""

    probability: float = Field(ge=0, le=1)
    delay: Distribution
    persistence: float | None = Field(default=None, ge=0, le=1)
    """The probability for a fault that has itself come back; null: the same."""
    haste: float = Field(default=1.0, gt=0)
    """A repair that does not hold takes this times as long as one that does."""
    calendar: tuple[Calendar, ...] = ()
    """Factors on the probabilities by the time of the fault (they stay at most 1); several multiply."""

    def chance(self, time_s: float, again: bool) -> float:
        """Probability that the repair of a fault at ``time_s`` does not hold."""
        base = self.probability if self.persistence is None or not again else self.persistence
        if not self.calendar:
            return base
        return min(base * math.prod(each.factor(time_s) for each in self.calendar), 1.0)

    @property
    def faults(self) -> float:
        """Expected faults for each first one, itself included (the calendar left aside)."""
        persistence = self.probability if self.persistence is None else self.persistence
        return 1 + self.probability / max(1 - persistence, 0.01)


class Burst(Block):
    """A fault that brings others with it, on other machines of its ``domain``.

    The number of followers is negative binomial with mean ``followers`` and ``dispersion`` r (null: Poisson). Each follows
    after ``delay``; with probability ``shared_repair`` it has the same fault: it is back together with its primary, and if that
    repair does not hold (``recurrence``) both fail again together. Followers bring none of their own unless ``chain`` is
    true (then the mean must be below 1, or the cascade would not end).
    """

    followers: float = Field(ge=0)
    dispersion: float | None = Field(default=None, gt=0)
    delay: Distribution = Exponential(mean=60.0)
    domain: Literal["fleet", "rack", "nvlink-domain", "neighbours"] = "fleet"
    reach: int = Field(default=1, gt=0)
    """For ``neighbours``: machines within this distance of the index, on both sides."""
    shared_repair: float = Field(default=0.0, ge=0, le=1)
    chain: bool = False
    calendar: tuple[Calendar, ...] = ()
    """Factors on the mean number of followers by the time of the primary; several multiply."""

    def model_post_init(self, context: Any, /) -> None:
        """A cascade must end."""
        if self.chain and self.followers >= 1:
            raise ValueError("'followers' must be below 1 with 'chain': each fault would bring at least one more")

    def number(self, rng: np.random.Generator, time_s: float) -> int:
        """How many follow a fault at ``time_s``."""
        mean = self.followers
        if self.calendar:
            mean *= math.prod(each.factor(time_s) for each in self.calendar)
        if mean == 0 or rng.random() < self._none(mean):  # mostly nothing follows: decided by one number
            return 0
        while True:
            count = int(rng.poisson(mean) if self.dispersion is None else
                        rng.negative_binomial(self.dispersion, self.dispersion / (self.dispersion + mean)))  # fmt: skip
            if count:
                return count

    def _none(self, mean: float) -> float:
        """Probability that nothing follows."""
        if self.dispersion is None:
            return math.exp(-mean)
        return math.exp(-self.dispersion * math.log1p(mean / self.dispersion))
