"""Op list of the attention half of a layer: projections, rotary embedding, core attention, context-parallel traffic."""

from __future__ import annotations

from typing import NamedTuple

from clustersim.workload.attention import BACKWARD_FLOP, AttentionShape, core_flop, is_causal
from clustersim.workload.layers import LayerOp, Slice, enter_tp, gemm, leave_tp, memory, message
from clustersim.workload.model import LatentAttention, Linear, TransformerModel
from clustersim.workload.stack import Stack


def attention_ops(model: TransformerModel, cut: Slice, stack: Stack) -> list[LayerOp]:
    """Ops of the attention half: enter TP, project, rotate, attend, project back, leave TP."""
    project = _latent_projections(model, model.latent, cut, stack) if model.latent else _projections(model, cut, stack)
    shape = attention_shape(model, cut)
    value_width = round(shape.heads * shape.value_dim)
    return [
        *enter_tp(cut, model.hidden, "attention"),
        *project,
        *context_messages(model, cut, shape),
        *core_ops(model, cut, stack, shape),
        *_layout_copies(model, cut, stack, shape),
        *gemm("attention out", "attention", cut.tokens, model.hidden, value_width),
        *leave_tp(cut, model.hidden, "attention"),
    ]


def attention_shape(model: TransformerModel, cut: Slice) -> AttentionShape:
    """Core attention of this GPU; key/value heads fewer than TP ranks are replicated."""
    heads = model.heads / cut.tp
    kv = max(1.0, model.kv / cut.tp)
    if model.latent:
        qk, value = model.latent.nope_head_dim + model.latent.rope_head_dim, model.latent.v_head_dim
        return AttentionShape(cut.sequences, heads, heads, cut.length, qk, value, 1 / cut.cp)
    return AttentionShape(cut.sequences, heads, kv, cut.length, model.head_size, model.head_size, 1 / cut.cp)


def _projections(model: TransformerModel, cut: Slice, stack: Stack) -> list[LayerOp]:
    shape = attention_shape(model, cut)
    width = round((shape.heads + 2 * shape.kv_heads) * model.head_size)
    ops = gemm("qkv", "attention", cut.tokens, width, model.hidden) + _qkv_bias(model, cut, stack, width)
    return ops + _rotary(model, cut, stack, (shape.heads + shape.kv_heads) * model.head_size)


def _qkv_bias(model: TransformerModel, cut: Slice, stack: Stack, width: int) -> list[LayerOp]:
    """Where it is no part of the products: one read and write of Q, K, V; backward one read to sum over the tokens."""
    if not (model.biases or model.qkv_bias):
        return []
    each = cut.width * cut.tokens * width
    return memory(
        "qkv bias", "attention", 0.0 if stack.fused_bias else 2 * each, 0.0 if stack.fused_bias_gradient else each
    )


def _rotary(model: TransformerModel, cut: Slice, stack: Stack, width: float) -> list[LayerOp]:
    """Rotation of queries and keys; models with learned positions have none."""
    if model.positions:
        return []
    each = (4.0 if stack.fused_rotary else 12.0) * cut.width / 2 * cut.tokens * width
    return memory("rotary", "attention", each, each)


def _latent_projections(model: TransformerModel, latent: LatentAttention, cut: Slice, stack: Stack) -> list[LayerOp]:
    """Down and up projections of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""
    tokens, h = cut.tokens, model.hidden
    heads = round(model.heads / cut.tp)
    qk = latent.nope_head_dim + latent.rope_head_dim
    ops: list[LayerOp] = []
    if latent.q_rank:
        ops += gemm("q down", "attention", tokens, latent.q_rank, h) + _rank_norm(cut, latent.q_rank)
    ops += gemm("q up", "attention", tokens, heads * qk, latent.q_rank or h)
    ops += gemm("kv down", "attention", tokens, latent.kv_rank + latent.rope_head_dim, h) + _rank_norm(
        cut, latent.kv_rank
    )
    ops += gemm("kv up", "attention", tokens, heads * (latent.nope_head_dim + latent.v_head_dim), latent.kv_rank)
    # keys are put together from the up-projected and the shared rotary part: one copy of keys and queries each way
    assembled = 4.0 * cut.width / 2 * tokens * heads * 2 * qk
    return ops + memory("assemble keys", "attention", assembled, assembled)


def _rank_norm(cut: Slice, rank: int) -> list[LayerOp]:
    return memory("rank norm", "norm", 4.0 * cut.tokens * rank, 8.0 * cut.tokens * rank)


def core_ops(model: TransformerModel, cut: Slice, stack: Stack, shape: AttentionShape) -> list[LayerOp]:
    """Core attention forward and backward; the backward of a flash kernel recomputes the scores."""
    unfused = stack.attention == "unfused" and not isinstance(model.attention, Linear)
    forward = core_flop(model.attention, shape, cut.mask_share, full=unfused)
    backward = (2.0 if unfused else BACKWARD_FLOP) * forward
    return [
        LayerOp("attention core", "F", "attention", "attention-core", forward, op_class="attention"),
        LayerOp("attention core", "I", "attention", "attention-core", backward, op_class="attention"),
    ]


def _layout_copies(model: TransformerModel, cut: Slice, stack: Stack, shape: AttentionShape) -> list[LayerOp]:
    """Unfused attention writes its output by head and copies it to rows; backward it joins the gradients of Q, K and
    V."""
    if stack.attention != "unfused":
        return []
    each = 2.0 * cut.width * cut.tokens
    inputs = shape.heads * shape.head_dim + shape.kv_heads * (shape.head_dim + shape.value_dim)
    return memory("attention layout", "attention", each * shape.heads * shape.value_dim, each * inputs)


def context_messages(model: TransformerModel, cut: Slice, shape: AttentionShape) -> list[LayerOp]:
    """Keys and values that context-parallel ranks pass on: forward once, backward with their gradients (twice the
    bytes).

    ``bytes`` are those of one step of a ring.
    """
    if cut.cp == 1:
        return []
    size = cut.tokens * shape.kv_heads * (shape.head_dim + shape.value_dim) * cut.width
    return message("keys and values", "attention-core", "cp", "ring", "ring", size, 2 * size)


class ContextWork(NamedTuple):
    """What context-parallel ranks exchange in one pass of one layer."""

    ring_bytes: float
    """One step of a ring."""
    tokens: float
    query_width: float
    kv_width: float
    width: float
    causal: bool


def context_work(model: TransformerModel, cut: Slice, shape: AttentionShape, ring_bytes: float) -> ContextWork:
    """The exchange of a layer whose ring step carries ``ring_bytes``."""
    kv = shape.kv_heads * (shape.head_dim + shape.value_dim) / 2
    return ContextWork(ring_bytes, cut.tokens, shape.heads * shape.head_dim, kv, cut.width, is_causal(model.attention))
