"""Stages of a recovery and the graph that they form.

``stages:`` lists them in written order; each starts when the one written before has ended, unless ``after`` names
others. Two steps are built in: ``wait_for_nodes`` (before the first stage that ``needs: nodes``: ``start``, where
nothing says so) and ``load`` (after ``communicators``, else after all stages). A stage that is itself called ``load``
takes the place of the built-in one: its time is then given, not a matter of bytes and bandwidth.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import model_validator

from clustersim.distributions import Constant, Distribution
from clustersim.part import Block
from clustersim.units import Seconds

LOAD = "load"
NODES = "nodes"
CATEGORIES = frozenset(
    {"detect", "diagnose", "reschedule", "wait_for_nodes", "start", "communicators", LOAD, "warm_up", "migrate"}
)
"""Ledger categories that a stage's name may be; any other stage books under ``other``."""


class Stage(Block):
    """One named stage: how long it takes, what must end before it, which resource it needs."""

    time: Distribution
    after: tuple[str, ...] | None = None
    """Names of the stages that must have ended; null: the one written before."""
    needs: str | None = None
    """``nodes``: all replacement nodes; any other name: a resource that one stage at a time may hold."""
    per_gpu: Seconds = 0.0
    """What each GPU of the job adds (an ordered set-up, one after the other)."""
    per_pair: Seconds = 0.0
    """What each pair of GPUs adds: GPUs² of it (every rank at a barrier after the set-up of every rank)."""
    per_doubling: Seconds = 0.0
    """What each doubling of the job adds: log₂ GPUs of it (trees)."""
    per_step: Seconds = 0.0
    """What each step done so far adds (data that are read again from the start to find the place)."""
    books: str | None = None
    """Ledger category; null: the stage's name where that is one, else ``other``."""

    @property
    def grows(self) -> bool:
        """Whether the size of the job matters."""
        return bool(self.per_gpu or self.per_pair or self.per_doubling)

    def extra_s(self, gpus: int) -> float:
        """What the size of the job adds to ``time``, seconds."""
        return self.per_gpu * gpus + self.per_pair * gpus**2 + self.per_doubling * math.log2(max(gpus, 1))

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        """A duration or a distribution is the stage's time."""
        if isinstance(value, dict) and "kind" not in value:
            return value
        return value if isinstance(value, Stage) else {"time": value}


@dataclass(frozen=True)
class Step:
    """One vertex of the graph: ``time`` None is the built-in load."""

    name: str
    category: str
    time: Distribution | None
    after: tuple[int, ...]
    needs: str | None = None
    extra_s: float = 0.0
    """What the size of the job adds to ``time``, seconds."""
    per_step_s: float = 0.0
    """What each step done adds."""

    @functools.cached_property
    def fixed_s(self) -> float | None:
        """The stage's time where it never varies, seconds."""
        fixed = isinstance(self.time, Constant) and not self.per_step_s
        return self.time.value + self.extra_s if fixed and isinstance(self.time, Constant) else None


@dataclass(frozen=True, eq=False)
class Section:
    """Steps of a chain that follow each other, each of a fixed time: booked as one where nothing breaks them off.

    Attributes:
        steps: the steps.
        ends_s: end of each, seconds from the start of the section.
    """

    steps: tuple[Step, ...]
    ends_s: tuple[float, ...]


Spent = tuple[Section | Step, float, float]
"""What time was spent on, when it began, and when it ended or is planned to end (inf: not known)."""


class Link(NamedTuple):
    """One link of a chain: what it is, its first step, whether all places must have a node, and its seconds if fixed."""

    item: Section | Step
    step: Step
    fills: bool
    seconds: float | None


