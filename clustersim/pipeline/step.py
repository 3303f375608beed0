"""One training step: how long it takes, and where the time goes.

Op costs of each stage → durations on the schedule's compiled graph → replay → the ends of the step (data-parallel
traffic, optimizer) → stragglers and data loading. ``docs/step-model.md`` holds every formula.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.conditions import NORMAL, Conditions, StepTime
from clustersim.pipeline.replay import Timeline
from clustersim.pipeline.schedule import Schedule, get_schedule
from clustersim.pipeline.step_conditions import RankFactors, rank_factors
from clustersim.pipeline.step_costs import COLUMNS, COMPUTE, PP, Floats, StageCosts
from clustersim.pipeline.step_ends import Ends, step_ends
from clustersim.pipeline.step_graph import steady_shapes
from clustersim.pipeline.step_messages import Dispatch, Groups
from clustersim.pipeline.step_plan import Plan
from clustersim.pipeline.step_replay import Replayer
from clustersim.pipeline.step_straggle import straggle_share
from clustersim.workload.layout import Layout
from clustersim.workload.measured import Measured
from clustersim.workload.model import TransformerModel
from clustersim.workload.profile import Profile
from clustersim.workload.stack import Stack, default_stack
from clustersim.workload.training import Training

if TYPE_CHECKING:
    from clustersim.pipeline.step_report import StepReport
    from clustersim.workload.memory import MemoryReport


class StepModel:
    """The step of one job: ask ``step_time`` under any conditions, or for a ``report`` of the nominal one.

    Raises:
        InputError: the layout does not fit the cluster, the batch does not divide, or the schedule is not defined
        there.
    """

    def __init__(
        self,
        *,
        model: TransformerModel,
        cluster: Cluster,
        training: Training,
        layout: Layout,
        schedule: Schedule | str | dict[str, Any],
        stack: Stack | None = None,
        profile: Profile | None = None,
    ) -> None:
        self.stack = stack or training.stack or default_stack(cluster.node.gpu.name)
        self.profile = profile
        self.plan = Plan.of(model, cluster, training, layout, schedule_of(schedule))
        self._plans: dict[tuple[int, bool], StepModel] = {}
        self._known: dict[Conditions, StepTime] = {}
        self._slower: dict[float, StepModel] = {}

    @classmethod
    def of(cls, scenario: Any) -> StepModel:
        """The step model of a scenario (anything with ``model``, ``cluster``, ``training``, ``parallelism``)."""
        layout = scenario.parallelism
        profile = getattr(scenario, "calibration", None)
        return cls(
            model=scenario.model,
            cluster=scenario.cluster,
            training=scenario.training,
            layout=layout,
            schedule=schedule_of(layout.schedule),
            profile=profile if isinstance(profile, Profile) else None,
        )

    @cached_property
    def groups(self) -> Groups:
        """The parallel groups on the cluster."""
        moe = self.plan.model.moe
        dispatch = Dispatch(moe.top_k if moe is not None else 1, self.stack.moe_once_a_node)
        plan = self.plan
        listed = plan.schedule.fsdp
        return Groups(plan.layout, plan.cluster, plan.dp, dispatch, self.stack.ring_wait, self.measured, listed)

    @cached_property
    def measured(self) -> Measured | None:
        """The profile's surfaces and curves, and what was asked beyond them."""
        return None if self.profile is None else Measured(self.profile)

    @cached_property
    def costs(self) -> StageCosts:
        """Costs of ops by stage."""
        return StageCosts(self.plan, self.groups, self.stack, self.profile, self.measured)

    @cached_property
    def straggle(self) -> float:
        """Share of the busiest rank's computation that stragglers add."""
        plan = self.plan
        return straggle_share(self.stack, plan.dp * plan.layout.tp * plan.layout.cp * plan.layout.pp, plan.layout.pp)

    @cached_property
    def ends(self) -> list[Ends]:
        """What each pipeline rank does before its first and after its last op."""
        return step_ends(self)

    def step_time(self, conditions: Conditions = NORMAL) -> StepTime:
        """How long a step takes under ``conditions``; known conditions are looked up.

        Raises:
            ValueError: more replicas are lost than there are.
        """
        known = self._known.get(conditions)
        if known is None:
            known = self._known[conditions] = _scaled(self._step_time(conditions), self.scale)
        return known

    @cached_property
    def scale(self) -> float:
        """The nominal step that the training gives ÷ the modelled one; 1 where none is given."""
        given = self.plan.training.step_time
        return 1.0 if given is None else given / self._step_time(NORMAL).seconds

    def _step_time(self, conditions: Conditions) -> StepTime:
        if conditions.lost_replicas:
            return self._with_fewer(conditions)
        factors = rank_factors(conditions, self.plan, self.groups)
        slowest = float(factors.data.max())
        if slowest > 1 and self.groups.shards.parameters > 1:  # gathers that may no longer hide: priced anew
            return self._with_slower_gathers(slowest)._assembled(factors)
        return self._assembled(factors)

    def _with_slower_gathers(self, factor: float) -> StepModel:
        """The step whose gathers and scatters of each pass take ``factor`` as long."""
        if factor not in self._slower:
            self._slower[factor] = slower = self._sibling(self.plan)
            slower.costs = replace(self.costs, slowed=factor)
        return self._slower[factor]

    def _sibling(self, plan: Plan) -> StepModel:
        """A step model of another plan with the same stack and profile, as modelled: who asks it scales its answer."""
        made = StepModel.__new__(StepModel)
        made.stack, made.profile, made.plan = self.stack, self.profile, plan
        made._plans, made._known, made._slower, made.scale = {}, {}, {}, 1.0
        return made

    def _with_fewer(self, conditions: Conditions) -> StepTime:
        """The step of the replicas that are left; slow nodes keep their factors."""
        if conditions.lost_replicas >= self.plan.dp:
            raise ValueError(f"{conditions.lost_replicas} replicas lost of {self.plan.dp}")
        key = (conditions.lost_replicas, conditions.keep_batch)
        if key not in self._plans:
            self._plans[key] = self._sibling(
                self.plan.with_replicas(self.plan.dp - conditions.lost_replicas, conditions.keep_batch)
            )
        left = Conditions(conditions.slow, conditions.slow_gpus, conditions.slow_links, saving=conditions.saving)
        return self._plans[key].step_time(left)

    @cached_property
    def replayers(self) -> tuple[Replayer, ...]:
        """One replayer; two whose difference is a step, for a schedule without flush."""
        steady = steady_shapes(self.plan.schedule, self.plan.pipe)
        shapes = (self.plan.shape,) if steady is None else steady
        return tuple(Replayer(shape, self.costs) for shape in shapes)

    def _replayed(self, factors: RankFactors, *, gathers: bool = True) -> tuple[Floats, Floats]:
        """(distinct replicas, ranks) when each pipeline rank ends, and (ranks, columns) what it spent nominally."""
        every = [(replayer.ends(factors, gathers=gathers), replayer.spent) for replayer in self.replayers]
        ends, spent = every[-1]
        if len(every) == 1:
            return ends, spent
        longer = ends.max() - every[0][0].max()
        return np.full_like(ends, longer), spent - every[0][1]

    def _assembled(self, factors: RankFactors) -> StepTime:
        replayed, spent = self._replayed(factors)
        head = float((np.array([end.head for end in self.ends]) * factors.data).max())
        tails = np.array([end.tail for end in self.ends]) * factors.data
        updates = np.array([end.update for end in self.ends])
        total = head + replayed.max(axis=0) + tails + updates
        critical = int(np.argmax(total))
        replica = int(np.argmax(replayed[:, critical]))
        spent = spent.copy()
        spent[:, COMPUTE] *= factors.compute[replica][:, None]
        spent[:, PP] *= factors.sends
        parts = _grouped(spent[critical])
        ended, waited = float(replayed[replica, critical]), 0.0
        if self.plan.shape.lists_gathers:
            waited = max(0.0, ended - float(self._replayed(factors, gathers=False)[0][replica, critical]))
        parts["bubble"] = max(0.0, ended - waited - math.fsum(parts.values()))
        parts["dp"] += head + waited + float(tails[critical])
        parts["optimizer"] = float(updates[critical])
        parts["straggler"] = self.straggle * float(spent[:, COMPUTE].sum(axis=1).max())
        parts["data"] = data_stall(self.plan.training, math.fsum(parts.values()))
        return StepTime(math.fsum(parts.values()), MappingProxyType(parts), self.plan.tokens, critical)

    @property
    def pipeline_seconds(self) -> float:
        """Seconds of the nominal step's pipeline ops; from step to step, for a schedule without flush."""
        return float(self._replayed(rank_factors(NORMAL, self.plan, self.groups), gathers=False)[0].max())

    def check_memory(self) -> MemoryReport:
        """The memory of every pipeline rank of a job that fits.

        Raises:
            DoesNotFit: which rank is over, by how much, what takes the space, and what would make it fit.
        """
        from clustersim.pipeline.step_memory import checked_memory

        return checked_memory(self)

    def timeline(self, *, gathers: bool = True) -> Timeline:
        """When each op of the nominal step runs (pipeline ops of one replica); ``gathers`` as in ``Replayer``."""
        factors = rank_factors(NORMAL, self.plan, self.groups)
        return Replayer(self.plan.shape, self.costs).timeline(factors, gathers=gathers)

    def report(self) -> StepReport:
        """All figures of the nominal step."""
        from clustersim.pipeline.step_report import report_of

        return report_of(self)


