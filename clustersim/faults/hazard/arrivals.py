"""Arrivals of a fleet: base hazard of every machine, faults that come back, and faults that bring others.

Machines are numbered as the run numbers nodes: the job's first, spares behind them. The base hazard is in ``base``; of units
with an age only first failures within the horizon are kept.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from clustersim.faults.hazard.base import BaseStream, Group, Units
from clustersim.faults.hazard.calendar import Clock
from clustersim.faults.hazard.effects import Burst
from clustersim.faults.process import SPARE_BLOCK, Arrivals, Change, Hit, Site, domain_nodes, units_per_node

if TYPE_CHECKING:
    from clustersim.faults.fleet import FleetFailure


class Aim(NamedTuple):
    """A hit in waiting: when, on which machine, and why."""

    time_s: float
    order: int
    node: int
    origin: Literal["base", "unit", "again", "follower"]
    key: int
    """``unit``: the unit; ``again``: the version of the machine, which must still hold, else the aim is void; ``follower``: the
    machine whose fault it shares, −1: none."""
    repair_s: float | None = None
    """Time in the shop where it is settled already (shared with the primary)."""


class Struck(NamedTuple):
    """The hit handed out last."""

    time_s: float
    node: int
    origin: str
    key: int
    """As in ``Aim``."""
    repair_s: float
    fails: bool
    """Whether the repair will not hold."""

    @property
    def unit(self) -> int:
        """Unit with an age that failed; −1: none."""
        return self.key if self.origin == "unit" else -1


class FleetArrivals(Arrivals):
    """All faults of one fleet model, the job's machines and the spares together."""

    observes = True
    hears = frozenset(("failed", "repaired", "retired", "cured"))

    def __init__(self, cause: FleetFailure, site: Site) -> None:
        self.cause, self.site = cause, site
        self.each = units_per_node(cause, site.cluster) or 1
        self.nodes = site.nodes + site.cluster.all_spare_nodes
        self._domain = {"rack": site.cluster.nodes_per_rack, "nvlink-domain": domain_nodes(site.cluster)}
        self._again = site.streams(f"recurrence/{cause.name}")
        self._burst = site.streams(f"burst/{cause.name}")
        self._fresh = site.streams(f"frailty/{cause.name}", 2)
        self._marks = cause.marks(site)
        self._aims: list[Aim] = []
        self._order = 0
        self._down: dict[int, bool] = {}
        """Machines that are down → whether their fault will come back."""
        self._version: dict[int, int] = {}
        self._failing: dict[int, int] = {}
        """Machine → unit that took it down."""
        self._flock: dict[int, list[int]] = {}
        """Machine → those that shared its last fault."""
        self._idle: dict[int, list[int]] = {}
        """Machine that is down → units whose time came meanwhile; they go on when it is back."""
        self._struck: Struck | None = None
        self._start(Clock.of(cause.calendar, site.horizon_s))
        self._peek()

    def _start(self, clock: Clock) -> None:
        groups = [Group((0,), 0, self.site.nodes, self.site.nodes)]
        spares = self.site.cluster.all_spare_nodes
        for block in range(math.ceil(spares / SPARE_BLOCK)):
            first = block * SPARE_BLOCK
            size = min(SPARE_BLOCK, spares - first)
            groups.append(Group((1, block), self.site.nodes + first, size, SPARE_BLOCK))
        self._bases: list[BaseStream] = []
        self._order_of: list[tuple[float, int]] = []
        """Heap of (time of its next fault, index) of the base streams."""
        self._units: Units | None = None
        if self.cause.lifetime.memoryless:
            self._bases = [BaseStream(self.cause, self.site, group, self.each, clock) for group in groups]
            self._order_of = [(base.next_s, index) for index, base in enumerate(self._bases)]
            heapq.heapify(self._order_of)
            return
        self._units = Units(self.cause, self.site, groups, self.each, clock)
        early = np.flatnonzero(self._units.first_s <= self.site.horizon_s)
        for unit in early[np.argsort(self._units.first_s[early], kind="stable")].tolist():
            self._push(float(self._units.first_s[unit]), unit // self.each, "unit", unit)

    def _push(self, time_s: float, node: int, origin: Literal["unit", "again", "follower"], key: int,
              repair_s: float | None = None) -> None:  # fmt: skip
        if time_s <= self.site.horizon_s:
            heapq.heappush(self._aims, Aim(time_s, self._order, node, origin, key, repair_s))
            self._order += 1
            if time_s < self.next_s:
                self.next_s = time_s

    def _peek(self) -> None:
        """Find the earliest of the base streams and the aims; on a tie the base comes first."""
        aims = self._aims
        while aims and aims[0].origin == "again" and self._version.get(aims[0].node, 0) != aims[0].key:
            heapq.heappop(aims)  # another fault came in between
        first = self._order_of[0][0] if self._order_of else math.inf
        self.next_s = min(first, aims[0].time_s if aims else math.inf)

    def pop(self) -> Hit:
        self._settle()
        if self._order_of and self._order_of[0][0] == self.next_s:
            index = self._order_of[0][1]
            base = self._bases[index]
            aim = Aim(base.next_s, 0, base.node, "base", -1)
            base.advance()
            heapq.heapreplace(self._order_of, (base.next_s, index))
        else:
            aim = heapq.heappop(self._aims)
        node = aim.node
        cause, detection_s, repair_s = self._marks.draw(self.next_s)
        fails = self._will_fail(aim)
        if fails and self.cause.recurrence is not None:
            repair_s *= self.cause.recurrence.haste
        repair_s = self._marks.repair_s(aim.time_s, repair_s) if aim.repair_s is None else aim.repair_s
        struck = Struck(aim.time_s, node, aim.origin, aim.key, repair_s, fails)
        if cause.severity.takes_nodes:
            self._struck = struck
        else:
            self._mend(struck)
        self._peek()
        return Hit(struck.time_s, cause, node, node + 1, detection_s, struck.repair_s, node=node)

    def _settle(self) -> None:
        """A hit of which nobody heard took nothing down: the unit lives on."""
        struck, self._struck = self._struck, None
        if struck is None or struck.unit < 0 or self._units is None:
            return
        if struck.node in self._down:
            self._idle.setdefault(struck.node, []).append(struck.unit)
        else:
            later = self._units.renew(struck.unit, max(struck.time_s, self.next_s), False)
            self._push(later, struck.node, "unit", struck.unit)

    def _mend(self, struck: Struck) -> None:
        """A fault that takes no node is over at once."""
        if self._units is not None and struck.unit >= 0:
            self._push(self._units.renew(struck.unit, struck.time_s, self.cause.as_new), struck.node, "unit", struck.unit)
        self._version[struck.node] = self._version.get(struck.node, 0) + 1
        self._follow(struck)
        if struck.fails:
            self._come_back(struck.node, struck.time_s)

    def observe(self, change: Change) -> bool:
        """Follow the machines: a fault brings followers, a repair may not hold, ages start anew."""
        before = self.next_s
        match change.what:
            case "failed":
                self._failed(change)
            case "repaired":
                self._repaired(change)
            case "cured":
                self._down[change.node] = False
            case "retired":
                self._down[change.node] = False
                self._replace(change.node)
                self._peek()
        return self.next_s != before

    def _failed(self, change: Change) -> None:
        struck = self._struck
        own = struck is not None and struck.node == change.node and struck.time_s == change.time_s
        self._down[change.node] = own and struck is not None and struck.fails
        self._version[change.node] = self._version.get(change.node, 0) + 1
        if self._aims and self._aims[0].node == change.node:
            self._peek()  # what came first may be void
        if not own:
            return
        assert struck is not None
        self._struck = None
        if struck.unit >= 0:
            self._failing[change.node] = struck.unit
        if struck.origin == "follower" and struck.key >= 0:
            self._flock.setdefault(struck.key, []).append(change.node)
        self._follow(struck)

    def _follow(self, struck: Struck) -> None:
        """Aim at the machines that a fault takes with it: those that shared the fault which comes back, and new ones."""
        members = self._flock.pop(struck.node, []) if self._flock else []
        for node in members if struck.origin == "again" else ():
            self._push(struck.time_s, node, "follower", struck.node, struck.repair_s)
        rng = self._burst
        for burst in self.cause.bursts:
            if struck.origin == "follower" and not burst.chain:
                continue
            for _ in range(burst.number(rng, struck.time_s)):
                delay = burst.delay.sample(rng)
                other = self._neighbour(burst, struck.node)
                shared = rng.random() < burst.shared_repair
                if other is not None:
                    repair = max(struck.repair_s - delay, 0.0) if shared else None
                    self._push(struck.time_s + delay, other, "follower", struck.node if shared else -1, repair)

    def _neighbour(self, burst: Burst, node: int) -> int | None:
        """Another machine of the domain that is up; null when 64 tries find none."""
        low, high = self._span(burst, node)
        for _ in range(64):
            other = low + int(self._burst.random() * (high - low))
            if other != node and other not in self._down:
                return other
        return None

    def _span(self, burst: Burst, node: int) -> tuple[int, int]:
        if burst.domain == "fleet":
            return 0, self.nodes
        if burst.domain == "neighbours":
            return max(0, node - burst.reach), min(self.nodes, node + burst.reach + 1)
        size = self._domain[burst.domain]
        return node // size * size, min((node // size + 1) * size, self.nodes)

    def will_fail(self, node: int) -> bool:
        return self._down.get(node, False)

    def _replace(self, node: int) -> None:
        """A new machine will stand in for a retired one: it is a lemon or not by its own luck, and its units are new."""
        if self.cause.frailty is None:
            return
        weight = float(self.cause.frailty.draw(self._fresh, 1)[0])
        for base in self._bases:
            base.reweigh(node, weight)
        if self._units is not None:
            self._units.weight[node * self.each : (node + 1) * self.each] = max(weight, 1e-12)

    def _repaired(self, change: Change) -> None:
        if self._down.pop(change.node, False):
            self._come_back(change.node, change.time_s)
        if self._units is None:
            return
        failed = self._failing.pop(change.node, None)
        units = [] if failed is None else [(failed, self.cause.as_new)]
        units += [(unit, False) for unit in self._idle.pop(change.node, [])]
        for unit, as_new in units:
            self._push(self._units.renew(unit, change.time_s, as_new), change.node, "unit", unit)

    def _will_fail(self, aim: Aim) -> bool:
        """Decide whether the repair of a fault will not hold (one that is shared fails with its primary's)."""
        again = self.cause.recurrence
        if again is None or (aim.origin == "follower" and aim.key >= 0):
            return False
        return bool(self._again.random() < again.chance(aim.time_s, aim.origin == "again"))

    def _come_back(self, node: int, now_s: float) -> None:
        """Aim at a machine whose repair will not hold."""
        assert self.cause.recurrence is not None
        delay = self.cause.recurrence.delay.sample(self._again)
        self._push(now_s + delay, node, "again", self._version.get(node, 0))
