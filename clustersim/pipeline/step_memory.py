"""Memory of every pipeline rank of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clustersim.pipeline.step_data import GRAD_BYTES, expert_group

if TYPE_CHECKING:
    from clustersim.pipeline.step import StepModel


def step_memory(step: StepModel) -> dict[str, Any]:
    """Peak and limit in bytes, and the parts of each rank."""
    zero, training = step.plan.layout.zero, step.plan.training
    shards = (step.groups.data.size, expert_group(step.groups).size)
    stages = []
    for held in step.costs.rank_parameters:
        whole = held.total
        cut = held.dense / shards[0] + held.expert / shards[1]
        stages.append({
            "weights": 2.0 * (cut if zero == 3 else whole),
            "gradients": GRAD_BYTES[training.grad_dtype] * (cut if zero >= 2 else whole),
            "optimizer": training.optimizer.state_bytes_per_param * (cut if zero >= 1 else whole),
        })  # fmt: skip
    limit = min(gpu.memory for gpu in step.costs.gpus)
    return {"peak_bytes": max(sum(stage.values()) for stage in stages), "limit_bytes": limit, "stages": stages}
