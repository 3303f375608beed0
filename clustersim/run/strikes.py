"""Delivers failures: one heap of all arrivals, one event for each hit."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable

import simpy

from clustersim.faults.process import Arrivals, Change, Hit, What
from clustersim.faults.spare_places import SparePlaces
from clustersim.run.clock import LAST, at


class Strikes:
    """Hands every hit to ``strike`` at its time, after everything else of that instant.

    Attributes:
        watched: whether any arrivals want to hear of changes of nodes.
    """

    def __init__(self, env: simpy.Environment, arrivals: Iterable[Arrivals], strike: Callable[[Hit], None]) -> None:
        self._env, self._strike = env, strike
        self._arrivals = list(arrivals)
        self._heap = [(source.next_s, order) for order, source in enumerate(self._arrivals) if source.next_s < math.inf]
        heapq.heapify(self._heap)
        self._watching = [(order, source) for order, source in enumerate(self._arrivals) if source.observes]
        self.watched = bool(self._watching)
        self._hearing: dict[str, list[tuple[int, Arrivals]]] = {}
        """Change → those that want to hear of it."""
        for entry in self._watching:
            for what in entry[1].hears:
                self._hearing.setdefault(what, []).append(entry)
        self._spares = [(order, source) for order, source in enumerate(self._arrivals) if isinstance(source, SparePlaces)]
        self._next: simpy.Event | None = None
        self._arm()

    def will_fail(self, node: int) -> bool:
        """Whether the repair of a node will not hold."""
        return any(source.will_fail(node) for _, source in self._watching)

    def observe(self, what: What, node: int, place: int) -> None:
        """Tell arrivals that observe of a change; those whose next hit has moved are put back in order."""
        moved = None
        for order, source in self._hearing.get(what, ()):
            if source.watches(node) and source.observe(Change(self._env.now, what, node, place)):
                moved = [order] if moved is None else [*moved, order]
        if moved is not None:
            self._reorder(moved)

    def grow(self, places: int) -> None:
        """There are ``places`` spare places now: failures that would not have landed may."""
        moved = [order for order, source in self._spares if source.grow(places, self._env.now)]
        if moved:
            self._reorder(moved)

    def _reorder(self, moved: list[int]) -> None:
        """Put arrivals whose next hit has moved back in order."""
        self._heap = [entry for entry in self._heap if entry[1] not in moved]
        heapq.heapify(self._heap)
        for order in moved:
            self._push(order)
        self._arm()

    def _push(self, order: int) -> None:
        time_s = self._arrivals[order].next_s
        if time_s < math.inf:
            heapq.heappush(self._heap, (time_s, order))

    def _arm(self) -> None:
        """Wait for the next hit; a wait that was set before no longer counts."""
        self._next = at(self._env, self._heap[0][0], self._due, "failure", LAST) if self._heap else None

    def _due(self, event: simpy.Event) -> None:
        if event is not self._next:
            return
        order = self._heap[0][1]
        source = self._arrivals[order]
        hit = source.pop()
        if source.next_s < math.inf:
            heapq.heapreplace(self._heap, (source.next_s, order))
        else:
            heapq.heappop(self._heap)
        self._arm()
        self._strike(hit)
