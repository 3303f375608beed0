"""The ends of a step on each pipeline rank: weights gathered before it, gradients reduced and the optimizer after
it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clustersim.hardware.collectives import collective_time
from clustersim.pipeline.dependencies import CODE
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.step_chains import eager_tails
from clustersim.pipeline.step_costs import COLUMNS
from clustersim.pipeline.step_data import GRAD_BYTES, step_traffic
from clustersim.pipeline.step_offload import offloaded_update
from clustersim.workload.memory import lora_parameters
from clustersim.workload.optimizer import gradient_copy_seconds, update_seconds
from clustersim.workload.parameters import frozen_parameters
from clustersim.workload.stages import LocalParameters

if TYPE_CHECKING:
    from clustersim.pipeline.step import StepModel


class Ends(NamedTuple):
    """Seconds of one rank: exposed gather ahead of the step, exposed reduction behind it, optimizer."""

    head: float
    tail: float
    update: float


def step_ends(step: StepModel) -> list[Ends]:
    """The ends of every pipeline rank."""
    costs, plan = step.costs, step.plan
    forward, backward = _one_microbatch(step)
    wires = _wires(step)
    known: dict[tuple[object, ...], Ends] = {}
    ends = []
    for rank, parameters in enumerate(costs.rank_parameters):
        trained = _trained(step, rank, parameters)
        key = (trained, costs.gpus[rank].name, forward[rank], backward[rank], wires[rank], _rounds(step, rank),
               costs.rank_ends[rank])  # fmt: skip
        if key not in known:
            known[key] = _ends(step, rank, trained, forward[rank], backward[rank], wires[rank])
        ends.append(known[key])
    if plan.shape.program.chains > 1:
        ends = _eager(step, ends)
    return [_with_tied(step, end, rank) for rank, end in enumerate(ends)] if plan.model.tied_embeddings else ends


def _eager(step: StepModel, ends: list[Ends]) -> list[Ends]:
    """With several chains on a rank, each stage's gradients go out at its own last backward, if that hides more."""
    plan, groups = step.plan, step.groups
    if groups.shards.parameters > 1 or not (plan.layout.overlap.dp and step.stack.dp_overlaps):
        return ends
    whole = [
        step_traffic(
            _trained(step, rank, held), groups, plan.training, plan.layout, step.stack, 0.0, 0.0, 1, 0.0
        ).reduce
        for rank, held in enumerate(step.costs.rank_parameters)
    ]
    tails = eager_tails(step, whole)
    return [end._replace(tail=min(end.tail, tail)) for end, tail in zip(ends, tails, strict=True)]


def _one_microbatch(step: StepModel) -> tuple[list[float], list[float]]:
    """Busy seconds of one microbatch's forward and backward on each rank, all its chunks together."""
    shape, table = step.plan.shape, step.costs.table.sum(axis=2)
    units = shape.program.units / shape.program.chains
    per_kind = np.einsum("rks,ks->rk", shape.counts, table) / units * shape.program.slices
    backward = per_kind[:, CODE[Kind.B]] + per_kind[:, CODE[Kind.I]] + per_kind[:, CODE[Kind.W]]
    return per_kind[:, CODE[Kind.F]].tolist(), backward.tolist()


def _wires(step: StepModel) -> list[float]:
    """Seconds of one microbatch's backward in which expert- or context-parallel messages hold a rank's NICs."""
    groups, shape = step.groups, step.plan.shape
    columns = [COLUMNS.index(name) for name, group in (("ep", groups.ep), ("cp", groups.cp)) if group.domains > 1]
    if not columns or groups.data.domains == 1:
        return [0.0] * shape.graph.ranks
    table = step.costs.table[:, :, columns].sum(axis=2)
    units = shape.program.units / shape.program.chains
    per_kind = np.einsum("rks,ks->rk", shape.counts, table) / units * shape.program.slices
    backward = per_kind[:, [CODE[Kind.B], CODE[Kind.I], CODE[Kind.W]]].sum(axis=1)
    return [float(seconds) for seconds in backward]


