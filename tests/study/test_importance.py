"""Importance: against functions whose indices are known, and luck told apart from ignorance."""

from __future__ import annotations

from typing import Any

import pytest

from clustersim.errors import InputError
from clustersim.scenario.schema import Scenario
from clustersim.study import importance
from clustersim.study.ranges import Range
from clustersim.study.runner import Outcome
from clustersim.study.sweeping import Sweep

RANGES = [Range("a", 0.0, 1.0), Range("b", 0.0, 1.0), Range("c", 0.0, 1.0)]


class Seeded:
    class simulation:
        seed = 0


@pytest.fixture
def additive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the simulation by y = 3a + b (c does nothing): Sobol shares 0.9, 0.1, 0; effects 3, 1, 0."""

    def known(scenario: Any, *, points: list[dict[str, float]], replicas: int, **more: Any) -> Sweep:
        outcomes = [Outcome(str(k), p, [{"y": 3 * p["a"] + p["b"] + 0.1 * (r % 2)} for r in range(replicas)])
                    for k, p in enumerate(points)]  # fmt: skip
        return Sweep(["a", "b", "c"], outcomes, 0)

    monkeypatch.setattr(importance, "sweep", known)


@pytest.mark.usefixtures("additive")
def test_sobol_indices_of_a_linear_function() -> None:
    """Variance of 3a is 9/12, of b 1/12. With a base of 256 the estimate's error is below 0.05."""
    found = importance.sobol(Seeded, RANGES, metric="y", base=256, replicas=2)
    assert found.first == pytest.approx([0.9, 0.1, 0.0], abs=0.05)
    assert found.total == pytest.approx([0.9, 0.1, 0.0], abs=0.05)
    assert [item["path"] for item in found.to_dict()["inputs"]] == ["a", "b", "c"]
    assert found.evaluations == 5 * 256


@pytest.mark.usefixtures("additive")
def test_morris_effects_of_a_linear_function_are_exact() -> None:
    found = importance.morris(Seeded, RANGES, metric="y", paths=5, replicas=2)
    assert found.first == pytest.approx([3.0, 1.0, 0.0])
    assert found.total == pytest.approx([0.0, 0.0, 0.0], abs=1e-5)  # shares are kept 1e-6 off the ends
    assert found.evaluations == 20


@pytest.mark.usefixtures("additive")
def test_luck_and_ignorance_apart() -> None:
    """Ignorance: sd of 3a + b is sqrt(10/12) = 0.913; luck: 0 and 0.1 by turns has sd 0.1/2·sqrt(4/3) = 0.0577.

    A Latin hypercube of 64 has a smaller error than independent draws, whose sd estimate is off by 1/sqrt(128) = 9 %.
    """
    found = importance.spread(Seeded, RANGES, metric="y", draws=64, replicas=4)
    assert found.sd_inputs == pytest.approx(0.913, rel=0.18)
    assert found.sd_luck == pytest.approx(0.0577, rel=1e-2)
    assert found.mean == pytest.approx(2.05, rel=0.02)


def test_on_a_real_scenario(small: Scenario) -> None:
    """A wide range of the interval beside a range of spares that never run out: the interval explains nearly all."""
    ranges = [Range.parse("checkpoint.interval=5 min..90 min"), Range.parse("cluster.spare_nodes=30..40")]
    found = importance.morris(small, ranges, metric="ettr", paths=3, replicas=2)
    assert found.first[0] > 10 * found.first[1]


def test_wrong_use() -> None:
    with pytest.raises(InputError, match="at least one range"):
        importance.morris(Seeded, [])
    with pytest.raises(InputError, match="power of two"):
        importance.sobol(Seeded, RANGES, base=10)
    with pytest.raises(InputError, match="at least 2 replicas"):
        importance.spread(Seeded, RANGES, replicas=1)
