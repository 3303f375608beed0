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
