"""Optimizer steps: bytes a parameter over the memory bandwidth."""

from __future__ import annotations

import pytest

from clustersim.hardware.gpu import Gpu
from clustersim.workload.device import Device
from clustersim.workload.optimizer import OPTIMIZER_SHARE, gradient_copy_seconds, update_seconds
from clustersim.workload.stack import Stack
from clustersim.workload.stages import LocalParameters
from clustersim.workload.training import Adam, Muon, Sgd

DEVICE = Device(Gpu.preset("a100-80g"))
MEGATRON, DEEPSPEED = Stack.preset("megatron-2021"), Stack.preset("deepspeed-2022")


def seconds(stack: Stack, zero: int, shards: float, count: float = 1e9, expert: float = 0.0) -> float:
    return update_seconds(LocalParameters(count, expert), shards, shards, DEVICE, stack, Adam(), zero == 3)


def test_megatron_moves_62_bytes_a_parameter() -> None:
    assert seconds(MEGATRON, 0, 1) == pytest.approx(62e9 / (2.039e12 * OPTIMIZER_SHARE))


def test_22b_optimizer_of_korthikanti() -> None:
    """arXiv 2205.05198, Table 5: 1.42 s and 1.10 s leave 0.11 to 0.13 s beyond 48 layers (22B over 8 GPUs)."""
    assert 0.10 < seconds(MEGATRON, 0, 1, 22.0e9 / 8) < 0.13


def test_deepspeed_moves_70() -> None:
    """Its FP16_Optimizer, kernel by kernel: overflow check, fp32 copy, flatten, norm, unscale, Adam, copy back."""
    assert DEEPSPEED.optimizer_bytes == 10 + 6 + 8 + 4 + 8 + 28 + 6
    assert seconds(DEEPSPEED, 0, 1) / seconds(MEGATRON, 0, 1) == pytest.approx(70 / 62)


def test_gradients_are_packed_and_copied_back_where_they_lie_scattered() -> None:
    parameters = LocalParameters(1e9, 1e9)
    assert gradient_copy_seconds(parameters, DEVICE, DEEPSPEED) == pytest.approx(24e9 / (2.039e12 * OPTIMIZER_SHARE))
    assert gradient_copy_seconds(parameters, DEVICE, Stack.preset("megatron-2023")) == 0.0


def test_zero_shards_all_but_the_copy_back() -> None:
    whole, cut = seconds(MEGATRON, 0, 1), seconds(MEGATRON, 1, 64)
    assert cut == pytest.approx(whole * (6 + 56 / 64) / 62)
    assert seconds(MEGATRON, 3, 64) == pytest.approx(whole / 64)
    assert seconds(MEGATRON, 1, 1) == whole


def test_experts_have_their_own_shards() -> None:
    both = update_seconds(LocalParameters(1e9, 1e9), 64, 1, DEVICE, MEGATRON, Adam(), False)
    assert both == pytest.approx(seconds(MEGATRON, 1, 64) + seconds(MEGATRON, 1, 1))


def test_smaller_state_is_faster_and_muon_multiplies_matrices() -> None:
    parameters = LocalParameters(1e9)
    sgd = update_seconds(parameters, 1, 1, DEVICE, MEGATRON, Sgd(), False)
    muon = update_seconds(parameters, 1, 1, DEVICE, MEGATRON, Muon(), False)
    assert sgd < seconds(MEGATRON, 0, 1)
    assert muon > sgd
