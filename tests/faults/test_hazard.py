"""Lifetimes, ages and calendars against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from clustersim.errors import InputError
from clustersim.faults.hazard.calendar import Calendar, Clock, PeriodicCalendar, SurgeCalendar
from clustersim.faults.hazard.effects import Ages, Burst
from clustersim.faults.hazard.lifetime import Lifetime, ages_after_burn_in, stationary_ages

LIVES = [
    "exponential",
    {"kind": "weibull", "shape": 0.5},
    {"kind": "weibull", "shape": 3.0},
    {"kind": "gamma", "shape": 0.4},
    {"kind": "lognormal", "shape": 1.2},
    {"kind": "bathtub", "infant": 0.1, "infant_time": 50.0, "wear_out": 5000.0, "wear_out_shape": 4.0},
    {"kind": "steps", "ages": [0.0, 100.0], "factors": [5.0, 0.5]},
]
MTBF = 1000.0


@pytest.mark.parametrize("data", LIVES, ids=str)
def test_age_at_inverts_the_cumulative_hazard(data: object) -> None:
    life = Lifetime.build(data)
    hazard = np.array([1e-6, 0.01, 0.3, 1.0, 5.0])
    assert life.cumulative(life.age_at(hazard, MTBF), MTBF) == pytest.approx(hazard, rel=1e-8)


@pytest.mark.parametrize(("data", "frozen"), [
    ({"kind": "weibull", "shape": 0.7}, stats.weibull_min(0.7, scale=MTBF / math.gamma(1 + 1 / 0.7))),
    ({"kind": "gamma", "shape": 0.4}, stats.gamma(0.4, scale=MTBF / 0.4)),
    ({"kind": "lognormal", "shape": 1.2}, stats.lognorm(1.2, scale=MTBF * math.exp(-0.72))),
])  # fmt: skip
def test_survivor_functions_are_those_of_scipy(data: object, frozen: object) -> None:
    ages = np.array([0.1, 10.0, 500.0, 3000.0])
    survivor = np.exp(-Lifetime.build(data).cumulative(ages, MTBF))
    assert survivor == pytest.approx(frozen.sf(ages), rel=1e-9)  # type: ignore[attr-defined]
    assert frozen.mean() == pytest.approx(MTBF)  # type: ignore[attr-defined]


def test_a_bathtub_is_its_three_parts() -> None:
    life = Lifetime.build(LIVES[5])
    early = 1 - float(np.exp(-life.cumulative(np.array([1e-9 + 500.0]), 1e12))[0])
    assert early == pytest.approx(0.1, rel=1e-3)  # the infant share fails early even if nothing else did
    assert 0 < life.mean_s(MTBF) < MTBF  # infant mortality and wear-out only shorten lives


@pytest.mark.parametrize("data", LIVES, ids=str)
@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_stationary_ages_have_the_density_of_the_survivor_function(data: object, weight: float) -> None:
    # Kolmogorov's distance of 4,000 draws: the 1 - 1e-4 point of its law is 2.23/√n.
    life = Lifetime.build(data)
    n = 4000
    ages = np.sort(stationary_ages(life, MTBF, np.full(n, weight), np.random.default_rng(1)))
    grid = np.concatenate([[0.0], np.geomspace(1e-9, float(ages[-1]) * 50, 20001)])
    survivor = np.exp(-weight * life.cumulative(grid, MTBF))
    mass = np.concatenate([[0.0], np.cumsum(np.diff(grid) * (survivor[1:] + survivor[:-1]) / 2)])
    expected = np.interp(ages, grid, mass / mass[-1])
    assert np.abs(expected - (np.arange(n) + 0.5) / n).max() < 2.23 / math.sqrt(n)


def test_a_burn_in_is_a_renewal_process_watched_for_its_length() -> None:
    # Exponential: after a burn-in of b the age is b with probability exp(-b/m), else the time since the last renewal.
    ages = ages_after_burn_in(Lifetime.build("exponential"), 10.0, np.ones(20000), 5.0, np.random.default_rng(2))
    untouched = float((ages == 5.0).mean())
    assert untouched == pytest.approx(math.exp(-0.5), abs=4 * math.sqrt(0.24 / 20000))
    assert ages[ages < 5].max() < 5.0


def test_burn_in_takes_infant_mortality_away() -> None:
    life = Lifetime.build({"kind": "bathtub", "infant": 0.2, "infant_time": 10.0})
    ages = ages_after_burn_in(life, 1e6, np.ones(1000), 200.0, np.random.default_rng(3))
    before, after = life.cumulative(np.array([30.0]), 1e6)[0], 0.0
    after = float((life.cumulative(ages + 30, 1e6) - life.cumulative(ages, 1e6)).mean())
    assert after < before / 50


CALENDARS = [
    {"kind": "steps", "at": [0.0, 50.0, 80.0], "factors": [1.0, 0.0, 3.0]},
    {"kind": "surge", "start": 20.0, "length": 5.0, "times": 4.0, "every": 30.0},
    {"kind": "periodic", "period": 24.0, "factors": [0.5, 1.5, 1.0]},
]


@pytest.mark.parametrize("data", CALENDARS, ids=lambda data: data["kind"])
def test_a_clock_is_the_integral_of_its_factor(data: dict[str, object]) -> None:
    calendar = Calendar.build(data)
    clock = Clock.of([calendar], 200.0)
    grid = np.linspace(0, 200, 20001)[:-1] + 0.005
    total = np.cumsum([calendar.factor(float(t)) for t in grid]) * 0.01
    for time in (10.0, 49.0, 60.0, 120.0, 199.0):
        assert clock.read(time) == pytest.approx(total[int(time * 100) - 1], abs=0.05)


@given(st.floats(0.0, 300.0))
def test_when_is_the_first_time_at_which_the_clock_reads_so_much(reading: float) -> None:
    clock = Clock.of([Calendar.build(data) for data in CALENDARS], 200.0)
    time = clock.when(reading)
    assert clock.read(time) == pytest.approx(reading, abs=1e-6)
    if time > 1e-3:
        assert clock.read(time * (1 - 1e-6)) <= reading + 1e-9


def test_a_clock_is_laid_out_once_for_all_replicas() -> None:
    # The hours of a century, as runs of unknown length have them: 876,000 edges.
    factors = tuple(float(hour % 5) for hour in range(24))
    first, second = (Clock.of([Calendar.build({"kind": "periodic", "factors": factors})], math.inf) for _ in range(2))
    assert len(first.edges) == 24 * 365 * 100
    assert second is first
    assert Clock.of([Calendar.build({"kind": "periodic", "factors": factors})], 86400.0) is not first


def test_a_calendar_that_cannot_be_hashed_has_a_clock() -> None:
    class Listed(Calendar):
        at: list[float]

        def edges(self, horizon_s: float) -> list[float]:
            return self.at

        def factor(self, time_s: float) -> float:
            return 2.0 if time_s >= self.at[0] else 1.0

    assert Clock.of([Listed(at=[10.0])], math.inf).read(15.0) == 20.0


def test_a_clock_that_stops_never_gets_there() -> None:
    clock = Clock.of([Calendar.build({"kind": "steps", "at": [0.0, 10.0], "factors": [1.0, 0.0]})], 100.0)
    assert math.isinf(clock.when(11.0))


@pytest.mark.parametrize("data", [{"at": [1.0], "factors": [1.0]}, {"at": [0.0, 5.0], "factors": [1.0]},
                                  {"at": [0.0, 5.0, 5.0], "factors": [1, 1, 1]}, {"at": [0.0], "factors": [-1.0]}])  # fmt: skip
def test_steps_must_be_a_function_of_time(data: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Calendar.build({"kind": "steps", **data})


@pytest.mark.parametrize("dispersion", [None, 0.13, 5.0])
def test_numbers_of_followers_have_their_mean_and_variance(dispersion: float | None) -> None:
    burst = Burst(followers=0.4, dispersion=dispersion)
    rng = np.random.default_rng(5)
    drawn = np.array([burst.number(rng, 0.0) for _ in range(60000)])
    variance = 0.4 if dispersion is None else 0.4 + 0.16 / dispersion
    assert drawn.mean() == pytest.approx(0.4, abs=4 * math.sqrt(variance / len(drawn)))
    kurtosis = float(((drawn - drawn.mean()) ** 4).mean())
    assert drawn.var() == pytest.approx(variance, abs=4 * math.sqrt((kurtosis - drawn.var() ** 2) / len(drawn)))


def test_a_cascade_must_end() -> None:
    with pytest.raises(ValidationError, match="below 1"):
        Burst(followers=1.0, chain=True)


def test_ages_in_short() -> None:
    assert Ages.model_validate("new").start == "new"
    assert Ages.model_validate({"burn_in": "7 d"}).burn_in == 7 * 86400
    with pytest.raises(ValidationError):
        Ages.model_validate("burn-in")


@pytest.mark.parametrize("calendar", [PeriodicCalendar(period=60.0, factors=(1.0, 2.0)),
                                      SurgeCalendar(start=0.0, length=10.0, times=2.0, every=60.0)])  # fmt: skip
def test_a_calendar_that_changes_too_often_to_be_laid_out_is_refused(calendar: Calendar) -> None:
    with pytest.raises(InputError, match=r"changes 1\.1e\+08 times in a century.*2e\+06"):
        Clock.of((calendar,), math.inf)
    assert len(Clock.of((calendar,), 86400.0).edges) == pytest.approx(calendar.changes(86400.0), abs=2)
