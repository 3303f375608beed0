"""What is trained and how: batch, sequence, precision, optimizer, recompute, length."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from clustersim.hardware.gpu import Precision
from clustersim.part import Block, Part
from clustersim.units import PositiveBytesPerSecond, PositiveSeconds, PositiveWatts, Seconds
from clustersim.workload.precision import NARROW, OpPrecision, element_bytes
from clustersim.workload.stack import Stack

if TYPE_CHECKING:
    from clustersim.workload.model import TransformerModel

GradDtype = Literal["fp32", "bf16", "fp16"]
RecomputeOp = Literal["norm", "activation", "attention", "attention-core", "latent-up", "mlp", "moe", "alternate-products"]


class Optimizer(Part, family="optimizer", implied="adam"):
    """An optimizer: bytes of state a parameter beside the 16-bit weights and the gradients."""

    state_bytes_per_param: float = Field(default=12.0, ge=0)


class Adam(Optimizer, kind="adam"):
    """fp32 master copy and two fp32 moments: 12 bytes."""


class Sgd(Optimizer, kind="sgd"):
    """fp32 master copy and momentum: 8 bytes."""

    state_bytes_per_param: float = Field(default=8.0, ge=0)


class Muon(Optimizer, kind="muon"):
    """fp32 master copy and one moment: 8 bytes; orthogonalisation costs matrix products."""

    state_bytes_per_param: float = Field(default=8.0, ge=0)


class Recompute(Part, family="recompute"):
    """Which activations are recomputed in the backward pass instead of kept."""


class NoRecompute(Recompute, kind="none"):
    """Keep all."""


class SelectiveRecompute(Recompute, kind="selective"):
    """Recompute single ops. The default is the core attention (Korthikanti et al. 2022)."""

    ops: tuple[RecomputeOp, ...] = ("attention-core",)
    """``latent-up``: the up projections of multi-head latent attention (``mla_up_proj`` of Megatron-Core)."""


class FullRecompute(Recompute, kind="full"):
    """Keep only a layer's input and run its forward again; ``layers`` a stage, null for all."""

    layers: int | None = Field(default=None, ge=0)


def nothing_to_recompute(model: TransformerModel, recompute: Recompute) -> list[str]:
    """Sentences on ops that are to be recomputed and that the model has not."""
    ops = recompute.ops if isinstance(recompute, SelectiveRecompute) else ()
    found = []
    if "latent-up" in ops and model.latent is None:
        found.append("'latent-up' needs multi-head latent attention, which the model has not")
    if "moe" in ops and model.moe is None:
        found.append("'moe' needs a mixture of experts, which the model has not")
    return found


class Lora(Block):
    """Low-rank adapters beside frozen matrices (Hu et al. 2021): only the adapters have weight gradients and state."""

    rank: int = Field(default=16, gt=0)
    targets: tuple[Literal["attention", "mlp"], ...] = ("attention", "mlp")


class DataLoading(Block):
    """Where the batches come from: seconds of loading a step, what is loaded ahead, and how often the source hangs.

    Loading runs beside the step. It shows where ``time`` is longer than the step, and where a stall outlasts the
    ``prefetch`` steps that are ready.
    """

    time: Seconds = 0.0
    """Host seconds to read, decode and collate one step's batch (all workers of the slowest node together)."""
    prefetch: int = Field(default=2, ge=0)
    """Steps that are loaded ahead; 0: loading and step alternate."""
    stall: Seconds = 0.0
    """Length of one stall of the source (a slow disk, a cold shard)."""
    stall_every: int = Field(default=1000, gt=0)
    """Steps between stalls, on average."""


