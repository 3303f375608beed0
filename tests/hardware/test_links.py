"""Shared links: fairness, conservation, closed forms for two flows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.hardware.links import Flow, fair_rates, finish_times, slowdown


def test_two_flows_share_a_link_and_the_limited_one_leaves_the_rest() -> None:
    assert fair_rates([(("a",), 1e9), (("a",), 1e9)], {"a": 10.0}) == [5.0, 5.0]
    assert fair_rates([(("a",), 2.0), (("a",), 1e9)], {"a": 10.0}) == pytest.approx([2.0, 8.0])


def test_max_min_on_two_links() -> None:
    # The textbook line network: a long flow over both links, one short flow on each.
    rates = fair_rates([(("a", "b"), 1e9), (("a",), 1e9), (("b",), 1e9)], {"a": 10.0, "b": 4.0})
    assert rates == pytest.approx([2.0, 8.0, 2.0])


def test_when_the_short_flow_ends_the_long_one_speeds_up() -> None:
    assert finish_times([Flow(10, ("a",)), Flow(30, ("a",))], {"a": 10.0}) == pytest.approx([2.0, 4.0])


def test_a_late_flow_takes_its_share_from_its_start() -> None:
    assert finish_times([Flow(20, ("a",)), Flow(10, ("a",), start=1.0)], {"a": 10.0}) == pytest.approx([3.0, 3.0])


def test_errors() -> None:
    with pytest.raises(ValueError, match="needs a link"):
        fair_rates([((), float("inf"))], {})
    with pytest.raises(ValueError, match="without capacity"):
        fair_rates([(("x",), 1.0)], {"a": 1.0})
    with pytest.raises(ValueError, match="never end"):
        finish_times([Flow(1, ("a",))], {"a": 0.0})


@settings(max_examples=80)
@given(sizes=st.lists(st.floats(1, 1e6), min_size=1, max_size=6), capacity=st.floats(1, 1e3))
def test_one_link_works_without_pause(sizes: list[float], capacity: float) -> None:
    ends = finish_times([Flow(size, ("a",)) for size in sizes], {"a": capacity})
    assert max(ends) == pytest.approx(sum(sizes) / capacity, rel=1e-6)
    assert all(end >= size / capacity * (1 - 1e-9) for end, size in zip(ends, sizes, strict=True))


@settings(max_examples=50)
@given(own=st.floats(0.01, 100), other=st.floats(0.01, 100))
def test_slowdown_is_the_fluid_model_of_two(own: float, other: float) -> None:
    assert own * slowdown(own, other) == pytest.approx(
        finish_times([Flow(own, ("a",)), Flow(other, ("a",))], {"a": 1.0})[0]
    )
    assert slowdown(own, 0) == 1.0
