"""Random streams: each depends on its own key alone."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.rng import stream


def test_a_stream_is_its_key() -> None:
    first = stream(1, 2, "failure/gpu", 3).random(5)
    assert np.array_equal(first, stream(1, 2, "failure/gpu", 3).random(5))


@pytest.mark.parametrize("other", [(0, 2, "failure/gpu", 3), (1, 0, "failure/gpu", 3), (1, 2, "failure/nic", 3),
                                   (1, 2, "failure/gpu", 4), (1, 2, "failure/gpu")])  # fmt: skip
def test_any_part_of_the_key_makes_another_stream(other: tuple[int, int, str, int]) -> None:
    assert not np.array_equal(stream(1, 2, "failure/gpu", 3).random(5), stream(*other).random(5))


def test_known_values_hold_across_versions() -> None:
    """Results are promised to be the same bytes for a seed; these numbers change only with a note in the changelog."""
    assert stream(0, 0, "golden").integers(0, 1000, 5).tolist() == GOLDEN


GOLDEN = [771, 629, 21, 751, 280]


def test_streams_are_uncorrelated() -> None:
    """|r| of n = 10,000 independent pairs stays below 4 / sqrt(n) = 0.04 but for 6e-5 of all seeds."""
    draws = np.array([stream(7, replica, "x").random(10_000) for replica in range(6)])
    correlation = np.corrcoef(draws)[np.triu_indices(6, 1)]
    assert np.abs(correlation).max() < 0.04
