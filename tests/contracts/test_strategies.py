"""What every recovery strategy keeps to, whichever are registered: new ones are picked up unasked."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.distributions import Distribution
from clustersim.recovery.stages import Stage
from clustersim.recovery.strategy import RecoveryStrategy
from clustersim.run.cluster import State
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from tests.run.synthetic import build, planted

STRATEGIES = sorted(name for name, part in RecoveryStrategy.kinds.items() if part.kind == name)
STAGES = {"diagnose": 1.0, "reschedule": 2.0, "start": 2.0, "communicators": 1.0, "warm_up": 1.5}
SEVERITIES = ["process", "gpu", "node", "nvlink-domain", "rack", "cluster", "storage"]


def free_of_cost(kind: str) -> dict[str, Any]:
    """Keys that make every time of a strategy's own zero."""
    own = ("heartbeat", "hang", "drain_steps", "patience", "penalty")
    fields = RecoveryStrategy.kinds[kind].model_fields
    keys: dict[str, Any] = {name: 0.0 for name, field in fields.items()
                            if isinstance(field.default, (Stage, Distribution)) or name in own}  # fmt: skip
    if kind == "adaptive":
        keys["rules"] = [{"use": {"kind": "in-process", **free_of_cost("in-process")}, "severity": ["process"]},
                         {"use": {"kind": "hot-spare"}, "spares": True}]  # fmt: skip
    return {name: value for name, value in keys.items() if name not in ("diagnosis", "dead_spares")}


