"""Data-parallel traffic of a step: what ZeRO and FSDP send, and how much of it stays exposed."""

from __future__ import annotations

from typing import NamedTuple

from clustersim.pipeline.step_messages import Groups
from clustersim.workload.data_parallel import (
    bucketed_exposed,
    gradient_seconds,
    layer_gather_seconds,
    prefetched_exposed,
    update_gather_seconds,
)
from clustersim.workload.layout import Layout
from clustersim.workload.stack import Stack
from clustersim.workload.stages import LocalParameters
from clustersim.workload.training import Training

GRAD_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}


class DataTraffic(NamedTuple):
    """Seconds of data-parallel messages of one rank, whole and exposed, at a step's ends."""

    reduce: float = 0.0
    gather: float = 0.0
    exposed_reduce: float = 0.0
    exposed_gather: float = 0.0


def step_traffic(
    parameters: LocalParameters,
    groups: Groups,
    training: Training,
    layout: Layout,
    stack: Stack,
    forward: float,
    backward: float,
    buckets: int,
    taken: float,
    ends: float = 0.0,
) -> DataTraffic:
    """Traffic of ZeRO 0 to 2 of one rank: gradients reduced once a step, and updated weights gathered.

    With overlap, the reduction hides behind the backward of the last microbatch (``backward`` seconds on this rank),
    bucket after bucket (one a layer), and the gather behind the forward of the first. What is hidden still costs its
    share ``taken`` of the GPU's SMs. ``ends``: parameters of embedding and head among the dense ones.
    """
    width = GRAD_BYTES[training.grad_dtype]
    reduce = gradient_seconds(parameters.dense * width, groups.data, groups.shards)
    whole = _gathered(parameters.dense, ends, training)
    gather = update_gather_seconds(whole, groups.data, groups.shards, broadcast=layout.shard.broadcast)
    if parameters.expert:
        reduce += gradient_seconds(parameters.expert * width, groups.expert_data, groups.expert_shards)
        experts = parameters.expert * training.gathered_bytes
        gather += update_gather_seconds(experts, groups.expert_data, groups.expert_shards)
    if not (layout.overlap.dp and stack.dp_overlaps):
        return DataTraffic(reduce, gather, reduce, gather)
    late = gather if not stack.gather_overlaps else prefetched_exposed(gather, forward, buckets)
    left = bucketed_exposed(reduce, backward, buckets)
    return DataTraffic(reduce, gather, left + taken * (reduce - left), late + taken * (gather - late))


def _gathered(dense: float, ends: float, training: Training) -> float:
    """Bytes of a rank's dense weights on the wire; ``ends`` of them, embedding and head, are never narrow."""
    return 2.0 * ends + training.gathered_bytes * (dense - ends)


class LayerTraffic(NamedTuple):
    """Exposed seconds of a stage's gathers (forward) and of its gathers and scatters (backward) under ZeRO 3."""

    gather: float = 0.0
    scatter: float = 0.0


def unit_traffic(
    parameters: LocalParameters, groups: Groups, training: Training, ends: float = 0.0
) -> tuple[float, float]:
    """Seconds to gather one FSDP unit's weights, ``ends`` of them of embedding and head, and to scatter its gradients
    (in ``grad_dtype``)."""
    width = GRAD_BYTES[training.grad_dtype]
    gather = layer_gather_seconds(_gathered(parameters.dense, ends, training), groups.data, groups.shards)
    scatter = gradient_seconds(parameters.dense * width, groups.data, groups.shards)
    if parameters.expert:
        experts = parameters.expert * training.gathered_bytes
        gather += layer_gather_seconds(experts, groups.expert_data, groups.expert_shards)
        scatter += gradient_seconds(parameters.expert * width, groups.expert_data, groups.expert_shards)
    return gather, scatter
