"""Who trains: places that stand empty, nodes on their way back to them, swaps that were announced, and who answers for a loss.

The job knows up and down; this knows which of its places take part. A strategy may let the job go on without some of them
(``away``). A node that comes back is put into its place, gets ready beside the training, and is taken in at the end of a
step: a *turn*, for which the training stands still without losing anything. A planned failure of a node, or a straggler
that has been found, may be met by a turn as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustersim.faults.failure import TAKES_NODES, FailureModel, Severity
from clustersim.faults.process import Hit
from clustersim.recovery.ground import Ground
from clustersim.recovery.strategy import NOTHING, Comeback, Loss, RecoveryStrategy
from clustersim.run.clock import at
from clustersim.run.doubts import Doubts
from clustersim.run.log import Entry
from clustersim.run.swaps import Swaps

if TYPE_CHECKING:
    from clustersim.run.job import Job


def everywhere(cause: FailureModel) -> bool:
    """Whether a failure of this cause takes every process of the job."""
    return cause.severity is Severity.CLUSTER or (cause.component == "job" and cause.severity not in TAKES_NODES)


class Turn:
    """Cause of an interrupt that is no failure: places change hands at the end of a step."""


TURN = Turn()
NOBODY: frozenset[int] = frozenset()


class Turnover:
    """Places that train and those that do not; also what a strategy sees of the job.

    Attributes:
        ground: sizes, layout, bytes.
        kept: whether the state of the last step is still there.
        away: places that do not train.
        mended: times that the state was mended instead of restored.
        paths: how often each way of coming back was taken to its end.
    """

    def __init__(self, job: Job) -> None:
        self._job, self._prepared = job, job.prepared
        self._recovery: RecoveryStrategy = job.prepared.scenario.recovery
        self.ground: Ground = job.prepared.ground
        self.kept = True
        self._loss = NOTHING
        self._blows: list[tuple[Hit, list[int]]] = []
        self.away: frozenset[int] = frozenset()
        self.mended = 0
        self.paths: dict[str, int] = {}
        self._chosen = self._mode = self._recovery
        self._coming: Comeback | None = None
        self._turn: Comeback | None = None
        self._ready: dict[int, float] = {}
        self._armed = 0
        self._epoch = 0
        self._swaps = Swaps(job, self._recovery, self._arm)
        self._doubts = Doubts(job, self._recovery)
        self._heartbeat = self._recovery.heartbeat
        self._repace()

    # -- what strategies see

    @property
    def step(self) -> int:
        """Steps done in the state that will be restored."""
        return self._job.trainer.step

    @property
    def vacant(self) -> int:
        """Places of the job without a node."""
        return len(self._job.fleet.vacant)

    @property
    def vacancies(self) -> frozenset[int]:
        """Those places."""
        return frozenset(self._job.fleet.vacant)

    @property
    def spares(self) -> int:
        """Spare nodes that stand ready."""
        return self._job.fleet.spares

    @property
    def nodes(self) -> int:
        """Places of the job."""
        return self._job.fleet.nodes

    @property
    def loss(self) -> Loss:
        """What has been lost since the job last trained."""
        for hit, places in self._blows:  # summed up only where somebody asks
            self._loss = self._loss.also(hit.cause, frozenset(places), everywhere(hit.cause), hit.repair_s)
        self._blows.clear()
        return self._loss

    def _forget(self) -> None:
        """Nothing is lost any more, or yet."""
        self._blows.clear()
        self._loss, self.kept = NOTHING, True

    # -- a failure

    def intercept(self, hit: Hit, places: list[int]) -> bool:
        """Whether a hit on ``places`` leaves the training as it is (idle nodes), or may wait for a swap."""
        out, mode = self.away, self._mode
        if self._coming is not None:  # on the way up: what will train is settled already
            out, mode = self._coming.away.union(self._job.fleet.vacant), self._chosen
        if out and all(mode.idle(place, out, self.ground) for place in places):
            self._lose_idle(hit, places)
            return True
        migration = self._recovery.migration
        if migration is None or len(places) != 1 or not hit.cause.severity.takes_nodes:
            return False
        if not (hit.cause.planned or hit.cause.kind in ("fail-slow", "false-alarm")):
            return False
        self._swaps.announce(hit, places[0])
        return True

    def _lose_idle(self, hit: Hit, places: list[int]) -> None:
        """Nodes that do not train fail: they are noticed at once, and nothing stands still."""
        job = self._job
        for place in places:
            job.log.add(Entry(job.env.now, "idle_failure", hit.cause.name, place=place))
            self._ready.pop(place, None)
            if hit.cause.severity.takes_nodes:
                job.fleet.fail(place)
                job.fleet.remove(place, hit.repair_s)
                self.away |= {place}
            elif place in self.away:
                self._get_ready(place)
        self.returned()

    def struck(self, hit: Hit, places: list[int], was_up: bool) -> bool:
        """A failure has stopped the job or its recovery; True: the state of the last step outlives it."""
        if was_up:
            self._forget()
        self._blows.append((hit, places))
        self._turn, self._coming = None, None
        self._epoch += 1
        self._chosen = self._recovery.choose(self)
        self.kept = self.kept and self._job.trainer.spoilt is None and self._chosen.keeps(self)
        return self.kept

    def noticed_after(self, hit: Hit) -> float:
        """Seconds from a failure until it is noticed: the first of its own signal and the strategy's heartbeat."""
        heartbeat = self._heartbeat
        return hit.detection_s if heartbeat is None else min(hit.detection_s, heartbeat)

    # -- coming back

    def remove(self, fallen: list[tuple[int, float]], cause: FailureModel | None) -> None:
        """Take the failed nodes out, or those that are blamed instead."""
        self._doubts.remove(fallen, cause)

    def comeback(self, cause: FailureModel | None) -> Comeback:
        """How to come back, now that the loss has been noticed; nodes that stand ready are put in where they are
        needed at once."""
        coming = self._turn if self._turn is not None else self._chosen.comeback(cause, self)
        self._coming = coming
        fleet = self._job.fleet
        if fleet.vacant and not (coming.waits and coming.graph.fills):
            fleet.fill()
        return coming

    def resumed(self) -> None:
        """The job trains again."""
        coming = self._coming
        path = coming.path if coming is not None else ""
        self.paths[path] = self.paths.get(path, 0) + 1
        if self._turn is None:
            self._mode = self._chosen
        elif self._mode is not self._chosen and not self.away:
            self._mode = self._recovery
        self.mended += coming is not None and coming.mends
        left = coming.away if coming is not None else frozenset()
        before = self.away
        self.away = left.union(self._job.fleet.vacant)
        self._forget()
        self._turn = self._coming = None
        self._epoch += 1
        if before or self.away or self.mended:
            filled = left.difference(self._job.fleet.vacant)
            if self._ready:
                self._ready = {place: when for place, when in self._ready.items() if place in filled}
            for place in sorted(filled.difference(self._ready)):
                self._get_ready(place)
            self._repace()
            self.returned()
        if self._swaps.planned:
            self._swaps.seek()

    # -- places that come back

    def returned(self) -> None:
        """A node has come back, or the job has: fill places that stand empty."""
        if self._swaps.planned and self._job.up:
            self._swaps.seek()
        if not self.away or not self._job.up:
            return
        fleet = self._job.fleet
        if fleet.vacant and fleet.spares:
            empty = set(fleet.vacant)
            fleet.fill()
            for place in sorted(empty - set(fleet.vacant)):
                self._get_ready(place)
        self._arm()

    def _get_ready(self, place: int) -> None:
        """The node of a place gets ready beside the training."""
        job = self._job
        self._ready[place] = ready = job.env.now + self._mode.prepare().sample(job.draws("prepare"))
        at(job.env, ready, lambda _: self._arm(), "node that gets ready")

    def _joining(self) -> frozenset[int]:
        """Places that are ready to be taken in, if that changes anything."""
        if not self._ready:
            return NOBODY
        now = self._job.env.now
        ready = frozenset([place for place, when in self._ready.items() if when <= now])
        if not ready or ready == self.away:
            return ready
        after = self.ground.under(self._mode, self.away - ready)
        useful = after is not None and after != self.ground.under(self._mode, self.away)
        return ready if useful else NOBODY

    # -- turns

    def _arm(self) -> None:
        """Have a turn at the end of the step under way, if there is anything to do."""
        job = self._job
        if not job.up or self._armed == self._epoch + 1 or not (self._swaps.ready() or self._joining()):
            return
        self._armed = self._epoch + 1
        epoch = self._epoch
        at(job.env, job.trainer.boundary(), lambda _: self._due(epoch), "turn")

    def _due(self, epoch: int) -> None:
        """The end of the step has come."""
        job = self._job
        if epoch != self._epoch or not job.up:
            return
        if job.trainer.stalled:
            job.trainer.after_stall(lambda _: self._due(epoch))
            return
        self._armed = 0
        if self._swaps.ready() or self._joining():
            job.turn()

    def begin_turn(self) -> None:
        """The training stands still for a turn: nodes leave, or come in."""
        job, leaving = self._job, self._swaps.ready()
        self._epoch += 1
        self._forget()
        self._chosen = self._mode
        migration = self._recovery.migration
        if leaving and migration is not None:
            for planned in leaving:
                assert planned.hit.node is not None
                place = job.fleet.place_of(planned.hit.node)
                assert place is not None
                job.fleet.fail(place)
                job.fleet.remove(place, planned.hit.repair_s)
                self._swaps.planned.remove(planned)
                job.planned += 1
            graph = self._recovery.made("swap", self.ground.gpus, lambda: migration.stages, reads=False)
            held = frozenset(place for place in self.away if place not in self.vacancies)
            self._turn = Comeback(graph, waits=False, away=held, path="swap")
            return
        joining = self._joining()
        held = frozenset(place for place in self.away - joining if place not in self.vacancies)
        self._turn = Comeback(self._mode.rejoin(self), waits=False, away=held, path="rejoin")
        for place in joining:
            self._ready.pop(place, None)

    # -- pace

    def _repace(self) -> None:
        """Set the pace that the places which train allow."""
        self._job.thinned(self._prepared.thinned(self._mode, self.away, self._recovery.progress(self.mended)))


__all__ = ["TURN", "Turn", "Turnover"]
