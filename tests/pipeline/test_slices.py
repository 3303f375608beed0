"""Uneven cuts of a sequence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.errors import InputError
from clustersim.pipeline.slices import TokenFlop, equal_flop_slices, even_slices, fastest_slices, slice_shares

GPT_2B = TokenFlop.of(layers=24, hidden=2048, ffn=8192, heads=16, vocab=50304)


def test_the_published_cut_of_seq1f1b() -> None:
    """24 layers, h 2048, 65,536 tokens, k 4: the authors' solver gives 27,520/15,544/12,152/10,320 (multiples of 8)."""
    cut = equal_flop_slices(65536, 4, GPT_2B)
    assert cut == [27495, 15556, 12158, 10327]
    assert cut == pytest.approx([27520, 15544, 12152, 10320], abs=30)
    assert slice_shares(cut, GPT_2B) == pytest.approx([0.25] * 4, abs=2e-5)
    assert all(length % 8 == 0 for length in equal_flop_slices(65536, 4, GPT_2B, multiple=8))


@given(st.integers(1, 400), st.integers(1, 12), st.integers(1, 16), st.floats(0, 10), st.floats(1, 100))
def test_cuts_keep_every_token(blocks: int, slices: int, multiple: int, attention: float, linear: float) -> None:
    flop = TokenFlop(linear, attention)
    if blocks < slices:
        with pytest.raises(InputError):
            equal_flop_slices(blocks * multiple, slices, flop, multiple)
        return
    cut = equal_flop_slices(blocks * multiple, slices, flop, multiple)
    assert len(cut) == slices
    assert sum(cut) == blocks * multiple
    assert all(length > 0 and length % multiple == 0 for length in cut)
    assert sum(slice_shares(cut, flop)) == pytest.approx(1.0)


@given(st.floats(0, 1e6), st.floats(1, 1e6), st.floats(1, 1e6))
def test_position_inverts_the_sum(attention: float, linear: float, tokens: float) -> None:
    flop = TokenFlop(linear, attention)
    assert flop.position(flop.up_to(tokens)) == pytest.approx(tokens, rel=1e-9)


@pytest.mark.parametrize("slices", [2, 4, 8, 16])
def test_equal_flop_is_better_than_equal_length(slices: int) -> None:
    even = max(slice_shares(even_slices(65536, slices), GPT_2B))
    equal = max(slice_shares(equal_flop_slices(65536, slices, GPT_2B), GPT_2B))
    assert equal < even
    assert equal == pytest.approx(1 / slices, rel=1e-3)


def test_without_attention_slices_are_even() -> None:
    assert even_slices(12, 4) == [3, 3, 3, 3]
    assert max(even_slices(11, 4)) - min(even_slices(11, 4)) <= 1


def test_terapipe_cuts_more_the_more_ranks_there_are() -> None:
    def time(before: int, length: int) -> float:
        return 0.05 + (GPT_2B.up_to(before + length) - GPT_2B.up_to(before)) / GPT_2B.up_to(4096)

    cuts = {ranks: fastest_slices(4096, ranks, time, 256) for ranks in (1, 2, 8)}
    assert cuts[1] == [4096]  # one rank: every cut only adds the fixed 0.05
    assert 1 < len(cuts[2]) < len(cuts[8])
    assert all(sum(cut) == 4096 for cut in cuts.values())

    def step(cut: list[int]) -> float:
        starts = [sum(cut[:i]) for i in range(len(cut))]
        times = [time(a, n) for a, n in zip(starts, cut, strict=True)]
        return sum(times) + 7 * max(times)

    assert step(cuts[8]) <= min(step(even_slices(4096, k, 256)) for k in range(1, 17))
