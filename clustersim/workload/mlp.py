"""Op list of the MLP half of a layer: dense, or a mixture of experts with its all-to-all."""

from __future__ import annotations

from clustersim.workload.layers import LayerOp, Slice, enter_tp, gemm, leave_tp, memory, message
from clustersim.workload.model import MixtureOfExperts, TransformerModel
from clustersim.workload.precision import OpClass
from clustersim.workload.stack import Stack


def mlp_ops(model: TransformerModel, cut: Slice, stack: Stack, width: int | None = None) -> list[LayerOp]:
    """A dense MLP of ``width`` (default: the model's): up (and gate), activation, down."""
    width = width or model.ffn_hidden
    return [
        *enter_tp(cut, model.hidden, "mlp"),
        *_products(model, stack, cut, "mlp", "linear", cut.tokens, width // cut.tp, 1),
        *leave_tp(cut, model.hidden, "mlp"),
    ]


def _products(
    model: TransformerModel, stack: Stack, cut: Slice, part: str, op_class: OpClass, tokens: int, width: int, batch: int
) -> list[LayerOp]:
    matrices = 2 if model.gated_mlp else 1
    biased = model.biases and not stack.fused_bias_gradient
    return [
        *gemm("up", part, tokens, matrices * width, model.hidden, op_class, batch),
        *memory("up bias", part, 0.0, cut.width * tokens * matrices * width * batch if biased else 0.0),
        *_activation(model, stack, cut, tokens * width * batch),
        *gemm("down", part, tokens, model.hidden, width, op_class, batch),
    ]


def _activation(model: TransformerModel, stack: Stack, cut: Slice, elements: float) -> list[LayerOp]:
    forward, backward = (6.0, 10.0) if model.gated_mlp else (4.0, 8.0)
    extra = 0.0 if stack.fused_activation else 8.0
    scale = cut.width / 2 * elements
    return memory("activation", "activation", (forward + extra) * scale, (backward + extra) * scale)


def moe_ops(model: TransformerModel, cut: Slice, stack: Stack) -> list[LayerOp]:
    """A mixture of experts: route, permute, dispatch, expert products, combine, and the shared experts beside them.

    The busiest expert-parallel rank sets the pace: its load is ``imbalance`` × the mean. With a capacity, an expert
    works on ``capacity_factor`` × its even share whatever arrives; dropless, on what arrives.
    """
    moe = model.moe
    assert moe is not None
    shared = mlp_ops(model, cut, stack, moe.shared_experts * moe.expert_ffn_hidden) if moe.shared_experts else []
    return [*_routing(model, moe, cut), *_experts(model, moe, cut, stack), *shared]


def routed_tokens(moe: MixtureOfExperts, cut: Slice) -> float:
    """Token copies that this GPU sends to experts: each of its own tokens goes to ``top_k`` of them."""
    own = cut.tokens / cut.tp if cut.tp > 1 and (cut.sequence_parallel or cut.expert_tp == 1) else float(cut.tokens)
    return own * moe.top_k


def _routing(model: TransformerModel, moe: MixtureOfExperts, cut: Slice) -> list[LayerOp]:
    tokens = max(1, round(routed_tokens(moe, cut) / moe.top_k))
    copies = routed_tokens(moe, cut) * model.hidden * cut.width
    return [
        *gemm("router", "moe", tokens, moe.experts, model.hidden, "head"),
        *memory("route", "moe", 12.0 * tokens * moe.experts, 12.0 * tokens * moe.experts),
        *memory("permute", "moe", 2.0 * copies, 2.0 * copies),
        *memory("unpermute", "moe", 2.0 * copies, 2.0 * copies),
    ]


def _experts(model: TransformerModel, moe: MixtureOfExperts, cut: Slice, stack: Stack) -> list[LayerOp]:
    arrived = routed_tokens(moe, cut) * _load(moe) * cut.expert_tp
    local = max(1, moe.experts // cut.ep)
    each = max(1, round(arrived / local))
    products = _products(model, stack, cut, "moe", "expert", each, moe.expert_ffn_hidden // cut.expert_tp, local)
    return [*_exchange(model, moe, cut, "dispatch"), *products, *_exchange(model, moe, cut, "combine")]


def _load(moe: MixtureOfExperts) -> float:
    """Work of the busiest rank ÷ even share."""
    return moe.capacity_factor if moe.capacity_factor is not None else moe.imbalance


def _exchange(model: TransformerModel, moe: MixtureOfExperts, cut: Slice, name: str) -> list[LayerOp]:
    """All-to-all over expert-parallel ranks; experts cut by TP gather their tokens as well."""
    size = routed_tokens(moe, cut) * _load(moe) * model.hidden * cut.width
    ops = message(name, "moe", "ep", "all-to-all", "all-to-all", size) if cut.ep > 1 else []
    if cut.expert_tp > 1:
        inward = name == "dispatch"
        forward, backward = ("all-gather", "reduce-scatter") if inward else ("reduce-scatter", "all-gather")
        ops += message(name, "moe", "tp", forward, backward, size * cut.expert_tp)  # type: ignore[arg-type]
    return ops
