"""The optimum along an axis: found where the closed form has it, inside its own interval as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.errors import InputError
from clustersim.study.optimal import find_peak
from clustersim.study.ranges import Range


def waste(interval: np.ndarray, save: float, mtbf: float) -> np.ndarray:
    """First-order waste of a save every ``interval``: save/interval + interval/(2·mtbf); least at √(2·save·mtbf)."""
    return save / interval + interval / (2 * mtbf)


def test_peak_of_a_smooth_curve() -> None:
    """17 points over a factor 120: the fitted curve has the terms of the first-order waste, so Young's interval is hit.

    The grid on which its highest point is looked for is 2,001 points over a factor of at most 16: steps of 0.14 %.
    """
    intervals = np.geomspace(60.0, 7200.0, 17)
    heights = 1 - waste(intervals, 10.0, 10_800.0)
    found, (low, high) = find_peak(intervals, np.tile(heights, (5, 1)), 0)
    assert found == pytest.approx((2 * 10.0 * 10_800.0) ** 0.5, rel=0.002)
    assert low <= found <= high


def test_interval_of_the_peak_covers() -> None:
    """60 studies of 40 replicas with a common and a point-wise luck: 57 less 4 binomial sd (1.7) is 50."""
    rng, hits = np.random.default_rng(3), 0
    intervals = np.geomspace(60.0, 7200.0, 17)
    truth = (2 * 10.0 * 10_800.0) ** 0.5
    for _ in range(60):
        rate = rng.gamma(100, 1 / 100, (40, 1)) / 10_800.0
        heights = 1 - 10.0 / intervals - rate * intervals / 2 + rng.normal(0, 1e-3, (40, 17))
        _, (low, high) = find_peak(intervals, heights, 0)
        hits += low <= truth <= high
    assert hits >= 50


@pytest.mark.parametrize("shape", ["uniform", "log", "normal", "log-normal", "triangular"])
def test_ranges_put_their_ends_where_they_say(shape: str) -> None:
    span = Range.parse(f"checkpoint.interval=5 min..20 min:{shape}")
    low, high = span.at(0.05), span.at(0.95)
    if shape.endswith("normal"):
        assert (low, high) == pytest.approx((300.0, 1200.0))
    else:
        assert 300.0 < low < high < 1200.0
    assert span.at(0.5) == pytest.approx(600.0 if shape.startswith("log") else 750.0)
    assert isinstance(span.value(0.5), str)


def test_whole_numbers_stay_whole_and_wrong_ranges_are_told() -> None:
    assert Range.parse("cluster.spare_nodes=0..64").value(0.5) == 32
    for text, words in {
        "a": "is no range", "a=3": "is no range", "a=3..1": "low < high", "a=1..2:bell": "no shape 'bell'",
        "a=1 min..2 GB": "different kinds", "a=0..2:log": "low > 0", "a=x..y": "neither",
    }.items():  # fmt: skip
        with pytest.raises(InputError, match=words):
            Range.parse(text)