@dataclass(frozen=True)
class StageGraph:
    """Steps in an order in which each stands behind all that it waits for.

    Attributes:
        steps: the vertices.
    """

    steps: tuple[Step, ...]

    @functools.cached_property
    def chain(self) -> bool:
        """Whether every step follows the one before and nothing runs beside it."""
        return all(step.after == ((index - 1,) if index else ()) and step.needs in (None, NODES)
                   for index, step in enumerate(self.steps))  # fmt: skip

    @functools.cached_property
    def fills(self) -> bool:
        """Whether a stage of it waits for nodes."""
        return any(step.needs == NODES for step in self.steps)

    @functools.cached_property
    def line(self) -> tuple[Link, ...]:
        """The steps of a chain, with those of fixed time that follow each other put into sections."""
        line: list[Link] = []
        block: list[Step] = []
        for step in (*self.steps, None):
            if block and (step is None or step.fixed_s is None or step.needs == NODES):
                ends = tuple(itertools.accumulate(each.fixed_s or 0.0 for each in block))
                line.append(Link(Section(tuple(block), ends), block[0], block[0].needs == NODES, ends[-1]))
                block = []
            if step is not None and step.fixed_s is not None:
                block.append(step)
            elif step is not None:
                line.append(Link(step, step, step.time is None or step.needs == NODES, None))
        return tuple(line)

    def mean_s(self, load_s: float) -> float:
        """Length of the critical path with every stage at its mean, resources free, and a load of ``load_s``."""
        ends: list[float] = []
        for step in self.steps:
            start = max((ends[index] for index in step.after), default=0.0)
            ends.append(start + (load_s if step.time is None else step.time.mean_s() + step.extra_s))
        return max(ends, default=0.0)


def problems(stages: dict[str, Stage]) -> str | None:
    """What is wrong with the names in ``after``; None: nothing."""
    for name, stage in stages.items():
        for other in stage.after or ():
            if other not in stages and other != LOAD:
                return f"stage '{name}' waits for '{other}', which is no stage; known: {', '.join([*stages, LOAD])}"
    try:
        build_graph(stages)
    except ValueError as error:
        return str(error)
    return None


def build_graph(
    stages: dict[str, Stage], gpus: int = 1, reads: bool = True, load_after: str | None = None
) -> StageGraph:
    """The graph of ``stages`` with the built-in load.

    Args:
        stages: by name, in written order.
        gpus: size of the job, for stages that grow with it.
        reads: False: nothing is loaded (the state is still there, or comes another way).
        load_after: the stage that the built-in load follows; null: the communicators, else all.

    Raises:
        ValueError: stages wait for each other.
    """
    names, waits = list(stages), dict[str, list[str]]()
    before: str | None = None
    if reads and LOAD not in stages:
        names.insert(names.index("communicators") + 1 if "communicators" in stages else len(names), LOAD)
    for name in names:
        stage = stages.get(name)
        given = stage.after if stage is not None else None
        if given is not None and not reads and LOAD not in stages:
            given = tuple(other for other in given if other != LOAD)
        waits[name] = list(given) if given is not None else [before] if before is not None else []
        before = name
    if reads and LOAD not in stages and "communicators" not in stages:
        waits[LOAD] = list(stages)[-1:] if not any(s.after is not None for s in stages.values()) else list(stages)
        waits[LOAD] = [name for name in waits[LOAD] if LOAD not in (stages[name].after or ())]
    if reads and LOAD not in stages and load_after is not None:
        waits[LOAD] = [load_after] if load_after in stages else []
    order = _sorted(names, waits)
    place = {name: index for index, name in enumerate(order)}
    return StageGraph(tuple(_step(name, stages.get(name), tuple(sorted(place[w] for w in waits[name])), stages, gpus)
                            for name in order))  # fmt: skip


def _step(name: str, stage: Stage | None, after: tuple[int, ...], stages: dict[str, Stage],
          gpus: int) -> Step:  # fmt: skip
    category = stage.books if stage is not None and stage.books else name if name in CATEGORIES else "other"
    if stage is None:
        return Step(name, category, None, after)
    needs = stage.needs
    if needs is None and name == "start" and not any(other.needs == NODES for other in stages.values()):
        needs = NODES
    return Step(name, category, stage.time, after, needs, stage.extra_s(gpus), stage.per_step)


def _sorted(names: list[str], waits: dict[str, list[str]]) -> list[str]:
    """Names in written order as far as the waits allow."""
    order: list[str] = []
    left = list(names)
    while left:
        ready = next((name for name in left if all(other in order for other in waits[name])), None)
        if ready is None:
            raise ValueError(f"the stages {', '.join(left)} wait for each other")
        order.append(ready)
        left.remove(ready)
    return order
