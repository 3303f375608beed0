"""Failures in absolute time: where they may strike (``Site``), one hit (``Hit``), and when (``Arrivals``).

**The seam.** A failure model returns, for the job's places and for every block of spare places, an ``Arrivals``: an
object with the absolute time of its next hit (``next_s``) and ``pop()``, which hands that hit out and draws the
following one. The run merges all of them in one heap and asks for nothing else, so a cause costs what its hits cost,
whatever the size of the cluster. Times are absolute wall time, independent of what the job does: two scenarios under
one seed see the same failures.

A hazard that depends on the state (recurrence after repair, frailty of a node, a neighbour's fault) sets ``observes =
True``: the run then calls ``observe(change)`` at every change of a node's state *before* anything else happens, and
puts the arrivals back into the heap when it returns True (its ``next_s`` has changed; it must not lie before
``change.time_s``). Such arrivals may aim at a node instead of a place by giving ``Hit.node``; a hit on a node that
neither works nor waits as a powered spare is dropped. Keep the draws of candidates apart from the decision to accept
them (thinning), and nothing that happens to one place moves another place's numbers.

Streams: ``failure/<cause>`` holds the times and places of a cause, ``detection/<cause>`` and ``repair/<cause>`` the
marks of its hits, so a change of one never moves another. Job places have the ids (0,), the b-th block of 64 spare
places (1, b): a block always draws for 64 places, and hits on places that do not exist are passed over (``spare_places``),
hence one more spare shifts nobody's numbers.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from clustersim.distributions import Constant, Distribution

if TYPE_CHECKING:
    from clustersim.faults.failure import ComponentFailure, FailureModel
    from clustersim.hardware.cluster import Cluster

SPARE_BLOCK = 64
"""Spare places that share one stream a cause."""
_BATCH = 64

Streams = Callable[..., np.random.Generator]
"""``streams(name, *ids)`` gives the named stream of the replica at hand."""


class Hit(NamedTuple):
    """One failure: when, of which cause, and which places of the site it aims at."""

    time_s: float
    cause: FailureModel
    first: int
    """First place that is hit."""
    last: int
    """One past the last place."""
    detection_s: float
    repair_s: float
    spare: bool = False
    node: int | None = None
    """The node aimed at, whatever place it stands in; overrides the places."""
    extra: object = None
    """What a cause that stops nothing by itself tells the run: a slow-down, a silent corruption."""


What = Literal["failed", "removed", "repaired", "placed", "retired", "cured"]
"""What has become of a node."""


class Change(NamedTuple):
    """A node's state has changed, for arrivals that observe."""

    time_s: float
    what: What
    node: int
    place: int
    """The job's place concerned; −1: none."""


@dataclass(frozen=True)
class Site:
    """Where a cause may strike: the job's places, or one block of spare places.

    Attributes:
        cluster: sizes of nodes, racks and domains.
        nodes: places of the site.
        block: index of the block of spare places; None for the job's places.
        streams: the replica's random streams.
        repair: time in the shop of a cause that gives none of its own.
        horizon_s: nothing later is ever asked for (inf: unknown).
    """

    cluster: Cluster
    nodes: int
    streams: Streams
    repair: Distribution
    block: int | None = None
    horizon_s: float = math.inf

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of the site's streams."""
        return (0,) if self.block is None else (1, self.block)

    @property
    def first_place(self) -> int:
        """Index of the site's first place (blocks of spare places follow each other)."""
        return 0 if self.block is None else self.block * SPARE_BLOCK

    def units(self, cause: FailureModel) -> int:
        """Units of a cause's component at this site; 0 on spares for what belongs to the job or to shared equipment."""
        each = units_per_node(cause, self.cluster)
        if self.block is not None:
            return self.nodes * each if each and cause.severity.takes_nodes and cause.units is None else 0
        if cause.units is not None:
            return cause.units
        return self.nodes * each if each else shared_units(cause, self.cluster)

    def places(self, cause: FailureModel, unit: int, units: int, fraction: float) -> tuple[int, int]:
        """First and one past the last place that a hit on a unit takes, of the site's places.

        ``fraction`` in [0, 1) chooses a node where the unit holds several and the severity takes one.
        """
        first, last = unit_span(cause, self.cluster, self.nodes, unit, units)
        size = severity_span(cause, self.cluster)
        if size is None:
            place = first + int(fraction * (last - first))
            return place, place + 1
        start = first // size * size
        return start, min(max(start + size, last), self.nodes)


