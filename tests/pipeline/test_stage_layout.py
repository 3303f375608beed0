"""Megatron layout strings."""

from __future__ import annotations

import pytest

from clustersim.errors import InputError
from clustersim.pipeline.stage_layout import layer_counts
from clustersim.workload.model import TransformerModel

V3 = TransformerModel.preset("deepseek-v3")


# Layouts that Megatron Bridge ships for DeepSeek-V3 (61 layers, one prediction layer).
@pytest.mark.parametrize(
    ("text", "stages", "ends"),
    [("Et*4|(t*4|)*14tmL", 16, (4, 1)), ("Et*8|(t*8|)*6t*5mL", 8, (8, 5)), ("Et|(tt|)*30mL", 32, (1, 0))],
)
def test_deepseek_layouts(text: str, stages: int, ends: tuple[int, int]) -> None:
    counts = layer_counts(text, V3, stages)
    assert (counts[0], counts[-1]) == ends
    assert sum(counts) == 61


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Ex|L", "means nothing"),
        ("E(t|L", "open"),
        ("Et)|L", "never opened"),
        ("*3E|L", "repeats nothing"),
        ("Et|L", "stages"),
        ("Et*4|(t*4|)*14tL|", "stages"),
        ("Et*4|(t*4|)*14ttmL", "layers"),
        ("t*4|E(t*4|)*14tmL", "belongs on the first stage"),
        ("Et*4|(t*4|)*14tmmL", "prediction"),
    ],
)
def test_wrong_layouts_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        layer_counts(text, V3, 16)


@pytest.mark.parametrize(
    ("layers", "hidden", "stages", "counts"),
    [
        # A layer is 16 h^2, a head of 131,072 words 64, 42.7 or 16 h^2: shares of 160, 245.3, 81 and 40.5 layers' sixteenths.
        (16, 2048, 2, [11, 5]),
        (80, 8192, 16, [6, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4]),
        (80, 8192, 4, [21, 20, 20, 19]),
    ],
)
def test_balanced_deals_blocks_out_by_cost(layers: int, hidden: int, stages: int, counts: list[int]) -> None:
    """nanotron: a stage takes blocks until the sum of their costs passes its share; embedding counts nothing."""
    model = TransformerModel.model_validate(
        {"layers": layers, "hidden": hidden, "heads": 32, "ffn_hidden": 4 * hidden, "vocab": 131072}
    )
    assert layer_counts("balanced", model, stages) == counts


def test_balanced_counts_experts_by_what_a_token_passes_and_needs_a_block_a_stage() -> None:
    counts = layer_counts("balanced", V3, 8)
    assert sum(counts) == 61
    assert counts[0] > counts[-1]
    small = TransformerModel.model_validate({"layers": 2, "hidden": 64, "heads": 2, "ffn_hidden": 256, "vocab": 128})
    for stages in (4, 10**12):
        with pytest.raises(InputError, match=f"leaves nothing for the last of {stages} stages"):
            layer_counts("balanced", small, stages)
