"""Link flaps in a run: what training waits for, what it gives up on, and that the steps are those that are left."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

from clustersim.distributions import Constant, Distribution
from clustersim.faults.failure import FailureModel
from clustersim.faults.flap import share_over
from clustersim.faults.process import Site
from clustersim.hardware.cluster import Cluster
from clustersim.rng import stream
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.run.simulate import run_replica
from clustersim.run.walk import Batch
from clustersim.scenario.schema import Scenario

DAY = 86400.0
STEP, LINKS = 10.0, 128


def scenario(*causes: dict[str, Any], days: float = 20, **keys: Any) -> Scenario:
    return Scenario.model_validate({
        "model": "llama3-8b", "cluster": {"nodes": 16, "spare_nodes": 4, "node": "dgx-h100", "storage": "tectonic"},
        "training": {"seq_len": 8192, "global_batch": 128, "micro_batch": 1, "duration": days * DAY},
        "parallelism": {"tp": 2, "pp": 4}, "checkpoint": {"engine": "async", "interval": 1800.0}, "failures": causes, **keys,
    })  # fmt: skip


def flap(**keys: Any) -> dict[str, Any]:
    return {"kind": "link-flap", "mtbf": 60 * DAY, **keys}


def runs(given: Scenario, replicas: int, jump: bool = True) -> list[RunResult]:
    prepared = Prepared(given, STEP, jump=jump)
    results = [run_replica(prepared, 0, replica) for replica in range(replicas)]
    for result in results:
        assert math.fsum(result.ledger_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    return results


def test_training_waits_for_as_long_as_links_are_down() -> None:
    # 128 links ÷ 60 d over 100 d: 213 flaps of 3 s. What is left of the time are steps of 10 s, each whole.
    results = runs(scenario(flap(outage=3.0)), 5)
    flaps = [sum(entry.event == "flap" for entry in result.log.entries()) for result in results]
    assert sum(flaps) == pytest.approx(LINKS / 60 * 100, abs=4 * math.sqrt(213))
    for result, count in zip(results, flaps, strict=True):
        assert result.interruptions == 0
        assert result.ledger_s["straggle"] == pytest.approx(3.0 * count, abs=3.0)
        spent = result.ledger_s["straggle"] + result.ledger_s["checkpoint_stall"]
        assert result.steps == pytest.approx((result.wall_s - spent) / STEP, abs=1)


def test_stalls_and_crashes_have_their_closed_form() -> None:
    # Exponential outages of mean m, tolerated up to c: P(crash) = e^(-c/m), and E[outage; below c] = m - (m + c) e^(-c/m).
    m, c = 200.0, 600.0
    results = runs(scenario(flap(outage={"kind": "exponential", "mean": m}, tolerate=c, mtbf=6 * DAY)), 8)
    flaps, crash = LINKS / 6 * 20 * 8, math.exp(-c / m)
    hits = sum(result.interruptions for result in results)
    assert hits == pytest.approx(flaps * crash, abs=4 * math.sqrt(flaps * crash) + 10)
    waited = sum(result.ledger_s["straggle"] + result.lost_work_s for result in results)
    below = m - (m + c) * crash
    assert sum(result.ledger_s["straggle"] for result in results) == pytest.approx(flaps * below, rel=0.08)
    assert waited > flaps * below * 0.95
    assert sum(result.ledger_s["detect"] for result in results) == pytest.approx(c * hits, rel=0.02)


def test_outages_that_overlap_count_once() -> None:
    # Links of the job are down for a share 1 - e^(-λd) of the time (M/G/∞): 128 links, one flap each 6 h, 100 s.
    results = runs(scenario(flap(outage=100.0, mtbf=DAY / 4), days=10), 6)
    load = LINKS / (DAY / 4) * 100
    share = sum(result.ledger_s["straggle"] for result in results) / sum(result.wall_s for result in results)
    assert share == pytest.approx(-math.expm1(-load), rel=0.02)


def test_the_jump_gives_the_answer_of_every_event() -> None:
    cause = flap(outage={"kind": "exponential", "mean": 200.0}, mtbf=10 * DAY)
    node = {"component": "node", "mtbf": 16 * DAY, "detection": 60.0}
    jumped, walked = (runs(scenario(cause, node), 3, jump) for jump in (True, False))
    for one, other in zip(jumped, walked, strict=True):
        assert (one.steps, one.interruptions) == (other.steps, other.interruptions)
        assert one.ledger_s == pytest.approx(other.ledger_s, rel=1e-9, abs=1e-6)


def test_a_job_that_comes_back_waits_for_a_link_that_is_still_down() -> None:
    # A crash at a known moment, back in 30 s; a link that went down just before is down for 500 s more.
    crash = {"kind": "maintenance", "component": "job", "severity": "process", "first": 1000.0, "length": 0.0, "planned": False}
    down = {"kind": "link-flap", "mtbf": 1e9, "outage": 500.0, "units": 1}
    stages = {"reschedule": 10.0, "start": 10.0, "communicators": 10.0, "load": 0.0, "warm_up": 0.0}
    prepared = Prepared(scenario(crash, down, days=0.05, recovery={"strategy": "restart", "stages": stages}), STEP)
    job = Job(prepared, 0, 0)
    job.trainer.blocked_s = 1500.0  # as a flap at 1,000 s leaves it
    result = job.run()
    resumed = next(entry.time_s for entry in result.log.entries() if entry.event == "resume")
    assert resumed == pytest.approx(1030.0)
    assert result.ledger_s["straggle"] == pytest.approx(1500.0 - resumed)


def test_a_step_waits_once() -> None:
    batch = Batch(start_s=100.0, steps=5, step_s=10.0, slow=False, pace=None)  # type: ignore[arg-type]
    batch.wait(125.0, 131.0)  # in the third step, down for 6 s
    assert (batch.steps, batch.end_s) == (3, 136.0)
    batch.wait(128.0, 140.0)  # a second link, down until 140 s
    assert batch.end_s == 145.0
    batch.wait(130.0, 140.0)  # nothing new
    assert batch.end_s == 145.0
    assert [batch.done_by(now) for now in (119.0, 120.0, 144.9, 145.0)] == [1, 2, 2, 3]


def site(nodes: int, cause: FailureModel) -> Site:
    cluster = Cluster.model_validate({"nodes": nodes, "node": "dgx-h100", "storage": "tectonic"})
    return Site(cluster, nodes, functools.partial(stream, 0, 0), Constant(value=DAY), None, 100 * DAY)


def test_link_failures_of_hpn() -> None:
    # 0.057 % of links fail in a month and never come back in time: 3,000 links, 1.71 crashes a month.
    cause = FailureModel.build({"kind": "link-flap", "mtbf": 30 * DAY / 0.00057, "outage": DAY})
    assert cause.rate(site(375, cause)) * 30 * DAY == pytest.approx(1.71)


@pytest.mark.parametrize("law", [{"kind": "exponential", "mean": 50.0}, {"kind": "weibull", "shape": 0.6, "scale": 40.0},
                                 {"kind": "lognormal", "median": 20.0, "sigma": 1.2}, {"kind": "constant", "value": 100.0}], ids=str)  # fmt: skip
def test_share_of_long_outages(law: dict[str, Any]) -> None:
    distribution = Distribution.build(law)
    drawn = distribution.draw(np.random.default_rng(5), 400_000)
    share = share_over(distribution, 99.0)
    assert share == pytest.approx((drawn > 99.0).mean(), abs=4 * math.sqrt(0.25 / 65536))


def test_a_calendar_moves_flaps() -> None:
    calendar = [{"kind": "steps", "at": [0.0, 10 * DAY], "factors": [3.0, 1.0]}]
    (result,) = runs(scenario(flap(outage=1.0, mtbf=10 * DAY, calendar=calendar)), 1)
    times = np.array([entry.time_s for entry in result.log.entries() if entry.event == "flap"])
    assert (times < 10 * DAY).sum() == pytest.approx(3 * LINKS, abs=4 * math.sqrt(3 * LINKS))
    assert (times >= 10 * DAY).sum() == pytest.approx(LINKS, abs=4 * math.sqrt(LINKS))


def test_giving_up_on_a_link_cannot_stop_nobody() -> None:
    with pytest.raises(ValueError, match="crashes the job"):
        scenario(flap(outage={"kind": "constant", "value": 700.0}, severity="storage"))
