"""A diagnosis that may be wrong, and spares that may be dead: what a recovery takes for granted and should not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustersim.faults.failure import ComponentFailure, FailureModel, Severity
from clustersim.faults.process import Hit
from clustersim.recovery.strategy import RecoveryStrategy
from clustersim.run.clock import LAST, at
from clustersim.run.log import Entry

if TYPE_CHECKING:
    from clustersim.run.job import Job

_DEAD = ComponentFailure(name="dead-spare", mtbf=1e30, severity=Severity.NODE)


class Doubts:
    """Takes failed nodes out, or those that are blamed instead; finds out about dead spares."""

    def __init__(self, job: Job, recovery: RecoveryStrategy) -> None:
        self._job, self._diagnosis, self._dead = job, recovery.diagnosis, recovery.dead_spares
        if self._dead.share:
            job.fleet.placed = self._try_spare

    def remove(self, fallen: list[tuple[int, float]], cause: FailureModel | None) -> None:
        """Take out the failed nodes, (place, seconds of repair) each; one alone may be mistaken for another."""
        fleet = self._job.fleet
        for place, repair_s in fallen:
            if self._diagnosis.wrong and len(fallen) == 1 and cause is not None:
                other = self._blamed(place)
                if other is not None:
                    self._wrongly(place, other, repair_s, cause)
                    continue
            fleet.remove(place, repair_s)

    def _blamed(self, place: int) -> int | None:
        """A healthy place that is taken for the faulty one; None: the diagnosis is right."""
        rng = self._job.draws("diagnosis")
        lucky, where = rng.random(2).tolist()
        fleet = self._job.fleet
        if lucky >= self._diagnosis.wrong:
            return None
        for offset in range(fleet.nodes):
            other = (int(where * fleet.nodes) + offset) % fleet.nodes
            if other != place and fleet.working(other, other + 1):
                return other
        return None

    def _wrongly(self, place: int, other: int, repair_s: float, cause: FailureModel) -> None:
        """A healthy node is taken out; the faulty one fails again."""
        job, diagnosis = self._job, self._diagnosis
        rng = job.draws("diagnosis")
        node = job.fleet.revive(place)
        job.fleet.fail(other)
        job.fleet.remove(other, diagnosis.check.sample(rng))
        job.log.add(Entry(job.env.now, "wrong_diagnosis", cause.name, place=other))
        relapse = job.env.now + diagnosis.relapse.sample(rng)
        again = Hit(relapse, cause, place, place + 1, cause.detection.sample(rng), repair_s, node=node)
        at(job.env, relapse, lambda _: job.struck_by(again), "relapse", LAST)

    def _try_spare(self, node: int, place: int) -> None:
        """A spare has been put into a place: it may be dead, which the recovery finds out."""
        job, dead = self._job, self._dead
        rng = job.draws("dead-spares")
        if rng.random() < dead.share:
            found, repair = dead.found.sample(rng), job.prepared.scenario.repair.time.sample(rng)
            hit = Hit(job.env.now, _DEAD, place, place + 1, found, repair, node=node)
            at(job.env, job.env.now, lambda _: job.struck_by(hit), "dead spare", LAST)
