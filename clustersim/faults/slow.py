"""Fail-slow: nodes that compute or communicate slowly for a while, and what is done about them.

An episode begins on a unit at random, lasts for ``length``, and makes the node's computation, or its links, take ``depth``
times as long; the job slows to its slowest rank through the step model. An intermittent one comes and goes within its length.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from clustersim.distributions import Constant, Distribution
from clustersim.faults.clocked import ClockedArrivals
from clustersim.faults.factor import Factor
from clustersim.faults.failure import FailureModel, Severity
from clustersim.faults.hazard.calendar import Calendar
from clustersim.faults.process import Arrivals, Hit, Site
from clustersim.faults.watch import StragglerWatch
from clustersim.part import Block
from clustersim.units import PositiveSeconds


class Slow(NamedTuple):
    """An episode: what a hit of a ``FailSlow`` carries beside itself."""

    spans: tuple[tuple[float, float], ...]
    """(begin, end) of each stretch of it, absolute seconds."""
    factor: float
    what: Literal["compute", "link", "cluster"]
    noticed_s: float | None
    """Seconds from its begin until somebody notices; None: nobody does."""
    blamed: float | None
    """Share in [0, 1) that chooses the node blamed instead; None: the right one."""


class Intermittent(Block):
    """An episode that comes and goes: slow for ``on``, as fast as ever for ``off``."""

    on: Distribution
    off: Distribution


class FailSlow(FailureModel, kind="fail-slow", aliases=("straggler",)):
    """Episodes in which a node, or its links, or (congestion) the links of all nodes are slow.

    ``watch`` says how stragglers are found; one that is found is replaced as if it had failed. Without it an episode just
    ends.
    """

    name: str = "fail-slow"
    mtbf: PositiveSeconds
    """Mean time between episodes of ONE unit (of the job for ``what: cluster``)."""
    what: Literal["compute", "link", "cluster"] = "compute"
    depth: Factor
    length: Distribution
    intermittent: Intermittent | None = None
    calendar: tuple[Calendar, ...] = ()
    """Factors on the rate over calendar time: thermal slow-downs of hot afternoons, congestion of busy hours."""
    watch: StragglerWatch | None = None
    severity: Severity = Field(default=Severity.NODE)
    detection: Distribution = Constant(value=0.0)

    def rate(self, site: Site) -> float:
        """Interruptions a second: 0, an episode by itself stops nothing."""
        return 0.0

    def _units(self, site: Site) -> int:
        return 1 if self.what == "cluster" else site.units(self)

    def frequency(self, site: Site) -> float:
        """Episodes a second."""
        return 0.0 if site.block is not None else self._units(site) / self.mtbf

    def arrivals(self, site: Site) -> Arrivals | None:
        """Episodes on the job's places; spares have no work to be slow at."""
        units = self._units(site)
        return None if site.block is not None or units == 0 else _Episodes(self, site, units)


class _Episodes(ClockedArrivals):
    """Episodes; depth, length and the watch draw from streams of their own."""

    def __init__(self, cause: FailSlow, site: Site, units: int) -> None:
        super().__init__(cause, site, units, cause.mtbf, cause.calendar)
        self._cause = cause
        self._marks = site.streams(f"episode/{cause.name}", *site.ids)
        self._watch = site.streams(f"detection/{cause.name}", *site.ids)
        self._repair = site.streams(f"repair/{cause.name}", *site.ids)

    def pop(self) -> Hit:
        cause = self._cause
        first, last = (0, self._site.nodes) if cause.what == "cluster" else self._places(cause)
        length, factor = cause.length.sample(self._marks), cause.depth.sample(self._marks)
        watch = cause.watch if cause.what != "cluster" else None
        noticed = None if watch is None else watch.notice(factor, length, self._watch)
        blamed = None if watch is None or noticed is None else watch.blame(self._watch)
        slow = Slow(self._spans(length), factor, cause.what, noticed, blamed)
        repair = (cause.repair or self._site.repair).sample(self._repair)
        hit = Hit(self.next_s, cause, first, last, 0.0, repair, extra=slow)
        self._advance()
        return hit

    def _spans(self, length: float) -> tuple[tuple[float, float], ...]:
        begin, end, pause = self.next_s, self.next_s + length, self._cause.intermittent
        if pause is None:
            return ((begin, end),)
        spans = []
        while begin < end:
            until = min(begin + max(pause.on.sample(self._marks), 1.0), end)
            spans.append((begin, until))
            begin = until + pause.off.sample(self._marks)
        return tuple(spans)


class FalseAlarm(FailureModel, kind="false-alarm"):
    """A detector that blames a healthy node: the job stops, the node is tested for its repair time and comes back."""

    name: str = "false-alarm"
    mtbf: PositiveSeconds
    """Mean time between false alarms of the whole job."""
    detection: Distribution = Constant(value=0.0)

    def rate(self, site: Site) -> float:
        """False alarms a second."""
        return 0.0 if site.block is not None else 1 / self.mtbf

    def arrivals(self, site: Site) -> Arrivals | None:
        """A Poisson process over the job's places."""
        from clustersim.faults.process import PoissonArrivals

        return None if site.block is not None else PoissonArrivals(_spread(self, site), site, site.nodes)  # type: ignore[arg-type]


def _spread(cause: FalseAlarm, site: Site) -> FalseAlarm:
    """The same with the mean time of one place."""
    return cause.model_copy(update={"mtbf": cause.mtbf * site.nodes})
