"""Exact answers for single candidates of a search: does it fit, and how long is its step."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from clustersim.errors import InputError
from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.conditions import StepTime
from clustersim.pipeline.schedule import Schedule, get_schedule
from clustersim.pipeline.search_bound import Bounds, layout_of, training_of
from clustersim.pipeline.search_space import Choice, Space
from clustersim.pipeline.step import StepModel
from clustersim.workload.kept import unit_of
from clustersim.workload.layout import Layout
from clustersim.workload.memory import Memory
from clustersim.workload.model import TransformerModel
from clustersim.workload.stack import Stack
from clustersim.workload.training import Training

SURE = 0.75
"""Where even this share of a schedule's declared activations does not fit, its op list is not built to make sure. Op
lists hold at least 0.8 of what their schedule declares (tests)."""
KEPT_MODELS = 64


class Fit(NamedTuple):
    """Memory of the fullest rank against its limit."""

    fits: bool
    """Whether it has room for usual fragmentation, too: a search proposes no layout that fits only tightly."""
    peak_bytes: float
    limit_bytes: float
    exact: bool
    """Whether units in flight were counted in the op list, or taken from the schedule's declaration."""

    tight: bool = False
    """Whether it would fit if its allocator lost less than usual to fragmentation."""

    @property
    def verdict(self) -> str:
        """In words, of one without room."""
        return "fits only tightly" if self.tight else "does not fit"

    @property
    def over_bytes(self) -> float:
        """Bytes over the limit (negative: to spare)."""
        return self.peak_bytes - self.limit_bytes


class Evaluator:
    """Step models of candidates of one job.

    A step of many microbatches is taken from two shorter ones where the schedule repeats itself every ``pp``
    microbatches (m divisible by pp): its time is a straight line in m once the pipeline is full.
    """

    def __init__(
        self, model: TransformerModel, cluster: Cluster, training: Training, space: Space, base: Layout, stack: Stack
    ) -> None:
        self.model, self.cluster, self.training, self.space = model, cluster, training, space
        self.base, self.stack = base, stack
        self.bounds = Bounds(model, cluster, training, space, base, stack)
        self._parts: dict[str, Schedule] = {name: get_schedule(name) for name in space.schedules}
        self._models: OrderedDict[Choice, StepModel] = OrderedDict()
        self._fits: dict[Choice, Fit] = {}
        self._times: dict[Choice, StepTime] = {}

    def step_model(self, choice: Choice, microbatches: int | None = None) -> StepModel:
        """The step model of a choice, of as many microbatches as it has or of ``microbatches``."""
        sized = choice if microbatches is None else choice._replace(microbatches=microbatches)
        if sized not in self._models:
            training = training_of(choice, self.training, self.space).model_copy(
                update={"global_batch": choice.dp * choice.micro_batch * sized.microbatches}
            )
            part = self._parts[choice.schedule]
            schedule = part.model_copy(update={"slices": choice.slices}) if part.traits.sliced else part
            self._models[sized] = StepModel(
                model=self.model,
                cluster=self.cluster,
                training=training,
                layout=layout_of(choice, self.base),
                schedule=schedule,
                stack=self.stack,
            )
            while len(self._models) > KEPT_MODELS:
                self._models.popitem(last=False)
        return self._models[sized]

    def fit(self, choice: Choice, certain: bool = False) -> Fit:
        """Whether a choice fits. ``certain`` counts units in flight in the op list in any case."""
        known = self._fits.get(choice)
        if known is None or (certain and not known.exact):
            known = self._fits[choice] = self._exact_fit(choice) if certain else self._fit(choice)
        return known

    def _fit(self, choice: Choice) -> Fit:
        declared = self._declared(choice, 1.0)
        if declared.fits:
            return declared
        least = self._declared(choice, SURE)
        return self._exact_fit(choice) if least.fits else least

    def _exact_fit(self, choice: Choice) -> Fit:
        from clustersim.pipeline.step_memory import memory_report

        report = memory_report(self.step_model(choice, self._short(choice)))
        return Fit(report.roomy, report.peak_bytes, report.limit_bytes, True, report.tight)

    def _declared(self, choice: Choice, share: float) -> Fit:
        """Memory with the activations that the schedule declares, times ``share``."""
        part, pipe = self._parts[choice.schedule], choice.pipe()
        costs = self.bounds._price(choice)
        training = training_of(choice, self.training, self.space)
        unit = unit_of(costs.plan.cut, self.stack, training.precision)
        stages = self.bounds._contents_of(choice.pp * choice.chunks)
        held = part.stage_rank(pipe)
        per_chain = len(held) // part.chains
        ranks = tuple(
            tuple(s for s, rank in enumerate(held) if rank == r) for r in sorted({0, choice.pp // 2, choice.pp - 1})
        )
        flights = [self._flight(part, choice, mine[0]) for mine in ((held[r[0]],) for r in ranks)]
        memory = Memory(
            self.model, training, layout_of(choice, self.base), unit, choice.dp,
            tuple(tuple(stages[s % per_chain] for s in mine) for mine in ranks),
            tuple(tuple(share * flight * choice.chunks * choice.slices / len(mine) for _ in mine)
                  for mine, flight in zip(ranks, flights, strict=True)),
            tuple(self.cluster.node.gpu.memory for _ in ranks),
        )  # fmt: skip
        report = memory.report()
        return Fit(report.roomy, report.peak_bytes, report.limit_bytes, False, report.tight)

    def _flight(self, part: Schedule, choice: Choice, rank: int) -> float:
        return part.in_flight(choice.pipe(), rank) if choice.pp > 1 else 1.0

    def _short(self, choice: Choice) -> int | None:
        """Microbatches of a shorter step with the same steady state; None where the whole step is needed."""
        pp, count = choice.pp, choice.microbatches
        if pp == 1:
            return 2 if count > 3 else None
        if count % pp or count <= 4 * pp or choice.schedule in ("gpipe", "looped-bfs", "terapipe"):
            return None
        return 3 * pp

    def time(self, choice: Choice) -> StepTime:
        """The step of a choice.

        Raises:
            InputError: the step model refuses the choice.
        """
        if choice not in self._times:
            self._times[choice] = self._time(choice)
        return self._times[choice]

    def _time(self, choice: Choice) -> StepTime:
        short = self._short(choice)
        if short is None:
            return self.step_model(choice).step_time()
        more = short + choice.pp
        first, second = (self.step_model(choice, count).step_time() for count in (short, more))
        scale = (choice.microbatches - short) / (more - short)
        return _extended(first, second, scale, choice)

    def whole(self, choice: Choice) -> StepTime:
        """The step of a choice with all its microbatches replayed."""
        return self.step_model(choice).step_time()


def _extended(first: StepTime, second: StepTime, scale: float, choice: Choice) -> StepTime:
    """The straight line through two steps, ``scale`` times their distance beyond the first."""
    from types import MappingProxyType

    parts = {
        name: first.breakdown[name] + scale * (second.breakdown[name] - first.breakdown[name])
        for name in first.breakdown
    }
    tokens = first.tokens + scale * (second.tokens - first.tokens)
    return StepTime(
        first.seconds + scale * (second.seconds - first.seconds), MappingProxyType(parts), tokens, second.critical_rank
    )


__all__ = ["Evaluator", "Fit", "InputError"]