def check(job: Job, result: RunResult) -> None:
    """No second and no node is lost, in a log that tells one story."""
    scenario = job.prepared.scenario
    assert math.fsum(result.ledger_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    assert all(seconds >= -1e-6 for seconds in result.ledger_s.values())
    assert sum(job.fleet.counts) == scenario.cluster.nodes + scenario.cluster.spare_nodes
    nodes = len(job.fleet._where)
    for state in State:
        assert job.fleet.counts[state] == sum(job.fleet.state(node) == state for node in range(nodes))
    assert sum(result.down_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    restored, durable = 0, {0}
    for entry in sorted(result.log.entries(), key=lambda e: (e.time_s, e.event != "save_durable")):
        if entry.event == "save_durable":
            durable.add(entry.step or 0)
        if entry.event in ("rollback", "hold"):
            assert entry.step is not None
            restored = entry.step
        if entry.event == "rollback":
            assert entry.step in durable
        if entry.event == "resume":
            assert entry.step == restored
    if scenario.training.steps and not result.hopeless:
        assert result.steps == scenario.training.steps


def go(scenario: Any, step: Any = 1.0, seed: int = 0, jump: bool = True) -> RunResult:
    job = Job(Prepared(scenario, step, jump=jump), seed, 0)
    result = job.run()
    check(job, result)
    return result


def run(strategy: str, *times: float, severity: str = "node", spares: int = 1, free: bool = False, jump: bool = True,
        place: int = 1, later: str | None = None) -> RunResult:  # fmt: skip
    stages = dict.fromkeys(STAGES, 0.0) if free else STAGES
    own = free_of_cost(strategy) if free else {}
    first = planted(
        *times[:1], severity=severity, detection=0.0 if free else 0.5, lasting=0.0 if free else 25.0, place=place
    )
    second = planted(*times[1:], severity=later or severity, detection=0.5, lasting=9.0, place=2, name="second")
    made = build(nodes=4, spares=spares, nodes_per_rack=2, recovery={"kind": strategy, "stages": stages, **own}, steps=40,
                 crews=1, failures=[first, second] if times[1:] else [first],
                 checkpoint={"kind": "async", "interval": 10.0, "stall": 0.0 if free else 1.0, "persist": 0.0 if free else 3.0})  # fmt: skip
    return go(made, jump=jump)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_second_and_no_node_is_lost_wherever_a_second_failure_strikes(strategy: str, severity: str) -> None:
    # A run with one failure has events before, at and after it; a second failure strikes at each, and between each two.
    times = sorted({round(entry.time_s, 9) for entry in run(strategy, 17.0).log.entries()})
    for number, instant in enumerate((*times, *((a + b) / 2 for a, b in itertools.pairwise(times)))):
        run(strategy, 17.0, instant, later=severity, jump=number % 2 == 0)


@pytest.mark.prove
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_failures_more_at_every_pair_of_events(strategy: str) -> None:
    times = sorted({round(entry.time_s, 9) for entry in run(strategy, 17.0).log.entries()})
    for pair in itertools.combinations(times, 2):
        for jump in (True, False):
            run(strategy, 17.0, *pair, jump=jump)


@settings(max_examples=40)
@given(st.sampled_from(STRATEGIES), st.sampled_from(SEVERITIES), st.integers(0, 2**31), st.floats(30.0, 5000.0), st.integers(0, 3),
       st.one_of(st.none(), st.integers(1, 2)), st.booleans(), st.booleans(), st.booleans(), st.booleans())  # fmt: skip
def test_random_runs(strategy: str, severity: str, seed: int, mtbf: float, spares: int, crews: int | None, bounded: bool,
                     unlucky: bool, odd: bool, jump: bool) -> None:  # fmt: skip
    bad = {"diagnosis": {"wrong": 0.3, "relapse": 20.0, "check": 50.0}, "dead_spares": {"share": 0.3, "found": 3.0}}
    causes = [{"component": "node", "severity": severity, "mtbf": 4 * mtbf, "detection": 2.0},
              {"name": "soft", "component": "gpu", "severity": "process", "mtbf": 6 * mtbf, "detection": 1.0},
              {"name": "maintenance", "component": "node", "severity": "node", "mtbf": 9 * mtbf, "planned": True, "detection": 0.0}]  # fmt: skip
    if odd:  # wrong states, flapping links and slow nodes beside failures
        causes += [{"kind": "loss-spike", "mtbf": 6 * mtbf, "latency": 15.0, "margin": 3, "saves_back": 1, "detection": 5.0},
                   {"kind": "silent-corruption", "mtbf": 30 * mtbf, "coverage": 0.8, "latency": 12.0, "detection": 2.0},
                   {"kind": "link-flap", "mtbf": 8 * mtbf, "outage": {"kind": "exponential", "mean": 20.0}, "tolerate": 30.0},
                   {"kind": "fail-slow", "mtbf": 12 * mtbf, "depth": 1.5, "length": {"kind": "exponential", "mean": 40.0}}]
    end = {"duration": 3000.0} if bounded else {"steps": 300}
    scenario = build(nodes=4, spares=spares, nodes_per_rack=2, crews=crews, failures=causes, repair={"kind": "exponential", "mean": 200.0},
                     recovery={"kind": strategy, "stages": STAGES, **(bad if unlucky else {})},
                     checkpoint={"kind": "async", "interval": 20.0, "stall": 1.0, "persist": 6.0, "keep": 3}, **end)  # fmt: skip
    go(scenario, seed=seed, jump=jump)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_failures_at_random_on_a_large_run(strategy: str) -> None:
    # 128 nodes as 4 stages of 32 replicas; nodes, racks, processes, maintenance, few crews, wrong diagnoses, dead spares.
    causes = [{"name": "node", "component": "node", "severity": "node", "mtbf": 128 * 5000.0, "detection": 60.0},
              {"name": "rack", "component": "rack", "severity": "rack", "mtbf": 32 * 60_000.0, "detection": 60.0},
              {"name": "soft", "component": "gpu", "severity": "process", "mtbf": 128 * 9000.0, "detection": 30.0},
              {"name": "upkeep", "component": "node", "severity": "node", "mtbf": 128 * 20_000.0, "planned": True, "detection": 0.0}]
    scenario = build(nodes=128, spares=6, nodes_per_rack=4, failures=causes, crews=4, repair=14_400.0, duration=4 * 86400.0,
                     recovery={"kind": strategy, "stages": {name: 10 * value for name, value in STAGES.items()},
                               "diagnosis": {"wrong": 0.1}, "dead_spares": {"share": 0.1}},
                     checkpoint={"kind": "async", "interval": 600.0, "stall": 2.0, "persist": 60.0})  # fmt: skip
    pipes = scenario.replace({"parallelism.pp": 4, "parallelism.dp": 32, "model.layers": 8, "training.global_batch": 256})
    job = Job(Prepared(pipes, 5.0), 0, 0)
    result = job.run()
    check(job, result)
    assert result.interruptions > 30
    assert sum(job.turnover.paths.values()) > 25


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_event_by_event_is_the_same(strategy: str) -> None:
    results = [run(strategy, 17.0, 44.0, jump=jump) for jump in (True, False)]
    assert results[0].wall_s == pytest.approx(results[1].wall_s)
    assert results[0].ledger_s == pytest.approx(results[1].ledger_s, abs=1e-6)


@pytest.mark.parametrize("stall", [0.0, 0.25, 2.5])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_turn_that_meets_a_save_waits_for_its_stall_and_costs_no_step(strategy: str, stall: float) -> None:
    # A repaired node may be ready at any moment of the steps around a save: all that is lost is what the failure took.
    lost = set()
    for repair in (20.0, *np.arange(19.4, 23.0, 0.4375)):
        cause = planted(17.0, severity="node", lasting=float(repair), place=1, detection=2.0)
        made = build(nodes=8, spares=0, recovery={"kind": strategy, "stages": STAGES}, steps=90, failures=[cause],
                     checkpoint={"kind": "sync", "interval": 3.0, "stall": stall})  # fmt: skip
        jumped, stepped = (go(made, jump=jump) for jump in (True, False))
        assert jumped.ledger_s == pytest.approx(stepped.ledger_s, abs=1e-6), repair
        lost.add(round(stepped.lost_work_s, 6))
    assert len(lost) == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_coming_back_at_no_cost_costs_only_lost_work(strategy: str) -> None:
    result = run(strategy, 17.0, spares=4, free=True)
    copied = result.ledger_s["migrate"]  # bytes over a network of 100 GB/s
    assert copied < 1e-3
    assert result.wall_s == pytest.approx(40.0 + result.lost_work_s + copied + result.ledger_s["degraded"], abs=1e-3)
    assert result.lost_work_s <= 10.0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_failures_it_costs_what_it_adds_to_a_step(strategy: str) -> None:
    made = build(nodes=4, recovery={"kind": strategy, "stages": STAGES}, duration=1000.0)
    prepared = Prepared(made, 1.0)
    result = go(made)
    added = made.recovery.overhead_s(prepared.ground)
    assert result.ettr == pytest.approx(1 / (1 + added), abs=2e-3)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_more_spare_never_hurts_when_the_same_failures_land(strategy: str, seed: int) -> None:
    # Each place is hit once, so that no failure is lost on an empty place; a save each step, so that the phase of saves tells
    # nothing. Then a run with one more spare trains at least as much, but for the steps that failures cut.
    rng = np.random.default_rng(seed)
    hits = [planted(float(at), severity="node", lasting=float(rng.uniform(50, 3000)), place=place, name=f"f{place}", detection=2.0)
            for place, at in enumerate(np.sort(rng.uniform(100, 4000, 4)))]  # fmt: skip
    tokens = []
    for spares in range(6):
        made = build(nodes=4, spares=spares, duration=10_000.0, during={"spare": False}, failures=hits,
                     recovery={"kind": strategy, "stages": STAGES, **free_of_cost(strategy)},
                     checkpoint={"kind": "sync", "interval": {"steps": 1}, "stall": 0.0})  # fmt: skip
        prepared = Prepared(made, 1.0)
        tokens.append(Job(prepared, 0, 0, events=False).run().tokens / made.training.tokens_per_step)
    for fewer, more in itertools.pairwise(tokens):
        assert more >= fewer - 2 * len(hits), tokens


@pytest.mark.parametrize("scarce", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_more_spare_never_hurts_in_the_mean(strategy: str, scarce: bool) -> None:
    # The same failures for all; an idle place is hit less often than one that trains, so a single run may turn out either
    # way. Two standard errors of the paired difference are exceeded with probability 2.3 %; seeds are fixed. Where spares fail
    # too and one crew repairs all, they take its time.
    def tokens(spares: int) -> list[float]:
        made = build(nodes=4, spares=spares, duration=20_000.0, repair=300.0 if scarce else 900.0, crews=1 if scarce else None,
                     during={"spare": scarce}, recovery={"kind": strategy, "stages": STAGES, **free_of_cost(strategy)},
                     checkpoint={"kind": "sync", "interval": 30.0, "stall": 1.0},
                     failures=[{"component": "node", "severity": "node", "mtbf": 4000.0, "detection": 2.0}])  # fmt: skip
        prepared = Prepared(made, 1.0)
        return [Job(prepared, 5, replica, events=False).run().tokens for replica in range(6)]

    for fewer, more in itertools.pairwise([tokens(spares) for spares in range(4)]):
        gain = [b - a for a, b in zip(fewer, more, strict=True)]
        assert statistics.fmean(gain) >= -2 * statistics.stdev(gain) / math.sqrt(len(gain)) - 1e-9


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_failure_takes_the_same_nodes_for_all(strategy: str) -> None:
    # Common random numbers: failures belong to places and times, whatever the strategy makes of them.
    def hits(kind: str) -> set[float]:
        cause = {"component": "node", "severity": "node", "mtbf": 4000.0, "detection": 2.0}
        made = build(
            nodes=4, spares=9, recovery={"kind": kind, "stages": STAGES}, duration=9000.0, repair=50.0, failures=[cause]
        )
        told = ("failure", "idle_failure")
        return {entry.time_s for entry in go(made).log.entries() if entry.event in told}

    mine, plain = hits(strategy), hits("restart")
    assert len(mine & plain) >= 0.7 * max(len(mine), len(plain))  # a place that stands empty is not hit


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_are_written_as_they_are_read(strategy: str) -> None:
    part = RecoveryStrategy.build({"strategy": strategy, "stages": {"start": "1 min"}})
    assert RecoveryStrategy.build(part.dump()) == part
    assert part.__doc__
