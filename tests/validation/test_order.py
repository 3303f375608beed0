"""Order of methods: of two splits, methods or schedules that differ by more than the measurement's spread, the model must
name the faster one in at least four of five cases."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest

from clustersim.validation.chimera import large_batches, scaling, tuning
from clustersim.validation.long_context import burst_attention, usp
from clustersim.validation.long_training import burst_logs, burstengine_training
from clustersim.validation.offloaded import offload
from clustersim.validation.results import Result
from clustersim.validation.rows import packaged

SPREAD = 0.05
"""Repeated rows of these tables differ by 5 % and more."""


def pairs(results: list[Result]) -> tuple[int, int]:
    """(in the right order, all) pairs of one sweep whose measurements differ by more than the spread."""
    sweeps: dict[str, list[Result]] = {}
    for result in results:
        if result.error_pct is not None:
            sweeps.setdefault(result.group, []).append(result)
    right = count = 0
    for sweep in sweeps.values():
        for first, second in combinations(sweep, 2):
            assert first.measured and second.measured and first.predicted and second.predicted
            same = first.label and first.label == second.label
            if same or abs(first.measured / second.measured - 1) <= SPREAD:
                continue
            count += 1
            right += (first.measured - second.measured) * (first.predicted - second.predicted) > 0
    return right, count


@pytest.mark.parametrize(
    ("suite", "least"),
    [(usp, 100), (burst_attention, 50), (burst_logs, 1000), (burstengine_training, 300), (offload, 200)],
)
def test_methods_and_splits_are_in_order(suite: Callable[[], list[Result]], least: int) -> None:
    right, count = pairs(suite())
    assert count >= least
    assert right >= 0.8 * count


def test_schedules_are_in_order() -> None:
    right, count = (
        sum(numbers) for numbers in zip(*(pairs(suite()) for suite in (tuning, scaling, large_batches)), strict=True)
    )
    assert count > 250
    assert right >= 0.8 * count


def test_the_best_split_moves_from_heads_on_nvlink_to_rings_on_pcie() -> None:
    """131,072 tokens, 32 heads: all-to-all of eight is as good as any on NVLink and the worst on PCIe (USP)."""
    times: dict[str, dict[str, float]] = {}
    wanted = {"ring_variant": "zigzag", "seq_len_tokens_global": "131072", "num_heads": "32", "head_dim": "32"}
    for row, result in zip(packaged("usp"), usp(), strict=True):
        if result.predicted and all(row.text(key) == value for key, value in wanted.items()):
            split = f"{row.text('ulysses_degree')}x{row.text('ring_degree')}"
            times.setdefault(row.text("hardware") or "", {})[split] = result.predicted
    nvlink, pcie = times["8x A100-SXM4-80GB NVLink"], times["8x L20 PCIe"]
    assert min(nvlink, key=nvlink.__getitem__) == "8x1"
    assert min(pcie, key=pcie.__getitem__) in ("2x4", "1x8")
    assert max(pcie, key=pcie.__getitem__) == "8x1"
