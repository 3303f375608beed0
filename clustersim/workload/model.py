"""A transformer: its shape, as written in the scenario. Parameters, FLOP and bytes follow in sibling modules."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from clustersim.part import Block, Part, PresetModel


class Attention(Part, family="attention"):
    """Which positions a token attends to."""


class Causal(Attention, kind="causal"):
    """Every earlier token and itself."""


class Full(Attention, kind="full"):
    """Every token of the sequence."""


class SlidingWindow(Attention, kind="sliding-window"):
    """The last ``window`` tokens."""

    window: int = Field(gt=0)


class Linear(Attention, kind="linear"):
    """A state of fixed size instead of a matrix: O(s·d²)."""


class LatentAttention(Block):
    """Multi-head latent attention (DeepSeek-V2/V3): low-rank keys, values and queries."""

    kv_rank: int = Field(gt=0)
    q_rank: int | None = Field(default=None, gt=0)
    rope_head_dim: int = Field(gt=0)
    nope_head_dim: int = Field(gt=0)
    v_head_dim: int = Field(gt=0)


class MixtureOfExperts(Block):
    """Experts in place of the MLP."""

    experts: int = Field(gt=0)
    top_k: int = Field(gt=0)
    expert_ffn_hidden: int = Field(gt=0)
    shared_experts: int = Field(default=0, ge=0)
    dense_layers: int = Field(default=0, ge=0)
    """First layers that keep a dense MLP."""
    capacity_factor: float | None = Field(default=None, gt=0)
    """Tokens an expert takes ÷ its even share; null: dropless."""
    imbalance: float = Field(default=1.0, ge=1)
    """Load of the busiest expert-parallel rank ÷ the mean (routing balanced by force: 1)."""

    @model_validator(mode="after")
    def _top_k_fits(self) -> Self:
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} is more than the {self.experts} experts")
        return self


class TransformerModel(PresetModel, folder="models"):
    """The shape of a transformer."""

    name: str = "model"
    layers: int = Field(gt=0)
    hidden: int = Field(gt=0)
    ffn_hidden: int = Field(gt=0)
    heads: int = Field(gt=0)
    kv_heads: int | None = Field(default=None, gt=0)
    head_dim: int | None = Field(default=None, gt=0)
    vocab: int = Field(gt=0)
    gated_mlp: bool = True
    """Three MLP matrices (SwiGLU) rather than two (GELU)."""
    tied_embeddings: bool = False
    attention: Attention = Causal()
    latent: LatentAttention | None = None
    moe: MixtureOfExperts | None = None
    positions: int = Field(default=0, ge=0)
    """Learned position embeddings (GPT-2/3: the sequence length); 0 for rotary or ALiBi."""
    biases: bool = False
    """Linear layers and norms have biases (GPT)."""
    qkv_bias: bool = False
    parallel_block: bool = False
    """Attention and MLP read the same normalised input (PaLM, GPT-J, MegaScale)."""
    dropout: bool = False
    mtp_layers: int = Field(default=0, ge=0)
    """Multi-token-prediction layers after the last (DeepSeek-V3: 1)."""
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    qk_norm: bool = False
    """Queries and keys are normalised a head (Qwen3)."""
    embedding_norm: bool = False
    """A norm between the embedding and the first layer (BLOOM)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        kv = self.kv_heads if self.kv_heads is not None else self.heads
        if self.heads % kv:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {kv}")
        if self.head_dim is None and self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is no multiple of heads {self.heads}; give head_dim")
        return self

    @property
    def kv(self) -> int:
        """Key/value heads."""
        return self.kv_heads if self.kv_heads is not None else self.heads

    @property
    def head_size(self) -> int:
        """Size of one head."""
        return self.head_dim if self.head_dim is not None else self.hidden // self.heads

    def replace(self, **changes: Any) -> Self:
        """A copy with other values."""
        return type(self).model_validate({**self.model_dump(), **changes})
