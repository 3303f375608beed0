"""Stacks: every preset loads, says where its numbers come from, and every GPU has a default."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from clustersim.hardware.gpu import Gpu
from clustersim.part import preset_data
from clustersim.workload.device import KERNEL_KEY
from clustersim.workload.stack import Stack, default_stack
from tests.workload.jobs import training

NAMES = Stack.preset_names()


@pytest.mark.parametrize("name", NAMES)
def test_preset_loads_and_names_its_sources(name: str) -> None:
    stack = Stack.preset(name)
    assert stack.name == name
    data = preset_data("stacks", name)
    assert set(data["sources"]) <= set(data) | set(Stack.model_fields)
    assert all(isinstance(text, str) and text for text in data["sources"].values())
    assert "attention" in data["sources"]
    assert "rank_spread" in data["sources"]


@pytest.mark.parametrize("name", NAMES)
def test_the_kernel_generation_is_one_that_gpus_know(name: str) -> None:
    assert Stack.preset(name).attention in {*KERNEL_KEY, "unfused"}


@pytest.mark.parametrize("gpu", Gpu.preset_names())
def test_every_gpu_has_a_default_of_its_time(gpu: str) -> None:
    stack = default_stack(Gpu.preset(gpu).name)
    assert stack.name in NAMES
    expected = {"a100": 2021, "v100": 2020, "p100": 2020, "b200": 2025, "mi3": 2025}
    for word, year in expected.items():
        if gpu.startswith(word):
            assert stack.year == year


def test_single_values_of_a_preset_may_change() -> None:
    stack = Stack.model_validate({"preset": "nemo-2024", "attention": "flash-3", "tp_exposed": 0.25})
    assert (stack.attention, stack.tp_exposed, stack.year) == ("flash-3", 0.25, 2024)


@pytest.mark.parametrize(
    ("year", "name"),
    [
        (2019, "megatron-2020"),
        (2021, "megatron-2021"),
        (2023, "megatron-2023"),
        (2024, "nemo-2024"),
        (2031, "nemo-2025"),
    ],
)
def test_a_bare_year_stands_for_the_stack_of_its_time(year: int, name: str) -> None:
    assert Stack.model_validate(year).name == name
    assert training(stack=year).stack == Stack.preset(name)


@pytest.mark.parametrize("wrong", [1999, True, "megatron-1999"])
def test_other_words_are_refused(wrong: object) -> None:
    with pytest.raises(ValidationError):
        Stack.model_validate(wrong)
