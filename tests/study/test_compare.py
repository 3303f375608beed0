"""Comparisons: the same bad days for each design, words that follow the statistics."""

from __future__ import annotations

import pytest

from clustersim.errors import InputError
from clustersim.scenario.schema import Scenario
from clustersim.study.comparison import compare, labels_of, sentence
from clustersim.study.statistics import Difference, sd_of
from clustersim.study.work import flat


def test_designs_see_the_same_failures(small: Scenario) -> None:
    """Interval and recovery differ; failures are in absolute time, so their number is the same in every replica."""
    other = small.replace("checkpoint.interval", "1 h")
    found = compare([small, other], names=["short", "long"])
    a, b = found.outcomes
    assert a.column("interruptions") == b.column("interruptions")
    ettr = found.of("ettr")[0]
    assert (ettr.a, ettr.b, ettr.replicas) == ("short", "long", 8)
    assert ettr.verdict == "a"


def test_common_random_numbers_cut_the_variance(small: Scenario) -> None:
    """Against independent seeds the variance of the difference falls by 5 and more."""
    other = small.replace("checkpoint.interval", "25 min")
    paired = compare([small, other], replicas=40)
    a, b = (outcome.column("ettr") for outcome in paired.outcomes)
    unpaired = compare([other, small], replicas=40, seed=99).outcomes[0].column("ettr")
    with_luck = sd_of([x - y for x, y in zip(a, unpaired, strict=True) if x is not None and y is not None])
    without = sd_of([x - y for x, y in zip(a, b, strict=True) if x is not None and y is not None])
    assert (with_luck / without) ** 2 >= 5


def test_the_same_scenario_twice_is_no_difference(small: Scenario) -> None:
    found = compare([small, small], replicas=3)
    assert found.outcomes[0].label == "small (1)"
    assert all(one.mean == 0 and one.verdict == "undecided" for one in found.differences)
    assert found.sentences() == ["small (1) and small (2) have the same goodput in every replica."]
    document = found.to_dict()
    assert document["scenarios"] == ["small (1)", "small (2)"]
    assert {"a", "b", "metric", "mean", "ci95", "verdict"} <= set(document["differences"][0])
    assert list(found.to_frame().columns)[:3] == ["a", "b", "metric"]
    assert len(found.replicas_frame()) == 6


def test_words_follow_the_statistics() -> None:
    better = Difference("A", "B", "ettr", 0.012, (0.010, 0.014), 0.013, "a", 20, None)
    assert sentence(better) == "A is better than B: ettr by 1.30% ± 0.22% (95 % interval, 20 paired replicas)."
    open_ = Difference("A", "B", "ettr", 0.001, (-0.002, 0.004), 0.001, "undecided", 20, 140)
    assert sentence(open_).endswith("(ettr differs by 0.10% ± 0.30%); 140 more replicas would.")
    fact = Difference("A", "B", "ledger_s.load", 5.0, (4.0, 6.0), None, "undecided", 20, None)
    assert "has more" in sentence(fact)


def test_labels_and_errors(small: Scenario) -> None:
    assert labels_of([small, small], ["x", "y"]) == ["x", "y"]
    with pytest.raises(InputError, match="at least two"):
        compare([small])


def test_flat_metrics() -> None:
    assert flat({"ettr": 0.9, "ledger_s": {"train": 1.0}}) == {"ettr": 0.9, "ledger_s.train": 1.0}
