"""Model FLOP against the formulas that papers print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.workload.flops import layer_flop, step_flop
from clustersim.workload.model import TransformerModel
from clustersim.workload.parameters import model_parameters
from clustersim.workload.training import Training

SC21 = ["1.7b", "3.6b", "7.5b", "18.4b", "39.1b", "76.1b", "145.6b", "310.1b", "529.6b", "1008b"]


def training(**more: object) -> Training:
    return Training.model_validate({"seq_len": 2048, "global_batch": 512, "steps": 1, **more})


@pytest.mark.parametrize("name", SC21)
def test_sc21_formula(name: str) -> None:
    """F = 96·B·s·l·h²·(1 + s/(6h) + V/(16·l·h)): full attention, full recomputation (arXiv 2104.04473, section 5.1)."""
    model = TransformerModel.preset(f"megatron-{name}")
    flop = step_flop(model, training(mfu="full-attention", recompute="full"))
    lay, h, s, batch = model.layers, model.hidden, 2048, 512
    formula = 96 * batch * s * lay * h**2 * (1 + s / (6 * h) + model.vocab / (16 * lay * h))
    assert flop.hardware == pytest.approx(formula, rel=1e-12)


def test_korthikanti_formulas() -> None:
    """Model 72·B·l·s·h²·(1 + s/(6h) + V/(12hl)) (arXiv 2205.05198, section 6); core attention once more."""
    model = TransformerModel.preset("megatron-175b")
    flop = step_flop(model, training(mfu="full-attention", recompute="selective"))
    lay, h, s, batch = model.layers, model.hidden, 2048, 512
    assert flop.model == pytest.approx(72 * batch * lay * s * h**2 * (1 + s / (6 * h) + model.vocab / (12 * h * lay)))
    assert flop.recompute == pytest.approx(4 * batch * lay * s**2 * h)


def test_palm_formula() -> None:
    """6·N + 12·L·H·Q·T a token, whole square (arXiv 2204.02311, appendix B); the norms in N do no products."""
    model = TransformerModel.preset("palm-540b")
    flop = step_flop(model, training(mfu="full-attention"))
    counts = model_parameters(model)
    norms = (model.layers + 1) * model.hidden
    per_token = 6 * (counts.total - norms) + 12 * model.layers * model.heads * model.head_size * 2048
    assert flop.model / (512 * 2048) == pytest.approx(per_token, rel=1e-12)


def test_llama3_405b_total_budget() -> None:
    """15.6 T tokens are 3.8·10²⁵ FLOP (arXiv 2407.21783, section 3.2)."""
    model = TransformerModel.preset("llama3-405b")
    flop = step_flop(model, training(seq_len=8192, global_batch=2048))
    assert flop.model / (2048 * 8192) * 15.6e12 == pytest.approx(3.8e25, rel=0.05)


def test_causal_half_is_half_of_the_attention_and_nothing_else() -> None:
    model = TransformerModel.preset("llama3-70b")
    half, whole = (step_flop(model, training(mfu=mfu, seq_len=8192)) for mfu in ("causal-half", "full-attention"))
    assert whole.attention == pytest.approx(2 * half.attention)
    assert (whole.linear, whole.head) == (half.linear, half.head)
    assert whole.attention == pytest.approx(12 * 512 * 8192**2 * model.layers * model.hidden)


def test_deepseek_v3_counts_active_experts_only() -> None:
    """37 billion active parameters, and 6 FLOP each a token besides attention."""
    model = TransformerModel.preset("deepseek-v3").replace(mtp_layers=0)
    flop = step_flop(model, training(seq_len=4096))
    active = model_parameters(model).active - model.vocab * model.hidden  # the embedding is a look-up
    assert (flop.linear + flop.head) / (512 * 4096) == pytest.approx(6 * active, rel=1e-4)
    with_mtp = step_flop(TransformerModel.preset("deepseek-v3"), training(seq_len=4096))
    assert 1.02 < with_mtp.model / flop.model < 1.08


def test_sliding_window_counts_its_band() -> None:
    model = TransformerModel.preset("mistral-7b")
    long = layer_flop(model, False, 32768)
    assert long.core == pytest.approx(4 * 4096 * (4096 - 4096**2 / (2 * 32768)))
    assert layer_flop(model, False, 32768, full=True).core == pytest.approx(4 * 4096 * 32768)
    assert layer_flop(model, False, 4096).core == layer_flop(TransformerModel.preset("llama3-8b"), False, 4096).core


def test_linear_attention_is_linear_in_the_sequence() -> None:
    model = TransformerModel.preset("llama3-8b").replace(attention="linear")
    assert layer_flop(model, False, 65536).core == pytest.approx(layer_flop(model, False, 4096).core)


def test_up_projections_of_latent_attention_by_hand() -> None:
    """DeepSeek-V3: queries 1,536 × 128 heads × 192, keys and values 512 × 128 × (128 + 128), two FLOP each a token."""
    model, ops = TransformerModel.preset("deepseek-v3"), {"kind": "selective", "ops": ["latent-up"]}
    added = step_flop(model, training(recompute=ops)).recompute
    assert added == pytest.approx(512 * 2048 * model.layers * 2 * 128 * (1536 * 192 + 512 * 256))
    assert step_flop(TransformerModel.preset("llama3-8b"), training(recompute=ops)).recompute == 0


@pytest.mark.parametrize(("recompute", "parts"), [
    ("none", ()), ("full", ("projections", "core", "mlp", "experts")),
    ({"kind": "selective", "ops": ["norm", "activation"]}, ()),
    ("selective", ("core",)), ({"kind": "selective", "ops": ["attention"]}, ("projections", "core")),
    ({"kind": "selective", "ops": ["mlp"]}, ("mlp", "experts")), ({"kind": "selective", "ops": ["moe"]}, ("experts",)),
])  # fmt: skip
def test_what_recomputation_adds(recompute: object, parts: tuple[str, ...]) -> None:
    model = TransformerModel.preset("mixtral-8x7b")
    layer = layer_flop(model, True, 2048)
    added = step_flop(model, training(recompute=recompute)).recompute
    assert added == pytest.approx(512 * 2048 * model.layers * sum(getattr(layer, part) for part in parts))


def test_full_recomputation_of_some_layers_a_stage() -> None:
    model = TransformerModel.preset("megatron-22b")
    some = step_flop(model, training(recompute={"kind": "full", "layers": 3}), stages=4)
    every = step_flop(model, training(recompute="full"), stages=4)
    assert some.recompute == pytest.approx(every.recompute * 12 / 48)


@given(batch=st.integers(1, 4096), factor=st.integers(2, 5))
def test_flop_scale_with_the_batch(batch: int, factor: int) -> None:
    model = TransformerModel.preset("llama3-8b")
    one, many = step_flop(model, training(global_batch=batch)), step_flop(model, training(global_batch=batch * factor))
    assert many.model == pytest.approx(factor * one.model)
