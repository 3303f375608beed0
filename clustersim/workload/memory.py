"""Memory of each pipeline rank: state by ZeRO stage, activations in flight, logits, buffers, overhead; and the verdict.

The schedule says how many units of each stage a rank holds at its peak; everything else is arithmetic:

* weights 2 bytes a parameter (4 in fp32; layers in fp8 cache 2 more: the cast matrix and its transpose, or hold these
  alone with ``narrow_weights``), gradients 4 or 2,
  optimizer ``state_bytes_per_param`` (Adam 12: fp32 master copy and two moments);
* ZeRO 1 shards the optimizer over data- and context-parallel ranks, 2 also the gradients, 3 also the weights, of which
  two layers (the one in use and the next) and the vocabulary are gathered at a time; the fp32 shard is the master copy.
  Behind a pipeline, ZeRO 3 keeps weights whole from the first microbatch to the last (torchtitan, Llama 3 3.3.2: not
  resharded after the forward, or every microbatch would gather anew), unless the schedule lists their gathers
  (``gathered``); and ZeRO 2 and 3 shard the gradients of a chunk once the rank turns to another chunk: the largest chunk
  is whole at a time, so that a rank with one chunk keeps all of its gradients;
* ``versions`` of the weights (PipeDream-2BW: 2);
* ``layout.shard`` sets other degrees of sharding (HSDP, InternEvo), whatever the ZeRO stage; routed experts are
  replicated, and so sharded, over ``dp·cp·tp ÷ (ep·expert_tp)`` ranks;
* activations are units in flight × ``kept.stage_kept_bytes``;
* logits by the stack's ``loss_kept_bytes``: 10 each in a vocabulary-parallel loss (16-bit, fp32, shifted fp32, then the
  gradient in place), 14 in PyTorch's own (16-bit, fp32 log-softmax, and two fp32 gradients);
* buffers: the workspace of one layer's backward and recomputation, and tensors that messages are sent from;
* overhead: what the framework takes before any tensor (``CONTEXT``), NCCL's buffers, and the share of the allocator's
  memory that the stack loses to fragmentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from clustersim.workload.kept import Unit, input_bytes, routed_tokens, stage_kept_bytes, workspace_bytes
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.parameters import frozen_parameters, local_layer, local_parameters, shared_vocabulary
from clustersim.workload.precision import NARROW, element_bytes
from clustersim.workload.stages import LocalParameters, StageContent
from clustersim.workload.training import Recompute, Training

PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers", "overhead")

CONTEXT = 1.343e9
"""Bytes of a CUDA context with PyTorch's kernels loaded: what nvidia-smi shows after one tiny tensor (Hugging Face,
"Model training anatomy", https://huggingface.co/docs/transformers/model_memory_anatomy)."""
NCCL_GROUP = 2.0 * 16 * 4 * 2**20
"""Bytes of a communicator: two connections on each of 16 channels, 4 MiB each (NCCL_BUFFSIZE's default)."""


@dataclass(frozen=True)
class RankMemory:
    """Bytes on one GPU of one pipeline rank at its peak."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    overhead: float
    fragmentation: float = 0.0
    """The part of ``overhead`` that the allocator holds and does not use."""

    @property
    def reserved(self) -> float:
        """What a framework's allocator holds of the GPU: tensors and fragmentation, without context and NCCL."""
        return self.allocated + self.fragmentation

    @property
    def total(self) -> float:
        """All parts."""
        state = self.weights + self.gradients + self.optimizer
        return state + self.activations + self.logits + self.buffers + self.overhead

    @property
    def needed(self) -> float:
        """All parts without fragmentation: what a GPU must have for the rank to run at all."""
        return self.total - self.fragmentation

    @property
    def allocated(self) -> float:
        """What a framework counts as allocated: its tensors."""
        return self.total - self.overhead

    def dump(self) -> dict[str, float]:
        """JSON form: every part and the total, in bytes."""
        return {**{part: getattr(self, part) for part in PARTS}, "total": self.total}


