"""What a failure does to the job: whether it takes anything, whether it counts, whether it stops training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustersim.faults.failure import TAKES_NODES, Severity
from clustersim.faults.process import Hit
from clustersim.run.clock import interrupt
from clustersim.run.log import Entry

if TYPE_CHECKING:
    from clustersim.run.job import Job


class Impact:
    """Where failures arrive.

    Attributes:
        places: those that the last failure which stopped the job took.
        fallen: places whose nodes have failed and have not been taken out yet, with what their repair takes.
    """

    def __init__(self, job: Job) -> None:
        self._job, self._during = job, job.prepared.during
        self._always = self._during.save and self._during.recovery and self._during.detecting
        self.places: list[int] = []
        self.fallen: list[tuple[int, float]] = []

    def strike(self, hit: Hit, announced: bool = False, at_once: bool = True) -> None:
        """A failure strikes.

        Args:
            hit: the failure.
            announced: it strikes although it was announced.
            at_once: nothing else of this instant is still to reach the job's process.
        """
        job = self._job
        if job.over or (hit.extra is not None and job.afflictions.takes(hit)):
            return
        cause, severity, fleet = hit.cause, hit.cause.severity, job.fleet
        if hit.spare or (hit.node is not None and fleet.slot_of(hit.node) is not None):
            self._strike_spare(hit)
            return
        if severity is Severity.STORAGE:
            self._strike_storage(hit)
            return
        may = self._always or self._may_strike()
        if not may and not job.log.active:
            return
        places = fleet.working(hit.first, hit.last) if hit.node is None else self._stands(hit.node)
        shared = severity is Severity.CLUSTER or cause.component == "job"
        if not shared and not places:
            return
        if not may:
            job.log.add(Entry(job.env.now, "ignored", cause.name))
            return
        if not shared and not announced and job.turnover.intercept(hit, places):
            return
        self._stop(hit, places, at_once)

    def _stop(self, hit: Hit, places: list[int], at_once: bool) -> None:
        """Nodes fail, and the job with them."""
        job, self.places = self._job, places
        if hit.cause.severity in TAKES_NODES:
            for place in places:
                job.fleet.fail(place)
                self.fallen.append((place, hit.repair_s))
        if job.log.active:
            job.log.add(Entry(job.env.now, "failure", hit.cause.name, job.trainer.steps_done(), place=hit.first,
                              seconds=hit.detection_s))  # fmt: skip
        if at_once:
            interrupt(job.process, hit)
        else:
            job.process.interrupt(hit)

    def _may_strike(self) -> bool:
        """Whether failures are allowed to strike at this moment (``failures_during``)."""
        during, job = self._during, self._job
        if job.up:
            return during.save or not job.trainer.stalled
        return during.recovery if job.env.now >= job.noticed_s else during.detecting

    def _stands(self, node: int) -> list[int]:
        """The place of a node that works for the job; empty: it does not."""
        place = self._job.fleet.place_of(node)
        return [] if place is None else self._job.fleet.working(place, place + 1)

    def _strike_spare(self, hit: Hit) -> None:
        """Spare nodes fail: they go to the repair shop, the job goes on."""
        job = self._job
        slots = range(hit.first, hit.last) if hit.node is None else (job.fleet.slot_of(hit.node),)
        for slot in slots:
            node = None if slot is None else job.fleet.fail_spare(slot, hit.repair_s)
            if node is not None:
                job.log.add(Entry(job.env.now, "spare_failure", hit.cause.name, node=node))

    def _strike_storage(self, hit: Hit) -> None:
        """Shared storage stands still; the job goes on as far as it does not need it."""
        job = self._job
        job.log.add(Entry(job.env.now, "outage", hit.cause.name, seconds=hit.repair_s))
        job.disturb()
        job.storage.outage(hit.repair_s)
