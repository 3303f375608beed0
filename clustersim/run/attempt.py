"""One attempt to come back: the stages of a recovery as a process, and which category each second of it belongs to."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np
import simpy

from clustersim.checkpoint.engine import Load
from clustersim.recovery.stages import LOAD, NODES, Spent, StageGraph, Step
from clustersim.run.clock import delay, fire
from clustersim.run.cluster import Fleet
from clustersim.run.storage import Flow, SharedStorage

Process = Generator[simpy.Event, None, None]
Draws = Callable[[str], np.random.Generator]
"""The replica's random stream of a name; the same generator every time."""
WAIT = Step("wait_for_nodes", "wait_for_nodes", None, ())
"""What time without nodes is spent on."""


def parts(spent: Spent, now: float) -> Iterator[tuple[Step, float, float]]:
    """Step by step what has been spent by ``now``: (step, begin, end)."""
    item, start, end = spent
    if isinstance(item, Step):
        if start < now:
            yield item, start, min(end, now)
        return
    begin = start
    for step, offset in zip(item.steps, item.ends_s, strict=True):
        end = start + offset
        if begin < now and end > begin:
            yield step, begin, min(end, now)
        begin = end


@dataclass(slots=True)
class Span:
    """Time spent on one stage of a graph with branches, planned ahead as far as it is known (``end_s`` inf: open)."""

    step: Step
    start_s: float
    end_s: float
    before: Span | None = None
    """What ended last before this could start."""


class Attempt:
    """Runs the stages of one attempt after the other and tells what each second was spent on.

    Stages of known length are laid out ahead, so that a chain costs an event only where it meets the rest of the world:
    when it needs nodes, when it loads, and at its end. When an attempt is broken off, ``close`` drops what was
    planned. Of stages that run in parallel the last to end books the time, then whatever ended last before it could
    start.

    Attributes:
        under_way: whether an attempt has begun and has not been closed.
    """

    def __init__(self, env: simpy.Environment, fleet: Fleet, storage: SharedStorage, draws: Draws) -> None:
        self._env, self._fleet, self._storage, self._draws = env, fleet, storage, draws
        self.under_way = False
        self._spent: list[Spent] = []
        self._open: tuple[Step, float] | None = None
        self._spans: list[Span] = []
        self._flow: Flow | None = None
        self._load = Load(0.0)
        self._waits, self._done = True, 0

    def run(self, graph: StageGraph, load: Load, waits: bool = True, done: int = 0) -> Process:
        """All stages to their end.

        Args:
            graph: the stages.
            load: what reading the state takes.
            waits: every place has a node at the end.
            done: steps done in the state that is restored.
        """
        self._load, self._waits, self._done, self.under_way = load, waits, done, True
        return self._chain(graph) if graph.chain else self._parallel(graph)

    def close(self, now: float) -> list[Spent]:
        """What was on the critical path up to ``now``, in order; what is under way is broken off.

        Of a chain all comes as it was planned: ask for ``parts`` up to ``now`` of what ends later.
        """
        self._fleet.waiter, self.under_way = None, False
        if self._flow is not None:
            self._storage.cancel(self._flow)
            self._flow = None
        spent = self._spent
        self._spent = []
        if self._open is not None:
            spent.append((*self._open, math.inf))
            self._open = None
        if self._spans:
            spent += self._path(now)
            self._spans = []
        return spent

    def _path(self, now: float) -> list[Spent]:
        """The critical path through branches up to ``now``."""
        path: list[Spent] = []
        last = max((span for span in self._spans if span.start_s < now), key=lambda span: span.end_s, default=None)
        reached = now
        while last is not None:
            end = min(last.end_s, reached)
            path.append((last.step, last.start_s, end))
            reached, last = last.start_s, last.before
        path.reverse()
        return path

    def _planned(self, step: Step, start: float, end: float, before: Span | None) -> Span:
        span = Span(step, start, end, before)
        self._spans.append(span)
        return span

    def _duration(self, step: Step) -> float:
        assert step.time is not None
        if step.fixed_s is not None:
            return step.fixed_s
        return step.time.sample(self._draws(f"stage/{step.name}")) + step.extra_s + step.per_step_s * self._done

    # -- a chain
    # ------------------------------------------------------------------------------------------------------------

    def _chain(self, graph: StageGraph) -> Process:
        """The stages one after the other; nodes are waited for before the stage that needs them, at the latest to
        load."""
        env, fleet, spent, load = self._env, self._fleet, self._spent, self._load
        began = now = env.now
        for item, step, fills, seconds in graph.line:
            if fills and fleet.vacant and self._waits:
                if now > began:
                    yield delay(env, now - began, "recovery stage")
                if not fleet.fill():
                    yield from self._wait(now)
                began = now = env.now
            start = now
            if step.time is not None:
                now += self._duration(step) if seconds is None else seconds
            elif load.bytes:
                self._open = (step, start)
                yield self._read(now - began)
                self._open = None
                began = now = env.now
            else:
                now += load.seconds
            spent.append((item, start, now))
        if now > began:
            yield delay(env, now - began, "recovery stage")
        if fleet.vacant and self._waits and not fleet.fill():
            yield from self._wait(env.now)

    def _wait(self, now: float) -> Process:
        """Wait until every place has a node."""
        self._open = (WAIT, now)
        yield self._nodes()
        self._spent.append((WAIT, now, self._env.now))
        self._open = None

    def _nodes(self) -> simpy.Event:
        """An event for the moment at which every place has a node."""
        event = simpy.Event(self._env)
        self._fleet.waiter = lambda: fire(event)
        return event

    def _read(self, after: float) -> simpy.Event:
        """Read the state from storage, ``after`` seconds from now; an event for the end."""
        event = simpy.Event(self._env)

        def done() -> None:
            self._flow = None
            fire(event)

        load = self._load
        self._flow = self._storage.start(
            load.bytes, "read", load.clients, done, load.per_client, max(0.0, after) + load.seconds
        )
        return event

    # -- parallel stages
    # ----------------------------------------------------------------------------------------------------

    def _parallel(self, graph: StageGraph) -> Process:
        """Stages start as soon as all that they wait for has ended and their resource is free; written order breaks
        ties."""
        race = Race(graph)
        while True:
            for index in race.ready():
                self._begin(race, index)
            if not race.running and not race.events:
                break
            waits: list[simpy.Event] = list(race.events)
            if race.running:
                waits.append(delay(self._env, max(0.0, race.running[0][0] - self._env.now), "recovery stage"))
            yield waits[0] if len(waits) == 1 else simpy.AnyOf(self._env, waits)
            race.events = {event: index for event, index in race.events.items() if not self._over(race, event, index)}
            while race.running and race.running[0][0] <= self._env.now:
                race.end(heapq.heappop(race.running)[1])
        if self._waits and self._fleet.vacant and not self._fleet.fill():
            last = max(race.spans.values(), key=lambda span: span.end_s, default=None)
            race.waiting = Span(WAIT, self._env.now, math.inf, last)
            self._spans.append(race.waiting)
            yield self._nodes()
            race.waiting.end_s = self._env.now

    def _begin(self, race: Race, index: int) -> None:
        """Start a stage, or the wait for the nodes that it needs."""
        step, now = race.graph.steps[index], self._env.now
        short = self._fleet.vacant and self._waits and (step.time is None or step.needs == NODES)
        if short and not self._fleet.fill():
            if race.waiting is None:
                race.waiting = Span(WAIT, now, math.inf, race.latest(index))
                self._spans.append(race.waiting)
                race.events[self._nodes()] = -1
            return
        if step.time is not None:
            end = now + self._duration(step)
            race.start(index, self._planned(step, now, end, race.latest(index)))
            heapq.heappush(race.running, (end, index))
            return
        race.start(index, self._planned(step, now, math.inf, race.latest(index)))
        if not self._load.bytes:
            race.spans[index].end_s = now + self._load.seconds
            heapq.heappush(race.running, (now + self._load.seconds, index))
            return
        race.events[self._read(0.0)] = index

    def _over(self, race: Race, event: simpy.Event, index: int) -> bool:
        """Whether an event has come; ends what waited for it."""
        if not event.processed:
            return False
        if index < 0:
            assert race.waiting is not None
            race.waiting.end_s, race.filled, race.waiting = self._env.now, race.waiting, None
        else:
            race.spans[index].end_s = self._env.now
            race.end(index)
        return True


