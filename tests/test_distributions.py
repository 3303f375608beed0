"""Distributions of durations: moments against their formulas, short forms, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from clustersim.distributions import Constant, Distribution, Empirical, Lognormal, Weibull
from clustersim.part import Block
from clustersim.rng import stream

N = 40_000

EXAMPLES: list[dict[str, object]] = [
    {"kind": "constant", "value": "30 s"},
    {"kind": "exponential", "mean": "10 min"},
    {"kind": "uniform", "low": "1 min", "high": "3 min"},
    {"kind": "lognormal", "median": "20 h", "sigma": 0.8},
    {"kind": "lognormal", "median": "20 h", "mean": "30 h"},
    {"kind": "weibull", "shape": 0.8, "scale": "100 h"},
    {"kind": "weibull", "shape": 1.7, "mean": "100 h"},
    {"kind": "gamma", "shape": 2.5, "mean": "2 h"},
    {"kind": "gamma", "shape": 0.7, "scale": "2 h"},
    {"kind": "empirical", "values": ["10 s", "20 s", "60 s"]},
]


class Holder(Block):
    time: Distribution


def build(data: object) -> Distribution:
    return Holder.model_validate({"time": data}, context={"units": "required"}).time


@pytest.mark.parametrize("data", EXAMPLES, ids=str)
def test_mean_of_draws_is_the_mean(data: dict[str, object]) -> None:
    """Within 4 standard errors of the sample (central limit; N = 40,000)."""
    part = build(data)
    drawn = part.draw(stream(1, 0, str(data)), N)
    error = max(drawn.std() / math.sqrt(N), 1e-12)
    assert abs(drawn.mean() - part.mean_s()) < 4 * error + 1e-9 * part.mean_s()
    assert drawn.min() >= 0


@pytest.mark.parametrize("data", EXAMPLES, ids=str)
def test_dump_reads_back_to_an_equal_part(data: dict[str, object]) -> None:
    part = build(data)
    assert build(part.dump()) == part


def test_every_kind_has_an_example() -> None:
    """A new distribution without a test of its mean is a failure here."""
    known = {k for k, c in Distribution.kinds.items() if k == c.kind and c.__module__ == "clustersim.distributions"}
    assert {str(data["kind"]) for data in EXAMPLES} == known


def test_quantity_is_a_constant_and_draws_no_random_number() -> None:
    part = build("1 h 30 min")
    rng = stream(0, 0, "x")
    before = rng.bit_generator.state
    assert part == Constant(value=5400.0)
    assert part.sample(rng) == 5400.0
    assert rng.bit_generator.state == before


def test_lognormal_from_mean_and_median() -> None:
    part = build({"kind": "lognormal", "median": "20 h", "mean": "133 h"})
    assert isinstance(part, Lognormal)
    assert part.sigma_log == pytest.approx(math.sqrt(2 * math.log(133 / 20)))
    assert part.mean_s() == pytest.approx(133 * 3600)


def test_weibull_of_shape_one_is_exponential() -> None:
    assert Weibull(shape=1, scale=50).mean_s() == pytest.approx(50)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (3, "needs a unit"),
        ("lognormall", "is not a duration"),
        ({"kind": "lognormal", "median": "3 h"}, "exactly one of 'mean' and 'sigma'"),
        ({"kind": "lognormal", "median": "3 h", "mean": "2 h"}, "at least its 'median'"),
        ({"kind": "uniform", "low": "3 h", "high": "2 h"}, "'high' must be at least 'low'"),
        ({"kind": "weibull", "shape": 0, "mean": "2 h"}, "greater than or equal"),
        ({"kind": "weibull", "shape": 1e-9, "mean": "2 h"}, "greater than or equal"),
        ({"kind": "empirical", "values": []}, "at least 1"),
        ({"kind": "normal", "mean": "3 h"}, "there is no distribution 'normal'; did you mean 'lognormal'"),
        ({"kind": "exponential", "mean": "-3 h"}, "must be at least 0"),
        ({"mean": "3 h"}, "needs the key 'kind'"),
    ],
)
def test_refusals(data: object, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        build(data)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_a_plug_in_cannot_return_what_is_no_duration(bad: float) -> None:
    class Broken(Empirical):
        def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
            return np.full(size, bad)

    with pytest.raises(ValueError, match="no duration"):
        Broken(values=(1.0,)).sample(stream(0, 0, "x"))