def domain_nodes(cluster: Cluster) -> int:
    """Nodes of one NVLink domain (1 where a domain is a node or less)."""
    gpus = cluster.node.intra_node.domain_gpus or cluster.node.gpus
    return max(1, gpus // cluster.node.gpus)


def units_per_node(cause: FailureModel, cluster: Cluster) -> int:
    """Units of a component in one node; 0 for equipment that nodes share."""
    match cause.component:
        case "gpu" | "hbm":
            return cluster.node.gpus
        case "nic" | "link":
            return cluster.node.nics
        case "node" | "host" | "disk" | "psu":
            return 1
        case _:
            return 0


def shared_units(cause: FailureModel, cluster: Cluster) -> int:
    """Units of shared equipment that serve the job: one switch and one power feed a rack unless the cause says."""
    match cause.component:
        case "nvlink-domain":
            return math.ceil(cluster.nodes / domain_nodes(cluster))
        case "rack" | "switch" | "power-feed":
            return cluster.racks
        case _:
            return 1


def unit_span(cause: FailureModel, cluster: Cluster, nodes: int, unit: int, units: int) -> tuple[int, int]:
    """Places (first, one past the last) that a unit serves."""
    if cause.units is None:
        size = {
            "nvlink-domain": domain_nodes(cluster),
            "rack": cluster.nodes_per_rack,
            "switch": cluster.nodes_per_rack,
            "power-feed": cluster.nodes_per_rack,
        }.get(cause.component)
        if size is not None:
            return unit * size, min((unit + 1) * size, nodes)
    first = unit * nodes // units
    return first, max(first + 1, (unit + 1) * nodes // units)


def severity_span(cause: FailureModel, cluster: Cluster) -> int | None:
    """Nodes that a severity takes together; None: one."""
    match cause.severity:
        case "rack":
            return cluster.nodes_per_rack
        case "nvlink-domain":
            return domain_nodes(cluster)
        case _:
            return None


class Arrivals:
    """Failures of one cause at one site, in order of time; see the module's text for the seam."""

    next_s: float = math.inf
    """Absolute time of the next hit; inf: none will come."""
    observes: bool = False

    def pop(self) -> Hit:
        """The hit at ``next_s``; ``next_s`` moves on to the one after it.

        Raises:
            TypeError: the class does not say.
        """
        raise TypeError(f"{type(self).__name__} hands out nothing")

    hears: frozenset[What] = frozenset(("failed", "removed", "repaired", "placed", "retired", "cured"))
    """The changes that matter to arrivals that observe."""

    def watches(self, node: int) -> bool:
        """Whether changes of a node matter to arrivals that observe."""
        return True

    def observe(self, change: Change) -> bool:
        """A node's state has changed; True when ``next_s`` is another than before."""
        return False

    def will_fail(self, node: int) -> bool:
        """Whether the repair of a node that is down will not hold (what a burn-in test may find out)."""
        return False


class Marks:
    """Detection and repair times of a cause's hits, drawn in batches from streams of their own."""

    def __init__(self, distribution: Distribution, site: Site, name: str) -> None:
        self._distribution, self._site, self._name = distribution, site, name
        self._constant = distribution.mean_s() if isinstance(distribution, Constant) else None
        self._rng: np.random.Generator | None = None
        self._left: list[float] = []

    def next(self) -> float:
        """One duration in seconds."""
        if self._left:
            return self._left.pop()
        if self._constant is not None:
            return self._constant
        if self._rng is None:
            self._rng = self._site.streams(self._name, *self._site.ids)
        self._left = checked(self._distribution, self._distribution.draw(self._rng, _BATCH)).tolist()
        self._left.reverse()
        return self._left.pop()


def checked(distribution: Distribution, values: np.ndarray) -> np.ndarray:
    """``values`` if all are durations.

    Raises:
        ValueError: naming the distribution that drew something else.
    """
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError(f"{distribution.kind} distribution drew what is no duration")
    return values


class ComponentArrivals(Arrivals):
    """Base of arrivals on the units of a component: turns a unit into a hit on places, with its marks."""

    def __init__(self, cause: ComponentFailure, site: Site, units: int) -> None:
        self.cause, self.site, self.units = cause, site, units
        self._rng = site.streams(f"failure/{cause.name}", *site.ids)
        self._detection = Marks(cause.detection, site, f"detection/{cause.name}")
        self._repair = Marks(cause.repair or site.repair, site, f"repair/{cause.name}")

        self._offset, self._spare = site.first_place, site.block is not None
        self._per_place = units // site.nodes if units_per_node(cause, site.cluster) and cause.units is None else 0
        if severity_span(cause, site.cluster) is not None:
            self._per_place = 0

    def _hit(self, unit: int, fraction: float) -> Hit:
        if self._per_place:  # the common case: a part of one node takes that node
            first = unit // self._per_place
            last = first + 1
        else:
            first, last = self.site.places(self.cause, unit, self.units, fraction)
        return Hit(self.next_s, self.cause, first + self._offset, last + self._offset, self._detection.next(),
                   self._repair.next(), self._spare)  # fmt: skip


class PoissonArrivals(ComponentArrivals):
    """Exponential units superposed: one process of rate units ÷ mtbf, each hit on a unit drawn alike."""

    def __init__(self, cause: ComponentFailure, site: Site, units: int) -> None:
        super().__init__(cause, site, units)
        self._mean_s = cause.mtbf / units
        self._gaps: list[float] = []
        self._aims: list[float] = []
        self.next_s = 0.0
        self._advance()

    def _advance(self) -> None:
        if not self._gaps:
            self._gaps = self._rng.exponential(self._mean_s, _BATCH).tolist()
            self._aims = self._rng.random(_BATCH).tolist()
        self._aim = self._aims.pop() * self.units
        self.next_s += self._gaps.pop()

    def pop(self) -> Hit:
        unit = int(self._aim)
        hit = self._hit(unit, self._aim - unit)
        self._advance()
        return hit


class RenewalArrivals(ComponentArrivals):
    """One renewal process a unit. First failures are drawn for all units at once and sorted; renewals go through a
    heap."""

    def __init__(self, cause: ComponentFailure, site: Site, units: int) -> None:
        super().__init__(cause, site, units)
        first = self._first(units)
        early = np.flatnonzero(first <= site.horizon_s)
        order = early[np.argsort(first[early], kind="stable")]
        self._first_s, self._first_unit, self._at = first[order], order, 0
        self._renewed: list[tuple[float, int]] = []
        self._peek()

    def _first(self, units: int) -> np.ndarray:
        """Times of the first failures: whole gaps (new), or the residual of a gap in the steady state.

        In the steady state the gap under way is drawn with a probability in proportion to its length, and the start
        lies uniformly in it.
        """
        if self.cause.age == "new":
            return self._gaps(units)
        residual: np.ndarray = self._rng.random(units) * self._gaps(units, biased=True)
        return residual

    def _gaps(self, size: int, biased: bool = False) -> np.ndarray:
        """Gaps in seconds of mean ``mtbf``; ``biased``: drawn in proportion to their length."""
        rng, mean, shape = self._rng, self.cause.mtbf, self.cause.shape
        assert shape is not None
        match self.cause.distribution:
            case "weibull":
                power, scale = 1 / shape, mean / math.gamma(1 + 1 / shape)
                if biased:
                    return scale * np.power(rng.gamma(1 + power, size=size), power)
                return scale * rng.weibull(shape, size)
            case "gamma":
                return rng.gamma(shape + biased, mean / shape, size)
            case _:
                return rng.lognormal(math.log(mean) - shape**2 / 2 + biased * shape**2, shape, size)

    def _peek(self) -> None:
        first = self._first_s[self._at] if self._at < len(self._first_s) else math.inf
        renewed = self._renewed[0][0] if self._renewed else math.inf
        self.next_s = float(min(first, renewed))

    def pop(self) -> Hit:
        if self._renewed and self._renewed[0][0] == self.next_s:
            unit = heapq.heappop(self._renewed)[1]
        else:
            unit, self._at = int(self._first_unit[self._at]), self._at + 1
        gap, fraction = float(self._gaps(1)[0]), float(self._rng.random())
        hit = self._hit(unit, fraction)
        heapq.heappush(self._renewed, (self.next_s + gap, unit))
        self._peek()
        return hit
