"""How many parameters a transformer has: by part, by layer, by pipeline stage and by GPU. All counts are exact.

Linear layers are counted with their biases where the model has them; a norm has h weights, and h biases more where it
is a LayerNorm of a model with biases. A tied output head adds nothing to the model, but with pipeline parallelism its
stage holds a copy of the embedding, unless both lie on one rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clustersim.workload.model import LatentAttention, TransformerModel
from clustersim.workload.stages import LocalParameters, StageContent


class LayerParameters(NamedTuple):
    """Parameters of one layer, by part."""

    attention: int
    mlp: int
    """A dense MLP, or the shared experts."""
    experts: int
    """All routed experts together."""
    router: int
    norms: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


class ModelParameters(NamedTuple):
    """Parameters of a whole model, by part."""

    embedding: int
    layers: int
    final_norm: int
    head: int
    """0 where the head is the embedding."""
    active: int
    """Parameters that one token passes: all but the experts that it is not routed to (without prediction modules)."""
    mtp: int
    """Multi-token-prediction modules, without the embedding and head that they share."""

    @property
    def total(self) -> int:
        """The model as its authors count it: without multi-token prediction."""
        return self.embedding + self.layers + self.final_norm + self.head


def norm_parameters(model: TransformerModel) -> int:
    """Parameters of one norm over the hidden size."""
    return model.hidden * (2 if model.norm == "layernorm" and model.biases else 1)


def attention_parameters(model: TransformerModel) -> int:
    """Projections into queries, keys and values, and back; with their biases and inner norms."""
    if model.latent is not None:
        return _latent_parameters(model, model.latent)
    query, key_value = model.heads * model.head_size, 2 * model.kv * model.head_size
    weights = model.hidden * (2 * query + key_value)
    biases = (query + key_value if model.biases or model.qkv_bias else 0) + (model.hidden if model.biases else 0)
    return weights + biases + (2 * model.head_size if model.qk_norm else 0)


def _latent_parameters(model: TransformerModel, latent: LatentAttention) -> int:
    """Multi-head latent attention: down and up projections, two inner norms (arXiv 2405.04434, section 2.1)."""
    query = model.heads * (latent.nope_head_dim + latent.rope_head_dim)
    up = latent.kv_rank * model.heads * (latent.nope_head_dim + latent.v_head_dim)
    keys = model.hidden * (latent.kv_rank + latent.rope_head_dim) + latent.kv_rank + up
    if latent.q_rank is None:
        queries = model.hidden * query
    else:
        queries = latent.q_rank * (model.hidden + 1 + query)
    return queries + keys + model.heads * latent.v_head_dim * model.hidden


def mlp_parameters(model: TransformerModel, width: int) -> int:
    """An MLP of inner ``width``: three matrices where it is gated, else two; with biases where the model has them."""
    inner = 2 * width if model.gated_mlp else width
    return model.hidden * (inner + width) + (inner + model.hidden if model.biases else 0)


def layer_counts(model: TransformerModel) -> tuple[int, int]:
    """Layers with a dense MLP, and layers with experts."""
    dense = model.layers if model.moe is None else min(model.layers, model.moe.dense_layers)
    return dense, model.layers - dense


def layer_parameters(model: TransformerModel, moe: bool) -> LayerParameters:
    """Parameters of one layer; ``moe`` says whether its MLP is a mixture of experts."""
    norms = norm_parameters(model) * (1 if model.parallel_block else 2)
    if model.moe is None or not moe:
        return LayerParameters(attention_parameters(model), mlp_parameters(model, model.ffn_hidden), 0, 0, norms)
    shape = model.moe
    expert = mlp_parameters(model, shape.expert_ffn_hidden)
    return LayerParameters(attention_parameters(model), shape.shared_experts * expert, shape.experts * expert,
                           model.hidden * shape.experts, norms)  # fmt: skip


def embedding_parameters(model: TransformerModel) -> int:
    """Word embedding, learned positions, and the norm behind them where the model has one."""
    norm = norm_parameters(model) if model.embedding_norm else 0
    return (model.vocab + model.positions) * model.hidden + norm


def mtp_parameters(model: TransformerModel) -> int:
    """One prediction module: a layer, three norms, a projection of 2h to h (arXiv 2412.19437, section 2.2)."""
    layer = layer_parameters(model, model.moe is not None)
    return layer.total + 3 * norm_parameters(model) + 2 * model.hidden**2


def model_parameters(model: TransformerModel) -> ModelParameters:
    """Parameters of the whole model."""
    dense, moe = layer_counts(model)
    expert_layer = layer_parameters(model, True)
    total = dense * layer_parameters(model, False).total + moe * expert_layer.total
    embedding, norm = embedding_parameters(model), norm_parameters(model)
    head = 0 if model.tied_embeddings else model.vocab * model.hidden
    idle = 0
    if model.moe is not None:
        idle = moe * expert_layer.experts * (model.moe.experts - model.moe.top_k) // model.moe.experts
    return ModelParameters(embedding, total, norm, head, embedding + total + norm + head - idle,
                           model.mtp_layers * mtp_parameters(model))  # fmt: skip


def stage_parameters(model: TransformerModel, stage: StageContent) -> int:
    """Parameters of one stage over all its GPUs; a tied head beside its embedding counts once."""
    count = stage.dense * layer_parameters(model, False).total + stage.moe * layer_parameters(model, True).total
    if stage.embedding:
        count += embedding_parameters(model)
    if stage.head:
        count += norm_parameters(model)
        count += 0 if model.tied_embeddings and stage.embedding else model.vocab * model.hidden
    return count + stage.mtp * mtp_parameters(model)


def local_layer(model: TransformerModel, moe: bool, *, tp: int = 1, ep: int = 1, expert_tp: int = 1) -> LocalParameters:
    """Parameters that one GPU holds of one layer.

    Tensor parallelism cuts the projections and the MLP; norms, the router and the biases behind a row-cut matrix stay
    whole. Key/value heads are repeated where there are fewer than ``tp``. Experts are spread over ``ep`` GPUs, each cut
    over ``expert_tp``.
    """
    layer = layer_parameters(model, moe)
    dense = _local_attention(model, tp) + _local_mlp(model, layer.mlp, tp) + layer.router + layer.norms
    return LocalParameters(dense, layer.experts / (ep * expert_tp))


def local_parameters(model: TransformerModel, stage: StageContent, *, tp: int = 1, ep: int = 1,
                     expert_tp: int = 1) -> LocalParameters:  # fmt: skip
    """Parameters that one GPU holds of a stage; the vocabulary is cut over ``tp``, learned positions are not."""
    held = LocalParameters(_local_vocabulary(model, stage, tp))
    for moe, count in ((False, stage.dense), (True, stage.moe)):
        if count:
            held = held.plus(local_layer(model, moe, tp=tp, ep=ep, expert_tp=expert_tp), count)
    if stage.mtp:
        held = held.plus(local_layer(model, model.moe is not None, tp=tp, ep=ep, expert_tp=expert_tp), stage.mtp)
        held = held.plus(LocalParameters(3 * norm_parameters(model) + 2 * model.hidden**2 / tp), stage.mtp)
    return held


def shared_vocabulary(model: TransformerModel, stages: Iterable[StageContent], *, tp: int = 1) -> float:
    """Parameters that the sum over a GPU's ``stages`` counts more than once: a tied embedding is one matrix, wherever
    its first and last stage lie on one GPU (placements in a V, two chains)."""
    if not model.tied_embeddings:
        return 0.0
    copies = sum(stage.embedding or stage.head for stage in stages)
    return max(0, copies - 1) * model.vocab * model.hidden / tp


def frozen_parameters(model: TransformerModel, stage: StageContent, *, tp: int = 1, ep: int = 1,
                      expert_tp: int = 1) -> LocalParameters:  # fmt: skip
    """Those of ``local_parameters`` that are not trained: frozen layers, and the embedding below them."""
    held = LocalParameters()
    for moe, count in ((False, stage.frozen_dense), (True, stage.frozen_moe)):
        if count:
            held = held.plus(local_layer(model, moe, tp=tp, ep=ep, expert_tp=expert_tp), count)
    if stage.embedding and (stage.frozen_dense or stage.frozen_moe or stage.no_backward):
        held = held.plus(local_parameters(model, StageContent(embedding=True), tp=tp, ep=ep, expert_tp=expert_tp))
    return held


def _local_attention(model: TransformerModel, tp: int) -> float:
    whole = attention_parameters(model)
    if model.latent is not None:  # the down projections and their norms are repeated on every tensor-parallel rank
        latent = model.latent
        down = (latent.q_rank or 0) * (model.hidden + 1) + latent.kv_rank
        down += model.hidden * (latent.kv_rank + latent.rope_head_dim)
        return down + (whole - down) / tp
    repeated = (model.hidden if model.biases else 0) + (2 * model.head_size if model.qk_norm else 0)
    copies = max(1.0, tp / model.kv) - 1.0
    key_value = 2 * model.kv * model.head_size * (model.hidden + (1 if model.biases or model.qkv_bias else 0))
    return repeated + (whole - repeated + copies * key_value) / tp


def _local_mlp(model: TransformerModel, count: int, tp: int) -> float:
    repeated = model.hidden if model.biases and count else 0
    return repeated + (count - repeated) / tp


def _local_vocabulary(model: TransformerModel, stage: StageContent, tp: int) -> float:
    words = model.vocab * model.hidden / tp
    count = 0.0
    if stage.embedding:
        count += words + embedding_parameters(model) - model.vocab * model.hidden
    if stage.head:
        count += norm_parameters(model) + (0.0 if model.tied_embeddings and stage.embedding else words)
    return count
