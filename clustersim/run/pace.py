"""The pace of training: what a step takes under given conditions, and to which ledger category its excess belongs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from clustersim.checkpoint.pattern import Pace
from clustersim.faults.silent import SilentCorruption

if TYPE_CHECKING:
    from clustersim.faults.failure import FailureModel
    from clustersim.pipeline.conditions import Conditions, StepTime


class StepSource(Protocol):
    """What the run asks how long a step takes: a ``StepModel``, or a fake."""

    def step_time(self, conditions: Conditions) -> StepTime:
        """The step under ``conditions``."""


@dataclass(frozen=True)
class FixedStep:
    """A step of a given time, for runs that do not ask the step model.

    Attributes:
        seconds: time of one step.
        mfu: model FLOP utilisation of an undisturbed step; None: unknown.
    """

    seconds: float
    mfu: float | None = None


@dataclass(frozen=True)
class NoisyStep:
    """A step source of which every step takes ``factor`` times as long: one run's luck with its machines.

    Attributes:
        source: the steps without noise.
        factor: drawn once a run from ``training.step_noise``.
        mfu: model FLOP utilisation of an undisturbed step of this run; None: unknown.
        breakdown_s: where an undisturbed step's time goes; empty: unknown.
    """

    source: StepSource
    factor: float
    mfu: float | None = None
    breakdown_s: dict[str, float] = field(default_factory=dict)

    def step_time(self, conditions: Conditions) -> StepTime:
        """The source's step, stretched."""
        found = self.source.step_time(conditions)
        return found._replace(seconds=found.seconds * self.factor)


Step = FixedStep | StepSource | float


class Paces:
    """Paces of a scenario.

    Args:
        scenario: gives the step model where ``step`` is None.
        step: seconds of every step, a ``FixedStep``, or something with ``step_time(conditions)``.
        slowdown: factor on steps that start while a save is in flight.

    Attributes:
        nominal: the undisturbed pace.
        mfu: model FLOP utilisation of an undisturbed step; None: unknown.
        saving: share of the nodes' network bandwidth that saves in flight take, unless a question says otherwise.
        breakdown_s: where an undisturbed step's time goes; empty: unknown.
    """

    def __init__(self, scenario: Any, step: Step | None, slowdown: float = 1.0) -> None:
        self._slowdown = slowdown
        self._source: StepSource | None = None
        self._dp: int = getattr(scenario, "dp", 1)
        self._thin: dict[tuple[Conditions, float, float], Pace] = {}
        self.mfu: float | None = None
        self.breakdown_s: dict[str, float] = {}
        self.saving = 0.0
        if step is None:
            from clustersim.pipeline.step import StepModel

            model = StepModel.of(scenario)
            report = model.report()
            self._source, self.mfu, self.breakdown_s = model, report.mfu, dict(report.breakdown_s)
        elif isinstance(step, (int, float)):
            step = FixedStep(float(step))
        if isinstance(step, FixedStep):
            seconds, self.mfu = step.seconds, step.mfu
            self._tokens = 1.0
        else:
            from clustersim.pipeline.conditions import Conditions

            if self._source is None:
                self._source, self.mfu = step, getattr(step, "mfu", None)
                self.breakdown_s = dict(getattr(step, "breakdown_s", {}))
            assert self._source is not None
            seconds, self._tokens = self._measure(Conditions())
        self.nominal = Pace(seconds, seconds * slowdown, seconds)

    def noisy(self, factor: float) -> FixedStep | NoisyStep:
        """The same steps, each ``factor`` times as long."""
        mfu = None if self.mfu is None else self.mfu / factor
        if self._source is None:
            return FixedStep(self.nominal.step_s * factor, mfu)
        parts = {name: seconds * factor for name, seconds in self.breakdown_s.items()}
        return NoisyStep(self._source, factor, mfu, parts)

    @property
    def flexible(self) -> bool:
        """Whether the step depends on conditions; a fixed one does not."""
        return self._source is not None

    def _measure(self, conditions: Conditions) -> tuple[float, float]:
        assert self._source is not None
        found = self._source.step_time(conditions)
        return found.seconds, found.tokens

    def under(self, conditions: Conditions, saving: float | None = None) -> Pace:
        """The pace under ``conditions``.

        A step books nominal time × its tokens ÷ nominal tokens as training; what slow nodes, GPUs and links add to the
        step of the replicas that are left is ``straggle``; what that step takes beyond its training is ``degraded``.

        Args:
            conditions: what is out of order.
            saving: share of the nodes' network bandwidth that a save in flight takes; None: ``self.saving``.

        Raises:
            ValueError: the step is a fixed one, which knows no conditions.
        """
        if self._source is None:
            raise ValueError("a fixed step knows no conditions; give a step model")
        saving = self.saving if saving is None else saving
        seconds, tokens = self._measure(conditions)
        whole, _ = self._measure(replace(conditions, slow=(), slow_gpus=(), slow_links=(), saving=0.0))
        beside = self._measure(replace(conditions, saving=saving))[0] if saving else seconds
        nominal = self.nominal.nominal_s * tokens / self._tokens
        return Pace(seconds, beside * self._slowdown, nominal, seconds - whole, whole - nominal)

    def thinned(self, conditions: Conditions, overhead_s: float = 0.0, progress: float = 1.0) -> Pace | None:
        """The pace of a job whose recovery strategy makes it run under ``conditions``; None: the nominal one.

        All that a step takes beyond its training is ``degraded``. Of a fixed step replicas that are lost take their share of
        the tokens with them (or, with ``keep_batch``, leave their work to the others), and slow nodes slow all of it.

        Args:
            conditions: replicas that are gone, nodes that do the work of others.
            overhead_s: what the strategy adds to every step, seconds.
            progress: what a step is worth, in steps of a job that lost nothing.
        """
        if conditions.nominal and not overhead_s and progress == 1.0:
            return None
        key = (conditions, overhead_s, progress)
        if key not in self._thin:
            seconds, share = self._work(conditions)
            step, nominal = seconds + overhead_s, self.nominal.nominal_s * share * progress
            self._thin[key] = Pace(step, step * self._slowdown, nominal, 0.0, step - nominal)
        return self._thin[key]

    def _work(self, conditions: Conditions) -> tuple[float, float]:
        """Seconds of a step and its share of the nominal tokens."""
        if self._source is not None:
            seconds, tokens = self._measure(conditions)
            return seconds, tokens / self._tokens
        left = 1.0 - conditions.lost_replicas / self._dp
        factor = max((1.0, *(factor for _, factor in (*conditions.slow, *conditions.slow_gpus))))
        if conditions.keep_batch:
            return self.nominal.step_s * factor / left, 1.0
        return self.nominal.step_s * factor, left


def check_overhead(causes: tuple[FailureModel, ...]) -> float:
    """Share of training time that checks for silent corruption cost, all together."""
    return sum(cause.overhead for cause in causes if isinstance(cause, SilentCorruption))


def slowed_place(what: str, place: int, factor: float, places: int) -> Conditions:
    """One place that computes, or whose links carry, by a factor slower; ``cluster``: the links of all."""
    from clustersim.pipeline.conditions import Conditions

    if what == "compute":
        return Conditions(slow=((place, factor),))
    if what == "link":
        return Conditions(slow_links=((place, 1 / factor),))
    return Conditions(slow_links=tuple((each, 1 / factor) for each in range(places)))


__all__ = ["FixedStep", "NoisyStep", "Pace", "Paces", "Step", "StepSource"]
