"""What is trained and how: batch, sequence, precision, optimizer, recompute, length."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from clustersim.hardware.gpu import Precision
from clustersim.part import Block, Part
from clustersim.units import PositiveSeconds

GradDtype = Literal["fp32", "bf16", "fp16"]
RecomputeOp = Literal["norm", "activation", "attention", "attention-core", "mlp", "moe"]


class Optimizer(Part, family="optimizer"):
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


class FullRecompute(Recompute, kind="full"):
    """Keep only a layer's input and run its forward again; ``layers`` a stage, null for all."""

    layers: int | None = Field(default=None, ge=0)


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
    optimizer: Optimizer = Adam()
    recompute: Recompute = NoRecompute()

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        given = [key for key in ("duration", "steps", "tokens") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of duration, steps and tokens (given: {', '.join(given) or 'none'})")
        return self

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one step."""
        return self.global_batch * self.seq_len

    def replace(self, **changes: Any) -> Self:
        """A copy with other values."""
        return type(self).model_validate({**self.model_dump(), **changes})
