"""Failures that belong to machines rather than to places: ages, lemons, repairs that do not hold, faults that come together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from clustersim.distributions import Distribution
from clustersim.faults.failure import FailureModel, Severity
from clustersim.faults.hazard.calendar import Calendar
from clustersim.faults.hazard.effects import Ages, Burst, Frailty, Recurrence
from clustersim.faults.hazard.lifetime import ExponentialLife, Lifetime
from clustersim.part import Block
from clustersim.units import PositiveSeconds

if TYPE_CHECKING:
    from clustersim.faults.hazard.marks import ClassMarks
    from clustersim.faults.process import Arrivals, Site


class FaultClass(Block):
    """One class of faults: its share, and what differs from the model that it belongs to (null: nothing)."""

    name: str
    share: float = Field(gt=0)
    severity: Severity | None = None
    detection: Distribution | None = None
    repair: Distribution | None = None

    def model(self, cause: FleetFailure) -> FailureModel:
        """The cause that the log names: ``<cause>/<class>``."""
        return cause.model_copy(update={"name": f"{cause.name}/{self.name}", "severity": self.severity or cause.severity,
                                        "detection": self.detection or cause.detection,
                                        "repair": self.repair or cause.repair, "classes": ()})  # fmt: skip


class FleetFailure(FailureModel, kind="fleet"):
    """Failures of machines, in which each may depend on what happened before.

    ``mtbf`` is that of one unit of the component in an average machine, by the base hazard alone; recurrence and clusters
    come on top. A machine that is swapped out takes its age and its frailty with it, and comes back with them.
    """

    mtbf: PositiveSeconds
    lifetime: Lifetime = ExponentialLife()
    ages: Ages = Ages()
    as_new: bool = True
    """Whether a unit that failed is as good as new after repair; false: as old as it was."""
    frailty: Frailty | None = None
    calendar: tuple[Calendar, ...] = ()
    """Factors on the base hazard over calendar time; several multiply."""
    recurrence: Recurrence | None = None
    bursts: tuple[Burst, ...] = ()
    """Faults that bring others: at once, or for a while; several add up."""
    classes: tuple[FaultClass, ...] = ()
    repair_calendar: tuple[Calendar, ...] = ()
    """Factors on the repair time by the time of the fault; several multiply."""
    repair_speed: tuple[Calendar, ...] = ()
    """Speed of repairs over calendar time; several multiply. The repair time that is drawn is the work: a repair from ``t`` on
    ends when the integral of the speed has reached it."""

    def rate(self, site: Site) -> float:
        """Long-run failures a second: base rate × faults that follow from one by recurrence × by bursts."""
        from clustersim.faults.process import units_per_node

        if site.block is not None:
            return 0.0
        each = units_per_node(self, site.cluster) or 1
        base = site.nodes * each / self.lifetime.mean_s(self.mtbf) * self._mean_factor(site.horizon_s)
        again = 1.0 if self.recurrence is None else self.recurrence.faults
        direct = sum(burst.followers for burst in self.bursts if not burst.chain)
        chained = sum(burst.followers for burst in self.bursts if burst.chain)
        return base * again * (1 + direct + chained / max(1 - chained, 0.01))

    def _mean_factor(self, horizon_s: float) -> float:
        from clustersim.faults.hazard.calendar import Clock

        if not self.calendar:
            return 1.0
        span = horizon_s if np.isfinite(horizon_s) else 365 * 86400.0
        return Clock.of(self.calendar, span).read(span) / span

    def arrivals(self, site: Site) -> Arrivals | None:
        """One process for the job's machines and all spares; the blocks of spares add none of their own."""
        from clustersim.faults.hazard.arrivals import FleetArrivals

        return None if site.block is not None else FleetArrivals(self, site)

    def weights(self, site: Site, ids: tuple[int, ...], size: int) -> NDArray[np.float64] | None:
        """Frailties of a group of machines; null where all are alike."""
        return None if self.frailty is None else self.frailty.draw(site.streams(f"frailty/{self.name}", *ids), size)

    def marks(self, site: Site) -> ClassMarks:
        """What draws the class, the detection and the repair time of a fault."""
        from clustersim.faults.hazard.marks import ClassMarks

        return ClassMarks(self, site)
