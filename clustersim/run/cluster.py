"""Nodes of a run: the job's places, spare places, the repair shop. Every node is in exactly one state.

::

    working ──fails──► failed ──noticed──► queued ──crew free──► in repair ──► spare ──► working
    spare ──fails (noticed at once)──► queued                                (or straight to the place that waits for
    it)
    off ──called──► starting ──powered──► spare ──one too many──► off        (cold spares, see ``reserve``)
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from enum import IntEnum

import simpy

from clustersim.run.clock import at
from clustersim.run.reserve import Reserve
from clustersim.run.workshop import Workshop

Watch = Callable[[str, int, int], None]
"""Told (what, node, place) at every change of a node's state; place −1: none."""


class State(IntEnum):
    """What a node does."""

    WORKING = 0
    FAILED = 1  # in its place, not yet noticed
    QUEUED = 2  # waits for a crew
    IN_REPAIR = 3
    SPARE = 4
    RETIRED = 5
    OFF = 6  # a cold spare
    STARTING = 7  # a cold spare on its way


_DOWN = [state in (State.FAILED, State.QUEUED, State.IN_REPAIR) for state in State]
# plain integers: the enumeration's own cost shows in a run
WORKING, FAILED, QUEUED, IN_REPAIR, SPARE, RETIRED, OFF, STARTING = range(8)


