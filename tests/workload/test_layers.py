"""Op lists: FLOP against the model's formula, bytes against the counts, messages against the papers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from clustersim.workload.ends import embedding_ops, head_ops, mtp_ops
from clustersim.workload.flops import layer_flop
from clustersim.workload.layers import LayerOp, layer_ops
from clustersim.workload.model import TransformerModel
from clustersim.workload.stack import Stack
from tests.workload.jobs import cut, gpt, llama

STACK = Stack.preset("nemo-2024")
MODELS = ["llama3-8b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "palm-540b"]


def flop(ops: list[LayerOp], when: str, work: str = "") -> float:
    return sum(op.flop for op in ops if op.when == when and (not work or op.work == work))


@pytest.mark.parametrize("name", MODELS)
def test_forward_flop_is_the_model_formula(name: str) -> None:
    model = TransformerModel.preset(name)
    for moe in {model.moe is not None, False} if model.moe is None or model.moe.dense_layers else {True}:
        index = model.layers - 1 if moe else 0
        ops = layer_ops(model, cut(4096), STACK, moe)
        counted = layer_flop(model, index, 4096)
        assert flop(ops, "F") == pytest.approx(counted.total * 4096, rel=2e-3), moe
        products = sum(op.flop for op in ops if op.work == "gemm" and op.when != "F")
        assert products == pytest.approx(2 * flop(ops, "F", "gemm"))


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize("name", ["llama3-8b", "gpt3-175b", "deepseek-v3"])
def test_tensor_parallel_ranks_share_the_work(name: str, tp: int) -> None:
    """All but what every rank repeats (latent down-projections of DeepSeek) is cut by TP."""
    model = TransformerModel.preset(name)
    whole = flop(layer_ops(model, cut(4096), STACK, False), "F")
    part = flop(layer_ops(model, cut(4096, tp=tp), STACK, False), "F")
    repeated = 0.0
    if model.latent is not None:
        down = (model.latent.q_rank or 0) + model.latent.kv_rank + model.latent.rope_head_dim
        repeated = 2 * 4096 * down * model.hidden
    assert tp * (part - repeated) + repeated == pytest.approx(whole, rel=1e-12)


def messages(ops: list[LayerOp]) -> Counter[tuple[str, str]]:
    return Counter((op.when, op.collective or "") for op in ops if op.axis == "tp")


def test_messages_without_sequence_parallelism() -> None:
    """Megatron-LM (arXiv 1909.08053): two all-reduces forward, two backward, of T·h elements."""
    ops = layer_ops(llama(), cut(tp=4), STACK, False)
    assert messages(ops) == {("F", "all-reduce"): 2, ("I", "all-reduce"): 2}
    assert {op.bytes for op in ops if op.axis == "tp"} == {2.0 * 2048 * 2048}


def test_messages_with_sequence_parallelism() -> None:
    """Korthikanti et al. 2022: gathers and scatters take their place, and the input is gathered again for its
    weights."""
    ops = layer_ops(llama(), cut(tp=4, sequence_parallel=True), STACK, False)
    assert messages(ops) == {
        ("F", "all-gather"): 2,
        ("F", "reduce-scatter"): 2,
        ("I", "all-gather"): 2,
        ("I", "reduce-scatter"): 2,
        ("W", "all-gather"): 2,
    }
    assert not messages(layer_ops(llama(), cut(), STACK, False))


def test_a_parallel_block_sends_half() -> None:
    """PaLM's block: one norm, one residual, one pair of messages."""
    serial = layer_ops(llama(), cut(tp=4), STACK, False)
    parallel = layer_ops(llama(parallel_block=True), cut(tp=4), STACK, False)
    assert sum(messages(parallel).values()) * 2 == sum(messages(serial).values())
    assert flop(parallel, "F") == flop(serial, "F")
    assert sum(op.name == "norm" for op in parallel if op.when == "F") == 1


def memory_bytes(model: TransformerModel, stack: Stack = STACK, **how: Any) -> dict[str, float]:
    sizes: Counter[str] = Counter()
    for op in layer_ops(model, cut(**how), stack, False):
        if op.work == "memory":
            sizes[op.when] += op.bytes
    return dict(sizes)


def test_elementwise_bytes_of_a_gpt_layer() -> None:
    """Per token: norms 2·4·h and 2·8·h; bias-dropout-add 2·7·h and 2·5·h; gradient adds 2·4·h; GELU 4·f and 8·f."""
    h, f, tokens = 2048, 8192, 2048
    bytes_ = memory_bytes(gpt())
    assert bytes_["F"] == tokens * (8 * h + 14 * h + 4 * f)
    assert bytes_["I"] == tokens * (16 * h + 10 * h + 8 * h + 8 * f)


