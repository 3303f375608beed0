"""A Poisson process over the units of a component on the calendar's clock: the base of what comes and goes by itself."""

from __future__ import annotations

from clustersim.faults.failure import FailureModel
from clustersim.faults.hazard.calendar import Calendar, Clock
from clustersim.faults.process import Arrivals, Site


class ClockedArrivals(Arrivals):
    """Arrivals of mean time ``mtbf`` a unit, faster and slower by the calendar; each aims at a unit drawn alike.

    Marks draw from streams of their own, so that they move no arrival.

    Args:
        cause: whose name the streams bear.
        site: where.
        units: of the component at the site.
        mtbf: of one unit, seconds.
        calendar: factors on the rate.
    """

    def __init__(
        self, cause: FailureModel, site: Site, units: int, mtbf: float, calendar: tuple[Calendar, ...]
    ) -> None:
        self._site, self._units, self._mean_s = site, units, mtbf / units
        self._clock = Clock.of(calendar, site.horizon_s)
        self._rng = site.streams(f"failure/{cause.name}", *site.ids)
        self._reading, self._aim = 0.0, 0.0
        self._advance()

    def _advance(self) -> None:
        """Move to the next arrival."""
        self._reading += float(self._rng.exponential(self._mean_s))
        self._aim = float(self._rng.random()) * self._units
        self.next_s = self._clock.when(self._reading)

    def _places(self, cause: FailureModel) -> tuple[int, int]:
        """First and one past the last place that the arrival at ``next_s`` concerns."""
        unit = int(self._aim)
        return self._site.places(cause, unit, self._units, self._aim - unit)
