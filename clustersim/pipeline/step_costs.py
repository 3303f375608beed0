"""Seconds of every kind of op on every stage, split by what they go to: the table that a replay's durations come
from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from clustersim.hardware.collectives import collective_time
from clustersim.hardware.gpu import Gpu
from clustersim.pipeline.dependencies import CODE, KINDS
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.stage_layout import layer_counts
from clustersim.pipeline.step_data import LayerTraffic, unit_traffic
from clustersim.pipeline.step_messages import Groups
from clustersim.pipeline.step_offload import offload_exposed
from clustersim.pipeline.step_plan import Plan
from clustersim.pipeline.step_stages import contents
from clustersim.workload.build import Blocks
from clustersim.workload.cost import Exposure, LayerCost, PassCost, Pricer
from clustersim.workload.data_parallel import Unit, fsdp_pass
from clustersim.workload.device import Device, capped_clock
from clustersim.workload.kept import stage_kept_bytes, unit_of
from clustersim.workload.measured import Measured
from clustersim.workload.parameters import shared_vocabulary
from clustersim.workload.profile import Profile
from clustersim.workload.stack import Stack
from clustersim.workload.stages import LocalParameters, StageContent

COLUMNS = ("gemm", "attention", "memory", "host", "tp", "cp", "ep", "pp", "dp", "offload")
COMPUTE = slice(0, 4)
ATTENTION, EP, PP, DP, OFFLOAD = (COLUMNS.index(name) for name in ("attention", "ep", "pp", "dp", "offload"))
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StageCosts:
    """Costs of one job's stages: ``table`` is (kinds, stages, columns) seconds of one op."""

    plan: Plan
    groups: Groups
    stack: Stack
    profile: Profile | None = None
    measured: Measured | None = None
    slowed: float = 1.0
    """Factor on the gathers and scatters of sharded state in each pass (a slow link, a save that shares the NICs)."""

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPU type of each pipeline rank; of several replicas' types the one with the lowest 16-bit peak."""
        layout, ranks = self.plan.layout, self.plan.layout.pp
        base = self.plan.cluster.node.gpu
        if layout.replica_gpus:
            base = min(layout.replica_gpus, key=lambda gpu: Device(gpu).unit("bf16").flop_per_s)
        types = layout.stage_gpus or (base,)
        chosen = [types[rank * len(types) // ranks] for rank in range(ranks)]
        return [gpu if self.profile is None else self.profile.applied(gpu) for gpu in chosen]

    @cached_property
    def devices(self) -> list[Device]:
        """The device of each pipeline rank (one object a type)."""
        clock = self.plan.training.clock * (self.profile.clock if self.profile else 1.0)
        cap, known = self.plan.training.power_cap, dict[str, Device]()
        for gpu in self.gpus:
            if gpu.name not in known:
                known[gpu.name] = Device(gpu, clock * capped_clock(gpu, cap), self.measured)
        return [known[gpu.name] for gpu in self.gpus]

    @cached_property
    def blocks(self) -> dict[str, Blocks]:
        """Layer, embedding and head costs by GPU type."""
        plan, layout = self.plan, self.plan.layout
        exposure = Exposure(
            self.stack.tp_exposed if layout.overlap.tp else 1.0, layout.expert_parts if layout.overlap.ep else 1
        )
        return {
            device.gpu.name: Blocks(
                Pricer(
                    plan.model,
                    device,
                    self.stack,
                    plan.training.precision,
                    self.groups.seconds,
                    self.groups.context_seconds,
                    plan.cut,
                    exposure,
                    plan.training.op_precision,
                ),
                plan.cut,
                plan.training.recompute,
                plan.training.lora,
            )
            for device in self.devices
        }

    @cached_property
    def stage_contents(self) -> list[StageContent]:
        """What each virtual stage of one chain holds."""
        model, stages, text = self.plan.model, self.plan.shape.per_chain, self.plan.layout.stage_layout
        counts = layer_counts(text, model, stages) if text is not None else None
        return contents(model, stages, self.plan.training.frozen_layers, counts)

    @cached_property
    def _priced(self) -> list[tuple[LayerCost, LocalParameters, LayerTraffic]]:
        """Cost, parameters and ZeRO-3 traffic of each distinct stage: equal ones are priced once."""
        return [self._price(gpu, content) for gpu, content in self._distinct[0]]

    @cached_property
    def _distinct(self) -> tuple[list[tuple[str, StageContent]], npt.NDArray[np.int64]]:
        """Distinct (GPU type, content) of stages, and (stages,) which of them each stage of all chains is."""
        known: dict[tuple[str, StageContent], int] = {}
        names, held = [gpu.name for gpu in self.gpus], self.stage_contents
        which = [
            known.setdefault((names[rank], held[stage % len(held)]), len(known))
            for stage, rank in enumerate(self.plan.shape.stage_rank.tolist())
        ]
        return list(known), np.array(which)

    def _price(self, gpu: str, content: StageContent) -> tuple[LayerCost, LocalParameters, LayerTraffic]:
        cost, parameters = self.blocks[gpu].stage(content)
        if self.profile is not None and self.profile.layer is not None:
            cost = self._measured(gpu, content)
        if self.groups.shards.parameters == 1 or self.plan.shape.lists_gathers:
            return cost, parameters, LayerTraffic()
        return cost, parameters, self._fsdp(gpu, content)

    def _offloaded(self, index: int, cost: LayerCost) -> tuple[float, float]:
        offload = self.plan.training.offload
        if offload.parameters == "none" and not offload.activations:
            return 0.0, 0.0
        gpu, content = self._distinct[0][index]
        return offload_exposed(self.plan, self.blocks[gpu], content, cost)

    def _measured(self, gpu: str, content: StageContent) -> LayerCost:
        """A stage whose layers take the profile's pass times."""
        assert self.profile is not None
        assert self.profile.layer is not None
        times, slices = self.profile.layer, self.plan.shape.program.slices
        layer = LayerCost(
            PassCost(times.forward / slices),
            PassCost(times.input_gradient / slices),
            PassCost(times.weight_gradient / slices),
        )
        ends, _ = self.blocks[gpu].stage(content._replace(dense=0, moe=0, mtp=0))
        return ends.plus(layer.times(content.layers + content.mtp))

    def _fsdp(self, gpu: str, content: StageContent) -> LayerTraffic:
        """Exposed traffic of a stage's forward and backward under ZeRO 3: one FSDP unit a layer, one each for the
        ends."""
        blocks, training, groups = self.blocks[gpu], self.plan.training, self.groups
        ahead: list[Unit] = []
        back: list[Unit] = []
        embedding, head = blocks.embedding_parameters, blocks.head_parameters
        kinds = [(blocks.embedding, embedding, int(content.embedding), embedding.dense)]
        if content.dense:
            kinds.append((blocks.dense_layer, blocks.parameters[False], content.dense, 0.0))
        if content.moe:
            kinds.append((blocks.moe_layer, blocks.parameters[True], content.moe, 0.0))
        kinds.append((blocks.head, head, int(content.head), head.dense))
        for cost, parameters, count, ends in kinds:
            gather, scatter = (self.slowed * seconds for seconds in unit_traffic(parameters, groups, training, ends))
            behind = cost.recompute.total + cost.input_gradient.total + cost.weight_gradient.total
            ahead += [Unit(cost.forward.total, gather)] * count
            back += [Unit(behind, gather, scatter)] * count
        taken = self._channels / blocks.pricer.device.gpu.sms
        return LayerTraffic(self._exposed(ahead, taken), self._exposed(back[::-1], taken))

    def _exposed(self, units: list[Unit], taken: float) -> float:
        """Seconds that traffic adds to a pass over FSDP units; what is hidden costs its share of the SMs."""
        overlap = self.plan.layout.overlap.dp and self.stack.dp_overlaps
        traffic = sum(unit.gather + unit.scatter for unit in units)
        exposed = fsdp_pass(units, overlap=overlap).exposed
        return exposed + taken * max(0.0, traffic - exposed)

    def taken(self, rank: int) -> float:
        """Share of the SMs of a rank's GPU that a data-parallel collective takes while it runs beside computation."""
        return self._channels / self.gpus[rank].sms

    @cached_property
    def _channels(self) -> float:
        """Channels of a data-parallel collective: all of them inside a node, two for each NIC that it reaches
        between."""
        group, node = self.groups.data, self.plan.cluster.node
        reached = min(node.nics, max(1.0, group.per_node * node.nics / node.gpus))
        return min(self.stack.communication_sms, 2.0 * reached) if group.domains > 1 else self.stack.communication_sms

    @cached_property
    def table(self) -> Floats:
        """(kinds, stages, columns) seconds of one op of each kind on each stage."""
        distinct = np.zeros((4, len(self._priced), len(COLUMNS)))
        for index, (cost, _, traffic) in enumerate(self._priced):
            distinct[:, index, : len(PassCost._fields)] = cost
            distinct[0, index, DP], distinct[1, index, DP] = traffic
            distinct[0, index, OFFLOAD], distinct[1, index, OFFLOAD] = self._offloaded(index, cost)
        forward, inward, weight, again = distinct[:, self._distinct[1]]
        if not self.plan.shape.has_recompute:
            inward = inward + again
        ahead, behind = self.plan.shape.crosses
        forward[:, PP], inward[:, PP] = self.sends * ahead, self.sends * behind
        table = np.zeros((len(KINDS), *forward.shape))
        table[CODE[Kind.F]], table[CODE[Kind.I]], table[CODE[Kind.W]] = forward, inward, weight
        table[CODE[Kind.B]], table[CODE[Kind.R]] = inward + weight, again
        self._vocabulary(table)
        if self.plan.shape.lists_gathers:
            self._gathers(table)
        if self.plan.shape.copies_activations:
            table[CODE[Kind.OFFLOAD], :, OFFLOAD] = table[CODE[Kind.RELOAD], :, OFFLOAD] = self._copies()
        return table

    def _gathers(self, table: Floats) -> None:
        """Gathers of whole stages, and scatters of their gradients, as ops of a collective stream."""
        if self.groups.shards.parameters == 1:
            return
        traffic = [
            unit_traffic(held, self.groups, self.plan.training, self._ends(content))
            for (_, held, _), (_, content) in zip(self._priced, self._distinct[0], strict=True)
        ]
        gather, scatter = np.array(traffic)[self._distinct[1]].T
        table[CODE[Kind.UNSHARD], :, DP], table[CODE[Kind.REDUCE_GRAD], :, DP] = gather, scatter

    def _copies(self) -> Floats:
        """(stages,) seconds to copy a unit's activations off the rank: to the host, or for BPipe to the partner
        rank."""
        plan, seconds = self.plan, {}
        unit = unit_of(plan.cut, self.stack, plan.training.precision)
        for content in set(self.stage_contents):
            size = stage_kept_bytes(plan.model, unit, plan.training.recompute, content)
            away = collective_time("send", size, self.groups.pp) if plan.schedule.kind == "bpipe" else 0.0
            seconds[content] = away or size / plan.cluster.node.device_to_host
        held = self.stage_contents
        return np.array([seconds[held[stage % len(held)]] for stage in range(plan.shape.graph.stages)])

    def _vocabulary(self, table: Floats) -> None:
        """With vocabulary parallelism the head's work moves from the last stage to S and T ops on every rank."""
        if getattr(self.plan.schedule, "vocabulary_parallel", "none") == "none":
            return
        ranks = self.plan.layout.pp
        head = self.blocks[self.gpus[-1].name].head
        for stage in range(table.shape[1]):
            if stage % self.plan.shape.per_chain == self.plan.shape.per_chain - 1:
                for kind, part in (
                    (Kind.F, head.forward),
                    (Kind.I, head.input_gradient),
                    (Kind.W, head.weight_gradient),
                    (Kind.B, head.input_gradient.plus(head.weight_gradient)),
                ):
                    table[CODE[kind], stage, : len(part)] -= part
        table[CODE[Kind.S], :, : len(head.forward)] = np.array(head.forward) / ranks
        table[CODE[Kind.T], :, : len(head.forward)] = np.array(head.input_gradient.plus(head.weight_gradient)) / ranks

    @cached_property
    def send(self) -> float:
        """Seconds of one tensor to the next pipeline rank."""
        if self.profile is not None and self.profile.layer is not None and self.profile.layer.send is not None:
            return self.profile.layer.send / self.plan.shape.program.slices
        cut = self.plan.cut
        return self.groups.send_seconds(cut.tokens * self.plan.model.hidden * cut.width)

    @property
    def send_exposure(self) -> float:
        """Share of a send that holds up the sender; the rest is a delay that only the receiver sees."""
        return self.stack.pp_exposed if self.plan.layout.overlap.pp else 1.0

    @property
    def sends(self) -> float:
        """Seconds that a send holds up its rank."""
        return self.send * self.send_exposure

    @property
    def delay(self) -> float:
        """Seconds that a message is under way after its sender went on."""
        return self.send * (1 - self.send_exposure)

    def _ends(self, content: StageContent) -> float:
        """Parameters of embedding and head that a GPU holds of a stage."""
        blocks = next(iter(self.blocks.values()))
        return content.embedding * blocks.embedding_parameters.dense + content.head * blocks.head_parameters.dense

    @cached_property
    def _rank_stages(self) -> list[list[int]]:
        """Which distinct stages each pipeline rank holds, all its chunks (and both chains) together, in order."""
        held: list[list[int]] = [[] for _ in range(self.plan.layout.pp)]
        for rank, index in zip(self.plan.shape.stage_rank.tolist(), self._distinct[1].tolist(), strict=True):
            held[rank].append(index)
        return [sorted(indices) for indices in held]

    @cached_property
    def rank_ends(self) -> list[float]:
        """Parameters of embedding and head that a GPU of each pipeline rank holds."""
        kinds = self._distinct[0]
        return [
            sum(self._ends(kinds[index][1]) for index in indices) - self._shared(indices)
            for indices in self._rank_stages
        ]

    def _shared(self, indices: list[int]) -> float:
        """Parameters of a tied embedding that the sum over these stages counts twice."""
        contents = [self._distinct[0][index][1] for index in indices]
        return shared_vocabulary(self.plan.model, contents, tp=self.plan.cut.tp)

    @cached_property
    def rank_parameters(self) -> list[LocalParameters]:
        """Parameters that a GPU of each pipeline rank holds, all its chunks (and both chains) together."""
        ranks = []
        for indices in self._rank_stages:
            held = LocalParameters(-self._shared(indices))
            for index, count in Counter(indices).items():
                held = held.plus(self._priced[index][1], count)
            ranks.append(held)
        return ranks