class StepNoise(Block):
    """Noise of a step as a factor with mean 1: lognormal with this relative standard deviation.

    Logged steps of one MLPerf run spread by 0.3 % (median over the NVIDIA logs of v3.0 to v5.0), skewed to the slow
    side.
    """

    sd: float = Field(default=0.003, ge=0, le=1)

    def factors(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """``count`` independent factors, shape (count,), mean 1."""
        variance = math.log1p(self.sd**2)
        return np.exp(rng.normal(-variance / 2, math.sqrt(variance), count))


class Offload(Block):
    """What lives in host memory or on NVMe instead of the GPU. Copies run on queues of their own beside computation."""

    optimizer: Literal["none", "cpu", "nvme"] = "none"
    """Where optimizer state lives; off the GPU the update runs on the host (ZeRO-Offload) or streams through NVMe."""
    parameters: Literal["none", "cpu", "nvme"] = "none"
    activations: float = Field(default=0.0, ge=0, le=1)
    """Share of the kept activations that is copied out and back."""
    ratio: float = Field(default=1.0, ge=0, le=1)
    """Share of the optimizer state that is off the GPU; the GPU updates the rest (TwinFlow)."""
    gpu_every: int | None = Field(default=None, gt=1)
    """Every n-th part of the state is copied to the GPU, updated there and copied back (Deep Optimizer States)."""
    host_memory_rate: PositiveBytesPerSecond = 140e9
    """Host memory bandwidth of a node that a CPU optimizer sustains: 0.34 of two sockets of 204.8 GB/s."""
    overlap: bool = True
    """Whether the four queues (GPU, copies out, copies in, host) run beside one another."""


class Training(Block):
    """One training job. Exactly one of ``duration``, ``steps`` and ``tokens`` ends it."""

    seq_len: int = Field(gt=0)
    global_batch: int = Field(gt=0)
    """Sequences a step."""
    micro_batch: int = Field(default=1, gt=0)
    """Sequences a microbatch."""
    duration: PositiveSeconds | None = None
    steps: int | None = Field(default=None, gt=0)
    tokens: float | None = Field(default=None, gt=0)
    precision: Precision = "bf16"
    mfu: Literal["causal-half", "full-attention"] = "causal-half"
    grad_dtype: GradDtype = "fp32"
    narrow_weights: bool = False
    """In fp8 and narrower: layers hold their weights in that format alone (Transformer Engine's ``fp8_model_init``,
    Megatron's ``fp8-param-gather``): no 16-bit copy, and fp8 weights are gathered as such (formats with a scale per
    block still in 16 bits: their rows and columns are scaled apart). Embedding and head stay in 16 bits."""
    optimizer: Optimizer = Adam()
    recompute: Recompute = NoRecompute()
    stack: Stack | None = None
    """Software stack: a preset's name or a mapping; null: the default of the GPU's generation."""
    op_precision: OpPrecision = OpPrecision()
    """Precision of single op classes; null ones follow from ``precision``."""
    mask_share: float = Field(default=1.0, gt=0, le=1)
    """Part of the attention pairs that a cross-document mask leaves (1: no such mask)."""
    lora: Lora | None = None
    frozen_layers: int = Field(default=0, ge=0)
    """First layers (with the embedding) that are not trained: no weight gradients, no state, no backward below them."""
    offload: Offload = Offload()
    data: DataLoading = DataLoading()
    step_time: PositiveSeconds | None = None
    """Seconds of an undisturbed step where they are known (published, measured): the step model's answers, breakdown and
    steps under conditions alike, are scaled to it. Null: the step model says. Memory is computed either way."""
    step_noise: StepNoise | None = None
    """Run-to-run noise of a step; null: none."""
    clock: float = Field(default=1.0, gt=0, le=1.5)
    """Clock against the one that the GPU's efficiencies were measured at (heat, locked clocks)."""
    power_cap: PositiveWatts | None = None
    """Power that a GPU may draw, where less than its nominal: the clock falls with its root of fourth order."""

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        given = [key for key in ("duration", "steps", "tokens") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of duration, steps and tokens (given: {', '.join(given) or 'none'})")
        return self

    @model_validator(mode="after")
    def _narrow(self) -> Self:
        if self.narrow_weights and self.precision not in NARROW:
            raise ValueError(f"narrow_weights needs a precision of 8 bits or fewer, not {self.precision}")
        return self

    @property
    def gathered_bytes(self) -> float:
        """Bytes of a layer's weight on its way to the ranks that use it."""
        return element_bytes(self.precision) if self.narrow_weights and self.precision == "fp8" else 2.0

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one step."""
        return self.global_batch * self.seq_len

    def replace(self, **changes: Any) -> Self:
        """A copy with other values."""
        return type(self).model_validate({**self.model_dump(), **changes})
