"""Interruptions that somebody orders: maintenance windows, and preemption by more important jobs."""

from __future__ import annotations

from pydantic import Field

from clustersim.distributions import Constant, Distribution
from clustersim.faults.failure import FailureModel
from clustersim.faults.process import Arrivals, Hit, Site
from clustersim.units import PositiveSeconds, Seconds


class Maintenance(FailureModel, kind="maintenance"):
    """Nodes are taken out at stated times, ``nodes`` at once in turn (all: null), for ``length``."""

    name: str = "maintenance"
    first: Seconds
    every: PositiveSeconds | None = None
    """From one window to the next; null: only one."""
    nodes: int | None = Field(default=None, gt=0)
    length: Distribution
    detection: Distribution = Constant(value=0.0)
    planned: bool = True

    def rate(self, site: Site) -> float:
        """Windows a second."""
        return 0.0 if self.every is None or site.block is not None else 1 / self.every

    def arrivals(self, site: Site) -> Arrivals | None:
        """The windows, on the job's places; spares are left alone."""
        return None if site.block is not None else _Windows(self, site)


class _Windows(Arrivals):
    def __init__(self, cause: Maintenance, site: Site) -> None:
        self._cause, self._nodes, self._turn = cause, site.nodes, 0
        self._length = site.streams(f"length/{cause.name}")
        self._detection = site.streams(f"detection/{cause.name}")
        self.next_s = cause.first

    def pop(self) -> Hit:
        cause, size = self._cause, min(self._cause.nodes or self._nodes, self._nodes)
        first = self._turn * size % self._nodes
        detection, length = cause.detection.sample(self._detection), cause.length.sample(self._length)
        hit = Hit(self.next_s, cause, first, min(first + size, self._nodes), detection, length)
        self._turn += 1
        self.next_s = cause.first + self._turn * cause.every if cause.every is not None else float("inf")
        return hit


class Preemption(FailureModel, kind="preemption"):
    """A more important job takes ``nodes`` neighbouring nodes at random moments, and gives them back after ``length``."""

    name: str = "preemption"
    mtbf: PositiveSeconds
    """Mean time between preemptions of the whole job."""
    nodes: int = Field(default=1, gt=0)
    length: Distribution
    detection: Distribution = Constant(value=0.0)

    def rate(self, site: Site) -> float:
        """Preemptions a second."""
        return 0.0 if site.block is not None else 1 / self.mtbf

    def arrivals(self, site: Site) -> Arrivals | None:
        """A Poisson process on the job's places."""
        return None if site.block is not None else _Preemptions(self, site)


class _Preemptions(Arrivals):
    def __init__(self, cause: Preemption, site: Site) -> None:
        self._cause, self._nodes = cause, site.nodes
        self._rng = site.streams(f"failure/{cause.name}")
        self._length = site.streams(f"length/{cause.name}")
        self._detection = site.streams(f"detection/{cause.name}")
        self.next_s = float(self._rng.exponential(cause.mtbf))

    def pop(self) -> Hit:
        cause, size = self._cause, min(self._cause.nodes, self._nodes)
        first = int(self._rng.random() * (self._nodes - size + 1))
        detection, length = cause.detection.sample(self._detection), cause.length.sample(self._length)
        hit = Hit(self.next_s, cause, first, first + size, detection, length)
        self.next_s += float(self._rng.exponential(cause.mtbf))
        return hit
