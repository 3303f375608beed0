"""Failures of spare places: a block draws for 64 of them, whatever there are, and only hits that can land are handed out."""

from __future__ import annotations

import math
from collections import deque

from clustersim.faults.process import SPARE_BLOCK, Arrivals, Hit, Site

LONGEST = 4096
"""Hits passed over at a stretch (a model may never aim at the places that exist)."""


class SparePlaces(Arrivals):
    """A cause's arrivals at a block of spare places of which only some exist.

    Hits on the others are drawn, so that one more spare shifts nobody's numbers, but nobody is woken for them. Places come into
    being when more nodes than ever before wait as spares (``grow``): hits that were passed over and are yet to come then count.

    Args:
        source: draws for all places of the block.
        site: the block.
        places: spare places that exist, those of other blocks included.
    """

    def __init__(self, source: Arrivals, site: Site, places: int) -> None:
        self._source, self._site, self._places = source, site, places
        self._held: deque[Hit] = deque()
        """Drawn and not handed out, in order of time."""
        self._next: Hit | None = None
        """That of ``held`` which is handed out next."""
        self._seek()

    def _seek(self) -> None:
        """Find the next hit that lands; draw on until there is one."""
        self._next = next((hit for hit in self._held if hit.first < self._places), None)
        if self._next is None and self._places > self._site.first_place:
            self._next = self._drawn()
        self.next_s = math.inf if self._next is None else self._next.time_s

    def _drawn(self) -> Hit | None:
        """The first further hit that lands; after many that do not, the last one of these; None: there is none in time."""
        source, held = self._source, self._held
        for _ in range(LONGEST):
            if source.next_s > self._site.horizon_s or source.next_s == math.inf:
                return None
            held.append(source.pop())
            if held[-1].first < self._places:
                break
        return held[-1]

    def pop(self) -> Hit:
        """The next hit on a place that exists; those before it are forgotten."""
        assert self._next is not None
        hit = self._next
        while self._held.popleft() is not hit:
            pass
        self._seek()
        return hit

    def grow(self, places: int, now_s: float) -> bool:
        """There are ``places`` spare places now; True when ``next_s`` is another than before."""
        first, before = self._site.first_place, self._places
        self._places = max(places, before)
        if self._places <= first or before >= first + SPARE_BLOCK:
            return False
        held, source, was_s = self._held, self._source, self.next_s
        while held and held[0].time_s < now_s:
            held.popleft()
        while not held and source.next_s < now_s:  # nothing was drawn while no place of the block existed
            source.pop()
        self._seek()
        return self.next_s != was_s