class Race:
    """Progress through a graph of stages."""

    def __init__(self, graph: StageGraph) -> None:
        self.graph = graph
        self.spans: dict[int, Span] = {}
        self.running: list[tuple[float, int]] = []
        self.events: dict[simpy.Event, int] = {}
        self.waiting: Span | None = None
        self.filled: Span | None = None
        self._ended: set[int] = set()
        self._holder: dict[str, int] = {}
        self._released: dict[str, Span] = {}

    def ready(self) -> Generator[int, None, None]:
        """Stages that may start now, in written order."""
        for index, step in enumerate(self.graph.steps):
            if index in self.spans or not self._ended.issuperset(step.after):
                continue
            if step.needs in (None, NODES) or step.needs not in self._holder:
                yield index

    def start(self, index: int, span: Span) -> None:
        """A stage has started and holds its resource."""
        self.spans[index] = span
        needs = self.graph.steps[index].needs
        if needs not in (None, NODES):
            assert needs is not None
            self._holder[needs] = index

    def end(self, index: int) -> None:
        """A stage has ended and frees its resource."""
        self._ended.add(index)
        needs = self.graph.steps[index].needs
        if needs is not None and self._holder.get(needs) == index:
            del self._holder[needs]
            self._released[needs] = self.spans[index]

    def latest(self, index: int) -> Span | None:
        """What ended last of all that a stage waited for."""
        step = self.graph.steps[index]
        spans = [self.spans[other] for other in step.after]
        if step.needs in self._released:
            spans.append(self._released[step.needs])
        if self.filled is not None and (step.needs == NODES or step.name == LOAD):
            spans.append(self.filled)
        return max(spans, key=lambda span: span.end_s, default=None)