def schedule_of(value: Any) -> Schedule:
    """A schedule from what a scenario holds: the part itself, a name, or a mapping."""
    if isinstance(value, (str, Schedule)):
        return get_schedule(value)
    return Schedule.build(value)


def _scaled(time: StepTime, scale: float) -> StepTime:
    """A step that takes ``scale`` times as long, each part of it alike."""
    if scale == 1.0:
        return time
    parts = {name: seconds * scale for name, seconds in time.breakdown.items()}
    return time._replace(seconds=time.seconds * scale, breakdown=MappingProxyType(parts))


def _grouped(row: Floats) -> dict[str, float]:
    """Columns of the cost table as the report's categories."""
    named = dict(zip(COLUMNS, (float(value) for value in row), strict=True))
    compute = math.fsum(named.pop(name) for name in COLUMNS[COMPUTE])
    return {"compute": compute, "bubble": 0.0, **named}


def data_stall(training: Training, step: float) -> float:
    """Seconds a step that data loading adds.

    Loading runs beside the step: what shows is its surplus over the step, and of a stall what outlasts the steps loaded
    ahead, spread over the steps between stalls. Without prefetch, loading and step alternate.
    """
    data = training.data
    if data.prefetch == 0:
        return data.time + data.stall / data.stall_every
    surplus = max(0.0, data.time - step)
    ahead = data.prefetch * max(0.0, step - data.time)
    return surplus + max(0.0, data.stall - ahead) / data.stall_every
