"""Hits on spare places that do not exist wake nobody, and nothing else changes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from clustersim.checkpoint.interval import Predicted
from clustersim.faults.process import Arrivals, Hit, Site
from clustersim.faults.spare_places import LONGEST, SparePlaces
from clustersim.run import prepared as prepared_module
from clustersim.run.alarms import Foreseen, foreseen
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.run.strikes import Strikes
from tests.run.synthetic import build, job_failure

DAY = 86400.0


def run(made: Any, replica: int = 0) -> tuple[dict[str, Any], list[Any]]:
    result = Job(Prepared(made, 5.0), 3, replica).run()
    return result.metrics(), [tuple(entry) for entry in result.log.entries()]


@pytest.mark.parametrize("strategy", ["restart", "elastic", "hot-spare", "adaptive"])
@pytest.mark.parametrize(
    "cluster",
    [{"spares": 0}, {"spares": 1}, {"spares": 3}, {"spares": 1, "cold": 2}, {"spares": 0, "cold": 3}, {"spares": 66}],
)
def test_the_run_is_the_same_event_for_event(
    strategy: str, cluster: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    spares, cold = cluster["spares"], cluster.get("cold", 0)
    causes = [{"component": "node", "severity": "node", "mtbf": DAY / 2, "detection": 60.0},
              {"name": "old", "component": "node", "severity": "node", "mtbf": DAY, "distribution": "weibull", "shape": 0.7},
              {"name": "rack", "component": "node", "severity": "rack", "mtbf": 3 * DAY}, job_failure(DAY)]  # fmt: skip
    made = build(nodes=6, spares=spares, nodes_per_rack=2, failures=causes, repair={"kind": "exponential", "mean": 40_000.0},
                 recovery={"kind": strategy, "stages": {"start": 60.0}}, duration=10 * DAY,
                 checkpoint={"kind": "sync", "interval": 600.0, "stall": 5.0})  # fmt: skip
    made = made.replace({"cluster.cold_spare_nodes": cold, "cluster.power_up": 600.0}) if cold else made
    strikes: list[bool] = []
    due = Strikes._due
    monkeypatch.setattr(Strikes, "_due", lambda self, event: (strikes.append(True), due(self, event))[1])
    without = [run(made, replica) for replica in range(3)]
    fewer = len(strikes)
    strikes.clear()
    monkeypatch.setattr(prepared_module, "SparePlaces", lambda source, site, places: source)
    assert [run(made, replica) for replica in range(3)] == without
    assert fewer <= len(strikes)
    if spares in (1, 3):
        assert fewer < len(strikes) / 2


class Scripted(Arrivals):
    """Hits at 1, 2, 3, … s on the given places, in turn."""

    def __init__(self, *places: int) -> None:
        self._places, self.drawn, self.next_s = places, 0, 1.0

    def pop(self) -> Hit:
        place = self._places[self.drawn % len(self._places)]
        hit = Hit(self.next_s, None, place, place + 1, 0.0, 0.0, spare=True)  # type: ignore[arg-type]
        self.drawn += 1
        self.next_s += 1.0
        return hit


def site(block: int = 0, horizon_s: float = math.inf) -> Site:
    job = Prepared(build(nodes=2, steps=1), 1.0).job_site()
    return Site(job.cluster, 64, job.streams, job.repair, block, horizon_s)


def test_hits_that_were_passed_over_count_when_places_come_into_being() -> None:
    source = SparePlaces(Scripted(3, 1, 0, 2), site(), 1)
    assert source.next_s == 3.0  # the first on place 0
    assert source.grow(2, 1.5)
    assert (source.next_s, source.pop().first) == (2.0, 1)
    assert not source.grow(3, 2.0)  # place 2 is hit at 4, after place 0 at 3
    assert [source.pop().time_s for _ in range(3)] == [3.0, 4.0, 6.0]
    assert not source.grow(64, 6.5)
    assert [source.pop().time_s for _ in range(3)] == [7.0, 8.0, 9.0]


def test_a_block_without_places_draws_nothing_until_there_are_some() -> None:
    inner = Scripted(64)
    source = SparePlaces(inner, site(block=1), 10)
    assert (source.next_s, inner.drawn) == (math.inf, 0)
    assert source.grow(65, 5.5)
    assert source.next_s == 6.0


def test_looking_ahead_ends() -> None:
    never = SparePlaces(Scripted(9), site(), 1)
    assert never.next_s == LONGEST  # handed out all the same, and lost on a place that does not exist
    assert never.pop().first == 9
    inner = Scripted(9)
    assert SparePlaces(inner, site(horizon_s=20.0), 1).next_s == math.inf
    assert inner.drawn == 20


def test_failures_of_spares_are_not_announced() -> None:
    made = build(nodes=2, spares=1, failures=[job_failure(DAY), {"component": "node", "severity": "node", "mtbf": DAY}],
                 checkpoint={"kind": "async", "interval": {"kind": "predicted", "recall": 0.5, "precision": 0.5, "lead": 60.0}},
                 duration=DAY)  # fmt: skip
    ready = Prepared(made, 5.0)
    assert isinstance(made.checkpoint.interval, Predicted)
    predictor = Job(ready, 0, 0)._predictor()
    kinds = [type(source) for source in foreseen(ready.arrivals(0, 0), predictor)]
    assert kinds == [Foreseen, Foreseen, SparePlaces]
