"""The family of recovery strategies: what happens between the detection of a failure and the next step.

A strategy says what must be done as a graph of stages; the run executes it, hands out nodes, loads the state and,
when another failure strikes, starts again. So a strategy needs no clock and no ``try``: it is asked anew after every
detection. It is asked four things: whether the state of the last step outlives a loss (``keeps``), how to come back
(``comeback``), under which conditions the step runs while places stand empty (``conditions``), and how a place is
taken back in (``rejoin``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pydantic import Field, model_validator

from clustersim.distributions import Constant, Distribution
from clustersim.faults.failure import FailureModel, Severity
from clustersim.part import Block, Part
from clustersim.recovery.answers import checked, seconds, share
from clustersim.recovery.ground import Ground
from clustersim.recovery.stages import Stage, StageGraph, build_graph, problems
from clustersim.units import Seconds

if TYPE_CHECKING:
    from clustersim.pipeline.conditions import Conditions


class Loss(NamedTuple):
    """What has been lost since the job last trained.

    Attributes:
        cause: the latest failure.
        severities: of all failures since.
        places: whose node, or whose processes, have been lost.
        everywhere: a failure of the job as a whole: every process is gone.
        repair_s: the longest repair that is to come, as far as it can be foreseen, seconds.
    """

    cause: FailureModel | None = None
    severities: frozenset[Severity] = frozenset()
    places: frozenset[int] = frozenset()
    everywhere: bool = False
    repair_s: float = 0.0

    def also(self, cause: FailureModel, places: frozenset[int], everywhere: bool, repair_s: float) -> Loss:
        """With one failure more."""
        longest = max(self.repair_s, repair_s) if cause.severity.takes_nodes else self.repair_s
        return Loss(
            cause, self.severities | {cause.severity}, self.places | places, self.everywhere or everywhere, longest
        )


NOTHING = Loss()


class JobView(Protocol):
    """What a strategy may see of the job."""

    @property
    def step(self) -> int:
        """Steps done in the state that will be restored."""

    @property
    def vacant(self) -> int:
        """Places of the job without a node."""

    @property
    def spares(self) -> int:
        """Spare nodes that stand ready."""

    @property
    def nodes(self) -> int:
        """Places of the job."""

    @property
    def ground(self) -> Ground:
        """Sizes, layout, bytes."""

    @property
    def loss(self) -> Loss:
        """What has been lost since the job last trained."""

    @property
    def kept(self) -> bool:
        """Whether the state of the last step is still there."""

    @property
    def away(self) -> frozenset[int]:
        """Places that do not train: without a node, or with one that is not yet ready."""

    @property
    def vacancies(self) -> frozenset[int]:
        """Places without a node."""


class Comeback(NamedTuple):
    """One attempt to come back.

    Attributes:
        graph: the stages.
        waits: every place gets a node before the job goes on; False: it goes on with those that are there.
        away: places that are left out although they have a node (their processes start beside the training).
        path: which of its ways the strategy takes, for the log.
        mends: the state is put together from what is left instead of restored.
    """

    graph: StageGraph
    waits: bool = True
    away: frozenset[int] = frozenset()
    path: str = ""
    mends: bool = False


class Diagnosis(Block):
    """A diagnosis that may be wrong: a healthy node is taken out, and the failure shows again."""

    wrong: float = Field(default=0.0, ge=0, le=1)
    """Probability that a healthy node is blamed."""
    relapse: Distribution = Constant(value=600.0)
    """From the diagnosis until the faulty node, still in its place, fails again."""
    check: Distribution = Constant(value=3600.0)
    """How long the healthy node is away."""


class DeadSpares(Block):
    """Spares that turn out not to work when they are put in."""

    share: float = Field(default=0.0, ge=0, le=1)
    """Probability that a spare is dead."""
    found: Distribution = Constant(value=60.0)
    """How long it takes to find out; the recovery then starts again."""


class Migration(Block):
    """Swapping a node that still works: the joiner gets ready beside the training, which then stops at a step's end."""

    notice: Seconds = 1800.0
    """How long the node still works after a planned failure has been announced; when no spare has come by then, the failure
    strikes."""
    prepare: Distribution = Constant(value=0.0)
    """What the joiner needs before the training stops."""
    stages: dict[str, Stage] = {}
    """What happens while the training stands still."""