def _trained(step: StepModel, rank: int, parameters: LocalParameters) -> LocalParameters:
    """The part of a rank's parameters that has gradients: all, less frozen layers; with LoRA the adapters alone."""
    plan = step.plan
    if plan.training.lora is not None:
        layers = plan.model.layers / plan.layout.pp
        return LocalParameters(layers * lora_parameters(plan.model, plan.training) / plan.layout.tp)
    if not plan.training.frozen_layers:
        return parameters
    shape, held = plan.shape, step.costs.stage_contents
    for stage, where in enumerate(shape.stage_rank.tolist()):
        if where == rank:
            still = frozen_parameters(
                plan.model, held[stage % len(held)], tp=plan.cut.tp, ep=plan.cut.ep, expert_tp=plan.cut.expert_tp
            )
            parameters = parameters.plus(still, -1)
    return parameters


def _ends(step: StepModel, rank: int, trained: LocalParameters, forward: float, backward: float, wire: float) -> Ends:
    """One rank, which trains ``trained``.

    Gradients find the NICs free for ``backward`` less ``wire``; without priority they share them during ``wire`` as well,
    and what they take there the messages last longer.
    """
    plan, groups, costs = step.plan, step.groups, step.costs
    layout, training = plan.layout, plan.training
    shards, expert_shards = groups.shards.optimizer, groups.expert_shards.optimizer
    head = tail = 0.0
    if groups.shards.parameters == 1:
        rounds = _rounds(step, rank)
        buckets = max(1, plan.model.layers // layout.pp)
        traffic = step_traffic(
            trained,
            groups,
            training,
            layout,
            step.stack,
            forward,
            backward - wire,
            buckets,
            costs.taken(rank),
            min(trained.dense, costs.rank_ends[rank]),
        )
        head, tail = traffic.exposed_gather, traffic.exposed_reduce
        tail += _earlier_rounds(step, traffic.reduce, backward - wire, rounds, costs.taken(rank))
        if groups.data.size > 1:
            tail += gradient_copy_seconds(trained, costs.devices[rank], step.stack) * rounds
        if not layout.gradient_priority:
            tail += min(wire, max(0.0, traffic.reduce - tail))
    update = update_seconds(
        trained, shards, expert_shards, costs.devices[rank], step.stack, training.optimizer, layout.cuts.parameters
    )
    if training.offload.optimizer != "none":
        count = trained.dense / shards + trained.expert / expert_shards
        flush, update = offloaded_update(plan, count, step.stack.optimizer_bytes, backward)
        tail += flush
    return Ends(head, tail, update)


def _rounds(step: StepModel, rank: int) -> float:
    """How often the gradients of a rank's stages are reduced in a step: once where they are kept whole.

    ZeRO 2 and 3 shard them as they come: without a pipeline after every microbatch, with one whenever the rank turns to
    another of its chunks (Llama 3, arXiv 2407.21783 section 3.3.2, with interleaving).
    """
    plan = step.plan
    if step.groups.shards.gradients == 1:
        return 1.0
    return float(plan.microbatches if plan.layout.pp == 1 else plan.shape.gradient_rounds[rank])


def _earlier_rounds(step: StepModel, reduce: float, backward: float, rounds: float, taken: float) -> float:
    """Seconds that the reductions before the last one add: each hides behind the backwards of the round after it, at
    the price of the share ``taken`` of the SMs."""
    if rounds <= 1:
        return 0.0
    hidden = 0.0
    if step.plan.layout.overlap.dp and step.stack.dp_overlaps:
        hidden = min(reduce, backward * step.plan.microbatches / rounds)
    return (rounds - 1) * (reduce - hidden + taken * hidden)


def _with_tied(step: StepModel, end: Ends, rank: int) -> Ends:
    """Tied embeddings: the ranks of the first and of the last stage add up their gradients of the vocabulary, unless
    they are one rank, which holds the matrix once."""
    plan = step.plan
    ranks = plan.shape.stage_rank
    ends = {int(ranks[0]), int(ranks[plan.shape.per_chain - 1])}
    if len(ends) == 1 or rank not in ends:
        return end
    size = plan.model.vocab / plan.layout.tp * plan.model.hidden * GRAD_BYTES[plan.training.grad_dtype]
    return end._replace(tail=end.tail + collective_time("all-reduce", size, step.groups.ends))
