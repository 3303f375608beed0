"""What troubles a job without stopping it: slow nodes, links, congestion, corruption, loss spikes, and their discovery.

A slow-down changes the pace of training while its node works in a place of the job; the step model says by how much. One that
is noticed, a corruption that comes to light, and a loss spike that is seen strike like any other failure from then on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from clustersim.checkpoint.pattern import Pace
from clustersim.checkpoint.tiers import Copy, Tier
from clustersim.faults.failure import Severity
from clustersim.faults.flap import Flap
from clustersim.faults.process import Hit
from clustersim.faults.silent import Silent
from clustersim.faults.slow import Slow
from clustersim.faults.spike import Spike
from clustersim.run.clock import at
from clustersim.run.log import Entry

if TYPE_CHECKING:
    import simpy

    from clustersim.run.cluster import Fleet
    from clustersim.run.log import Log
    from clustersim.run.prepared import Prepared
    from clustersim.run.training import Trainer

class Patient(Protocol):
    """The job, as far as its afflictions see it."""

    env: simpy.Environment
    prepared: Prepared
    fleet: Fleet
    trainer: Trainer
    log: Log

    @property
    def up(self) -> bool:
        """Whether it trains, or saves."""

    def change_pace(self, pace: Pace) -> None:
        """Steps take another time from the next one on."""

    def struck_by(self, hit: Hit) -> None:
        """A failure strikes now."""

    def disturb(self) -> None:
        """Go on event by event."""

    def wait_for_links(self) -> None:
        """Communication stands still until ``trainer.blocked_s``."""


class Afflictions:
    """All that is wrong with a job's nodes though it trains.

    Args:
        job: whose training slows down.
        count: told the seconds of each change of pace (for tests); None: nobody is told.
    """

    def __init__(self, job: Patient, count: Callable[[float], None] | None = None) -> None:
        self._job, self._count = job, count
        self._slow: dict[int, tuple[int, float, str]] = {}
        """Episode → (node, factor, what); node −1: all."""
        self._number = 0
        self._mended: set[tuple[int, float]] = set()
        """(node, begin) of episodes that a repair has ended."""
        self._pace = job.trainer.pace
        self._clean: dict[int, Copy] = {}
        """Node with a corruption nobody has noticed → the newest shared copy of before."""
        self._spikes: dict[float, Copy] = {}
        """Begin of a loss spike nobody has seen → the copy to go back to."""

    def takes(self, hit: Hit) -> bool:
        """Whether a hit is one of these; if so, it takes its course."""
        if isinstance(hit.extra, Slow):
            self._begin(hit, hit.extra)
        elif isinstance(hit.extra, Silent):
            self._corrupt(hit, hit.extra)
        elif isinstance(hit.extra, Spike):
            self._spike(hit, hit.extra)
        elif isinstance(hit.extra, Flap):
            self._flap(hit, hit.extra.outage_s)
        else:
            return False
        return True

    # -- slow-downs

    def _begin(self, hit: Hit, slow: Slow) -> None:
        node = -1
        if slow.what != "cluster":
            node = self._job.fleet.places[hit.first]
            if node < 0:
                return
        for begin, end in slow.spans:
            number, self._number = self._number, self._number + 1
            entry = (node, max(1.0, round(slow.factor, 2)), slow.what)  # alike, so that paces repeat
            key = (node, slow.spans[0][0])
            self._at(begin, functools.partial(self._start, number, entry, key))
            self._at(end, functools.partial(self._set, number, None))
        if slow.noticed_s is not None:
            self._at(hit.time_s + slow.noticed_s, lambda: self._noticed(hit, slow, node))

    def _at(self, time_s: float, call: Callable[[], None]) -> None:
        if time_s <= self._job.env.now:
            call()
        else:
            at(self._job.env, time_s, lambda _: call(), "slow-down")

    def _start(self, number: int, entry: tuple[int, float, str], key: tuple[int, float]) -> None:
        """A stretch of an episode begins, unless the node has been repaired since the episode began."""
        if key not in self._mended:
            self._set(number, entry)

    def _set(self, number: int, entry: tuple[int, float, str] | None) -> None:
        if entry is None:
            self._slow.pop(number, None)
        else:
            self._slow[number] = entry
        self.refresh()

    def _noticed(self, hit: Hit, slow: Slow, node: int) -> None:
        """A straggler has been found: the node that is blamed is replaced as if it had failed."""
        fleet = self._job.fleet
        if slow.blamed is not None:
            place = int(slow.blamed * fleet.nodes)
            self._job.struck_by(hit._replace(time_s=self._job.env.now, first=place, last=place + 1, extra=None))
        elif fleet.place_of(node) is not None:
            self._slow = {number: entry for number, entry in self._slow.items() if entry[0] != node}  # repair ends it
            self._mended.add((node, slow.spans[0][0]))
            self._job.struck_by(hit._replace(time_s=self._job.env.now, node=node, extra=None))

    def refresh(self) -> None:
        """Set the pace that the slow nodes which work for the job allow."""
        pace = self._paced()
        if pace != self._pace:
            self._pace = pace
            self._job.change_pace(pace)
            if self._count is not None:
                self._count(pace.step_s)

    def moved(self) -> None:
        """Nodes have changed places: slow ones may have come or gone."""
        if self._slow or self._pace != self._job.prepared.pace:
            self.refresh()

    def _paced(self) -> Pace:
        nodes: dict[int, float] = {}
        links: dict[int, float] = {}
        everywhere = 1.0
        for node, factor, what in self._slow.values():
            place = -1 if node < 0 else self._job.fleet.place_of(node)
            if place is None:
                continue
            if what == "cluster":
                everywhere = max(everywhere, factor)
                continue
            where = nodes if what == "compute" else links
            where[place] = max(where.get(place, 1.0), factor)
        return self._job.prepared.slowed(nodes, links, everywhere)

    # -- link flaps

    def _flap(self, hit: Hit, outage_s: float) -> None:
        """A link is down for a while: the step under way, or the next one, waits for it. Outages that overlap count once."""
        job = self._job
        if not job.fleet.working(hit.first, hit.last):
            return
        job.log.add(Entry(hit.time_s, "flap", hit.cause.name, place=hit.first, seconds=outage_s))
        job.trainer.blocked_s = max(job.trainer.blocked_s, hit.time_s + outage_s)
        if job.up:
            job.wait_for_links()

    # -- silent corruption

    def _corrupt(self, hit: Hit, silent: Silent) -> None:
        """From now on training is wrong; remember the newest shared copy that is right."""
        job = self._job
        node = job.fleet.places[hit.first]
        if node < 0 or node in self._clean:
            return
        job.disturb()
        self._at_soon(lambda: self._pin(node))
        if silent.latency_s is not None:
            self._at(hit.time_s + silent.latency_s, lambda: self._exposed(hit, node))

    def _at_soon(self, call: Callable[[], None]) -> None:
        """After the interrupts of this instant have been delivered."""
        at(self._job.env, self._job.env.now, lambda _: call(), "corruption")

    def _pin(self, node: int) -> None:
        copies = self._job.trainer.copies
        clean = copies.on(Tier.SHARED) or copies.newest()
        if clean is not None:
            self._clean[node] = min((clean, *self._clean.values()), key=lambda copy: copy.step)

    def _exposed(self, hit: Hit, node: int) -> None:
        """A corruption has come to light: everything saved since is spoilt, the node is replaced."""
        job, clean = self._job, self._clean.pop(node, None)
        if clean is not None:
            self._go_back(clean)
        if job.fleet.place_of(node) is None:
            place = hit.first if job.fleet.working(hit.first, hit.first + 1) else None
            if place is None:
                return
            hit = hit._replace(cause=hit.cause.model_copy(update={"severity": Severity.PROCESS}))
            job.struck_by(hit._replace(time_s=job.env.now, extra=None))
            return
        job.struck_by(hit._replace(time_s=job.env.now, node=node, extra=None))


    def _go_back(self, clean: Copy) -> None:
        """The next rollback goes to ``clean``: what began later is undone, and nothing newer is clean for anything else."""
        self._job.trainer.spoilt = clean
        self._spikes = {begin: copy for begin, copy in self._spikes.items() if copy.step < clean.step}
        self._clean = {node: min(copy, clean, key=lambda one: one.step) for node, copy in self._clean.items()}

    # -- loss spikes

    def _spike(self, hit: Hit, spike: Spike) -> None:
        """Training goes wrong from now on; remember the copy to go back to."""
        if self._job.up:
            self._job.disturb()
            self._at_soon(lambda: self._mark(hit, spike))

    def _mark(self, hit: Hit, spike: Spike) -> None:
        trainer = self._job.trainer
        copy = trainer.copies.before(trainer.steps_done() - spike.margin, spike.saves_back) or trainer.copies.newest()
        if copy is not None:
            self._spikes[hit.time_s] = copy
            self._at(hit.time_s + spike.latency_s, lambda: self._seen(hit, spike))

    def _seen(self, hit: Hit, spike: Spike) -> None:
        """A spike has been seen, unless training has gone back past it meanwhile."""
        copy = self._spikes.pop(hit.time_s, None)
        if copy is not None:
            self._go_back(copy)
            self._job.trainer.skipped += spike.skip
            self._job.struck_by(hit._replace(time_s=self._job.env.now, extra=None))