def test_elementwise_bytes_of_a_llama_layer() -> None:
    """No dropout: 6·h and 4·h; SwiGLU 6·f and 10·f; rotary 4·(q + k) each way."""
    h, f, tokens = 2048, 6144, 2048
    bytes_ = memory_bytes(llama())
    assert bytes_["F"] == tokens * (8 * h + 12 * h + 6 * f + 4 * 2 * h)
    assert bytes_["I"] == tokens * (16 * h + 8 * h + 8 * h + 10 * f + 4 * 2 * h)


def test_sequence_parallelism_cuts_what_lies_between() -> None:
    whole, part = memory_bytes(gpt(), tp=4), memory_bytes(gpt(), tp=4, sequence_parallel=True)
    inside = 4 * 8192 / 4 * 2048
    assert part["F"] - inside == pytest.approx((whole["F"] - inside) / 4)


@pytest.mark.parametrize("field", ["fused_norm", "fused_rotary", "fused_activation", "fused_dropout_add"])
def test_every_fusion_saves_memory_traffic(field: str) -> None:
    plain = STACK.model_copy(update={field: False})
    assert memory_bytes(llama(), plain)["F"] > memory_bytes(llama())["F"]


def test_experts_work_on_top_k_tokens_with_imbalance_and_capacity() -> None:
    model = TransformerModel.preset("mixtral-8x7b")
    assert model.moe is not None
    base = layer_ops(model, cut(4096, ep=8), STACK, True)

    def experts(ops: list[LayerOp]) -> float:
        return sum(op.flop for op in ops if op.op_class == "expert" and op.when == "F")

    assert experts(base) == 3 * 2 * 4096 * 2 * model.hidden * model.moe.expert_ffn_hidden
    uneven = model.replace(moe={**model.moe.model_dump(), "imbalance": 1.25})
    assert experts(layer_ops(uneven, cut(4096, ep=8), STACK, True)) == pytest.approx(1.25 * experts(base), rel=1e-3)
    capped = model.replace(moe={**model.moe.model_dump(), "imbalance": 2.0, "capacity_factor": 1.0})
    assert experts(layer_ops(capped, cut(4096, ep=8), STACK, True)) == experts(base)


def test_dispatch_and_combine_carry_top_k_copies() -> None:
    model = TransformerModel.preset("mixtral-8x7b")
    ops = [op for op in layer_ops(model, cut(4096, ep=8), STACK, True) if op.axis == "ep"]
    assert Counter((op.name, op.when) for op in ops) == {
        ("dispatch", "F"): 1,
        ("dispatch", "I"): 1,
        ("combine", "F"): 1,
        ("combine", "I"): 1,
    }
    assert {op.bytes for op in ops} == {4096 * 2 * model.hidden * 2.0}
    assert not [op for op in layer_ops(model, cut(4096), STACK, True) if op.axis == "ep"]


def test_context_parallel_ring_carries_keys_and_values() -> None:
    model = llama(kv_heads=4)
    part = cut(4096, cp=4)._replace(tokens=1024)
    ops = [op for op in layer_ops(model, part, STACK, False) if op.axis == "cp"]
    each = 2 * 1024 * 4 * 128 * 2
    assert [(op.when, op.bytes) for op in ops] == [("F", each), ("I", 2 * each)]


def test_head_and_embedding() -> None:
    model = llama()
    head = head_ops(model, cut(tp=4), STACK)
    assert flop(head, "F") == 2 * 2048 * 8000 * 2048
    loss = sum(op.bytes for op in head if op.name == "loss" and op.work == "memory")
    assert loss == 52 * 2048 * 8000
    assert flop(embedding_ops(model, cut(tp=4), STACK), "F") == 0
    assert flop(mtp_ops(model, cut()), "F") == 2 * 2048 * 2 * 2048**2


def test_biases_outside_the_products() -> None:
    """QKV bias 4·3h forward; bias gradients one read of each output: 2·3h, 2·f, and 2·h after each half."""
    plain = STACK.model_copy(update={"fused_bias": False, "fused_bias_gradient": False})
    h, f, tokens = 2048, 8192, 2048
    fused, apart = memory_bytes(gpt()), memory_bytes(gpt(), plain)
    assert apart["F"] - fused["F"] == tokens * 12 * h
    assert apart["I"] - fused["I"] == tokens * (6 * h + 2 * f + 4 * h)
    assert memory_bytes(llama(), plain) == memory_bytes(llama())


def test_unfused_attention_copies_between_layouts() -> None:
    """Its output to rows, 4·h forward; backward the gradients of Q, K and V are joined, 4·3h."""
    plain = STACK.model_copy(update={"attention": "unfused"})
    fused, apart = memory_bytes(gpt()), memory_bytes(gpt(), plain)
    assert apart["F"] - fused["F"] == 2048 * 4 * 2048
    assert apart["I"] - fused["I"] == 2048 * 12 * 2048
