"""Memory of every pipeline rank of a step: the memory model fed with the schedule's own units in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from clustersim.pipeline.activations import in_flight_at_peak
from clustersim.workload.fit import check
from clustersim.workload.kept import pending_bytes, stage_kept_bytes, unit_of
from clustersim.workload.memory import Memory, MemoryReport
from clustersim.workload.stages import StageContent

if TYPE_CHECKING:
    from clustersim.pipeline.step import StepModel


@dataclass(frozen=True, eq=False)
class UnitBytes:
    """(stages,) bytes of activations that one unit keeps on each stage of a step: ``kept`` from its F to its B or I,
    ``pending`` from its I to its W."""

    kept: npt.NDArray[np.float64]
    pending: npt.NDArray[np.float64]

    @classmethod
    def of(cls, step: StepModel) -> UnitBytes:
        """Those of a step's job, offloaded shares still among them."""
        plan = step.plan
        unit, contents = unit_of(plan.cut, step.stack, plan.training.precision), _contents(step)
        kept = {stage: stage_kept_bytes(plan.model, unit, plan.training.recompute, stage) for stage in set(contents)}
        later = {stage: pending_bytes(plan.model, unit, stage) for stage in kept}
        return cls(np.array([kept[stage] for stage in contents]), np.array([later[stage] for stage in contents]))


def _contents(step: StepModel) -> list[StageContent]:
    """What each stage of the schedule's graph holds, the chains one after the other."""
    shape = step.plan.shape
    return [step.costs.stage_contents[stage % shape.per_chain] for stage in range(shape.graph.stages)]


def step_memory(step: StepModel) -> Memory:
    """The memory model of a step's job."""
    plan, costs = step.plan, step.costs
    unit = unit_of(plan.cut, step.stack, plan.training.precision)
    contents, sizes = _contents(step), UnitBytes.of(step)
    held = in_flight_at_peak(plan.shape.graph, sizes.kept, sizes.pending)
    shared = getattr(plan.schedule, "vocabulary_parallel", "none") != "none"
    return Memory(
        plan.model,
        plan.training,
        plan.layout,
        unit,
        plan.dp,
        tuple(tuple(contents[stage] for stage in counts) for counts in held),
        tuple(tuple(counts.values()) for counts in held),
        tuple(gpu.memory for gpu in costs.gpus),
        plan.layout.pp if shared else 1,
        plan.schedule.gathered_stages if plan.shape.lists_gathers else None,
        plan.schedule.weight_copies / plan.schedule.chains,
    )


def memory_report(step: StepModel) -> MemoryReport:
    """Memory of every rank, whether it fits or not."""
    return step_memory(step).report()


def checked_memory(step: StepModel) -> MemoryReport:
    """Memory of every rank of a job that fits.

    Raises:
        DoesNotFit: which rank, how many bytes over, what takes them, and what would make it fit.
    """
    return check(step_memory(step))
