"""The parallel layout: how the model and the batch are cut over GPUs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field, field_validator

from clustersim.hardware.gpu import Gpu
from clustersim.hardware.topology import parse_order
from clustersim.part import Block


class Overlap(Block):
    """Which communication runs beside computation. A number is the share that is hidden."""

    tp: bool = False
    dp: bool = True
    pp: bool = True
    cp: bool = True
    ep: bool = False


class Shard(Block):
    """Ranks over which each kind of state is cut, where that differs from the ZeRO stage (HSDP, InternEvo)."""

    parameters: int | None = Field(default=None, gt=0)
    gradients: int | None = Field(default=None, gt=0)
    optimizer: int | None = Field(default=None, gt=0)
    broadcast: bool = False
    """Each shard's owner broadcasts its updated parameters, one after the other, instead of one all-gather."""


class Cuts(NamedTuple):
    """Which kinds of state are cut over replicas."""

    parameters: bool
    gradients: bool
    optimizer: bool


class Context(Block):
    """How attention runs over context parallel ranks."""

    kind: Literal["ring", "double-ring", "ulysses", "usp"] = "ring"
    ulysses: int | None = Field(default=None, gt=0)
    """Ranks of one Ulysses group; null: all (``ulysses``), or those of a node (``usp``)."""
    balanced: bool = True
    """Zigzag or striped tokens: causal work is even."""
    burst: bool = False
    """The backward passes queries, their gradients and output gradients around instead of keys, values and theirs, where
    those are more (BurstAttention)."""


class Layout(Block):
    """Sizes of the parallel groups. ``dp`` defaults to gpus ÷ (tp · pp · cp); experts are spread over ``ep`` GPUs.

    ``scenario.schema.Parallelism`` adds the schedule (a part of a higher layer) to this.
    """

    tp: int = Field(default=1, gt=0)
    pp: int = Field(default=1, gt=0)
    dp: int | None = Field(default=None, gt=0)
    cp: int = Field(default=1, gt=0)
    ep: int = Field(default=1, gt=0)
    chunks: int | None = Field(default=None, gt=0)
    """Virtual stages a rank; null: 1, or what the schedule needs (2 for V-shaped ones)."""
    zero: Literal[0, 1, 2, 3] = 1
    shard: Shard = Shard()
    context: Context = Context()
    sequence_parallel: bool = False
    overlap: Overlap = Overlap()
    expert_parts: int = Field(default=2, gt=0)
    """Parts of a microbatch that flow through attention, exchange and experts beside one another where ``overlap.ep`` is
    on; each part's messages start anew."""
    gradient_priority: bool = False
    """Gradient traffic is cut small and yields to all-to-all and ring messages on the same NICs (FlowMoE); False: both share
    them evenly, so that gradients that hide delay what computation waits for."""
    order: str = "tp-cp-dp-pp"
    """Placement, innermost first: which ranks are neighbours (Megatron: tp-cp-dp-pp; Llama 3: tp-cp-pp-dp); dimensions
    that are left out follow, ``ep`` just before ``dp``."""
    expert_tp: int | None = Field(default=None, gt=0)
    """GPUs that cut one expert; null: 1 where ep > 1 (parallel folding), else tp."""
    stage_gpus: tuple[Gpu, ...] = ()
    """GPU types of the pipeline ranks, repeated evenly over them (two types on pp 8: four ranks each); empty: the
    node's."""
    replica_gpus: tuple[Gpu, ...] = ()
    """GPU types of the data-parallel replicas, repeated evenly over them; the slowest sets the pace. Empty: the
    node's."""
    stage_layout: str | None = None
    """Layers of each stage as a Megatron layout string (``E|(t|)*10m|L``), or ``balanced``: dealt out by cost, the head
    among them (nanotron); null: spread evenly."""

    @field_validator("order")
    @classmethod
    def _known_dimensions(cls, value: str) -> str:
        parse_order(value)
        return value

    @property
    def cuts(self) -> Cuts:
        """Which state is cut over replicas: what the ZeRO stage cuts, unless ``shard`` gives a degree of its own."""
        own = (self.shard.parameters, self.shard.gradients, self.shard.optimizer)
        stages = (3, 2, 1)
        return Cuts(
            *(self.zero >= least if degree is None else degree > 1 for degree, least in zip(own, stages, strict=True))
        )

    @property
    def dimensions(self) -> tuple[str, ...]:
        """All dimensions, innermost first."""
        return parse_order(self.order)
