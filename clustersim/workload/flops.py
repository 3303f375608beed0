"""Model FLOP of a training step: the numerator of MFU, and what recomputation adds for HFU.

A matrix product of m × k by k × n counts 2·m·k·n. Backward counts twice the forward. Core attention of one sequence
counts 2·(d_qk + d_v)·heads·pairs forward, where pairs is s²/2 for a causal mask (``causal-half``) or s²
(``full-attention``, the convention of Megatron's papers). The output head counts; the embedding look-up, norms and
other elementwise work do not. Experts count for the tokens routed to them (top-k), never for all. Work that a job does
not do does not count: frozen matrices (LoRA) have no weight gradient, frozen first layers no backward at all; the
adapters themselves (well below 1 %) are left out.
"""

from __future__ import annotations

from typing import NamedTuple

from clustersim.workload.attention import AttentionShape, core_flop
from clustersim.workload.model import Full, Linear, TransformerModel
from clustersim.workload.parameters import layer_counts
from clustersim.workload.training import FullRecompute, SelectiveRecompute, Training

BACKWARD = 2.0
"""Backward FLOP ÷ forward FLOP: gradient of the input and gradient of the weights, a product each."""


class LayerFlop(NamedTuple):
    """Forward FLOP of one layer for one token (core attention: on the average token of its sequence)."""

    projections: float
    core: float
    mlp: float
    """A dense MLP, or router and shared experts."""
    experts: float
    """Routed experts, for the top-k that the token goes to."""

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self)


class StepFlop(NamedTuple):
    """FLOP of one step of the whole job."""

    linear: float
    """Forward and backward of all projections, MLPs and experts."""
    attention: float
    """Forward and backward of core attention."""
    head: float
    """Forward and backward of the output head."""
    mtp: float
    """Forward and backward of multi-token-prediction modules, their output heads included."""
    recompute: float
    """Forward work done a second time; part of HFU, not of MFU."""

    @property
    def model(self) -> float:
        """What MFU counts."""
        return self.linear + self.attention + self.head + self.mtp

    @property
    def hardware(self) -> float:
        """What HFU counts."""
        return self.model + self.recompute


def projection_flop(model: TransformerModel) -> float:
    """Forward FLOP a token of the attention projections of one layer."""
    if model.latent is None:
        return 2.0 * model.hidden * model.head_size * (2 * model.heads + 2 * model.kv)
    latent = model.latent
    query = model.heads * (latent.nope_head_dim + latent.rope_head_dim)
    queries = model.hidden * query if latent.q_rank is None else latent.q_rank * (model.hidden + query)
    up = latent.kv_rank * model.heads * (latent.nope_head_dim + latent.v_head_dim)
    down = model.hidden * (latent.kv_rank + latent.rope_head_dim)
    return 2.0 * (queries + down + up + model.heads * latent.v_head_dim * model.hidden)


def latent_up_flop(model: TransformerModel) -> float:
    """Forward FLOP a token of the up projections of multi-head latent attention in one layer; 0 without it."""
    latent = model.latent
    if latent is None:
        return 0.0
    query = (latent.q_rank or model.hidden) * (latent.nope_head_dim + latent.rope_head_dim)
    return 2.0 * model.heads * (query + latent.kv_rank * (latent.nope_head_dim + latent.v_head_dim))


def core_attention_flop(model: TransformerModel, seq_len: int, *, full: bool) -> float:
    """Forward FLOP of core attention of one layer for one sequence; ``full`` counts the whole square."""
    latent = model.latent
    query = model.head_size if latent is None else latent.nope_head_dim + latent.rope_head_dim
    value = model.head_size if latent is None else latent.v_head_dim
    shape = AttentionShape(1.0, float(model.heads), float(model.kv), seq_len, query, value, 1.0)
    kind = Full() if full and not isinstance(model.attention, Linear) else model.attention
    return core_flop(kind, shape)


def layer_flop(model: TransformerModel, moe: bool, seq_len: int, *, full: bool = False) -> LayerFlop:
    """Forward FLOP of one layer for one token; ``moe`` says whether its MLP is a mixture of experts."""
    core = core_attention_flop(model, seq_len, full=full) / seq_len
    matrices = 3 if model.gated_mlp else 2
    if model.moe is None or not moe:
        return LayerFlop(projection_flop(model), core, 2.0 * matrices * model.hidden * model.ffn_hidden, 0.0)
    expert = 2.0 * matrices * model.hidden * model.moe.expert_ffn_hidden
    router = 2.0 * model.hidden * model.moe.experts
    return LayerFlop(projection_flop(model), core, router + model.moe.shared_experts * expert, model.moe.top_k * expert)


def step_flop(model: TransformerModel, training: Training, stages: int = 1) -> StepFlop:
    """FLOP of one step of the whole job, attention counted as ``training.mfu`` says.

    ``stages`` is the number of pipeline stages (full recomputation of n layers counts a stage).
    """
    tokens, full = float(training.tokens_per_step), training.mfu == "full-attention"
    kinds = [layer_flop(model, moe, training.seq_len, full=full) for moe in (False, True)]
    layers = list(zip(kinds, layer_counts(model), strict=True))
    both = 1.0 + BACKWARD
    products = both if training.lora is None else both - BACKWARD / 2  # input gradients alone
    still = [(layer, count) for layer, count in zip(kinds, _frozen(model, training), strict=True)]
    learning = [(layer, count - idle) for (layer, count), (_, idle) in zip(layers, still, strict=True)]
    core, idle_core = (sum(count * layer.core for layer, count in part) for part in (learning, still))
    linear, idle = (sum(count * (layer.total - layer.core) for layer, count in part) for part in (learning, still))
    head = 2.0 * model.hidden * model.vocab
    last = kinds[model.moe is not None]
    module = products * (last.total - last.core + 4.0 * model.hidden**2 + head) + both * last.core
    again = recompute_flop(model, training, learning, stages)
    return StepFlop(tokens * (products * linear + idle), tokens * (both * core + idle_core), products * tokens * head,
                    tokens * model.mtp_layers * module, tokens * again)  # fmt: skip


def _frozen(model: TransformerModel, training: Training) -> tuple[int, int]:
    """Frozen layers with a dense MLP, and with experts: the first ones, dense ones before the others."""
    dense = min(training.frozen_layers, layer_counts(model)[0])
    return dense, min(training.frozen_layers, model.layers) - dense


def recompute_flop(
    model: TransformerModel, training: Training, layers: list[tuple[LayerFlop, int]], stages: int
) -> float:
    """Forward FLOP a token that the backward pass does again; elementwise ops cost none. ``layers``: kind and count."""
    recompute = training.recompute
    if isinstance(recompute, FullRecompute):
        share = 1.0 if recompute.layers is None else min(1.0, recompute.layers * stages / model.layers)
        return share * sum(count * layer.total for layer, count in layers)
    if not isinstance(recompute, SelectiveRecompute):
        return 0.0
    ops = set(recompute.ops)
    total = 0.0
    for layer, count in layers:
        again = layer.core if ops & {"attention", "attention-core"} else 0.0
        again += layer.projections if "attention" in ops else latent_up_flop(model) if "latent-up" in ops else 0.0
        again += layer.mlp if "mlp" in ops else 0.0
        again += layer.experts if ops & {"moe", "mlp"} else 0.0
        if "alternate-products" in ops:
            again += 2.0 * model.hidden * model.heads * model.head_size + layer.mlp / (3.0 if model.gated_mlp else 2.0)
        total += count * again
    return total
