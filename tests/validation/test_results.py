"""The figures of a suite."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.validation.results import Bound, Result, SuiteResult, rank_correlation


def suite(pairs: list[tuple[float, float]], bound: Bound | None = None, group: str = "g") -> SuiteResult:
    rows = tuple(
        Result(str(i), "step_time_s", measured, predicted, group=group) for i, (measured, predicted) in enumerate(pairs)
    )
    return SuiteResult("s", "about", rows, bound or Bound())


def test_figures_by_hand() -> None:
    found = suite([(10, 11), (10, 8), (10, 10), (10, 10.5)])
    assert found.median_abs_error_pct == pytest.approx(7.5)
    assert found.mape_pct == pytest.approx(8.75)
    assert found.bias_pct == pytest.approx(2.5)
    assert found.p90_pct == pytest.approx(20)
    assert [row.row_id for row in found.worst] == ["1", "0", "3"]


def test_skipped_rows_do_not_count() -> None:
    rows = (Result("a", "step_time_s", 1.0, 1.1), Result("b", "step_time_s", skipped="no batch"))
    found = SuiteResult("s", "about", rows)
    assert (len(found.scored), found.dump()["rows"], found.dump()["skipped"]) == (1, 1, 1)
    assert found.dump()["results"][1] == {"row_id": "b", "metric": "step_time_s", "measured": None, "predicted": None,
                                          "error_pct": None, "assumed": {}, "skipped": "no batch"}  # fmt: skip


def test_an_empty_suite_has_null_figures() -> None:
    found = SuiteResult("s", "about", ())
    assert (found.median_abs_error_pct, found.mape_pct, found.bias_pct, found.spearman, found.p90_pct) == (None,) * 5
    assert not found.over


def test_bounds_on_median_mean_and_regret() -> None:
    pairs = [(1.0, 1.2), (1.1, 1.0), (1.2, 1.25), (1.3, 1.3)]
    assert len(suite(pairs, Bound(1, 1, 1)).over) == 3
    assert not suite(pairs, Bound(50, 50, 50)).over
    assert suite(pairs).regret_pct == pytest.approx(10)


def test_a_row_apart_counts_in_errors_but_not_in_the_bound_on_the_choice() -> None:
    pairs = [(1.0, 1.0), (1.2, 0.9), (1.3, 1.3), (1.4, 1.4), (1.5, 1.5)]
    found = suite(pairs, Bound(regret=4))
    rows = [replace(row, unranked="odd") if row.row_id == "1" else row for row in found.results]
    without = replace(found, results=tuple(rows))
    assert found.over == ["s: cost of the predicted best layout 20.0 % is over 4 %"]
    assert without.over == []
    assert without.errors == found.errors
    assert without.regrets == found.regrets == [pytest.approx(20)]
    assert without.dump()["regret_worst_pct"] == pytest.approx(20)
    assert (without.dump()["regret_ranked_worst_pct"], without.dump()["unranked"]) == (0.0, 1)
    assert without.choice == (
        "the predicted best layout costs 20.0 %, by sweep, over all rows; 0.0 % (bound 4) without 1 rows: odd"
    )
    assert suite(pairs).choice is None


def test_rank_order_is_counted_inside_sweeps() -> None:
    first = [Result(str(i), "m", float(i), float(i), group="a") for i in range(1, 6)]
    second = [Result(str(i), "m", 100.0 - i, 100.0 + i, group="b") for i in range(1, 6)]
    found = SuiteResult("s", "about", (*first, *second))
    assert found.spearman == pytest.approx(0.0)


@given(st.lists(st.floats(0.1, 1e3), min_size=2, max_size=20, unique=True))
def test_any_rising_law_ranks_perfectly(values: list[float]) -> None:
    assert rank_correlation([Result("r", "m", v, v**3) for v in values]) == pytest.approx(1.0)


def test_ties_share_a_rank_and_constants_have_none() -> None:
    assert rank_correlation([Result("r", "m", 1.0, 1.0)] * 3) is None
    rows = [Result("r", "m", 1.0, 1.0), Result("r", "m", 1.0, 2.0), Result("r", "m", 2.0, 3.0)]
    assert rank_correlation(rows) == pytest.approx(0.8660, abs=1e-4)
