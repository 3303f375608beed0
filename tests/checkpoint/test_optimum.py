"""The best interval: published values, the equation that the exact optimum solves, and its limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.checkpoint.interval import Costs, Interval
from clustersim.checkpoint.optimum import daly, daly_first_order, exact, young


@pytest.mark.parametrize(("mtbf_h", "first_young", "first_order", "higher_order", "exactly"), [
    (24, 120.0, 115.0, 116.6898, 116.6901), (6, 60.0, 55.0, 56.713, 56.714), (0.25, 12.2474, 7.2474, 9.1409, 9.1665),
])  # fmt: skip
def test_daly_2006_page_312(
    mtbf_h: float, first_young: float, first_order: float, higher_order: float, exactly: float
) -> None:
    # Daly, FGCS 22 (2006): dump 5 min; his page prints 117, 57 and 9.1 min.
    dump, mtbf = 300.0, mtbf_h * 3600
    found = [f(dump, mtbf) / 60 for f in (young, daly_first_order, daly, exact)]
    assert found == pytest.approx([first_young, first_order, higher_order, exactly], abs=6e-5)


def test_bloom() -> None:
    # 40 s dumps and one failure a week: Young gives 1.9322 h.
    assert young(40, 168 * 3600) / 3600 == pytest.approx(1.9322, abs=5e-5)


@given(st.floats(1e-9, 1e6), st.floats(1e-3, 1e10))
def test_exact_is_the_lambert_w_form(dump: float, mtbf: float) -> None:
    from scipy.special import lambertw

    ratio = dump / mtbf
    tau = exact(dump, mtbf)
    assert tau > 0 or ratio < 1e-300
    assert abs(tau - mtbf * -math.expm1(-(tau + dump) / mtbf)) <= 1e-12 * max(tau, dump)
    if 1e-3 < ratio < 500:
        assert tau == pytest.approx(mtbf * (1 + lambertw(-math.exp(-(1 + ratio))).real), rel=1e-8)


@given(st.floats(0.01, 3.0), st.floats(0.5, 2.0).filter(lambda f: abs(f - 1) > 0.01))
def test_no_other_interval_is_better(dump: float, factor: float) -> None:
    def goodput(tau: float) -> float:
        return tau / math.expm1(tau + dump)

    best = exact(dump, 1.0)
    assert goodput(best) > goodput(best * factor)


def test_policies_resolve() -> None:
    costs = Costs(stall_s=30.0, persist_s=4000.0, mtbf_s=10_000.0)
    assert Interval.build("auto").resolve(costs).seconds == 4000.0  # never earlier than the save before is durable
    fast = Costs(stall_s=30.0, persist_s=0.0, mtbf_s=10_000.0)
    assert Interval.build("young").resolve(fast).seconds == young(30, 10_000)
    assert Interval.build("auto").resolve(Costs(30.0, 0.0, math.inf)).never
    assert Interval.build({"steps": 7}).resolve(costs).steps == 7
    assert Interval.build("10 min").resolve(costs).seconds == 600.0


@pytest.mark.parametrize("written", ["auto", "daly", "10 min", {"steps": 200}])
def test_intervals_are_written_as_they_are_read(written: object) -> None:
    part = Interval.build(written)
    assert Interval.build(part.dump() if isinstance(part.dump(), (str, dict)) else written) == part
