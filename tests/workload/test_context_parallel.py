"""Context parallelism: closed forms of rings, volumes of every kind, limits that must hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.errors import InputError
from clustersim.hardware.collectives import Group
from clustersim.hardware.network import RailOptimized
from clustersim.workload.context_parallel import (
    RingWork,
    causal_steps,
    context_group,
    double_ring_seconds,
    ring_bytes,
    ring_pass_seconds,
    ring_seconds,
    ulysses_seconds,
)
from tests.hardware.nodes import make_node

A100 = make_node("a100-80g", gbps=1600)
L20 = make_node("l20", gbps=100, nics=1)
NET = RailOptimized()


def ranks(n: int, node: object = A100) -> Group:
    return Group(n, min(n, 8), n, node, NET)  # type: ignore[arg-type]


def test_balanced_causal_halves_the_work_and_contiguous_does_not() -> None:
    assert sum(causal_steps(8, True, True)) == 4.0
    assert sum(causal_steps(8, True, False)) == 7.5
    assert sum(causal_steps(8, False, False)) == 8.0


@settings(max_examples=60)
@given(
    step=st.floats(0.01, 10), send=st.floats(0, 10), n=st.integers(2, 16), causal=st.booleans(), balanced=st.booleans()
)
def test_a_ring_lies_between_hidden_and_serial(step: float, send: float, n: int, causal: bool, balanced: bool) -> None:
    work = RingWork(step, 1.0)
    total = ring_seconds(work, n, send, causal=causal, balanced=balanced)
    own = step * sum(causal_steps(n, causal, balanced))
    assert max(own, (n - 1) * send) <= total + 1e-9
    assert total <= own + (n - 1) * send + 1e-9
    assert ring_seconds(work, n, send, causal=causal, balanced=balanced, overlap=False) == pytest.approx(
        own + (n - 1) * send
    )


def test_a_double_ring_pays_slow_links_once_a_node() -> None:
    work = RingWork(1.0, 1.0)
    flat = ring_seconds(work, 32, 6.0, causal=False, balanced=True)
    double = double_ring_seconds(work, 8, 4, 0.1, 6.0, causal=False, balanced=True)
    assert flat == 31 * 6.0 + 1.0
    assert double == 32.0


def test_a_double_ring_of_one_node_is_a_ring() -> None:
    work = RingWork(1.0, 1.0, 0.1)
    double = double_ring_seconds(work, 8, 1, 1.5, 99.0, causal=True, balanced=False)
    assert double == pytest.approx(ring_seconds(work, 8, 1.5, causal=True, balanced=False))


def test_burst_sends_three_quarters_of_a_ring_backward() -> None:
    tokens, heads, d = 4096.0, 32, 128
    ring, burst = (ring_bytes(tokens, heads * d, heads * d, heads, 2.0, burst=b) for b in (False, True))
    assert ring.backward == 4 * tokens * heads * d * 2
    assert burst.backward / ring.backward == pytest.approx(0.75, abs=0.01)
    assert burst.forward == ring.forward


def test_burst_never_sends_more_than_a_ring_with_grouped_heads() -> None:
    ring, burst = (ring_bytes(1024, 64 * 128, 8 * 128, 64, 2.0, burst=b) for b in (False, True))
    assert burst.backward == ring.backward


def test_ulysses_volume_does_not_grow_with_its_degree() -> None:
    # the sequence is cut over n ranks, each sends its share of 4 tensors less what stays: S/n * (n-1)/n
    times = [ulysses_seconds(2**24 / n, 4096, 4096, 2.0, ranks(n)) for n in (2, 4, 8)]
    assert times[1] / times[0] == pytest.approx((3 / 16) / (1 / 4), rel=0.02)
    assert times[2] / times[0] == pytest.approx((7 / 64) / (1 / 4), rel=0.02)


def test_usp_puts_ulysses_on_the_fast_link() -> None:
    place = context_group(ranks(32), "usp")
    assert (place.ulysses.size, place.ulysses.domains, place.ring.size, place.ring.domains) == (8, 1, 4, 4)
    assert place.ring.concurrent == 8
    assert context_group(ranks(32), "usp", kv_heads=4).ulysses.size == 4


def test_kinds_and_degrees() -> None:
    assert context_group(ranks(8), "ring").ulysses.size == 1
    assert context_group(ranks(8), "ulysses").ring.size == 1
    assert context_group(ranks(32), "double-ring").double
    with pytest.raises(InputError, match="must divide cp 8"):
        context_group(ranks(8), "usp", ulysses=3)


def test_rings_win_on_pcie_and_lose_nothing_on_nvlink() -> None:
    """A ring hides its messages behind long blocks; an all-to-all over PCIe cannot hide."""
    work = RingWork(step=20e-3, message=64e6)
    for node, cheaper in ((L20, "ring"), (A100, "ulysses")):
        ring = ring_pass_seconds(work, context_group(ranks(8, node), "ring"), causal=True, balanced=True)
        exchange = ulysses_seconds(2**14, 1024, 1024, 2.0, ranks(8, node))
        alone = 8 * 20e-3 / 2 + exchange
        assert ring == pytest.approx(8 * 20e-3 / 2, rel=0.25)
        assert (exchange > 4e-3) == (cheaper == "ring")
        assert alone > 8 * 20e-3 / 2


def test_one_rank_is_plain_attention() -> None:
    place = context_group(ranks(1), "ring")
    assert ring_pass_seconds(RingWork(3.0, 1.0), place, causal=True, balanced=True) == 1.5
    assert ulysses_seconds(1e6, 1, 1, 2.0, ranks(1)) == 0


def test_a_double_ring_beats_a_flat_one_across_nodes() -> None:
    work = RingWork(step=5e-3, message=64e6)
    flat, double = (
        ring_pass_seconds(
            work, context_group(ranks(32, make_node("a100-80g", gbps=800)), kind), causal=False, balanced=True
        )
        for kind in ("ring", "double-ring")
    )
    assert double <= flat
