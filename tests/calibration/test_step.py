"""A profile at work in the step model: its surfaces and curves replace the models; ranges and intervals are told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from clustersim.pipeline.step import StepModel
from clustersim.scenario.load import load
from clustersim.workload.fitted import MeasuredCurve, Quality, Range, Surface
from clustersim.workload.profile import Profile

SCENARIO = """
model: llama3-8b
cluster: {nodes: 1, node: dgx-h100, network: infiniband-ndr, storage: tectonic}
training: {seq_len: 2048, global_batch: 32, steps: 10}
parallelism: {tp: 2, pp: 2, schedule: 1f1b}
"""


def step(tmp_path: Path, profile: Profile | None) -> StepModel:
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO)
    scenario = load(path)
    return StepModel.of(scenario.model_copy(update={"calibration": profile}))


def surface(rate: float, **limits: tuple[float, float]) -> Surface:
    return Surface(op="gemm", precision="bf16", terms={"flop": 1 / rate}, measured=limits, quality=Quality(points=9, residual=0.02))


def profile(**changes: Any) -> Profile:
    return Profile.model_validate({"name": "mine", **changes})


def test_a_gemm_surface_sets_the_rate_of_products(tmp_path: Path) -> None:
    fast = step(tmp_path, profile(surfaces=(surface(600e12),)))
    slow = step(tmp_path, profile(surfaces=(surface(300e12),)))
    ratio = slow.costs.table[..., 0].sum() / fast.costs.table[..., 0].sum()
    assert ratio == pytest.approx(2.0, rel=1e-6)
    assert slow.step_time().seconds > fast.step_time().seconds


def test_what_lies_outside_is_said_and_intervals_are_given(tmp_path: Path) -> None:
    inside = step(tmp_path, profile(surfaces=(surface(600e12, m=(1, 1e6)),))).report()
    assert not [text for text in inside.warnings if "outside" in text]
    assert "step_time_interval_s" not in inside.to_dict()
    beyond = step(tmp_path, profile(surfaces=(surface(600e12, m=(1, 100)),), uncertainty=0.05, message_uncertainty=0.05)).report()
    assert any("calibration mine: gemm bf16: m " in text and "outside the measured 1 to 100" in text for text in beyond.warnings)
    low, high = beyond.to_dict()["step_time_interval_s"]
    assert low < beyond.step_time_s < high
    share = sum(beyond.breakdown_s[name] for name in ("tp", "pp", "dp", "cp", "ep")) / beyond.step_time_s
    assert 0 < share < 0.5  # of messages, whose errors are independent of those of computation
    assert high / low == pytest.approx(math.exp(2 * 1.96 * 0.05 * math.hypot(1 - share, share)), rel=1e-6)
    assert profile(message_uncertainty=0.04).interval(1.0, 0.5) is None  # of half the step nothing is known
    assert profile(uncertainty=0.03, message_uncertainty=0.04).interval(1.0, 0.5) == pytest.approx(
        (math.exp(-1.96 * 0.025), math.exp(1.96 * 0.025)))  # fmt: skip


def test_curves_replace_collectives_of_their_group_size_alone(tmp_path: Path) -> None:
    def curve(group: int) -> MeasuredCurve:
        return MeasuredCurve(op="all-reduce", group=group, place="inside", ranges=(Range(low=1.0, high=1e12, latency=1.0),),
                             quality=Quality(points=5, residual=0.01))  # fmt: skip

    plain, two, four = (step(tmp_path, value) for value in (None, profile(curves=(curve(2),)), profile(curves=(curve(4),))))
    assert two.groups.seconds("tp", "all-reduce", 1e6) == 1.0
    assert four.groups.seconds("tp", "all-reduce", 1e6) == plain.groups.seconds("tp", "all-reduce", 1e6)


def test_no_profile_changes_nothing(tmp_path: Path) -> None:
    assert step(tmp_path, None).step_time().seconds == step(tmp_path, profile()).step_time().seconds


def attention_s(op: str, terms: dict[str, float], window: int | None) -> tuple[float, tuple[str, ...]]:
    """Seconds of the attention of a forward pass, and what the step warns of."""
    own = [{"op": op, "precision": "bf16", "terms": terms, "measured": {}, "quality": {"points": 9, "residual": 0.02}}]
    own += [{**own[0], "op": "attention-forward", "terms": {"flop": 1e-14}}] if op != "attention-forward" else []
    kind = {"kind": "causal"} if window is None else {"kind": "sliding-window", "window": window}
    scenario = load({"model": {"preset": "llama3-8b", "attention": kind}, "cluster": {"nodes": 1, "node": "dgx-h100", "storage": "tectonic"},
                     "training": {"seq_len": 8192, "global_batch": 32, "steps": 10}, "parallelism": {"tp": 8},
                     "calibration": {"name": "mine", "surfaces": own}})  # fmt: skip
    model = StepModel.of(scenario)
    return float(next(iter(model.costs.blocks.values())).dense_layer.forward.attention), tuple(model.report().warnings)


def test_sliding_windows_take_their_own_surface() -> None:
    """A masked kernel pays for the whole square whatever the window; a kernel that skips pays for the window's pairs."""
    masked = {window: attention_s("attention-forward-windowed", {"square": 1e-14}, window)[0] for window in (512, 2048)}
    assert masked[512] == pytest.approx(masked[2048], rel=1e-9)
    skipping = {window: attention_s("attention-forward-windowed", {"flop": 1e-14}, window)[0] for window in (512, 2048)}
    pairs = {window: 8192 * window - window * window / 2 for window in skipping}
    assert skipping[2048] / skipping[512] == pytest.approx(pairs[2048] / pairs[512], rel=1e-9)
    assert masked[512] / skipping[512] == pytest.approx(8192**2 / pairs[512], rel=1e-9)
    wide, _ = attention_s("attention-forward-windowed", {"square": 1.0}, 8192)  # no window at all: the causal surface
    assert wide < 1.0


def test_a_window_that_was_not_measured_is_said() -> None:
    seconds, warned = attention_s("attention-forward", {"flop": 1e-14}, 512)
    assert any("no window was measured" in text for text in warned)
    assert seconds == pytest.approx(attention_s("attention-forward-windowed", {"flop": 1e-14}, 512)[0], rel=1e-9)
    assert not any("no window" in text for text in attention_s("attention-forward", {"flop": 1e-14}, None)[1])
