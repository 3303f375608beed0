"""Offload: queues against closed forms, limits, and the logged optimizer steps the constants came from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.workload.offload import (
    CPU_ADAM_BYTES,
    HOST_SHARE,
    Host,
    activation_copies_exposed,
    gradient_flush_seconds,
    nvme_update_seconds,
    queue_seconds,
    streamed_seconds,
    update_seconds,
)

POLARIS = Host(HOST_SHARE * 204.8e9, 1, 24e9, 24e9)
P13B = 12.85e9


def test_two_queues_in_a_row_pipeline() -> None:
    assert queue_seconds([[("a", 1.0), ("b", 2.0)]] * 5) == 1 + 5 * 2
    assert queue_seconds([[("a", 1.0), ("a", 2.0)]] * 5) == 15
    assert queue_seconds([]) == 0


@settings(max_examples=60)
@given(
    chunks=st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 5)), max_size=4), min_size=1, max_size=6)
)
def test_queues_lie_between_the_busiest_and_the_sum(chunks: list[list[tuple[str, float]]]) -> None:
    total = queue_seconds(chunks)
    busy = {q: sum(s for chunk in chunks for name, s in chunk if name == q) for q in "abc"}
    assert max(busy.values()) - 1e-9 <= total <= sum(busy.values()) + 1e-9


# Deep Optimizer States logs, DeepSpeed ZeRO-3 with CPU optimizer on Polaris (4 x A100-40GB, one EPYC 7543P): s a step.
@pytest.mark.parametrize(
    ("parameters", "ranks", "seconds"), [(P13B, 1, 7.92), (P13B, 2, 5.97), (P13B, 4, 5.77), (6.74e9, 4, 3.04)]
)
def test_logged_cpu_updates(parameters: float, ranks: int, seconds: float) -> None:
    assert update_seconds(parameters / ranks, POLARIS._replace(ranks=ranks)) == pytest.approx(seconds, rel=0.12)


def test_gpu_updates_take_load_off_the_host_but_not_off_its_memory() -> None:
    plain = update_seconds(P13B, POLARIS)
    interleaved = {k: update_seconds(P13B, POLARIS, gpu_every=k, overlap=True, gpu_rate=4e10) for k in (2, 5, 10)}
    assert all(seconds < plain for seconds in interleaved.values())
    bound = POLARIS.memory_seconds((0.5 * CPU_ADAM_BYTES + 0.5 * 26) * P13B)
    assert interleaved[2] >= bound * 0.99


def test_flush_hides_only_when_asynchronous() -> None:
    sync = gradient_flush_seconds(P13B, POLARIS, asynchronous=False, backward=10)
    assert sync == pytest.approx(6.8, rel=0.05)  # the 6.75 s between the logged backward passes
    assert gradient_flush_seconds(P13B, POLARIS, asynchronous=True, backward=10) == 0
    assert gradient_flush_seconds(P13B, POLARIS, asynchronous=True) == pytest.approx(4 * P13B / 24e9)


def test_partial_offload_scales_the_host_part() -> None:
    whole, half = (update_seconds(P13B, POLARIS, ratio=r, gpu_rate=4e10) for r in (1.0, 0.5))
    assert half == pytest.approx(whole / 2 + P13B / 2 / 4e10, rel=0.01)


def test_nvme_is_bound_by_its_disks() -> None:
    host = POLARIS._replace(ranks=4)
    serial, queues = (nvme_update_seconds(1e10, host, overlap=o) for o in (False, True))
    assert queues == pytest.approx(12e10 * 4 / 4e9, rel=0.02)
    assert serial == pytest.approx(14e10 * 4 / 8e9 + 12e10 * 4 / 4e9 + host.memory_seconds(30e10), rel=1e-6)


def test_a_layer_window_hides_copies_behind_longer_layers() -> None:
    assert streamed_seconds(10, 2.0, 1.0, 1.0) == 1 + 20
    assert streamed_seconds(10, 1.0, 2.0, 1.0) == 20 + 1
    assert streamed_seconds(10, 1.0, 2.0, 1.0, overlap=False) == 30


def test_activation_copies() -> None:
    assert activation_copies_exposed(10, 5, 20, 1, 1) == (5, 0)
    assert activation_copies_exposed(10, 5, 20, 1, 1, overlap=False) == (10, 10)