class RecoveryStrategy(Part, family="recovery strategy", key="strategy", implied="restart"):
    """How the job comes back."""

    stages: dict[str, Stage] = {}
    cold_start: bool = False
    """The run starts with a recovery (start, communicators, load) instead of a job that is up."""
    heartbeat: Seconds | None = None
    """A failure is noticed after this at the latest; null: after the failure's own ``detection``."""
    diagnosis: Diagnosis = Diagnosis()
    dead_spares: DeadSpares = DeadSpares()
    migration: Migration | None = None
    """Planned failures of nodes are met by a swap at a step's end; null: they strike like any other."""

    @classmethod
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.partition(".")[0] != "clustersim":  # a plug-in's: its answers are looked at
            for name, (fits, what) in _ANSWERS.items():
                if name in cls.__dict__:
                    setattr(cls, name, checked(cls.__dict__[name], name, fits, what))

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """``strategy`` names the kind in the scenario (``recovery: {strategy: restart, stages: …}``)."""
        if isinstance(value, dict) and "strategy" in value:
            strategy = value["strategy"]
            rest = {key: item for key, item in value.items() if key != "strategy"}
            return {**rest, **strategy} if isinstance(strategy, dict) else {**rest, "kind": strategy}
        return super().short_form(value)

    @model_validator(mode="after")
    def _stages_fit(self) -> RecoveryStrategy:
        problem = problems(self.stages)
        if problem:
            raise ValueError(problem)
        return self

    # -- graphs

    @functools.cached_property
    def graph(self) -> StageGraph:
        """The stages of a full restart as a graph, for a job of one GPU."""
        return build_graph(self.stages)

    @property
    def rejoins(self) -> bool:
        """Whether nodes that come back while the job trains matter to it."""
        return self.migration is not None

    @functools.cached_property
    def _grows(self) -> bool:
        return any(stage.grows for stage in self.stages.values())

    @functools.cached_property
    def _started(self) -> Distribution:
        return Constant(value=sum(stage.time.mean_s() for stage in self.picked("start", "warm_up").values()))

    @functools.cached_property
    def _graphs(self) -> dict[Any, StageGraph]:
        return {}

    def full(self, gpus: int) -> StageGraph:
        """All stages of a full restart, for a job of ``gpus``."""
        if not self._grows:
            return self.graph
        return self.made("full", gpus, lambda: self.stages)

    def made(self, name: str, gpus: int, stages: Callable[[], dict[str, Stage]], reads: bool = True,
             load_after: str | None = None) -> StageGraph:  # fmt: skip
        """The graph of the stages that ``stages()`` names, built once a ``name``; see ``build_graph``."""
        key = (name, gpus, reads)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = build_graph(stages(), gpus, reads, load_after)
        return graph

    def picked(self, *names: str) -> dict[str, Stage]:
        """Those of the full restart's stages that are named, one after the other as written."""
        return {name: stage.model_copy(update={"after": None}) for name, stage in self.stages.items() if name in names}

    # -- what a strategy answers

    def choose(self, job: JobView) -> RecoveryStrategy:
        """Who answers for the loss at hand: itself, unless it is a mixture."""
        return self

    def keeps(self, job: JobView) -> bool:
        """Whether the state of the last finished step outlives ``job.loss`` (so far it has been kept)."""
        return False

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """What to do after a failure of ``cause`` has been noticed; None: the cold start.

        Raises:
            TypeError: the class does not say.
        """
        raise TypeError(f"{type(self).__name__} does not come back")

    def conditions(self, away: frozenset[int], ground: Ground) -> Conditions | None:
        """Under which conditions a step runs without the nodes of ``away``; None: it cannot."""
        from clustersim.pipeline.conditions import NORMAL

        return None if away else NORMAL

    def idle(self, place: int, away: frozenset[int], ground: Ground) -> bool:
        """Whether the node of a place does nothing for the training while ``away`` is left out."""
        return place in away

    def prepare(self) -> Distribution:
        """What a node that comes back needs before it can join, beside the training."""
        return self._started

    def rejoin(self, job: JobView) -> StageGraph:
        """What happens, while the training stands still, when places are taken back in."""
        return self.made("rejoin", job.ground.gpus, lambda: self.picked("communicators"), reads=False)

    def overhead_s(self, ground: Ground) -> float:
        """What the strategy adds to every step, seconds."""
        return 0.0

    def progress(self, mended: int) -> float:
        """What a step is worth after the state has been mended (not restored) ``mended`` times; 1: a whole step."""
        return 1.0

    def costs(self, ground: Ground) -> Costs:
        """What the strategy holds ready and moves."""
        return Costs()


@dataclass(frozen=True)
class Costs:
    """What a strategy holds ready, and moves, to come back as it does.

    Attributes:
        memory: bytes a node, beside what training holds.
        per_step: bytes that each node sends a step.
        per_recovery: bytes that all nodes together move in a recovery, storage apart.
    """

    memory: float = 0.0
    per_step: float = 0.0
    per_recovery: float = 0.0


_ANSWERS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "comeback": (lambda answer: isinstance(answer, Comeback), "a Comeback"),
    "rejoin": (lambda answer: isinstance(answer, StageGraph), "a StageGraph"),
    "prepare": (lambda answer: isinstance(answer, Distribution), "a Distribution"),
    "costs": (lambda answer: isinstance(answer, Costs), "Costs"),
    "overhead_s": (seconds, "seconds, 0 or more"),
    "progress": (share, "a share above 0, at most 1"),
}
"""What a method's answer must be."""


class Restart(RecoveryStrategy, kind="restart", aliases=("requeue",)):
    """Stop all, replace the failed nodes, start all again from the newest durable checkpoint."""

    lossless: bool = False
    """An idealisation that studies of availability make: no work is ever lost, a failure costs the stages alone."""

    @functools.cached_property
    def _ways(self) -> dict[tuple[int, bool], Comeback]:
        return {}

    def keeps(self, job: JobView) -> bool:
        return self.lossless

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """All stages, whatever failed."""
        gpus, reads = job.ground.gpus, not (self.lossless and job.kept)
        way = self._ways.get((gpus, reads))
        if way is None:
            graph = self.full(gpus) if reads else self.made("lossless", gpus, lambda: self.stages, reads=False)
            way = self._ways[gpus, reads] = Comeback(graph, path="restart")
        return way