@dataclass(frozen=True)
class MemoryReport:
    """Memory of all pipeline ranks against what a GPU has."""

    stages: tuple[RankMemory, ...]
    limits: tuple[float, ...]
    """Bytes of a GPU of each rank."""
    in_flight: tuple[float, ...]
    """Units that each rank holds at its peak."""

    @property
    def peak_rank(self) -> int:
        """The rank that is closest to its limit, or farthest over it (the first of equals)."""
        return max(range(len(self.stages)), key=lambda r: (self.stages[r].total - self.limits[r], -r))

    @property
    def peak_bytes(self) -> float:
        """Bytes on that rank."""
        return self.stages[self.peak_rank].total

    @property
    def limit_bytes(self) -> float:
        """Bytes of that rank's GPU."""
        return self.limits[self.peak_rank]

    @property
    def fits(self) -> bool:
        """Whether every rank's tensors, context and communicators find room.

        Fragmentation does not count: near its limit the caching allocator gives blocks back before it fails.
        """
        return all(stage.needed <= limit for stage, limit in zip(self.stages, self.limits, strict=True))

    @property
    def roomy(self) -> bool:
        """Whether every rank has room for what its allocator usually loses to fragmentation, too."""
        return all(stage.total <= limit for stage, limit in zip(self.stages, self.limits, strict=True))

    @property
    def tight(self) -> bool:
        """Whether the job fits only if its allocator loses less than usual to fragmentation."""
        return self.fits and not self.roomy

    @property
    def when(self) -> str:
        """When the peak is reached."""
        rank = self.stages[self.peak_rank]
        held = f"with {self.in_flight[self.peak_rank]:g} units in flight"
        return f"in the loss of a microbatch, {held}" if rank.logits > 0 else f"in the backward of a layer, {held}"

    def dump(self) -> dict[str, object]:
        """JSON form, as the contract has it."""
        return {"peak_bytes": self.peak_bytes, "limit_bytes": self.limit_bytes, "peak_rank": self.peak_rank,
                "when": self.when, "stages": [stage.dump() for stage in self.stages]}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Memory:
    """One job's memory: ``stages[r]`` are rank r's chunks, ``in_flight[r]`` the units of each that it holds at most."""

    model: TransformerModel
    training: Training
    layout: Layout
    unit: Unit
    dp: int
    stages: tuple[tuple[StageContent, ...], ...]
    in_flight: tuple[tuple[float, ...], ...]
    limits: tuple[float, ...]
    vocabulary_ranks: int = 1
    """Pipeline ranks that share the output head (vocabulary parallelism); 1: the last stage has it."""
    gathered: int | None = None
    """Stages whose weights a schedule with gathers of its own holds at once; None: it lists none."""
    versions: float = 1.0
    """Copies of the weights beside one another."""

    def report(self) -> MemoryReport:
        """Memory of all ranks; equal ranks are computed once."""
        known: dict[tuple[tuple[StageContent, ...], tuple[float, ...]], RankMemory] = {}
        ranks = []
        for pair in zip(self.stages, self.in_flight, strict=True):
            if pair not in known:
                known[pair] = self.rank(*pair)
            ranks.append(known[pair])
        return MemoryReport(tuple(ranks), self.limits, tuple(sum(counts) for counts in self.in_flight))

    def rank(self, stages: Sequence[StageContent], in_flight: Sequence[float]) -> RankMemory:
        """Memory of one rank."""
        weights, gradients, optimizer = self.states(stages)
        held = sum(count * self._unit_bytes(stage) for stage, count in zip(stages, in_flight, strict=True))
        activations = held * (1.0 - self.training.offload.activations)
        logits, buffers = self.logits(stages), self.buffers(stages)
        tensors = weights + gradients + optimizer + activations + logits + buffers
        share = self.unit.stack.fragmentation
        lost = tensors * share / (1.0 - share)
        overhead = CONTEXT + self.groups * NCCL_GROUP + lost
        return RankMemory(weights, gradients, optimizer, activations, logits, buffers, overhead, lost)

    def _unit_bytes(self, stage: StageContent) -> float:
        if stage not in self._kept:
            self._kept[stage] = stage_kept_bytes(self.model, self.unit, self.training.recompute, stage)
        return self._kept[stage]

    @cached_property
    def _kept(self) -> dict[StageContent, float]:
        return {}

    @cached_property
    def _local(self) -> dict[StageContent, LocalParameters]:
        return {}

    @cached_property
    def _work(self) -> dict[bool, float]:
        return {}

    @property
    def groups(self) -> int:
        """Communicators that a GPU takes part in."""
        layout = self.layout
        return sum(size > 1 for size in (layout.tp, layout.pp, layout.cp, layout.ep, self.dp))

    @property
    def expert_tp(self) -> int:
        """GPUs that cut one expert."""
        return self.unit.cut.expert_tp

    @cached_property
    def replicas(self) -> LocalParameters:
        """Ranks that hold the same dense, and the same expert, parameters."""
        dense = self.dp * self.layout.cp
        return LocalParameters(dense, max(1.0, dense * self.layout.tp / (self.layout.ep * self.expert_tp)))

    def parameters(self, stages: Sequence[StageContent]) -> LocalParameters:
        """Parameters that a GPU holds of its stages."""
        held = LocalParameters()
        for stage in stages:
            if stage not in self._local:
                self._local[stage] = local_parameters(self.model, stage, **self._cut)
            held = held.plus(self._local[stage])
        if self.vocabulary_ranks > 1:
            words = self.model.vocab * self.model.hidden / self.layout.tp
            return held.plus(LocalParameters(words / self.vocabulary_ranks - words * any(s.head for s in stages)))
        return held.plus(LocalParameters(shared_vocabulary(self.model, stages, tp=self.layout.tp)), -1)

    @property
    def _cut(self) -> dict[str, int]:
        return {"tp": self.layout.tp, "ep": self.layout.ep, "expert_tp": self.expert_tp}

    def trained(self, stages: Sequence[StageContent]) -> LocalParameters:
        """Those of them that have gradients and optimizer state."""
        if self.training.lora is not None:
            count = sum(stage.layers + stage.mtp for stage in stages)
            return LocalParameters(count * lora_parameters(self.model, self.training) / self.layout.tp)
        held = self.parameters(stages)
        for stage in stages if self.training.frozen_layers else ():
            held = held.plus(frozen_parameters(self.model, stage, **self._cut), -1)
        return held

    def states(self, stages: Sequence[StageContent]) -> tuple[float, float, float]:
        """Bytes of weights, gradients and optimizer state of one rank."""
        held, trained, training, cuts = self.parameters(stages), self.trained(stages), self.training, self.layout.cuts
        wide = training.precision in ("fp32", "tf32")
        weight = 4.0 if wide else 2.0
        cast = 2 * element_bytes(training.precision) if training.precision in NARROW else 0.0
        gradient = 4.0 + self.unit.stack.extra_gradient_bytes if training.grad_dtype == "fp32" else 2.0
        state = (
            training.optimizer.state_bytes_per_param
            + self.unit.stack.step_gradient_bytes
            - (4.0 if wide and not cuts.parameters else 0.0)
        )
        ends, layers = self._ends(stages), self._largest_layer(stages)
        layer = cast if training.narrow_weights else weight + cast
        whole = weight * ends + layer * (held.total - ends)
        weights, gradients = whole, gradient * trained.total
        sharded, shard = self._sharded, self.layout.shard
        if sharded and self.gathered is not None:
            weights = min(whole, layer * self._most(stages, self.gathered))
        elif sharded or training.offload.parameters != "none":
            weights = min(whole, weight * ends + layer * 2 * layers)
        if sharded and self._finer_optimizer:  # no master shard of the same cut stands for the weights' own
            weights = min(whole, weights + weight * self._shard(held, shard.parameters))
        elif sharded and trained.total < held.total:  # frozen weights have no master copy: their shards come on top
            still = held if training.lora is not None else held.plus(trained, -1)
            weights = min(whole, weights + weight * self._shard(still, None))
        if cuts.gradients and self.gathered is None:
            open_ = 2 * layers if self.layout.pp == 1 else self._most(stages, 1)
            gradients = gradient * min(trained.total, self._shard(trained, shard.gradients) + open_)
        weights *= self.versions
        optimizer = max(0.0, state) * (self._shard(trained, shard.optimizer) if cuts.optimizer else trained.total)
        return weights, gradients, optimizer if training.offload.optimizer == "none" else 0.0

    @property
    def _sharded(self) -> bool:
        """Whether weights are gathered for use and dropped again."""
        return self.layout.cuts.parameters and (self.layout.pp == 1 or self.gathered is not None)

    @property
    def _finer_optimizer(self) -> bool:
        """Whether optimizer state is cut over more ranks than weights are."""
        ranks, shard = self.replicas.dense, self.layout.shard
        return (shard.parameters or ranks) < (shard.optimizer or (ranks if self.layout.cuts.optimizer else 1))

    def _most(self, stages: Sequence[StageContent], count: int) -> float:
        """Parameters of the ``count`` largest of a rank's stages."""
        return sum(sorted((self.parameters([stage]).total for stage in stages), reverse=True)[:count])

    def _shard(self, held: LocalParameters, degree: int | None) -> float:
        """Parameters of one shard; ``degree`` ranks share them, by default all that hold the same."""
        dense, expert = self.replicas
        if degree is not None:
            dense, expert = min(dense, degree), min(expert, degree)
        return held.dense / dense + held.expert / expert

    def _largest_layer(self, stages: Sequence[StageContent]) -> float:
        moe = any(stage.moe or (stage.mtp and self.model.moe) for stage in stages)
        return local_layer(self.model, moe, **self._cut).total

    def _ends(self, stages: Sequence[StageContent]) -> float:
        """Parameters of a rank's embedding and head."""
        ends = [stage._replace(dense=0, moe=0, mtp=0) for stage in stages if stage.embedding or stage.head]
        return self.parameters(ends).total

    def logits(self, stages: Sequence[StageContent]) -> float:
        """Bytes of the loss of one unit."""
        if self.vocabulary_ranks == 1 and not any(stage.head for stage in stages):
            return 0.0
        return (
            self.unit.stack.loss_kept_bytes
            * self.unit.cut.tokens
            * self.model.vocab
            / (self.layout.tp * self.vocabulary_ranks)
        )

    def buffers(self, stages: Sequence[StageContent]) -> float:
        """Bytes of one layer's backward workspace, of its recomputation, and of messages."""
        moe = any(stage.moe or (stage.mtp and self.model.moe) for stage in stages)
        layers = any(stage.layers or stage.mtp for stage in stages)
        if layers and moe not in self._work:
            self._work[moe] = workspace_bytes(self.model, self.unit, self.training.recompute, moe)
        return (self._work[moe] if layers else 0.0) + self._messages(moe, layers)

    def _messages(self, moe: bool, layers: bool) -> float:
        model, layout, cut = self.model, self.layout, self.unit.cut
        whole, part = cut.tokens * model.hidden * cut.width, input_bytes(model, self.unit)
        total = self.unit.stack.bucket_bytes + (4 * part if layout.pp > 1 else 0.0)
        if not layers:
            return total
        keys = 2 * max(model.kv / cut.tp, 1.0) * model.head_size * cut.width
        total += 2 * whole if cut.sequence_parallel else (whole if layout.tp > 1 else 0.0)
        total += 2 * keys * cut.tokens if layout.cp > 1 else 0.0
        total += 2 * routed_tokens(model, cut) * model.hidden * cut.width if moe and layout.ep > 1 else 0.0
        slices = cut.cp / layout.cp
        return total + (keys * cut.tokens * slices * self._most_layers if slices > 1 else 0.0)

    @cached_property
    def _most_layers(self) -> int:
        """Layers of the fullest rank; with slices, each holds gradients of keys and values of the whole sequence."""
        return max(sum(stage.layers for stage in stages) for stages in self.stages)

    def changed(self, *, training: dict[str, object] | None = None, layout: dict[str, object] | None = None,
                sequence_parallel: bool | None = None, micro_batch: int | None = None) -> Memory:  # fmt: skip
        """The same job with some choices changed; units in flight stay as they are."""
        cut = self.unit.cut
        if sequence_parallel is not None:
            cut = cut._replace(sequence_parallel=sequence_parallel)
        if micro_batch is not None:
            cut = cut._replace(sequences=micro_batch, tokens=int(cut.tokens * micro_batch / cut.sequences))
        return replace(
            self, unit=self.unit._replace(cut=cut), layout=self.layout.model_copy(update=layout or {}),
            training=self.training.model_copy(update=training or {}),
        )  # fmt: skip


def lora_parameters(model: TransformerModel, training: Training) -> float:
    """Adapter parameters of one layer: rank × (inputs + outputs) of each matrix that has one."""
    assert training.lora is not None
    hidden, query, key = model.hidden, model.heads * model.head_size, model.kv * model.head_size
    count = 0
    if "attention" in training.lora.targets:
        count += 2 * (hidden + query) + 2 * (hidden + key)
    if "mlp" in training.lora.targets:
        count += (3 if model.gated_mlp else 2) * (hidden + model.ffn_hidden)
    return float(training.lora.rank * count)


__all__ = ["Memory", "MemoryReport", "RankMemory", "Recompute", "lora_parameters"]
