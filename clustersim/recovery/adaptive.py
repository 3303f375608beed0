"""Mixtures: which strategy answers is decided at each failure."""

from __future__ import annotations

import functools

from pydantic import Field

from clustersim.faults.failure import FailureModel, Severity
from clustersim.part import Block
from clustersim.pipeline.conditions import Conditions
from clustersim.recovery.ground import Ground
from clustersim.recovery.shrinking import Shrinking
from clustersim.recovery.strategy import Comeback, JobView, RecoveryStrategy
from clustersim.units import Seconds


class Rule(Block):
    """One line of a mixture: where all that is given holds, ``use`` answers."""

    use: RecoveryStrategy
    severity: tuple[Severity, ...] = ()
    """The failure is one of these; empty: any."""
    spares: bool | None = None
    """Whether spares reach for all places that stand empty; null: no matter."""
    nodes_at_most: int | None = Field(default=None, ge=0)
    """No more nodes are lost."""
    repair_over: Seconds | None = None
    """The repair is expected to take longer than this."""
    repair_under: Seconds | None = None
    """The repair is expected to take less than this."""

    def holds(self, job: JobView) -> bool:
        """Whether the line applies to the loss at hand."""
        loss = job.loss
        lost = len(loss.places) if any(severity.takes_nodes for severity in loss.severities) else 0
        return (
            (not self.severity or bool(loss.severities & set(self.severity)))
            and (self.spares is None or self.spares == (job.spares >= job.vacant + lost))
            and (self.nodes_at_most is None or lost <= self.nodes_at_most)
            and (self.repair_over is None or loss.repair_s > self.repair_over)
            and (self.repair_under is None or loss.repair_s < self.repair_under)
        )


class Adaptive(RecoveryStrategy, kind="adaptive"):
    """The first of ``rules`` that holds says which strategy answers; those without ``stages`` of their own have this one's.

    Without rules: processes that failed are restarted in place; spares take the places of lost nodes while they reach; a
    repair longer than ``patience`` makes the job go on with fewer replicas; else it waits and restarts. A repair time is
    taken to be known when the node fails.
    """

    rules: tuple[Rule, ...] = ()
    patience: Seconds = 600.0

    @functools.cached_property
    def lines(self) -> tuple[Rule, ...]:
        """The rules in force, strategies with their stages."""
        rules = self.rules or (
            Rule(use=RecoveryStrategy.build("in-process"), severity=(Severity.PROCESS,)),
            Rule(use=RecoveryStrategy.build("hot-spare"), spares=True),
            Rule(use=RecoveryStrategy.build("elastic"), repair_over=self.patience),
        )
        return tuple(rule.model_copy(update={"use": self._with_stages(rule.use)}) for rule in rules)

    def _with_stages(self, strategy: RecoveryStrategy) -> RecoveryStrategy:
        if strategy.stages:
            return strategy
        return type(strategy).model_validate({**{name: getattr(strategy, name) for name in strategy.model_fields_set},
                                              "stages": self.stages})  # fmt: skip

    @functools.cached_property
    def _last(self) -> RecoveryStrategy:
        return self._with_stages(RecoveryStrategy.build("restart"))

    @property
    def rejoins(self) -> bool:
        """Nodes that come back matter as soon as one strategy takes them in."""
        return super().rejoins or any(rule.use.rejoins for rule in self.lines)

    def choose(self, job: JobView) -> RecoveryStrategy:
        """The first rule that holds; while places stand empty only those that can do without them, or fill them."""
        lost = len(job.loss.places) if any(severity.takes_nodes for severity in job.loss.severities) else 0
        full = job.spares >= job.vacant + lost
        for rule in self.lines:
            if rule.holds(job) and (not job.away or full or isinstance(rule.use, Shrinking)):
                return rule.use
        return self._last

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """The cold start; failures are answered by whom ``choose`` names."""
        return Comeback(self.full(job.ground.gpus), path="restart")

    def conditions(self, away: frozenset[int], ground: Ground) -> Conditions | None:
        """Those of the first strategy that can do without these places."""
        found = (rule.use.conditions(away, ground) for rule in self.lines)
        return next((conditions for conditions in found if conditions is not None), None)