class Fleet:
    """All nodes: ``nodes`` in the job's places, ``spares`` powered beside them, ``crews`` in the repair shop (None:
    no limit).

    Attributes:
        counts: nodes in each state, by ``State``.
        vacant: places of the job without a node.
        down_s: seconds spent with so many nodes down (failed, queued or in repair).
        waiter: called when all places are filled again, while the job waits.
        placed: told (node, place) when a spare is put into a place.
        returned: called when a repaired node has become a spare.
    """

    def __init__(
        self, env: simpy.Environment, nodes: int, spares: int, crews: int | None, watch: Watch | None = None
    ) -> None:
        self._env, self.nodes, self._crews, self._watch = env, nodes, crews, watch
        self.places = list(range(nodes))
        self.slots = list(range(nodes, nodes + spares))
        self._state = bytearray([WORKING]) * nodes + bytearray([SPARE]) * spares
        self.counts = [0] * len(State)
        self.counts[WORKING], self.counts[SPARE] = nodes, spares
        self.vacant: list[int] = []
        self.waiter: Callable[[], None] | None = None
        self.placed: Callable[[int, int], None] | None = None
        self.returned: Callable[[], None] | None = None
        self.grown: Callable[[int], None] | None = None
        """Told when there are more spare places than ever before."""
        self.shop: Workshop | None = None
        """Rules by which nodes are repaired more than once, or retire; None: each goes back after its repair."""
        self.reserve: Reserve | None = None
        """Cold spares; None: there are none."""
        self.down_s: dict[int, float] = {}
        self._down, self._down_since = 0, 0.0
        self._queue: deque[tuple[int, float]] = deque()
        self._where = [*range(nodes), *range(-2, -2 - spares, -1)]
        """Of each node: its place, −1 for none, or −2 − its spare place."""
        self._ready = list(range(spares))
        self._free: list[int] = []

    @property
    def spares(self) -> int:
        """Spare nodes that stand ready."""
        return self.counts[SPARE]

    def state(self, node: int) -> State:
        """What a node does now."""
        return State(self._state[node])

    def working(self, first: int, last: int) -> list[int]:
        """Those of the places ``first`` … ``last − 1`` whose node works."""
        places, state = self.places, self._state
        if last - first == 1:  # the common case
            node = places[first]
            return [first] if node >= 0 and state[node] == WORKING else []
        return [p for p in range(first, last) if places[p] >= 0 and state[places[p]] == WORKING]

    def place_of(self, node: int) -> int | None:
        """The job's place in which a node stands; None: in none."""
        where = self._where[node]
        return where if where >= 0 else None

    def slot_of(self, node: int) -> int | None:
        """The spare place in which a node stands; None: in none."""
        return None if self._state[node] != SPARE else -2 - self._where[node]

    def fail(self, place: int) -> None:
        """The node of a place fails; nobody has noticed."""
        self._move(self.places[place], FAILED, "failed", place)

    def remove(self, place: int, repair_s: float) -> int:
        """The failed node of a place goes to the repair shop; the place is vacant. Returns the node."""
        node = self.places[place]
        self.places[place], self._where[node] = -1, -1
        self.vacant.append(place)
        self._to_shop(node, repair_s, place)
        if self.reserve is not None:
            self.reserve.call()
        return node

    def fail_spare(self, slot: int, repair_s: float) -> int | None:
        """The node of a spare place fails and goes to the repair shop; None: there is none."""
        if slot >= len(self.slots) or self.slots[slot] < 0:
            return None
        node = self._empty(slot)
        self._move(node, FAILED, "failed", -1)
        self._to_shop(node, repair_s, -1)
        if self.reserve is not None:
            self.reserve.call()
        return node

    def fill(self) -> bool:
        """Put spare nodes into vacant places, lowest numbers first; True when none is vacant any more."""
        if self.vacant and self.counts[SPARE]:
            self.vacant.sort(reverse=True)
            while self.vacant and self._ready:
                slot = heapq.heappop(self._ready)
                if self.slots[slot] >= 0:
                    self._place(self._empty(slot))
            if self.reserve is not None:
                self.reserve.call()
        return not self.vacant

    def _empty(self, slot: int) -> int:
        """Take the node out of a spare place."""
        node, self.slots[slot] = self.slots[slot], -1
        self._where[node] = -1
        heapq.heappush(self._free, slot)
        return node

    def _place(self, node: int) -> None:
        place = self.vacant.pop()
        self.places[place], self._where[node] = node, place
        self._move(node, WORKING, "placed", place)
        if self.placed is not None:
            self.placed(node, place)

    def revive(self, place: int) -> int:
        """The node of a place that was taken for failed works on. Returns the node."""
        node = self.places[place]
        self._move(node, WORKING, "repaired", place)
        return node

    def _to_shop(self, node: int, repair_s: float, place: int) -> None:
        if self.shop is not None and self.shop.failed(node, self._env.now):
            self._retire(node, place)
            return
        if self._crews is not None and self.counts[IN_REPAIR] >= self._crews:
            self._queue.append((node, repair_s))
            self._move(node, QUEUED, "removed", place)
        else:
            self._move(node, IN_REPAIR, "removed", place)
            self._start_repair(node, repair_s)

    def _start_repair(self, node: int, repair_s: float) -> None:
        at(self._env, self._env.now + repair_s, lambda _: self._repaired(node), "repair")

    def _retire(self, node: int, place: int) -> None:
        """A node is not repaired any more; a new one may come in its stead, under its number."""
        assert self.shop is not None
        self._move(node, RETIRED, "retired", place)
        lead = self.shop.retire(node).replacement_s
        if lead is not None:
            at(self._env, self._env.now + lead, lambda _: self._return(node), "replacement")

    def _repaired(self, node: int) -> None:
        if self.shop is not None:
            verdict = self.shop.ended(node)
            if verdict.cured and self._watch is not None:
                self._watch("cured", node, -1)
            if verdict.stays:
                self._start_repair(node, verdict.again_s)
                return
        self._return(node)
        if self._queue and self._crews is not None and self.counts[IN_REPAIR] < self._crews:
            other, repair_s = self._queue.popleft()
            self._move(other, IN_REPAIR, "in repair", -1)
            self._start_repair(other, repair_s)

    def _return(self, node: int, what: str = "repaired") -> None:
        """A repaired node goes to a place that waits for it, else to the first free spare place."""
        self._move(node, SPARE, what, -1)
        if self.waiter is not None and self.vacant:
            self.vacant.sort(reverse=True)
            self._place(node)
            if not self.vacant:
                waiter, self.waiter = self.waiter, None
                waiter()
            return
        if self.reserve is not None and self.reserve.takes(node):
            return
        if self._free:
            slot = heapq.heappop(self._free)
            self.slots[slot] = node
        else:
            slot = len(self.slots)
            self.slots.append(node)
            if self.grown is not None:
                self.grown(slot + 1)
        self._where[node] = -2 - slot
        heapq.heappush(self._ready, slot)
        if self.returned is not None:
            self.returned()

    # -- cold spares

    @property
    def env(self) -> simpy.Environment:
        """The clock."""
        return self._env

    @property
    def starting(self) -> int:
        """Cold spares on their way."""
        return self.counts[STARTING]

    def add_cold(self, count: int) -> range:
        """Nodes that are off. Returns their numbers."""
        added = range(len(self._state), len(self._state) + count)
        self._state += bytearray([OFF]) * count
        self._where += [-1] * count
        self.counts[OFF] += count
        return added

    def start(self, node: int) -> None:
        """A cold spare is powered up."""
        self._move(node, STARTING, "starting", -1)

    def powered(self, node: int) -> None:
        """A cold spare is ready: like any other that comes back."""
        self._return(node, "powered")

    def switch_off(self, node: int) -> None:
        """A spare without a spare place is switched off."""
        self._move(node, OFF, "off", -1)

    def _move(self, node: int, state: int, what: str, place: int) -> None:
        was = self._state[node]
        self.counts[was] -= 1
        self.counts[state] += 1
        self._state[node] = state
        if _DOWN[state] is not _DOWN[was]:
            self.settle()
            self._down += 1 if _DOWN[state] else -1
        if self._watch is not None:
            self._watch(what, node, place)

    def settle(self) -> None:
        """Book the time since the last change of the number of nodes that are down."""
        now = self._env.now
        if now > self._down_since:
            self.down_s[self._down] = self.down_s.get(self._down, 0.0) + now - self._down_since
            self._down_since = now

    def down_quantile(self, share: float) -> float:
        """Nodes down at once that are not exceeded for ``share`` of the time."""
        total, passed = sum(self.down_s.values()), 0.0
        for count in sorted(self.down_s):
            passed += self.down_s[count]
            if passed >= share * total:
                return float(count)
        return 0.0
