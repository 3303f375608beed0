"""Collectives that share links: halves, order, conservation; those on different links do not meet."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.hardware.collectives import Group, collective_time
from clustersim.hardware.network import RailOptimized
from clustersim.hardware.shared import Collective, concurrent_times
from tests.hardware.nodes import make_node

NODE = make_node("a100-80g", nics=4, gbps=400)
FAR = Group(64, 8, 64, NODE, RailOptimized())
NEAR = Group(8, 8, 8, NODE, RailOptimized())


def test_one_alone_takes_its_own_time() -> None:
    assert concurrent_times([Collective("all-reduce", 1e9, FAR, 2.0)]) == [
        pytest.approx(2.0 + collective_time("all-reduce", 1e9, FAR))
    ]


def test_two_equal_large_ones_take_twice_as_long() -> None:
    alone = collective_time("all-reduce", 1e10, FAR)
    assert concurrent_times([Collective("all-reduce", 1e10, FAR)] * 2) == pytest.approx([2 * alone] * 2, rel=0.01)


def test_a_short_one_delays_a_long_one_by_its_own_time() -> None:
    long, short = (collective_time("all-gather", size, FAR) for size in (1e10, 1e9))
    ends = concurrent_times([Collective("all-gather", 1e10, FAR), Collective("all-gather", 1e9, FAR)])
    assert ends[1] == pytest.approx(2 * short, rel=0.02)
    assert ends[0] == pytest.approx(long + short, rel=0.02)


def test_links_inside_and_nics_do_not_meet() -> None:
    jobs = [Collective("all-reduce", 1e9, FAR), Collective("all-reduce", 1e9, NEAR)]
    assert concurrent_times(jobs) == pytest.approx([collective_time("all-reduce", 1e9, g) for g in (FAR, NEAR)])


def test_small_ones_are_latency_and_share_nothing() -> None:
    alone = collective_time("all-reduce", 8, FAR)
    assert concurrent_times([Collective("all-reduce", 8, FAR)] * 4) == pytest.approx([alone] * 4, rel=0.01)


@settings(max_examples=50)
@given(sizes=st.lists(st.floats(1e6, 1e10), min_size=1, max_size=5))
def test_sharing_conserves_the_work(sizes: list[float]) -> None:
    ends = concurrent_times([Collective("all-gather", size, FAR) for size in sizes])
    alone = [collective_time("all-gather", size, FAR) for size in sizes]
    empty = collective_time("all-gather", 1.0, FAR)
    assert max(ends) == pytest.approx(sum(alone) - (len(sizes) - 1) * empty, rel=1e-6)
    assert all(end >= own * (1 - 1e-9) for end, own in zip(ends, alone, strict=True))
