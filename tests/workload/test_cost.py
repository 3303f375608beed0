"""Seconds of passes against component measurements: one layer of Korthikanti et al., passes of zero bubble, Chimera's
host."""

from __future__ import annotations

from typing import Any

import pytest

from clustersim.pipeline.step import StepModel
from clustersim.workload.cost import ZERO, LayerCost, PassCost
from clustersim.workload.model import TransformerModel
from clustersim.workload.stack import Stack
from tests.workload.jobs import gpt, llama, step

DEEPSEEK = TransformerModel.preset("deepseek-v3").replace(layers=4)


def layer(built: StepModel) -> LayerCost:
    return next(iter(built.costs.blocks.values())).dense_layer


def backward(cost: LayerCost) -> float:
    return cost.recompute.total + cost.input_gradient.total + cost.weight_gradient.total


# arXiv 2205.05198 Table 4: one layer of the 22B model, 8 A100, sequence 2,048, microbatch 4, milliseconds.
# Forward within 3 %, backward within 4.5 %: the printed digit alone is up to 0.7 %.
KORTHIKANTI = [
    ("none", False, 7.7, 11.9),
    ("none", True, 7.2, 11.8),
    ("full", False, 7.7, 19.5),
    ("selective", False, 7.7, 13.2),
    ("selective", True, 7.2, 13.1),
]


@pytest.mark.parametrize(("recompute", "sequence_parallel", "forward_ms", "backward_ms"), KORTHIKANTI)
def test_korthikanti_layer(recompute: str, sequence_parallel: bool, forward_ms: float, backward_ms: float) -> None:
    built = step(
        gpt(48, 6144, 64),
        node="dgx-a100",
        layout={"tp": 8, "sequence_parallel": sequence_parallel},
        micro_batch=4,
        global_batch=4,
        precision="fp16",
        recompute=recompute,
        stack=Stack.preset("megatron-2021"),
    )
    cost = layer(built)
    assert cost.forward.total * 1e3 == pytest.approx(forward_ms, rel=0.03)
    assert backward(cost) * 1e3 == pytest.approx(backward_ms, rel=0.045)


# arXiv 2401.10241 Table 9: one middle stage, one microbatch, milliseconds (F, I, W), at the fewest microbatches
ZERO_BUBBLE = [
    (22, 2304, 24, 8, 3, 6, 18.522, 18.086, 9.337),
    (30, 4096, 32, 8, 4, 3, 29.718, 29.444, 19.927),
    (46, 5120, 40, 16, 3, 1, 11.347, 11.248, 8.132),
    (62, 6144, 48, 32, 2, 1, 10.419, 10.207, 7.715),
]


