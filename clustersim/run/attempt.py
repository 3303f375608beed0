"""One attempt to come back: the stages of a recovery as a process, and which category each second of it belongs to."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

import numpy as np
import simpy

from clustersim.checkpoint.engine import Load
from clustersim.recovery.stages import NODES, StageGraph
from clustersim.run.clock import delay
from clustersim.run.cluster import Fleet
from clustersim.run.storage import Flow, SharedStorage

Span = tuple[str, str, float, float]
"""Category, name, start and end (inf: open), absolute seconds."""


class Draws(Protocol):
    """Random streams by name."""

    def __call__(self, name: str) -> np.random.Generator:
        """The stream called ``name``; the same object every time."""


class Attempt:
    """Runs the stages of one attempt; ``spans`` says what each second was spent on, planned ones included.

    Stages of known length are laid out ahead, so that a chain costs an event only where it meets the rest of the world:
    when it needs nodes, when it loads, and at its end. When the attempt is broken off, ``close`` drops what was planned.
    """

    def __init__(self, env: simpy.Environment, fleet: Fleet, storage: SharedStorage, load: Load, draws: Draws) -> None:
        self._env, self._fleet, self._storage, self._load, self._draws = env, fleet, storage, load, draws
        self.spans: list[Span] = []
        self._flow: Flow | None = None

    def chain(self, graph: StageGraph) -> Generator[simpy.Event, None, None]:
        """The stages one after the other; nodes are waited for before the stage that needs them, at the latest to load."""
        now: float = self._env.now
        for step in graph.steps:
            if self._fleet.vacant and (step.needs == NODES or step.time is None):
                yield from self._until(now)
                yield from self._wait_for_nodes()
                now = self._env.now
            if step.time is None:
                now = yield from self._read(now)
            else:
                start, now = now, now + step.time.sample(self._draws(f"stage/{step.name}"))
                self.spans.append((step.category, step.name, start, now))
        yield from self._until(now)

    def _until(self, time_s: float) -> Generator[simpy.Event, None, None]:
        if time_s > self._env.now:
            yield delay(self._env, time_s - self._env.now, "recovery stage")

    def _wait_for_nodes(self) -> Generator[simpy.Event, None, None]:
        if self._fleet.fill():
            return
        event = simpy.Event(self._env)
        self._fleet.waiter = event.succeed
        start: float = self._env.now
        self.spans.append(("wait_for_nodes", "wait_for_nodes", start, float("inf")))
        yield event
        self.spans[-1] = ("wait_for_nodes", "wait_for_nodes", start, self._env.now)

    def _read(self, start: float) -> Generator[simpy.Event, None, float]:
        """Read the state back; returns when it is there."""
        load = self._load
        if not load.bytes:
            self.spans.append(("load", "load", start, start + load.seconds))
            return start + load.seconds
        self.spans.append(("load", "load", start, float("inf")))
        yield from self._until(start + load.seconds)
        event = simpy.Event(self._env)
        self._flow = self._storage.start(load.bytes, "read", load.clients, event.succeed, load.per_client)
        yield event
        self._flow = None
        self.spans[-1] = ("load", "load", start, self._env.now)
        now: float = self._env.now
        return now

    def close(self, now: float) -> list[Span]:
        """The spans up to ``now``; what is under way is broken off."""
        self._fleet.waiter = None
        if self._flow is not None:
            self._storage.cancel(self._flow)
            self._flow = None
        return [(category, name, start, min(end, now)) for category, name, start, end in self.spans if start < now]
