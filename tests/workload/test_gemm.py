"""Matrix products: tiles, waves, split-K, floors, and the published best shapes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.hardware.gpu import Gpu
from clustersim.workload.device import Device
from clustersim.workload.gemm import SPLIT_SHARE, MatrixUnit, gemm_flop, gemm_seconds

UNIT = MatrixUnit(flop_per_s=100e12, sms=100, memory_per_s=1e15, launch_s=0.0, depth_overhead=0.0)


def test_full_waves_run_at_the_sustained_rate() -> None:
    # 100 tiles of 256 x 128 on 100 SMs: one full wave, no prologue, no launch
    assert gemm_seconds(2560, 1280, 4096, 1, UNIT) == pytest.approx(gemm_flop(2560, 1280, 4096) / 100e12)


def test_a_tile_too_many_costs_a_whole_wave() -> None:
    one = gemm_seconds(2560, 1280, 512, 1, UNIT)
    two = gemm_seconds(2560, 1280 * 2, 512, 1, UNIT)
    assert two == pytest.approx(2 * one)
    # one column of tiles more: the second wave is nearly empty; smaller tiles soften it, never to the ideal
    more = gemm_seconds(2560, 1280 + 128, 512, 1, UNIT)
    assert one * 1.1 < more <= two


def test_split_k_fills_idle_multiprocessors_at_a_loss() -> None:
    # one tile of 256 x 128 with K = 8192 splits 8 ways (1,024 each) at 0.85 of the rate
    expected = 2 * 256 * 128 * 1024 / (1e12 * SPLIT_SHARE)
    assert gemm_seconds(256, 128, 8192, 1, UNIT) <= expected * (1 + 1e-12)
    assert gemm_seconds(256, 128, 8192, 1, UNIT) < 2 * 256 * 128 * 8192 / 1e12


def test_thin_products_wait_for_memory() -> None:
    slow = UNIT._replace(memory_per_s=1e11)
    bytes_moved = (16 * 4096 + 4096 * 4096) * 2 + 16 * 4096 * 2
    assert gemm_seconds(16, 4096, 4096, 1, slow) == pytest.approx(bytes_moved / 1e11)
    assert gemm_seconds(16, 4096, 4096, 1, slow, out_bytes=8.0) > gemm_seconds(16, 4096, 4096, 1, slow)


def test_launch_is_paid_once() -> None:
    assert gemm_seconds(64, 64, 64, 1, UNIT._replace(launch_s=1e-3)) == pytest.approx(
        1e-3 + gemm_seconds(64, 64, 64, 1, UNIT)
    )
    assert gemm_seconds(0, 64, 64, 1, UNIT) == 0.0


@given(
    st.integers(1, 8192),
    st.integers(1, 8192),
    st.integers(1, 8192),
    st.integers(1, 8),
    st.sampled_from(["a100-80g", "h100-sxm", "b200", "v100-32g"]),
)
def test_never_faster_than_peak_or_memory(m: int, n: int, k: int, batch: int, name: str) -> None:
    device = Device(Gpu.preset(name))
    unit = device.unit("fp16")
    seconds = gemm_seconds(m, n, k, batch, unit)
    assert seconds >= gemm_flop(m, n, k, batch) / device.peak("fp16")
    assert seconds >= batch * 2 * (m * k + k * n + m * n) / device.gpu.memory_bandwidth
    assert math.isfinite(seconds)


@given(st.integers(64, 8192), st.integers(64, 8192), st.integers(64, 8192))
def test_more_work_never_takes_less_time_in_depth_and_batch(m: int, n: int, k: int) -> None:
    unit = Device(Gpu.preset("h100-sxm")).unit("bf16")
    # past the depth at which K is split, deeper is longer (where it splits, one SM more may help)
    assert gemm_seconds(m, n, k, 2, unit) >= gemm_seconds(m, n, k, 1, unit) * 0.5
    assert gemm_seconds(m, n, 2 * k, 64, unit) >= gemm_seconds(m, n, k, 64, unit)


# best of thousands of shapes, ml-engineering "Maximum Achievable Matmul FLOPS" table (bench_mamf): a burst at full
# clocks. The model holds the sustained rate, 0.92 of it on a capped H100, and its own wave quantisation on top.
@pytest.mark.parametrize(
    ("name", "precision", "m", "n", "k", "tflops"),
    [("a100-80g", "bf16", 1024, 10240, 5120, 271.2), ("h100-sxm", "bf16", 2048, 2048, 13312, 794.5)],
)
def test_best_shapes_of_the_mamf_table(name: str, precision: str, m: int, n: int, k: int, tflops: float) -> None:
    rate = gemm_flop(m, n, k) / gemm_seconds(m, n, k, 1, Device(Gpu.preset(name)).unit(precision)) / 1e12
    assert 0.85 * tflops < rate < tflops


def test_fp8_gains_more_from_deep_products() -> None:
    """Its own size law: fp8 loses more of its rate at small depth than bf16 does."""
    device = Device(Gpu.preset("h100-sxm"))
    gain = [
        gemm_seconds(16384, 16384, k, 1, device.unit("bf16")) / gemm_seconds(16384, 16384, k, 1, device.unit("fp8"))
        for k in (1024, 4096, 16384)
    ]
    assert gain[0] < gain[1] < gain[2] < 2.0
