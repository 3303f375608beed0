"""Stretches that jump over cycles of legs against the same legs added up one by one."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.checkpoint.interval import Every
from clustersim.checkpoint.pattern import Leg, Outlay, Pace, Pattern
from clustersim.checkpoint.stretch import Stretch
from clustersim.checkpoint.tiers import Tier

SAVES = st.lists(
    st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 40.0)).map(
        lambda pair: Outlay(pair[0], ((pair[0] + pair[1], Tier.SHARED),), pair[1])
    ),
    min_size=1,
    max_size=5,
)


def legs_one_by_one(pattern: Pattern, number: int, count: int) -> list[Leg]:
    """The definition: every leg from what is in flight when it starts."""
    legs, flights = [], ()
    for index in range(count):
        leg, flights = pattern._advance(flights, number + index + 1)
        legs.append(leg)
    return legs


@settings(max_examples=60)
@given(SAVES, st.integers(1, 3), st.sampled_from(["wait", "skip", "block"]), st.integers(0, 9), st.integers(1, 6),
       st.floats(1.0, 1.5))  # fmt: skip
def test_a_stretch_is_its_legs(saves: list[Outlay], depth: int, busy: str, number: int, steps: int, slow: float) -> None:
    pace = Pace(2.0, 2.0 * slow, 2.0)
    pattern = Pattern(Every(steps=steps), pace, saves, busy, depth)
    stretch = Stretch(pattern, 100.0, 7, number=number)
    start, done, stalled = 100.0, 0, 0.0
    for index, leg in enumerate(legs_one_by_one(pattern, number, 60)):
        assert math.isclose(stretch.leg_start(index), start, rel_tol=1e-9)
        assert stretch.steps_before(index) == done
        assert stretch.leg_at(index).steps == leg.steps
        assert math.isclose(stretch.books(index).checkpoint_stall, stalled, rel_tol=1e-9, abs_tol=1e-9)
        assert stretch.legs_to(7 + done) == index
        middle = stretch.locate(start + leg.train_s * 0.5)
        assert middle.leg == index
        assert not middle.stalled
        if leg.stall_s > 1e-6:
            assert stretch.locate(start + leg.train_s + leg.stall_s / 2).stalled
        durable = stretch.durable_s(index, Tier.SHARED)
        assert durable is not None
        assert durable >= start + leg.length_s - 1e-9
        start, done, stalled = start + leg.length_s, done + leg.steps, stalled + leg.stall_s


@settings(max_examples=40)
@given(SAVES, st.integers(1, 3), st.integers(0, 9), st.floats(0.0, 3000.0))
def test_the_newest_copy_is_the_last_that_became_durable(saves: list[Outlay], depth: int, number: int, passed: float) -> None:
    pattern = Pattern(Every(steps=3), Pace(2.0, 2.0, 2.0), saves, "block", depth)
    stretch = Stretch(pattern, 0.0, 0, number=number)
    spot = stretch.locate(passed)
    found = stretch.copies(passed, spot.leg, keep=2)
    every = [(stretch.durable_s(save, Tier.SHARED) or 0.0, save) for save in range(spot.leg + 1)]
    expected = [stretch.steps_before(save + 1) for durable, save in every if durable <= passed]
    assert [copy.step for copy in found] == expected[-2:]
    assert all(copy.durable_s <= passed for copy in found)


def test_a_cycle_longer_than_the_table_is_looked_up_from_any_leg() -> None:
    # One save in 250 goes to storage too: the table ends within the cycle.
    rare = Outlay(0.5, ((0.5, Tier.HOST), (40.5, Tier.SHARED)), 40.0)
    saves = [rare] + [Outlay(0.25, ((0.25, Tier.HOST),), 0.0)] * 249
    pattern = Pattern(Every(steps=3), Pace(2.0, 2.5, 2.0), saves, "block")
    assert len(pattern.cycle) == 250
    for number in (0, 7, 180, 249):
        stretch = Stretch(pattern, 100.0, 7, number=number)
        start, done, slow, stalled = 100.0, 0, 0, 0.0
        for index, leg in enumerate(legs_one_by_one(pattern, number, 700)):
            assert math.isclose(stretch.leg_start(index), start, rel_tol=1e-12)
            assert (stretch.steps_before(index), stretch.leg_at(index).steps) == (done, leg.steps)
            assert stretch.slow_steps(index) == slow
            assert math.isclose(stretch.stall_s(index), stalled, rel_tol=1e-12, abs_tol=1e-9)
            assert stretch.legs_to(7 + done) == index
            assert stretch.locate(start + leg.train_s * 0.5).leg == index
            host, shared = stretch.durable_s(index, Tier.HOST), stretch.durable_s(index, Tier.SHARED)
            assert host is not None
            assert math.isclose(host, start + leg.length_s, rel_tol=1e-12)
            assert (shared is not None) == ((number + index + 1) % 250 == 0)
            start, done = start + leg.length_s, done + leg.steps
            slow, stalled = slow + leg.slow, stalled + leg.stall_s


def test_never_is_no_leg() -> None:
    stretch = Stretch(Pattern(Every(), Pace(2.0, 2.0, 2.0), (), "wait"), 5.0, 0)
    assert not stretch.saves
    assert stretch.locate(10.5).steps == 2
    assert stretch.end_of(3) == 11.0
