"""One attempt to come back: the stages of a recovery as a process, and which category each second of it belongs to."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np
import simpy

from clustersim.checkpoint.engine import Load
from clustersim.recovery.stages import LOAD, NODES, Section, StageGraph, Step
from clustersim.run.clock import delay, fire
from clustersim.run.cluster import Fleet
from clustersim.run.storage import Flow, SharedStorage

Process = Generator[simpy.Event, None, None]
Draws = Callable[[str], np.random.Generator]
"""The replica's random stream of a name; the same generator every time."""
WAIT = "wait_for_nodes"


@dataclass(slots=True)
class Span:
    """Time spent on one stage, planned ahead as far as it is known (``end_s`` inf: open)."""

    category: str
    name: str
    start_s: float
    end_s: float
    before: Span | None = None
    """What ended last before this could start."""

    section: Section | None = None
    """The steps that the span stands for, where it is more than one."""

    def parts(self, now: float) -> Iterator[Span]:
        """The span, a section step by step, without what was planned after ``now``."""
        if self.section is None:
            if self.start_s < now:
                yield Span(self.category, self.name, self.start_s, min(self.end_s, now))
            return
        start = self.start_s
        for step, offset in zip(self.section.steps, self.section.ends_s, strict=True):
            end = self.start_s + offset
            if start < now and end > start:
                yield Span(step.category, step.name, start, min(end, now))
            start = end


class Attempt:
    """Runs the stages of one attempt and tells what each second was spent on.

    Stages of known length are laid out ahead, so that a chain costs an event only where it meets the rest of the world:
    when it needs nodes, when it loads, and at its end. When the attempt is broken off, ``close`` drops what was
    planned. Of stages that run in parallel the last to end books the time, then whatever ended last before it could
    start. ``waits``: every place has a node at the end; ``done``: steps done in the state that is restored.
    """

    def __init__(self, env: simpy.Environment, fleet: Fleet, storage: SharedStorage, load: Load, draws: Draws,
                 waits: bool = True, done: int = 0) -> None:  # fmt: skip
        self._env, self._fleet, self._storage, self._load, self._draws = env, fleet, storage, load, draws
        self._spans: list[Span] = []
        self._flow: Flow | None = None
        self._in_chain, self._waits, self._done = False, waits, done

    def run(self, graph: StageGraph) -> Process:
        """All stages to their end."""
        self._in_chain = graph.chain
        return self._chain(graph) if graph.chain else self._parallel(graph)

    def close(self, now: float) -> list[Span]:
        """What was on the critical path up to ``now``, in order; what is under way is broken off.

        Of a chain the spans come as they were planned: ask each for its ``parts`` up to ``now``.
        """
        self._fleet.waiter = None
        if self._flow is not None:
            self._storage.cancel(self._flow)
            self._flow = None
        if self._in_chain:
            return self._spans
        path: list[Span] = []
        spans = [span for span in self._spans if span.start_s < now]
        last = max(spans, key=lambda span: span.end_s, default=None)
        while last is not None:
            last.end_s = min(last.end_s, path[-1].start_s if path else now)
            path.append(last)
            last = last.before
        path.reverse()
        return path

    def _open(self, step: Step, start: float, end: float, before: Span | None) -> Span:
        span = Span(step.category, step.name, start, end, before)
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
        env, fleet, spans = self._env, self._fleet, self._spans
        now: float = env.now
        for part in graph.line:
            section = part if isinstance(part, Section) else None
            step = section.steps[0] if section is not None else part
            assert isinstance(step, Step)
            if fleet.vacant and self._waits and (step.time is None or step.needs == NODES):
                if now > env.now:
                    yield delay(env, now - env.now, "recovery stage")
                if not fleet.fill():
                    yield from self._wait(now)
                now = env.now
            if step.time is not None:
                start, now = now, now + (section.ends_s[-1] if section is not None else self._duration(step))
                spans.append(Span(step.category, step.name, start, now, None, section))
                continue
            span = Span(step.category, step.name, now, math.inf)
            spans.append(span)
            if self._load.bytes:
                yield self._read(now - env.now)
                now = env.now
            else:
                now += self._load.seconds
            span.end_s = now
        if now > env.now:
            yield delay(env, now - env.now, "recovery stage")
        if self._waits and fleet.vacant and not fleet.fill():
            yield from self._wait(env.now)

    def _wait(self, now: float) -> Process:
        """Wait until every place has a node."""
        span = Span(WAIT, WAIT, now, math.inf)
        self._spans.append(span)
        yield self._nodes()
        span.end_s = self._env.now

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
            race.waiting = Span(WAIT, WAIT, self._env.now, math.inf, last)
            self._spans.append(race.waiting)
            yield self._nodes()
            race.waiting.end_s = self._env.now

    def _begin(self, race: Race, index: int) -> None:
        """Start a stage, or the wait for the nodes that it needs."""
        step, now = race.graph.steps[index], self._env.now
        short = self._fleet.vacant and self._waits and (step.time is None or step.needs == NODES)
        if short and not self._fleet.fill():
            if race.waiting is None:
                race.waiting = Span(WAIT, WAIT, now, math.inf, race.latest(index))
                self._spans.append(race.waiting)
                race.events[self._nodes()] = -1
            return
        if step.time is not None:
            end = now + self._duration(step)
            race.start(index, self._open(step, now, end, race.latest(index)))
            heapq.heappush(race.running, (end, index))
            return
        race.start(index, self._open(step, now, math.inf, race.latest(index)))
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
