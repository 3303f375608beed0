"""The family of recovery strategies: what happens between the detection of a failure and the next step.

A strategy says what must be done as a graph of stages; the run executes it, hands out nodes, loads the state and,
when another failure strikes, starts again. So a strategy needs no clock and no ``try``: it is asked anew after every
detection.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import model_validator

from clustersim.faults.failure import FailureModel
from clustersim.part import Part
from clustersim.recovery.stages import Stage, StageGraph, build_graph, problems


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


@dataclass(frozen=True)
class Comeback:
    """One attempt to come back.

    Attributes:
        graph: the stages.
        reload: the state is read back from the newest surviving copy.
    """

    graph: StageGraph
    reload: bool = True


class RecoveryStrategy(Part, family="recovery strategy", key="strategy"):
    """How the job comes back."""

    stages: dict[str, Stage] = {}
    cold_start: bool = False
    """The run starts with a recovery (start, communicators, load) instead of a job that is up."""

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

    @functools.cached_property
    def graph(self) -> StageGraph:
        """The stages as a graph."""
        return build_graph(self.stages)

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """What to do after a failure of ``cause`` has been noticed; None: the cold start.

        Raises:
            TypeError: the class does not say.
        """
        raise TypeError(f"{type(self).__name__} does not come back")


class Restart(RecoveryStrategy, kind="restart"):
    """Stop all, replace the failed nodes, start all again from the newest durable checkpoint."""

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """All stages, whatever failed."""
        return Comeback(self.graph)
