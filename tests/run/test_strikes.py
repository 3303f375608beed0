"""The seam of failures: order, ties, arrivals that observe, hits on nodes and on spares."""

from __future__ import annotations

import math
from typing import Any

import pytest
import simpy

from clustersim.faults.failure import FailureModel
from clustersim.faults.process import Arrivals, Change, Hit, Site
from clustersim.run.prepared import Prepared
from clustersim.run.simulate import run_replica
from clustersim.run.strikes import Strikes
from tests.run.synthetic import DAY, Planted, build


class Listed(Arrivals):
    def __init__(self, times: list[float], cause: FailureModel) -> None:
        self._times, self._cause = sorted(times, reverse=True), cause
        self.next_s = self._times.pop() if self._times else math.inf

    def pop(self) -> Hit:
        hit = Hit(self.next_s, self._cause, 0, 1, 0.0, 0.0)
        self.next_s = self._times.pop() if self._times else math.inf
        return hit


def test_hits_come_in_order_and_ties_in_the_order_of_causes() -> None:
    env = simpy.Environment()
    seen: list[tuple[float, str]] = []
    sources = [Listed([3.0, 1.0], Planted(name="a")), Listed([], Planted(name="b")),
               Listed([1.0, 2.0], Planted(name="c"))]  # fmt: skip
    Strikes(env, sources, lambda hit: seen.append((env.now, hit.cause.name)))
    env.run()
    assert seen == [(1.0, "a"), (1.0, "c"), (2.0, "c"), (3.0, "a")]


def test_failures_come_after_all_else_of_their_instant() -> None:
    env = simpy.Environment()
    seen: list[str] = []
    Strikes(env, [Listed([5.0], Planted())], lambda _: seen.append("failure"))
    timeout = env.timeout(5.0)
    timeout.callbacks.append(lambda _: seen.append("step"))
    env.run()
    assert seen == ["step", "failure"]


class Relapse(FailureModel, kind="relapse-for-tests"):
    """The first node fails at ``first``; every node that has been repaired fails 10 s after it stands in a place
    again."""

    first: float = 5.0

    def rate(self, site: Site) -> float:
        return 0.0

    def arrivals(self, site: Site) -> Arrivals | None:
        return RelapseArrivals(self) if site.block is None else None


class RelapseArrivals(Arrivals):
    observes = True

    def __init__(self, cause: Relapse) -> None:
        self._cause, self._node, self._repaired = cause, 0, set[int]()
        self.next_s = cause.first

    def pop(self) -> Hit:
        hit = Hit(self.next_s, self._cause, 0, 1, 1.0, 20.0, node=self._node)
        self.next_s = math.inf
        return hit

    def observe(self, change: Change) -> bool:
        if change.what == "repaired":
            self._repaired.add(change.node)
        if change.what == "placed" and change.node in self._repaired:
            self.next_s, self._node = change.time_s + 10.0, change.node
            return True
        return False


def test_arrivals_that_observe_move_their_next_hit() -> None:
    # Node 0 fails at 5, is noticed at 6, repaired at 26 and placed again at once, fails at 36, and so on every 31 s.
    scenario = build(duration=120.0, failures=[{"kind": "relapse-for-tests", "component": "node"}])
    result = run_replica(Prepared(scenario, 1.0), 0, 0)
    failures = [entry.time_s for entry in result.log.entries() if entry.event == "failure"]
    assert failures == pytest.approx([5.0, 36.0, 67.0, 98.0])
    assert run_replica(Prepared(scenario, 1.0), 0, 0, events=False).interruptions == 4


def test_spares_fail_in_streams_of_their_own() -> None:
    def run(spares: int, **keys: Any) -> list[tuple[float, str]]:
        scenario = build(nodes=16, spares=spares, duration=200 * DAY, repair=DAY, **keys,
                         failures=[{"component": "gpu", "severity": "node", "mtbf": 40 * DAY}])  # fmt: skip
        entries = run_replica(Prepared(scenario, 600.0), 0, 0).log.entries()
        return [(entry.time_s, entry.event) for entry in entries if "failure" in entry.event]

    def of_job(seen: list[tuple[float, str]]) -> list[float]:
        return [time for time, event in seen if event == "failure"]

    many, more = run(60), run(61)
    idle = [entry for entry in many if entry[1] == "spare_failure"]
    assert len(idle) > 150  # about 60 spares × 200 d ÷ 40 d, those in repair apart
    assert of_job(many) == of_job(more)
    assert set(idle) <= set(more)  # the 61st place adds its own failures and moves no other's
    assert run(60, during={"spare": False}) == [(time, "failure") for time in of_job(many)]


def test_process_failures_do_not_touch_spares() -> None:
    scenario = build(
        nodes=4, spares=50, duration=50 * DAY, failures=[{"component": "node", "severity": "process", "mtbf": DAY}]
    )
    entries = run_replica(Prepared(scenario, 600.0), 0, 0).log.entries()
    assert not [entry for entry in entries if entry.event == "spare_failure"]


@pytest.mark.parametrize(("component", "units"), [("gpu", 48), ("hbm", 48), ("nic", 6), ("node", 6), ("rack", 2), ("switch", 2),
                                                  ("nvlink-domain", 3), ("storage", 1), ("job", 1)])  # fmt: skip
def test_units_of_a_component(component: str, units: int) -> None:
    scenario = build(nodes=6, gpus=8, nodes_per_rack=4, domain_gpus=16, steps=1,
                     failures=[{"component": component, "severity": "process", "mtbf": 1.0}])  # fmt: skip
    site = Prepared(scenario, 1.0).job_site()
    assert site.units(scenario.failures[0]) == units
    assert scenario.failures[0].rate(site) == units


def test_the_mean_time_between_interruptions_counts_all_that_interrupt() -> None:
    causes = [{"component": "gpu", "severity": "gpu", "mtbf": 96.0}, {"component": "job", "severity": "process", "mtbf": 4.0},
              {"component": "storage", "severity": "storage", "mtbf": 0.1}]  # fmt: skip
    assert Prepared(build(nodes=6, gpus=8, steps=1, failures=causes), 1.0).mtbf_s == pytest.approx(
        1 / (48 / 96 + 1 / 4)
    )
