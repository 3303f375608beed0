"""Data-parallel traffic of a step: what ZeRO and FSDP send, and how much of it stays exposed."""

from __future__ import annotations

from typing import NamedTuple

from clustersim.hardware.collectives import Group, collective_time
from clustersim.pipeline.step_messages import Groups, expert_tp
from clustersim.workload.stages import LocalParameters
from clustersim.workload.layout import Layout
from clustersim.workload.stack import Stack
from clustersim.workload.training import Training

GRAD_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}


class DataTraffic(NamedTuple):
    """Seconds of data-parallel messages of one rank, whole and exposed, at a step's ends."""

    reduce: float = 0.0
    gather: float = 0.0
    exposed_reduce: float = 0.0
    exposed_gather: float = 0.0


def expert_group(groups: Groups) -> Group:
    """Ranks that hold the same experts: the GPUs of one pipeline rank ÷ those that share the experts out."""
    layout = groups.layout
    ranks = groups.dp * layout.cp * layout.tp
    over = layout.ep * expert_tp(layout)
    return groups.group(max(1, ranks // over), over)


def _seconds(op: str, parameters: LocalParameters, width: float, groups: Groups) -> float:
    total = 0.0
    for count, group in ((parameters.dense, groups.data), (parameters.expert, expert_group(groups))):
        if count and group.size > 1:
            total += collective_time(op, count * width, group)  # type: ignore[arg-type]
    return total


def step_traffic(parameters: LocalParameters, groups: Groups, training: Training, layout: Layout, stack: Stack,
                 forward: float, backward: float) -> DataTraffic:  # fmt: skip
    """Traffic of ZeRO 0 to 2 of one rank: gradients reduced once a step, and with ZeRO 1 and 2 weights gathered.

    With overlap, the reduction hides behind the backward of the last microbatch (``backward`` seconds on this rank) and the
    gather behind the forward of the first; at least ``stack.dp_exposed`` of each stays exposed.
    """
    width = GRAD_BYTES[training.grad_dtype]
    if layout.zero == 0:
        reduce, gather = _seconds("all-reduce", parameters, width, groups), 0.0
    else:
        reduce = _seconds("reduce-scatter", parameters, width, groups)
        gather = _seconds("all-gather", parameters, 2.0, groups)
    if not (layout.overlap.dp and stack.dp_overlaps):
        return DataTraffic(reduce, gather, reduce, gather)
    least = stack.dp_exposed
    return DataTraffic(reduce, gather, max(reduce - backward, least * reduce), max(gather - forward, least * gather))


class LayerTraffic(NamedTuple):
    """Seconds of the gathers and scatters of one block under ZeRO 3."""

    gather: float = 0.0
    scatter: float = 0.0


def fsdp_traffic(parameters: LocalParameters, groups: Groups, training: Training) -> LayerTraffic:
    """Gather of a block's 16-bit weights, scatter of its gradients (in ``grad_dtype``)."""
    width = GRAD_BYTES[training.grad_dtype]
    return LayerTraffic(_seconds("all-gather", parameters, 2.0, groups), _seconds("reduce-scatter", parameters, width, groups))
