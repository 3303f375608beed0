"""Core attention: pairs, FLOP, kernel generations, and the published price of an unfused core."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.hardware.gpu import Gpu
from clustersim.workload.attention import (
    AttentionShape,
    core_flop,
    flash_rate,
    is_causal,
    pairs_per_sequence,
    unfused_backward_seconds,
    unfused_forward_seconds,
)
from clustersim.workload.device import Device
from clustersim.workload.model import Causal, Full, Linear, SlidingWindow


def shape(length: int = 2048, heads: float = 8, sequences: float = 1, dim: int = 128) -> AttentionShape:
    return AttentionShape(sequences, heads, heads, length, dim, dim, 1.0)


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_window_pairs_by_counting(length: int, window: int) -> None:
    """Token i (from 1) sees min(i, w) tokens; the formula leaves out the diagonal's half: s/2 pairs at most."""
    w = min(window, length)
    counted = w * (w + 1) / 2 + (length - w) * w
    formula = pairs_per_sequence(SlidingWindow(window=window), length)
    assert counted - length / 2 - w / 2 <= formula <= counted + 1e-9 * counted


def test_a_window_as_long_as_the_sequence_is_causal() -> None:
    assert pairs_per_sequence(SlidingWindow(window=4096), 4096) == pairs_per_sequence(Causal(), 4096) == 4096**2 / 2
    assert pairs_per_sequence(Full(), 4096) == 4096**2
    assert pairs_per_sequence(Linear(), 4096) == 0


def test_document_masks_scale_the_pairs() -> None:
    assert core_flop(Causal(), shape(), 0.25) == 0.25 * core_flop(Causal(), shape())
    # an unfused kernel computes the square whatever the mask
    assert core_flop(Causal(), shape(), 0.25, full=True) == core_flop(Full(), shape())


def test_core_flop_is_four_s_squared_h() -> None:
    assert core_flop(Full(), shape(1024, heads=4)) == 4 * 1024**2 * 4 * 128


def test_linear_attention_grows_with_the_length_alone() -> None:
    assert core_flop(Linear(), shape(4096)) == pytest.approx(2 * core_flop(Linear(), shape(2048)))
    assert core_flop(Linear(), shape(65536)) < core_flop(Causal(), shape(65536))


@given(st.integers(128, 65536), st.sampled_from([32, 64, 128, 256]))
def test_flash_rate_rises_with_length_and_head_size(length: int, dim: int) -> None:
    rate = flash_rate(0.5, 1e15, dim, length)
    assert 0 < rate <= 0.5e15
    assert flash_rate(0.5, 1e15, dim, 2 * length) > rate
    assert flash_rate(0.5, 1e15, 2 * dim, length) >= rate


def test_causal_kinds() -> None:
    assert is_causal(Causal())
    assert is_causal(SlidingWindow(window=5))
    assert not is_causal(Full())


def test_price_of_selective_recompute() -> None:
    """Korthikanti et al. 2022, Table 4: doing the core again costs 1.3 ms (13.2 − 11.9) on 8 A100 (22B, b = 4, s =
    2048)."""
    unit = Device(Gpu.preset("a100-80g")).unit("fp16")
    seconds = unfused_forward_seconds(4, 8, 2048, 96, 96, True, unit)
    assert seconds == pytest.approx(1.3e-3, rel=0.05)
    assert unfused_backward_seconds(4, 8, 2048, 96, 96, True, unit) > seconds


def test_plain_softmax_costs_more_than_the_fused_kernel() -> None:
    unit = Device(Gpu.preset("a100-80g")).unit("fp16")
    fused = unfused_forward_seconds(4, 8, 2048, 96, 96, True, unit)
    plain = unfused_forward_seconds(4, 8, 2048, 96, 96, True, unit, False)
    scores = 4 * 8 * 2048**2
    assert plain - fused == pytest.approx(14 * 1.3 * scores / unit.memory_per_s)


def test_kernel_generations_by_gpu() -> None:
    hopper, ampere = Device(Gpu.preset("h100-sxm")), Device(Gpu.preset("a100-80g"))
    order = [hopper.flash_shares(kernel)[0] for kernel in ("triton", "flash-2", "cudnn", "flash-3")]
    assert order == sorted(order)
    # a GPU without a generation runs the newest older one
    assert ampere.flash_shares("flash-3") == ampere.flash_shares("flash-2")
    assert Device(Gpu.preset("v100-32g")).flash_shares("flash-2") > (0.0, 0.0)
    assert Device(Gpu.preset("h100-sxm"), clock=0.5).flash_shares("cudnn")[0] == 0.5 * hopper.flash_shares("cudnn")[0]
