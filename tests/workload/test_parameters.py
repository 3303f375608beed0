"""Parameter counts against published numbers, and against themselves however the model is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.part import preset_names
from clustersim.workload.build import StageContent
from clustersim.workload.model import TransformerModel
from clustersim.workload.parameters import (
    embedding_parameters,
    layer_counts,
    layer_parameters,
    local_parameters,
    model_parameters,
    mtp_parameters,
    norm_parameters,
    stage_parameters,
)

# Counts of the released checkpoints (number of elements that Hugging Face prints for the safetensors files).
EXACT = {
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "bloom-176b": 176_247_271_424,
    "palm-540b": 540_350_000_000,
}
# Megatron-LM SC21 (arXiv 2104.04473), table 1: billions as printed.
SC21 = {"1.7": 1.7, "3.6": 3.6, "7.5": 7.5, "18.4": 18.4, "39.1": 39.1, "76.1": 76.1, "145.6": 145.6, "310.1": 310.1,
        "529.6": 529.6, "1008": 1008.0}  # fmt: skip
# Billions as the papers print them; the second figure is what one token passes.
PRINTED = {
    "deepseek-v3": (671.0, 37.0, 1.0),
    "deepseek-v2": (236.0, 21.0, 0.7),
    "deepseek-v2-lite": (15.7, 2.4, 0.4),
    "mixtral-8x22b": (141.0, 39.0, 0.4),
    "grok-1": (314.0, None, 3.0),
    "opt-175b": (175.0, None, 0.5),
    "gpt3-175b": (174.6, None, 0.1),
    "gpt3-6.7b": (6.7, None, 0.06),
    "nemotron4-15b": (15.6, None, 0.1),
    "nemotron4-340b": (341.0, None, 1.0),
    "falcon-180b": (180.0, None, 1.0),
    "glm-130b": (130.0, None, 1.0),
    "kimi-k2": (1026.0, 32.6, 5.0),
    "mpt-7b": (6.65, None, 0.01),
    "mpt-30b": (29.96, None, 0.02),
    "mpt-70b": (64.86, None, 0.02),
    "internlm-7b": (7.3, None, 0.05),
    "llama-7b": (6.7, None, 0.05),
    "llama-33b": (32.5, None, 0.05),
    "llama-65b": (65.2, None, 0.1),
    "llama4-maverick": (400.0, 17.0, 1.0),
    "gpt-oss-120b": (116.8, 5.1, 0.5),
    "qwen2-57b-a14b": (57.4, 14.0, 0.5),
}


@pytest.mark.parametrize(("name", "count"), EXACT.items())
def test_released_checkpoints(name: str, count: int) -> None:
    tolerance = 1e7 if name == "palm-540b" else 0  # the paper prints 540.35 billion
    assert abs(model_parameters(TransformerModel.preset(name)).total - count) <= tolerance


@pytest.mark.parametrize(("name", "billions"), SC21.items())
def test_megatron_models_to_the_printed_digit(name: str, billions: float) -> None:
    model = TransformerModel.preset(f"megatron-{name}b")
    count = model_parameters(model).total
    assert round(count / 1e9, 1) == billions
    # The paper's formula P = 12·l·h²·(1 + 13/(12h) + (V + s)/(12·l·h)), which leaves out only the final norm (2h).
    formula = 12 * model.layers * model.hidden**2 + 13 * model.layers * model.hidden + (51200 + 2048) * model.hidden
    assert count == formula + 2 * model.hidden


@pytest.mark.parametrize(("name", "printed"), PRINTED.items())
def test_printed_sizes(name: str, printed: tuple[float, float | None, float]) -> None:
    total, active, tolerance = printed
    counts = model_parameters(TransformerModel.preset(name))
    assert counts.total / 1e9 == pytest.approx(total, abs=tolerance)
    if active is not None:
        assert counts.active / 1e9 == pytest.approx(active, abs=0.9)


def test_deepseek_v3_prediction_module() -> None:
    """The released files hold 685 billion: the model, one module, and that module's copies of embedding and head."""
    model = TransformerModel.preset("deepseek-v3")
    counts = model_parameters(model)
    assert counts.mtp == mtp_parameters(model)
    assert (counts.total + counts.mtp + 2 * model.vocab * model.hidden) / 1e9 == pytest.approx(684.5, abs=0.5)


@pytest.mark.parametrize("name", preset_names("models"))
def test_stages_add_up_to_the_model(name: str) -> None:
    model = TransformerModel.preset(name)
    counts, (dense, moe) = model_parameters(model), layer_counts(model)
    one = StageContent(dense, moe, embedding=True, head=True, mtp=model.mtp_layers)
    assert stage_parameters(model, one) == counts.total + counts.mtp
    parts = [
        StageContent(dense, moe // 3, embedding=True),
        StageContent(0, moe - moe // 3, head=True, mtp=model.mtp_layers),
    ]
    copy = model.vocab * model.hidden if model.tied_embeddings else 0
    assert sum(stage_parameters(model, part) for part in parts) == counts.total + counts.mtp + copy
    assert local_parameters(model, one).total == pytest.approx(counts.total + counts.mtp, rel=1e-12)


@given(name=st.sampled_from(["llama3-70b", "mixtral-8x7b", "deepseek-v3", "gpt3-175b"]),
       tp=st.sampled_from([1, 2, 4, 8, 16]), ep=st.sampled_from([1, 2, 4, 8]))  # fmt: skip
def test_gpus_together_hold_the_model_and_its_repeated_parts(name: str, tp: int, ep: int) -> None:
    model = TransformerModel.preset(name)
    stage = StageContent(*layer_counts(model), embedding=True, head=True)
    local = local_parameters(model, stage, tp=tp, ep=ep)
    assert local.total <= model_parameters(model).total * (1 + 1e-12)
    experts = stage.moe * layer_parameters(model, True).experts
    assert local.expert * ep == pytest.approx(experts)
    assert local.dense * tp >= (model_parameters(model).total - experts) * (1 - 1e-12)


def test_tensor_parallelism_repeats_norms_positions_and_row_biases() -> None:
    model = TransformerModel.preset("megatron-22b")
    stage = StageContent(48, embedding=True, head=True)
    repeated = 49 * 2 * norm_parameters(model) - norm_parameters(model) + 48 * 2 * model.hidden + 2048 * model.hidden
    whole = stage_parameters(model, stage)
    assert local_parameters(model, stage, tp=8).dense == pytest.approx(repeated + (whole - repeated) / 8, rel=1e-12)


def test_key_value_heads_are_repeated_where_there_are_fewer_than_ranks() -> None:
    model = TransformerModel.preset("llama3-8b")
    stage = StageContent(1)
    key_value = 2 * 8 * 128 * 4096
    rest = layer_parameters(model, False).total - key_value - 2 * 4096
    assert local_parameters(model, stage, tp=16).dense == pytest.approx(2 * 4096 + rest / 16 + key_value / 8)


def test_biases_and_positions_count() -> None:
    plain = TransformerModel(layers=2, hidden=8, ffn_hidden=32, heads=2, vocab=10, gated_mlp=False)
    biased = plain.replace(biases=True, norm="layernorm", positions=5)
    assert layer_parameters(biased, False).total - layer_parameters(plain, False).total == 3 * 8 + 8 + 32 + 8 + 2 * 8
    assert embedding_parameters(biased) - embedding_parameters(plain) == 5 * 8
