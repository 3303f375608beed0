"""How failures are noticed: the family of detectors, each a distribution of the time from a failure to its detection.

A detector stands wherever ``detection`` does (``detection: {kind: heartbeat, every: 10 s, missed: 3}``): it is a
``Distribution`` of a duration in seconds, named by what looks.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from clustersim.distributions import Constant, Distribution
from clustersim.part import Block
from clustersim.units import PositiveSeconds, Seconds

Array = np.ndarray


class ExitCode(Distribution, kind="exit-code"):
    """The process ends and its launcher sees it, then the cause is found: ``react`` + ``localise``.

    A minute from an error in the logs to the reaction is usual (ByteRobust, arXiv 2509.16293).
    """

    react: Distribution = Constant(value=60.0)
    localise: Distribution = Constant(value=0.0)

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        return np.asarray(self.react.draw(rng, size) + self.localise.draw(rng, size))

    def mean_s(self) -> float:
        return self.react.mean_s() + self.localise.mean_s()


class Heartbeat(Distribution, kind="heartbeat"):
    """A beat ``every`` so often; a node counts as lost after ``missed`` beats that did not come.

    The failure lies uniformly between two beats, so that the time is uniform between (missed - 1) and missed periods.
    """

    every: PositiveSeconds
    missed: int = Field(default=3, gt=0)
    localise: Distribution = Constant(value=0.0)

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        return np.asarray(self.every * (self.missed - rng.random(size)) + self.localise.draw(rng, size))

    def mean_s(self) -> float:
        return self.every * (self.missed - 0.5) + self.localise.mean_s()


class Inspection(Distribution, kind="inspection"):
    """Somebody looks ``every`` so often and sees a fault with probability ``catch``; ``takes`` is how long a look lasts.

    Published intervals: 2 s kernel, 10 s GPU, 30 s NIC and switch (two misses in a row: ``confirm: 2``), ByteRobust table 3.
    """

    every: PositiveSeconds
    catch: float = Field(default=1.0, gt=0, le=1)
    confirm: int = Field(default=1, gt=0)
    """Looks in a row that must see it."""
    takes: Seconds = 0.0
    localise: Distribution = Constant(value=0.0)

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        missed = rng.geometric(self.catch, size) - 1
        looks = rng.random(size) + missed + self.confirm - 1
        return np.asarray(self.every * looks + self.takes + self.localise.draw(rng, size))

    def mean_s(self) -> float:
        looks = 0.5 + (1 / self.catch - 1) + self.confirm - 1
        return self.every * looks + self.takes + self.localise.mean_s()


class CollectiveTimeout(Distribution, kind="collective-timeout"):
    """Nothing but the time-out of a hanging collective: 600 s unless set otherwise (PyTorch ProcessGroupNCCL).

    ``react`` is the time from the time-out to the decision to restart, ``localise`` the search for the node.
    """

    timeout: PositiveSeconds = 600.0
    react: Distribution = Constant(value=0.0)
    localise: Distribution = Constant(value=0.0)

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        return np.asarray(self.timeout + self.react.draw(rng, size) + self.localise.draw(rng, size))

    def mean_s(self) -> float:
        return self.timeout + self.react.mean_s() + self.localise.mean_s()


class FirstOf(Distribution, kind="first-of"):
    """Several detectors look at once; the first to notice counts."""

    of: tuple[Distribution, ...] = Field(min_length=1)

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        return np.asarray(np.min([each.draw(rng, size) for each in self.of], axis=0))

    def mean_s(self) -> float:
        """By a million draws of a fixed stream: the minimum has no closed form in general."""
        if all(isinstance(each, Constant) for each in self.of):
            return min(each.mean_s() for each in self.of)
        return float(self.draw(np.random.default_rng(0), 200_000).mean())


class Mixture(Distribution, kind="mixture"):
    """One of several, with the given weights: most failures are explicit, some hang."""

    of: tuple[Distribution, ...] = Field(min_length=1)
    weights: tuple[float, ...] = Field(min_length=1)

    def model_post_init(self, context: object, /) -> None:
        """As many weights as parts."""
        if len(self.of) != len(self.weights) or min(self.weights) < 0 or sum(self.weights) <= 0:
            raise ValueError("'weights' must be as many as 'of', none negative, and not all 0")

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        share = np.cumsum(self.weights) / math.fsum(self.weights)
        which = np.searchsorted(share, rng.random(size), side="right").clip(max=len(self.of) - 1)
        values = np.stack([each.draw(rng, size) for each in self.of])
        return np.asarray(values[which, np.arange(size)])

    def mean_s(self) -> float:
        total = math.fsum(self.weights)
        return math.fsum(weight * each.mean_s() for weight, each in zip(self.weights, self.of, strict=True)) / total


class StragglerWatch(Block):
    """A detector of slow nodes: looks at every ``every``, flags a node whose factor is at least ``threshold``.

    A flagged node is replaced after ``rounds`` flags in a row (ByteRobust: 5 rounds of 10 s). With probability
    ``wrong_node`` another node is blamed, and the slow one stays.
    """

    threshold: float = Field(default=1.05, gt=1)
    every: PositiveSeconds = 10.0
    rounds: int = Field(default=5, gt=0)
    catch: float = Field(default=1.0, ge=0, le=1)
    """Chance that a look at a slow node flags it."""
    localise: Distribution = Constant(value=0.0)
    wrong_node: float = Field(default=0.0, ge=0, le=1)

    def notice(self, factor: float, length_s: float, rng: np.random.Generator) -> float | None:
        """Seconds from the begin of an episode until it is acted upon; None: it ends before, or is too shallow."""
        if factor < self.threshold or self.catch == 0:
            return None
        time, row = float(rng.random()) * self.every, 0
        while time <= length_s:
            row = row + 1 if self.catch == 1 or rng.random() < self.catch else 0
            if row >= self.rounds:
                return time + self.localise.sample(rng)
            time += self.every
        return None

    def blame(self, rng: np.random.Generator) -> float | None:
        """A share that chooses the node blamed instead of the right one; None: the right one."""
        return float(rng.random()) if self.wrong_node and rng.random() < self.wrong_node else None