@pytest.mark.parametrize(("layers", "hidden", "heads", "pp", "held", "micro", "f", "i", "w"), ZERO_BUBBLE)
def test_zero_bubble_passes(
    layers: int, hidden: int, heads: int, pp: int, held: int, micro: int, f: float, i: float, w: float
) -> None:
    built = step(
        gpt(layers, hidden, heads, 1024),
        nodes=max(1, pp // 8),
        node="dgx-a100",
        layout={"pp": pp, "dp": 1},
        seq_len=1024,
        micro_batch=micro,
        global_batch=24 * micro,
        precision="fp16",
        stack=Stack.preset("zero-bubble-2023"),
    )
    cost = layer(built).times(held)
    assert cost.forward.total * 1e3 == pytest.approx(f, rel=0.08)
    assert cost.input_gradient.total * 1e3 == pytest.approx(i, rel=0.06)
    assert cost.weight_gradient.total * 1e3 == pytest.approx(w, rel=0.04)


def test_small_layers_wait_for_the_host() -> None:
    """Chimera's blocks at microbatch 1: 0.84 to 1.31 ms forward whatever the width (prof/*_time_memory*.csv)."""
    built = step(gpt(12, 768, 12, 128), seq_len=128, precision="fp16", stack=Stack.preset("pytorch-2020"))
    cost = layer(built)
    assert 0.84e-3 < cost.forward.total < 1.31e-3
    assert cost.forward.host > cost.forward.gemm
    assert 0.95e-3 < cost.input_gradient.total + cost.weight_gradient.total < 1.35e-3
    wide = layer(step(gpt(12, 8192, 64), precision="fp16", stack=Stack.preset("pytorch-2020")))
    assert wide.forward.host == 0.0


def test_full_recompute_is_one_more_forward() -> None:
    whole, none = layer(step(recompute="full")), layer(step(recompute="none"))
    assert whole.recompute == whole.forward == none.forward
    assert none.recompute == ZERO


@pytest.mark.parametrize("op", ["norm", "activation", "attention", "attention-core", "mlp"])
def test_selective_recompute_costs_part_of_a_forward(op: str) -> None:
    cost = layer(step(recompute={"kind": "selective", "ops": [op]}))
    assert 0 < cost.recompute.total < cost.forward.total
    if op in ("norm", "activation"):
        assert cost.recompute.gemm == 0.0


def test_up_projections_of_latent_attention_are_a_part_of_it() -> None:
    def again(op: str) -> PassCost:
        return layer(step(DEEPSEEK, recompute={"kind": "selective", "ops": [op]})).recompute

    up, whole = again("latent-up"), again("attention")
    assert 0 < up.gemm < whole.gemm
    assert up.attention == 0 < whole.attention
    assert layer(step(recompute={"kind": "selective", "ops": ["latent-up"]})).recompute.total == 0


def test_parts_add_up() -> None:
    several = layer(step(recompute={"kind": "selective", "ops": ["norm", "activation"]})).recompute.total
    single = [
        layer(step(recompute={"kind": "selective", "ops": [op]})).recompute.total for op in ("norm", "activation")
    ]
    assert several == pytest.approx(sum(single))


def test_fp8_saves_on_products_only() -> None:
    wide, narrow = layer(step(precision="bf16")), layer(step(precision="fp8"))
    assert narrow.forward.gemm < wide.forward.gemm
    assert narrow.forward.attention == wide.forward.attention
    assert narrow.forward.memory == wide.forward.memory
    kept = layer(step(precision="fp8", op_precision={"linear": "bf16"}))
    assert kept.forward.gemm == wide.forward.gemm


def test_overlapped_tensor_parallel_traffic_leaves_its_stated_share() -> None:
    stack = Stack.preset("nemo-2024")
    plain = layer(step(layout={"tp": 4, "sequence_parallel": True}, stack=stack))
    hidden = layer(step(layout={"tp": 4, "sequence_parallel": True, "overlap": {"tp": True}}, stack=stack))
    assert hidden.forward.tp == pytest.approx(stack.tp_exposed * plain.forward.tp)


def test_clock_scales_products_not_memory() -> None:
    fast, slow = layer(step()), layer(step(clock=0.5))
    assert slow.forward.gemm > 1.8 * fast.forward.gemm
    assert slow.forward.memory == fast.forward.memory


@pytest.mark.parametrize(
    "change", [{"lora": {"rank": 16}}, {"lora": {"rank": 16, "targets": ["attention"]}}, {"frozen_layers": 8}]
)
def test_frozen_weights_have_no_weight_gradient(change: dict[str, Any]) -> None:
    plain, frozen = step(), step(**change)
    assert frozen.step_time().seconds < plain.step_time().seconds
    if "lora" in change:
        cost = layer(frozen)
        assert cost.weight_gradient.gemm < 0.3 * layer(plain).weight_gradient.gemm
        assert cost.forward.gemm > layer(plain).forward.gemm


def test_costs_add_and_scale() -> None:
    cost = PassCost(1, 2, 3, 4, 5, 6, 7)
    assert cost.total == 28
    assert cost.compute == 10
    assert cost.plus(cost) == cost.times(2)
    assert LayerCost(cost, cost).times(3).forward.total == 84


def test_unknown_sizes_are_refused_nowhere() -> None:
    """A single token, a single head and a vocabulary of 1 are legal, and cost at least their launches."""
    tiny = step(llama(1, 64, 1, vocab=1), seq_len=1, global_batch=8)
    assert tiny.step_time().seconds > 0


def test_each_expert_is_launched_unless_they_are_grouped() -> None:
    model = llama(4, moe={"experts": 32, "top_k": 2, "expert_ffn_hidden": 1024})
    built = [
        step(model, stack=Stack.preset("nemo-2024").model_copy(update={"grouped_experts": grouped}))
        for grouped in (False, True)
    ]
    apart, together = (next(iter(one.costs.blocks.values())).moe_layer.forward.gemm for one in built)
    # two products, 31 launches more each
    assert apart - together == pytest.approx(62 * 2.5e-6)


def test_a_power_cap_lowers_the_clock() -> None:
    """Half the power leaves 0.84 of the rate of products (H100 PCIe against SXM); a higher cap changes nothing."""
    free, half, loose = (layer(step(power_cap=cap)).forward.gemm for cap in (None, "350 W", "900 W"))
    assert free / half == pytest.approx(0.5**0.25, rel=0.03)
    assert loose == free
