"""Lower bounds on the step time of a candidate, without building its schedule.

For every rank r of a pipeline whose stages go down from rank 0: its first op waits for the forwards of the stages
before (fill), it is busy for its own work, and unless its weight gradients are apart, the backwards of the stages
before follow its last op (drain). Whatever the order of ops,

    step >= fill(r) + busy(r) + drain(r) + straggle x computation + optimizer + exposed data-parallel traffic.

Traffic counts with the widest window that could hide it. Prices of a layer come from the same objects that the step
model uses, so a bound is never above the model's answer (tests hold it against thousands of them).
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.placement import Placement, rank_of_stage
from clustersim.pipeline.schedule import Schedule, get_schedule
from clustersim.pipeline.search_space import Choice, Space
from clustersim.pipeline.step_costs import StageCosts
from clustersim.pipeline.step_data import GRAD_BYTES
from clustersim.pipeline.step_messages import Dispatch, Groups
from clustersim.pipeline.step_plan import Plan
from clustersim.pipeline.step_stages import contents
from clustersim.pipeline.step_straggle import straggle_share
from clustersim.workload.build import Blocks
from clustersim.workload.data_parallel import gradient_seconds, layer_gather_seconds, update_gather_seconds
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.optimizer import update_seconds
from clustersim.workload.stack import Stack
from clustersim.workload.stages import LocalParameters, StageContent
from clustersim.workload.training import Training


class StageSeconds(NamedTuple):
    """Seconds of one unit on one stage."""

    forward: float
    inward: float
    """Input gradient, with the recomputation ahead of it."""
    weight: float
    compute: float
    """The part of all passes that is computation, which stragglers stretch."""
    parameters: LocalParameters

    @property
    def total(self) -> float:
        """All passes."""
        return self.forward + self.inward + self.weight


class RankPlace(NamedTuple):
    """What a rank holds, and what lies before it, as counts of equal stages."""

    mine: tuple[tuple[StageContent, int], ...]
    before: tuple[tuple[StageContent, int], ...]
    hops: int
    """Stages before it."""
    crossing: int
    """Messages of one unit that it sends, both ways."""


def _counted(contents_of: list[StageContent]) -> tuple[tuple[StageContent, int], ...]:
    return tuple(Counter(contents_of).items())


def _placed(held: list[StageContent], ranks: int, placement: Placement, rank: int) -> RankPlace:
    """The place of one rank of a pipeline whose stages hold ``held``."""
    rank_of = rank_of_stage(placement, ranks, len(held) // ranks)
    mine = [stage for stage, where in enumerate(rank_of) if where == rank]
    last = len(held) - 1
    sends = sum((s < last and rank_of[s + 1] != rank) + (s > 0 and rank_of[s - 1] != rank) for s in mine)
    return RankPlace(_counted([held[s] for s in mine]), _counted(held[:rank]), rank, sends)


class Bounds:
    """Lower bounds for choices on one job; prices and groups are computed once each."""

    def __init__(
        self, model: TransformerModel, cluster: Cluster, training: Training, space: Space, base: Layout, stack: Stack
    ) -> None:
        self.model, self.cluster, self.training, self.space = model, cluster, training, space
        self.base, self.stack = base, stack
        self._share = stack.pp_exposed if base.overlap.pp else 1.0
        moe = model.moe
        self._dispatch = Dispatch(moe.top_k if moe is not None else 1, stack.moe_once_a_node)
        self._parts: dict[str, Schedule] = {name: get_schedule(name) for name in space.schedules}
        self._costs: dict[tuple[object, ...], StageCosts] = {}
        self._seconds: dict[tuple[object, ...], StageSeconds] = {}
        self._contents: dict[int, list[StageContent]] = {}
        self._ends: dict[tuple[object, ...], tuple[float, float, float]] = {}
        self._groups: dict[tuple[object, ...], Groups] = {}
        self._placed: dict[tuple[object, ...], tuple[RankPlace, ...]] = {}

    def bound(self, choice: Choice) -> float:
        """Seconds that a step of ``choice`` takes at least."""
        part = self._parts[choice.schedule]
        units = choice.microbatches * choice.slices
        if part.chains > 1:
            return self._many_chains(choice, units)
        send = self._send(choice)
        best = widest = first_end = 0.0
        for place in self._places(choice, part.traits.placement):
            mine, before = self._sum(choice, place.mine), self._sum(choice, place.before)
            busy = units * (mine.total + place.crossing * send * self._share)
            widest = max(widest, units * mine.compute)
            # The first slice of a causal sequence is cheaper than the mean: nothing is said about its fill and drain.
            even = choice.slices == 1
            reached = busy + (before.forward + place.hops * send if even else 0.0)
            ends = self._tail(choice, mine, busy)
            if place.hops == 0:
                first_end = ends
            best = max(best, reached + ends)
            if even and not part.splits_backward and place.hops:
                # Backwards of the stages before follow: its last message's delay, then theirs with messages in between.
                # They end on rank 0, whose own optimizer and traffic come after.
                drain = before.inward + before.weight + (place.hops - 1) * send + (1 - self._share) * send
                best = max(best, reached + drain + first_end)
        return best + self._straggle(choice) * widest

    def _many_chains(self, choice: Choice, units: int) -> float:
        """Chains in both directions share the ranks: the mean rank's work."""
        work = self._sum(choice, _counted(self._contents_of(choice.pp * choice.chunks)))
        return units / choice.pp * (work.total + self._straggle(choice) * work.compute)

    def _places(self, choice: Choice, placement: Placement) -> tuple[RankPlace, ...]:
        """First, middle and last rank."""
        key = (choice.pp, choice.chunks, placement)
        if key not in self._placed:
            held = self._contents_of(choice.pp * choice.chunks)
            ranks = sorted({0, choice.pp // 2, choice.pp - 1})
            self._placed[key] = tuple(_placed(held, choice.pp, placement, rank) for rank in ranks)
        return self._placed[key]

    def _sum(self, choice: Choice, stages: tuple[tuple[StageContent, int], ...]) -> StageSeconds:
        """Seconds of one unit on several stages."""
        forward = inward = weight = compute = 0.0
        parameters = LocalParameters()
        for content, count in stages:
            one = self._stage(choice, content)
            forward, inward = forward + count * one.forward, inward + count * one.inward
            weight, compute = weight + count * one.weight, compute + count * one.compute
            parameters = parameters.plus(one.parameters, count)
        return StageSeconds(forward, inward, weight, compute, parameters)

    def _straggle(self, choice: Choice) -> float:
        return straggle_share(self.stack, choice.gpus, choice.pp)

    def _contents_of(self, stages: int) -> list[StageContent]:
        if stages not in self._contents:
            self._contents[stages] = contents(self.model, stages, self.training.frozen_layers)
        return self._contents[stages]

    def _send(self, choice: Choice) -> float:
        groups = self.groups(choice)
        cut = self._price(choice).plan.cut
        return groups.send_seconds(cut.tokens * self.model.hidden * cut.width)

    def groups(self, choice: Choice) -> Groups:
        """The parallel groups of a choice."""
        key = (choice.tp, choice.pp, choice.cp, choice.ep, choice.dp, choice.zero)
        if key not in self._groups:
            layout = layout_of(choice, self.base)
            self._groups[key] = Groups(layout, self.cluster, choice.dp, self._dispatch, self.stack.ring_wait)
        return self._groups[key]

    def _price(self, choice: Choice) -> StageCosts:
        """Layer prices: they depend on how a layer is cut, not on the pipeline or the replicas."""
        key = (choice.tp, choice.cp, choice.ep, choice.slices, choice.micro_batch, choice.recompute)
        if key not in self._costs:
            single = choice._replace(pp=1, chunks=1, dp=choice.dp * choice.pp, zero=0, microbatches=1)
            layout = layout_of(single, self.base).model_copy(update={"order": "tp-cp-dp-pp", "stage_layout": None})
            training = training_of(choice, self.training, self.space)
            schedule = get_schedule("1f1b")
            if choice.slices > 1:
                schedule = self._parts[choice.schedule].model_copy(update={"slices": choice.slices})
            plan = Plan(self.model, self.cluster, training, layout, schedule, single.dp, 1)
            groups = Groups(layout, self.cluster, single.dp, self._dispatch, self.stack.ring_wait)
            self._costs[key] = StageCosts(plan, groups, self.stack)
        return self._costs[key]

    def _stage(self, choice: Choice, content: StageContent) -> StageSeconds:
        key = (choice.tp, choice.cp, choice.ep, choice.slices, choice.micro_batch, choice.recompute, content)
        if key not in self._seconds:
            blocks: Blocks = next(iter(self._price(choice).blocks.values()))
            cost, parameters = blocks.stage(content)
            self._seconds[key] = StageSeconds(cost.forward.total, cost.input_gradient.total + cost.recompute.total,
                                              cost.weight_gradient.total, sum(passed.compute for passed in cost),
                                              parameters)  # fmt: skip
        return self._seconds[key]

    def _tail(self, choice: Choice, mine: StageSeconds, busy: float) -> float:
        """Optimizer and traffic of one rank that no window can hide."""
        parameters, forward, backward = mine.parameters, mine.forward, mine.inward + mine.weight
        key = (choice.tp, choice.pp, choice.cp, choice.ep, choice.zero, choice.dp, parameters)
        if key not in self._ends:
            self._ends[key] = self._traffic(choice, parameters)
        update, reduce, gather = self._ends[key]
        overlaps = self.base.overlap.dp and self.stack.dp_overlaps
        if self.groups(choice).shards.parameters > 1:
            wire = choice.microbatches * choice.slices * (2 * gather + reduce)
            return update + (max(0.0, wire - busy) if overlaps else wire)
        # 1.05: the model's windows hold sends and exposed messages that the bound leaves out.
        window = 1.05 * choice.slices
        left = max(0.0, reduce - window * backward) if overlaps else reduce
        late = max(0.0, gather - window * forward) if overlaps and self.stack.gather_overlaps else gather
        return update + left + late

    def _traffic(self, choice: Choice, parameters: LocalParameters) -> tuple[float, float, float]:
        """Seconds of the optimizer, of reducing one set of gradients, and of gathering one set of weights."""
        groups, training = self.groups(choice), self.training
        width = GRAD_BYTES[training.grad_dtype]
        device = self._price(choice).devices[0]
        update = 0.0
        if training.offload.optimizer == "none" and training.lora is None and not training.frozen_layers:
            shards, expert_shards = groups.shards.optimizer, groups.expert_shards.optimizer
            cut = groups.layout.cuts.parameters
            update = update_seconds(parameters, shards, expert_shards, device, self.stack, training.optimizer, cut)
        if training.lora is not None or training.frozen_layers:
            return update, 0.0, 0.0
        reduce = gradient_seconds(parameters.dense * width, groups.data, groups.shards)
        weights = parameters.dense * training.gathered_bytes
        if groups.shards.parameters > 1:
            # Layer by layer only adds latencies: one message of the whole is a lower bound.
            return update, reduce, layer_gather_seconds(weights, groups.data, groups.shards)
        broadcast = self.base.shard.broadcast
        return update, reduce, update_gather_seconds(weights, groups.data, groups.shards, broadcast=broadcast)


def layout_of(choice: Choice, base: Layout) -> Layout:
    """The layout that a choice stands for; what a search does not decide stays as in ``base``."""
    return base.model_copy(update={
        "tp": choice.tp, "pp": choice.pp, "cp": choice.cp, "ep": choice.ep, "dp": choice.dp, "zero": choice.zero,
        "chunks": choice.chunks, "sequence_parallel": choice.tp > 1, "stage_layout": None,
    })  # fmt: skip


def training_of(choice: Choice, training: Training, space: Space) -> Training:
    """The training with a choice's microbatch and recompute."""
    return training.model_copy(
        update={"micro_batch": choice.micro_batch, "recompute": space.recompute[choice.recompute]}
    )
