"""Nodes that will leave while they still work: a joiner gets ready beside the training, then they change places."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clustersim.faults.process import Hit
from clustersim.recovery.strategy import RecoveryStrategy
from clustersim.run.clock import LAST, at
from clustersim.run.log import Entry

if TYPE_CHECKING:
    from clustersim.run.job import Job


@dataclass(eq=False)
class Planned:
    """A node that will leave: it still works.

    Attributes:
        hit: the planned failure, aimed at the node.
        ready_s: when the joiner is ready; inf: none has been found yet.
    """

    hit: Hit
    ready_s: float = math.inf


class Swaps:
    """Swaps that have been announced.

    Args:
        job: whose nodes are swapped.
        recovery: its strategy, which says how long a leaving node still works and what a joiner needs.
        ready: called when a swap may have become possible.

    Attributes:
        planned: nodes that will leave.
    """

    def __init__(self, job: Job, recovery: RecoveryStrategy, ready: Callable[[], None]) -> None:
        self._job, self._migration, self._when_ready = job, recovery.migration, ready
        self.planned: list[Planned] = []

    def announce(self, hit: Hit, place: int) -> None:
        """The node of a place will leave."""
        job, migration = self._job, self._migration
        assert migration is not None
        node = job.fleet.places[place]
        if any(known.hit.node == node for known in self.planned):
            return  # it is leaving already
        planned = Planned(hit._replace(node=node))
        job.log.add(Entry(job.env.now, "announced", hit.cause.name, place=place))
        self.planned.append(planned)
        at(job.env, job.env.now + migration.notice, lambda _: self._overdue(planned), "notice", LAST)
        self.seek()

    def _overdue(self, planned: Planned) -> None:
        """No swap came about in time: the node leaves as if it had failed."""
        if planned in self.planned:
            self.planned.remove(planned)
            self._job.struck_by(planned.hit, announced=True)

    def seek(self) -> None:
        """Start to get joiners ready, as far as spares reach."""
        job, migration = self._job, self._migration
        assert migration is not None
        free = job.fleet.spares - sum(planned.ready_s < math.inf for planned in self.planned)
        for planned in self.planned:
            if planned.ready_s == math.inf and free > 0:
                free -= 1
                planned.ready_s = job.env.now + migration.prepare.sample(job.draws("prepare"))
                at(job.env, planned.ready_s, lambda _: self._when_ready(), "joiner that gets ready")
        self._when_ready()

    def ready(self) -> list[Planned]:
        """Swaps that can be made now."""
        if not self.planned:
            return []
        now, fleet = self._job.env.now, self._job.fleet
        self.planned = [p for p in self.planned if p.hit.node is not None and fleet.place_of(p.hit.node) is not None]
        ready = [planned for planned in self.planned if planned.ready_s <= now]
        for planned in ready[fleet.spares :]:  # a failure has taken the joiner
            planned.ready_s = math.inf
        return ready[: fleet.spares]
