"""Lemons that can be cured: a share of the machines fails more often until a repair finds out why."""

from __future__ import annotations

import heapq
import math

from pydantic import Field

from clustersim.faults.failure import FailureModel
from clustersim.faults.process import Arrivals, Change, Hit, Marks, Site
from clustersim.units import PositiveSeconds


class Lemons(FailureModel, kind="lemons"):
    """Machines with a fault of their own, on top of whatever else fails: each has failures of mean gap ``mtbf`` while it works,
    until a repair removes the cause.

    The same machines are bad whatever the strategy; spares may be lemons too.
    """

    name: str = "lemons"
    share: float = Field(ge=0, le=1)
    """Share of the machines, spares included, that are bad at the start (each with this probability)."""
    mtbf: PositiveSeconds
    """Mean time between the failures of ONE bad machine that works."""
    cure: float = Field(default=1.0, ge=0, le=1)
    """Probability that a repair makes a bad machine good; else it comes back as it was."""

    def rate(self, site: Site) -> float:
        """That of the start, before any lemon has been cured."""
        return 0.0 if site.block is not None else self.share * site.nodes / self.mtbf

    def arrivals(self, site: Site) -> Arrivals | None:
        """One process for all machines."""
        return None if site.block is not None else LemonArrivals(self, site)


class LemonArrivals(Arrivals):
    """The next failure of every bad machine that works, in a heap; memoryless, so drawn anew when it works again."""

    observes = True

    def __init__(self, cause: Lemons, site: Site) -> None:
        self._cause, self._rng = cause, site.streams(f"failure/{cause.name}", *site.ids)
        self._cures = site.streams(f"cure/{cause.name}")
        machines = site.nodes + site.cluster.all_spare_nodes
        chances = site.streams(f"frailty/{cause.name}").random(machines)
        self._bad = {node for node in range(machines) if chances[node] < cause.share}
        self._detection = Marks(cause.detection, site, f"detection/{cause.name}")
        self._repair = Marks(cause.repair or site.repair, site, f"repair/{cause.name}")
        self._version: dict[int, int] = {}
        self._aims: list[tuple[float, int, int]] = []
        for node in sorted(self._bad):
            if node < site.nodes:
                self._aim(node, 0.0)
        self._peek()

    def _aim(self, node: int, now_s: float) -> None:
        version = self._version[node] = self._version.get(node, 0) + 1
        heapq.heappush(self._aims, (now_s + float(self._rng.exponential(self._cause.mtbf)), node, version))

    def _peek(self) -> None:
        aims = self._aims
        while aims and self._version[aims[0][1]] != aims[0][2]:
            heapq.heappop(aims)
        self.next_s = aims[0][0] if aims else math.inf

    def pop(self) -> Hit:
        time_s, node, _ = heapq.heappop(self._aims)
        hit = Hit(time_s, self._cause, node, node + 1, self._detection.next(), self._repair.next(), node=node)
        self._aim(node, time_s)  # void as soon as the node is seen to fail
        self._peek()
        return hit

    def watches(self, node: int) -> bool:
        """Only lemons matter."""
        return node in self._bad

    def observe(self, change: Change) -> bool:
        """Machines fail, are cured, and work again."""
        if change.node not in self._bad:
            return False
        before = self.next_s
        if change.what == "placed":
            self._aim(change.node, change.time_s)
        else:
            self._version[change.node] = self._version.get(change.node, 0) + 1
        if change.what == "retired" or (change.what == "repaired" and self._cures.random() < self._cause.cure):
            self._bad.discard(change.node)
        self._peek()
        return self.next_s != before
