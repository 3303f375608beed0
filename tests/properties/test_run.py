"""Laws that hold for any run: exclusive seconds, nodes that add up, metamorphic relations, failures at every event."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.run.simulate import run_replica
from clustersim.scenario.schema import Scenario
from tests.run.synthetic import build, job_failure, planted

STAGES = {"diagnose": 2.0, "reschedule": 3.0, "start": 4.0, "communicators": 5.0, "load": 6.0, "warm_up": 7.0}
ENGINES: dict[str, dict[str, Any]] = {
    "none": {"kind": "none"},
    "sync": {"kind": "sync", "interval": 20.0, "stall": 1.0},
    "async": {"kind": "async", "interval": 20.0, "stall": 1.0, "persist": 6.0},
    "async, waits": {"kind": "async", "interval": 8.0, "stall": 1.0, "persist": 13.0, "slowdown": 1.5},
    "to storage": {"kind": "async", "interval": 20.0, "stall": 1.0},
}
SLOW = {"write_bandwidth": 100_000.0, "read_bandwidth": 150_000.0, "latency": 0.25}
SEVERITIES = ["process", "gpu", "node", "nvlink-domain", "rack", "cluster", "storage"]


def check(scenario: Scenario, result: RunResult, job: Job) -> None:
    """What must hold after any run."""
    assert math.fsum(result.ledger_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    assert all(seconds >= -1e-6 for seconds in result.ledger_s.values())
    assert 0 <= result.ettr <= 1
    assert sum(job.fleet.counts) == scenario.cluster.nodes + scenario.cluster.spare_nodes
    assert sum(result.down_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    if not result.hopeless and scenario.training.steps:
        assert result.steps == scenario.training.steps
    last = 0
    for entry in result.log.entries():
        assert 0 <= entry.time_s <= result.wall_s * (1 + 1e-12)
        if entry.event == "rollback":
            assert entry.step is not None
            last = entry.step
        if entry.event == "resume":
            assert entry.step == last  # the state that is restored is the one that the rollback chose
    durable = {0}
    for entry in sorted(result.log.entries(), key=lambda e: (e.time_s, e.event != "save_durable")):
        if entry.event == "save_durable":
            durable.add(entry.step or 0)
        if entry.event == "rollback":
            assert entry.step in durable  # never restores what was not durable


def go(scenario: Scenario, step: float = 1.0, seed: int = 0, jump: bool = True) -> RunResult:
    job = Job(Prepared(scenario, step, jump=jump), seed, 0)
    result = job.run()
    check(scenario, result, job)
    return result


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_failure_at_every_event_of_a_small_run(engine: str, severity: str) -> None:
    # A run with one failure has events before, at and after it; a second failure strikes at each of these instants, and
    # in the middle between each two.
    first = planted(33.0, severity="node", detection=1.5, lasting=30.0)

    def scenario(*times: float) -> Scenario:
        second = planted(*times, severity=severity, detection=0.5, lasting=9.0, name="second")
        return build(nodes=4, spares=1, nodes_per_rack=2, stages=STAGES, checkpoint=ENGINES[engine], storage=SLOW, steps=60,
                     crews=1, failures=[first, second] if times else [first])  # fmt: skip

    bare = go(scenario())
    instants = sorted({round(entry.time_s, 9) for entry in bare.log.entries()})
    between = [(a + b) / 2 for a, b in itertools.pairwise(instants)]
    assert len(instants) > 8
    for instant in (*instants, *between):
        for jump in (True, False):
            go(scenario(instant), jump=jump)


@pytest.mark.prove
@pytest.mark.parametrize("engine", ENGINES)
def test_two_failures_at_every_pair_of_events(engine: str) -> None:
    def scenario(*times: float) -> Scenario:
        return build(nodes=2, spares=1, stages=STAGES, checkpoint=ENGINES[engine], storage=SLOW, steps=45, crews=1,
                     failures=[planted(*times, severity="node", detection=1.5, lasting=30.0)])  # fmt: skip

    instants = sorted({round(entry.time_s, 9) for entry in go(scenario(33.0)).log.entries()})
    for first in instants:
        for second in instants:
            if second > first:
                go(scenario(first, second))


@settings(max_examples=40)
@given(st.sampled_from(sorted(ENGINES)), st.sampled_from(SEVERITIES), st.integers(0, 2**31), st.floats(20.0, 5000.0),
       st.integers(0, 3), st.one_of(st.none(), st.integers(1, 2)), st.booleans())  # fmt: skip
def test_random_runs(
    engine: str, severity: str, seed: int, mtbf: float, spares: int, crews: int | None, bounded: bool
) -> None:
    cause = {"component": "node", "severity": severity, "mtbf": 4 * mtbf, "detection": 2.0}
    end = {"duration": 3000.0} if bounded else {"steps": 300}
    scenario = build(nodes=4, spares=spares, nodes_per_rack=2, stages=STAGES, checkpoint=ENGINES[engine], storage=SLOW, crews=crews,
                     failures=[cause, job_failure(mtbf * 3, name="job")], repair={"kind": "exponential", "mean": 200.0}, **end)  # fmt: skip
    go(scenario, seed=seed)


def test_failures_at_random_on_a_large_run() -> None:
    causes = [{"name": kind, "component": kind, "severity": severity, "mtbf": 4e6, "detection": 60.0}
              for kind, severity in [("gpu", "gpu"), ("node", "node"), ("rack", "rack"), ("nic", "process")]]  # fmt: skip
    scenario = build(nodes=256, gpus=8, spares=24, nodes_per_rack=4, failures=causes, crews=6, repair=7200.0,
                     stages={name: 10 * seconds for name, seconds in STAGES.items()}, duration=10 * 86400.0,
                     checkpoint={"kind": "async", "interval": 600.0, "stall": 2.0, "persist": 60.0})  # fmt: skip
    result = go(scenario, 5.0)
    assert result.interruptions > 500


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.floats(0.25, 8.0), st.sampled_from(["none", "sync", "async", "async, waits"]))
def test_scaling_every_duration_scales_every_time(seed: int, factor: float, engine: str) -> None:
    # Times of the failures scale with the MTBF because exponential gaps do.
    def scaled(by: float) -> RunResult:
        keys = {
            key: value * by if isinstance(value, float) and key != "slowdown" else value
            for key, value in ENGINES[engine].items()
        }
        scenario = build(stages={name: seconds * by for name, seconds in STAGES.items()}, checkpoint=keys, steps=200,
                         failures=[job_failure(150.0 * by, detection=3.0 * by)])  # fmt: skip
        return run_replica(Prepared(scenario, by), seed, 0)

    one, many = scaled(1.0), scaled(factor)
    assert many.interruptions == one.interruptions
    assert many.wall_s == pytest.approx(one.wall_s * factor, rel=1e-9)
    assert many.ledger_s == pytest.approx(
        {name: seconds * factor for name, seconds in one.ledger_s.items()}, rel=1e-9, abs=1e-6
    )


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.integers(0, 6))
def test_one_more_spare_never_hurts(seed: int, spares: int) -> None:
    # The same failures for both. Saves are free and every step is saved, so work is never lost; the larger pool can
    # only come out behind by hits on places that stood empty with the smaller one, a recovery (29 s) each, and by
    # broken steps.
    def run(count: int) -> RunResult:
        scenario = build(nodes=8, spares=count, stages=STAGES, duration=9000.0, repair=900.0, during={"spare": False},
                         checkpoint={"kind": "sync", "interval": {"steps": 1}, "stall": 0.0},
                         failures=[{"component": "node", "severity": "node", "mtbf": 2400.0, "detection": 2.0}])  # fmt: skip
        return run_replica(Prepared(scenario, 1.0), seed, 0, events=False)

    fewer, more = run(spares), run(spares + 1)
    extra = more.interruptions - fewer.interruptions
    assert extra >= 0
    assert more.steps >= fewer.steps - 29 * extra - more.interruptions
    assert more.ledger_s["wait_for_nodes"] <= fewer.ledger_s["wait_for_nodes"] + 29 * extra


def test_one_more_spare_never_hurts_in_the_mean() -> None:
    def ettr(count: int) -> list[float]:
        scenario = build(nodes=8, spares=count, stages=STAGES, duration=20_000.0, repair=900.0, during={"spare": False},
                         checkpoint={"kind": "sync", "interval": 30.0, "stall": 1.0},
                         failures=[{"component": "node", "severity": "node", "mtbf": 2400.0, "detection": 2.0}])  # fmt: skip
        prepared = Prepared(scenario, 1.0)
        return [run_replica(prepared, 9, replica, events=False).ettr for replica in range(40)]

    means = [ettr(count) for count in range(5)]
    for fewer, more in itertools.pairwise(means):
        gain = [b - a for a, b in zip(fewer, more, strict=True)]
        error = statistics.stdev(gain) / math.sqrt(len(gain))
        assert statistics.fmean(gain) >= -2 * error


def test_names_of_stages_and_order_of_causes_do_not_matter() -> None:
    causes = [job_failure(150.0, name="a"), job_failure(220.0, name="b")]
    one = go(build(failures=causes, stages={"start": 5.0, "warm_up": 3.0}, steps=300))
    two = go(build(failures=causes[::-1], stages={"x": 5.0, "y": 3.0}, steps=300))
    assert one.wall_s == two.wall_s
    assert two.ledger_s["other"] == pytest.approx(one.ledger_s["start"] + one.ledger_s["warm_up"])


def test_the_same_seed_gives_the_same_bytes() -> None:
    scenario = build(nodes=8, spares=2, stages=STAGES, duration=50_000.0, checkpoint=ENGINES["to storage"], storage=SLOW,
                     failures=[{"component": "gpu", "severity": "node", "mtbf": 5000.0}], repair={"kind": "exponential", "mean": 600.0})  # fmt: skip
    prepared = Prepared(scenario, 1.0)
    first, again = run_replica(prepared, 3, 5), run_replica(Prepared(scenario, 1.0), 3, 5)
    assert repr(first.metrics()) == repr(again.metrics())
    assert first.log.entries() == again.log.entries()
    assert run_replica(prepared, 3, 6).metrics() != first.metrics()
    assert run_replica(prepared, 4, 5).metrics() != first.metrics()
    assert repr(run_replica(prepared, 3, 5, events=False).metrics()) == repr(first.metrics())
