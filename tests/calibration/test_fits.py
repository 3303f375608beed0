"""Fits recover known parameters from synthetic measurements with noise. Seeds are fixed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clustersim.calibrate.build import build_profile, fit_surface
from clustersim.calibrate.linear import fitted, held_out
from clustersim.calibrate.ranges import fit_curve
from clustersim.calibrate.records import Measurements
from clustersim.errors import InputError
from clustersim.hardware.gpu import Gpu
from clustersim.workload.fitted import TERMS
from clustersim.workload.profile import Profile

GEMM = {"call": 20e-6, "flop": 1 / 300e12, "results": 3e-12, "operands": 1.5e-12}


def shapes() -> list[dict[str, float]]:
    sizes = [64, 256, 1024, 4096]
    return [{"m": m, "n": n, "k": k, "batch": 1.0} for m in sizes for n in sizes for k in sizes]


def points(noise: float, seed: int = 1) -> list[tuple[dict[str, float], float]]:
    rng = np.random.default_rng(seed)
    exact = [sum(GEMM[name] * value for name, value in TERMS["gemm"](shape).items()) for shape in shapes()]
    return [(shape, t * math.exp(rng.normal(0, noise))) for shape, t in zip(shapes(), exact, strict=True)]


def test_a_surface_recovers_its_coefficients_without_noise() -> None:
    surface = fit_surface("gemm", "bf16", points(0.0))
    for name, value in GEMM.items():
        assert surface.terms[name] == pytest.approx(value, rel=1e-6)
    assert surface.quality.held_out == pytest.approx(0, abs=1e-6)


def test_a_surface_recovers_rate_and_launch_under_noise() -> None:
    # 51 fitted points with 5 % noise each: about a dozen of them fix either end, so 5 % ÷ √12 ≈ 1.5 %; four of those.
    surface = fit_surface("gemm", "bf16", points(0.05))
    assert surface.terms["flop"] == pytest.approx(GEMM["flop"], rel=0.06)
    assert surface.terms["call"] == pytest.approx(GEMM["call"], rel=0.06)
    assert surface.quality.residual == pytest.approx(0.05, rel=0.35)
    assert surface.quality.held_out is not None
    assert 0.02 < surface.quality.held_out < 0.10
    low, high = surface.ci95["flop"]
    assert low <= surface.terms["flop"] <= high


def test_a_surface_shrugs_off_slow_outliers() -> None:
    dirty = [(shape, t * (5.0 if index % 12 == 3 else 1.0)) for index, (shape, t) in enumerate(points(0.02))]
    surface = fit_surface("gemm", "bf16", dirty)
    assert surface.terms["flop"] == pytest.approx(GEMM["flop"], rel=0.10)


def test_a_surface_is_monotone_in_every_size_whatever_the_data() -> None:
    rng = np.random.default_rng(3)
    surface = fit_surface("gemm", "bf16", [(shape, float(rng.uniform(1e-5, 1e-2))) for shape in shapes()])
    for size in ("m", "n", "k"):
        times = [surface.seconds(**{**shapes()[20], size: float(value)}) for value in range(1, 9000, 500)]
        assert times == sorted(times)


def test_points_kept_back_are_not_fitted() -> None:
    terms = np.column_stack([np.ones(20), np.arange(1, 21.0)])
    seconds = terms @ np.array([1.0, 2.0])
    wrong = np.where(held_out(20), seconds * 3, seconds)
    fit = fitted(terms, wrong)
    assert fit.coefficients == pytest.approx([1.0, 2.0])
    assert fit.quality.held_out == pytest.approx(math.log(3))
    assert (fit.quality.points, fit.quality.held_out_points) == (16, 4)
    assert fit.quality.uncertainty == pytest.approx(1.4826 * math.log(3))
    older = fit.quality.model_copy(update={"held_out_typical": None})  # a profile from before the typical error was kept
    assert older.uncertainty == pytest.approx(math.log(3))


SIZES = 2.0 ** np.arange(10, 31)


def three_ranges(size: np.ndarray) -> np.ndarray:
    return np.where(size < 2**17, 5e-6 + size / 2e9, np.where(size < 2**23, 8e-5 + size / 1e10, 4e-4 + size / 4e10))


def test_a_curve_finds_its_ranges() -> None:
    curve = fit_curve("all-reduce", SIZES, three_ranges(SIZES), group=8, place="inside")
    assert len(curve.ranges) == 3
    assert [item.rate for item in curve.ranges] == pytest.approx([2e9, 1e10, 4e10], rel=0.02)
    assert curve.limits == (2.0**10, 2.0**30)


def test_a_curve_under_noise_keeps_its_ends_and_does_not_overfit() -> None:
    rng = np.random.default_rng(0)
    noisy = three_ranges(SIZES) * np.exp(rng.normal(0, 0.03, len(SIZES)))
    curve = fit_curve("all-reduce", SIZES, noisy)
    assert curve.ranges[0].latency == pytest.approx(5e-6, rel=0.06)
    assert curve.ranges[-1].rate == pytest.approx(4e10, rel=0.10)
    straight = fit_curve("copy", SIZES, (1e-5 + SIZES / 1e10) * np.exp(rng.normal(0, 0.05, len(SIZES))))
    assert len(straight.ranges) == 1
    assert straight.ranges[0].rate == pytest.approx(1e10, rel=0.06)


def test_a_curve_is_monotone_where_the_measurement_is_not() -> None:
    dip = np.where(SIZES < 2**20, 1e-3 + SIZES / 1e9, 1e-4 + SIZES / 1e10)
    curve = fit_curve("all-gather", SIZES, dip)
    times = [curve.seconds(float(size)) for size in np.geomspace(100, 2**33, 300)]
    assert times == sorted(times)


def gemm_file(noise: float = 0.02, device: str = "NVIDIA H100 80GB HBM3") -> Measurements:
    records = [{"key": {**{k: int(v) for k, v in shape.items()}, "precision": "bf16"}, "median_s": t} for shape, t in points(noise)]
    return Measurements("gemm.jsonl", "gemm", {"device": {"name": device}, "date": "2026-01-01T00:00:00"}, records, [], "a" * 64)


def test_a_profile_states_device_files_shares_and_uncertainty() -> None:
    profile = build_profile([gemm_file()], "h100", Gpu.preset("h100-sxm"))
    assert profile.provenance is not None
    assert profile.provenance.files[0].records == 64
    assert profile.efficiency is not None
    largest = sum(GEMM[name] * value for name, value in TERMS["gemm"](shapes()[-1]).items())
    assert profile.efficiency.gemm["bf16"] == pytest.approx(2 * 4096**3 / largest / 989e12, rel=0.08)
    low, high = profile.interval(1.0) or (0, 0)
    assert low < 1 < high
    assert math.log(high) == pytest.approx(1.96 * profile.uncertainty)


def test_a_profile_survives_its_yaml() -> None:
    from ruamel.yaml import YAML

    from clustersim.cli.fit_profile import profile_yaml

    profile = build_profile([gemm_file()], "h100", Gpu.preset("h100-sxm"))
    data = YAML(typ="safe", pure=True).load(profile_yaml(profile))
    again = Profile.model_validate(data, context={"units": "required"})
    assert again == profile


def test_records_that_cannot_be_fitted_are_refused_or_noted() -> None:
    with pytest.raises(InputError, match="different devices"):
        build_profile([gemm_file(), gemm_file(device="other")], "x")
    bad = gemm_file()
    bad.records[3]["median_s"] = -1.0
    with pytest.raises(InputError, match=r"gemm\.jsonl:5: a record needs a key and a median_s above 0"):
        build_profile([bad], "x")
    few = Measurements("gemm.jsonl", "gemm", {}, gemm_file().records[:2])
    with pytest.raises(InputError, match="needs at least 5 points"):
        build_profile([few], "x")


def test_notes_say_each_reason_once() -> None:
    from clustersim.calibrate.build import skipped_notes

    item = Measurements("gemm.jsonl", "gemm", {}, [], ["m=1: out of time", "m=2: out of time", "m=3: no room", "whole file"])
    assert skipped_notes(item) == [
        "gemm.jsonl: 2 points, such as m=1: out of time", "gemm.jsonl: m=3: no room", "gemm.jsonl: whole file"]  # fmt: skip


@pytest.mark.parametrize("name", ["h100-sxm-published", "a100-80g-published"])
def test_shipped_profiles_load_and_change_a_step(name: str) -> None:
    from pathlib import Path

    from clustersim.pipeline.step import StepModel
    from clustersim.scenario.load import load

    root = Path(__file__).resolve().parents[2]
    scenario = load(root / "scenarios" / "8-gpus-8b.yaml", [f"calibration={root / 'profiles' / name}.yaml"])
    assert scenario.calibration is not None
    assert scenario.calibration.provenance is not None
    assert scenario.calibration.provenance.files
    assert any("source: " in note for note in scenario.calibration.provenance.notes)
    plain = load(root / "scenarios" / "8-gpus-8b.yaml")
    assert StepModel.of(scenario).step_time().seconds != StepModel.of(plain).step_time().seconds


def windowed_points(law: str, noise: float = 0.0) -> list[tuple[dict[str, float], float]]:
    """A kernel that skips blocks outside the window (``flop``), or one that is given a mask (``square``)."""
    rng = np.random.default_rng(0)
    points = []
    for length in (512.0, 1024.0, 2048.0, 4096.0, 8192.0):
        for window in (length / 4, length / 16):
            for sequences in (1.0, 4.0):
                sizes = {"sequences": sequences, "heads": 32.0, "length": length, "head_dim": 128.0,
                         "pairs": length * window - window * window / 2}  # fmt: skip
                terms = TERMS["attention-forward-windowed"](sizes)
                points.append((sizes, (5e-6 + terms[law] / 3e14) * float(np.exp(rng.normal(0, noise)))))
    return points


@pytest.mark.parametrize("law", ["flop", "square"])
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_a_windowed_surface_tells_kernels_that_skip_from_kernels_with_a_mask(law: str, noise: float) -> None:
    surface = fit_surface("attention-forward-windowed", "bf16", windowed_points(law, noise))
    assert surface.quality.residual < 0.05
    longer = {"sequences": 1.0, "heads": 32.0, "length": 8192.0, "head_dim": 128.0}
    window = 8192.0 / 64  # not measured
    pairs = 8192.0 * window - window * window / 2
    truth = 5e-6 + TERMS["attention-forward-windowed"]({**longer, "pairs": pairs})[law] / 3e14
    assert surface.seconds(**longer, pairs=pairs) == pytest.approx(truth, rel=0.001 if noise == 0 else 0.10)


def test_windows_of_one_share_of_the_length_are_not_fitted() -> None:
    one = [(sizes, seconds) for sizes, seconds in windowed_points("flop") if sizes["pairs"] / sizes["length"] ** 2 > 0.2]
    with pytest.raises(ValueError, match="one does not tell pairs from the square"):
        fit_surface("attention-forward-windowed", "bf16", one)


def test_records_with_a_window_make_a_surface_of_their_own() -> None:
    records = [{"key": {"pass": "forward", "kv_heads": 32, "causal": True, "precision": "bf16",
                        "window": None if whole else sizes["length"] // 4 if sizes["pairs"] / sizes["length"] ** 2 > 0.2 else sizes["length"] // 16,
                        **{name: sizes[name] for name in ("sequences", "heads", "length", "head_dim")}}, "median_s": seconds}
               for whole in (True, False) for sizes, seconds in windowed_points("square")]  # fmt: skip
    profile = build_profile([Measurements("attention.jsonl", "attention", {}, records)], "mine")
    assert {item.op for item in profile.surfaces} == {"attention-forward", "attention-forward-windowed"}
    low, high = profile.surfaces[1].measured["pairs"]
    assert (low, high) == (512 * 32 - 32 * 32 / 2, 8192 * 2048 - 2048 * 2048 / 2)


def blocked_points(block: float) -> list[tuple[dict[str, float], float]]:
    """A kernel that takes ``block`` queries at a time: causal masks save nothing of the blocks on the diagonal."""
    points = []
    for length in (64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0):
        for causal in (True, False):
            for head_dim in (32.0, 64.0, 128.0):
                sizes = {"sequences": 4.0, "heads": 4.0, "length": length, "head_dim": head_dim,
                         "pairs": length * length / (2 if causal else 1)}  # fmt: skip
                blocks = np.ceil(length / block)
                kept = sum(min(length, (row + 1) * block) * (min(length, (row + 1) * block) - row * block) for row in range(int(blocks)))
                pairs = kept if causal else length * length
                points.append((sizes, 1e-5 + 64 * pairs * head_dim / 1e11))
    return points


@pytest.mark.parametrize("block", [128.0, 256.0, 512.0])
def test_attention_finds_the_block_of_its_kernel(block: float) -> None:
    """Counted block by block; the law's s²/2 + s·B/2 is the same sum wherever B divides s."""
    points = blocked_points(block)
    surface = fit_surface("attention-forward", "fp32", points)
    assert surface.block == block
    assert surface.quality.residual < 1e-6
    longer = {"sequences": 4.0, "heads": 4.0, "length": 8192.0, "head_dim": 64.0, "pairs": 8192.0**2 / 2}
    truth = 1e-5 + 64 * (8192.0**2 / 2 + 8192 * block / 2) * 64 / 1e11
    assert surface.seconds(**longer) == pytest.approx(truth, rel=1e-6)


def test_single_queries_need_no_block() -> None:
    points = [(sizes, 1e-5 + 64 * sizes["pairs"] * sizes["head_dim"] / 1e11) for sizes, _ in blocked_points(64.0)]
    assert fit_surface("attention-forward", "fp32", points).block == 0.0
