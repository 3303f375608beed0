"""Memory of every pipeline rank of a step: the memory model fed with the schedule's own units in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustersim.pipeline.activations import in_flight_at_peak
from clustersim.workload.fit import check
from clustersim.workload.kept import pending_bytes, stage_kept_bytes, unit_of
from clustersim.workload.memory import Memory, MemoryReport

if TYPE_CHECKING:
    from clustersim.pipeline.step import StepModel


def step_memory(step: StepModel) -> Memory:
    """The memory model of a step's job."""
    plan, costs = step.plan, step.costs
    unit = unit_of(plan.cut, step.stack, plan.training.precision)
    contents = [costs.stage_contents[stage % plan.shape.per_chain] for stage in range(plan.shape.graph.stages)]
    known = {content: stage_kept_bytes(plan.model, unit, plan.training.recompute, content) for content in set(contents)}
    later = {content: pending_bytes(plan.model, unit, content) for content in known}
    held = in_flight_at_peak(plan.shape.graph, np.array([known[content] for content in contents]),
                             np.array([later[content] for content in contents]))  # fmt: skip
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
