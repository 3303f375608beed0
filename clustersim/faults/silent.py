"""Silent data corruption: wrong numbers that nobody sees for a while; what was saved meanwhile is spoilt too."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from pydantic import Field

from clustersim.distributions import Constant, Distribution
from clustersim.faults.failure import FailureModel, Severity
from clustersim.faults.process import Arrivals, Hit, PoissonArrivals, Site
from clustersim.part import Block
from clustersim.units import PositiveSeconds, Seconds


class Silent(NamedTuple):
    """What a hit of a ``SilentCorruption`` carries: seconds until it is noticed, None: never."""

    latency_s: float | None


class CorruptionCheck(Block):
    """A check for corruption (a replayed step, a stress test): every ``every``, at ``cost`` of training time each."""

    every: PositiveSeconds
    cost: Seconds = 0.0
    recall: float = Field(default=0.7, gt=0, le=1)
    """Share of corrupting nodes that one check finds (NVIDIA EUD: 70 %, ByteRobust)."""


class SilentCorruption(FailureModel, kind="silent-corruption", aliases=("sdc",)):
    """A unit that computes wrong without an error.

    Training goes on, on wrong numbers, until the corruption shows by itself (a NaN, a loss spike: ``latency``, for a share
    ``coverage``) or a ``check`` finds it, whichever is first. Then the job goes back to the newest shared copy that was
    durable *before* the corruption; all copies since are spoilt. What neither finds stays in the model unnoticed.
    """

    spoils: ClassVar[bool] = True

    name: str = "silent-corruption"
    mtbf: PositiveSeconds
    latency: Distribution = Constant(value=3600.0)
    coverage: float = Field(default=1.0, ge=0, le=1)
    check: CorruptionCheck | None = None
    localise: Distribution = Constant(value=0.0)
    """Search for the node after the corruption is noticed; over 8 h by hand (ByteRobust)."""
    severity: Severity = Field(default=Severity.NODE)
    detection: Distribution = Constant(value=0.0)

    def rate(self, site: Site) -> float:
        """Corruptions a second that are noticed in the end."""
        found = 1.0 if self.check is not None else self.coverage
        return self.frequency(site) * found

    def frequency(self, site: Site) -> float:
        """Corruptions a second."""
        return site.units(self) / self.mtbf if site.block is None else 0.0

    @property
    def overhead(self) -> float:
        """Share of training time that the checks cost."""
        return 0.0 if self.check is None else self.check.cost / self.check.every

    def arrivals(self, site: Site) -> Arrivals | None:
        """A Poisson process over the units of the job's places."""
        units = site.units(self)
        return None if site.block is not None or units == 0 else _Corruptions(self, site, units)


class _Corruptions(PoissonArrivals):
    """Corruptions, each with the time at which it will be noticed."""

    def __init__(self, cause: SilentCorruption, site: Site, units: int) -> None:
        self._silent, self._marks = cause, site.streams(f"latency/{cause.name}", *site.ids)
        super().__init__(cause, site, units)  # type: ignore[arg-type]

    def pop(self) -> Hit:
        hit = super().pop()
        cause, rng = self._silent, self._marks
        times = []
        shows, latency = rng.random() < cause.coverage, cause.latency.sample(rng)
        if shows:
            times.append(latency)
        if cause.check is not None:
            times.append(cause.check.every * (float(rng.random()) + int(rng.geometric(cause.check.recall)) - 1))
        noticed = min(times) if times else None
        return hit._replace(detection_s=cause.localise.sample(rng), extra=Silent(noticed))
