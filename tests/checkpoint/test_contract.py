"""What every checkpoint engine keeps to, whichever are registered: new ones are picked up unasked."""

from __future__ import annotations

import itertools
import math

import pytest

import clustersim.checkpoint  # noqa: F401  (registers the engines)
from clustersim.checkpoint.engine import CheckpointEngine
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.scenario.schema import Scenario
from tests.run.synthetic import build, planted

ENGINES = sorted(name for name, part in CheckpointEngine.kinds.items() if part.kind == name)
STORAGE = {"write_bandwidth": 200_000.0, "read_bandwidth": 300_000.0, "latency": 0.25}


def scenario(engine: str, *times: float, severity: str = "node", **keys: object) -> Scenario:
    causes = [planted(*times, severity=severity, detection=0.5, lasting=7.0)] if times else []
    settings = {"kind": engine, "interval": 12.0, **keys}
    return build(nodes=4, gpus=2, spares=2, nodes_per_rack=2, stages={"start": 2.0, "communicators": 1.0}, storage=STORAGE,
                 checkpoint=settings, steps=50, failures=causes)  # fmt: skip


def run(made: Scenario, jump: bool = True) -> RunResult:
    job = Job(Prepared(made, 1.0, jump=jump), 0, 0)
    result = job.run()
    assert math.fsum(result.ledger_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    assert sum(job.fleet.counts) == 6
    assert result.steps == 50
    return result


def instants(result: RunResult) -> list[float]:
    times = sorted({round(entry.time_s, 9) for entry in result.log.entries()})
    return sorted({*times, *((a + b) / 2 for a, b in itertools.pairwise(times))})


@pytest.mark.parametrize("severity", ["process", "node", "rack", "cluster", "storage"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_failure_at_every_event_restores_only_what_was_durable(engine: str, severity: str) -> None:
    for instant in instants(run(scenario(engine, 31.0))):
        durable = {0}
        result = run(scenario(engine, instant, severity=severity))
        for entry in sorted(result.log.entries(), key=lambda e: (e.time_s, e.event != "save_durable")):
            if entry.event == "save_durable":
                durable.add(entry.step or 0)
            if entry.event == "rollback":
                assert entry.step in durable


@pytest.mark.parametrize("engine", ENGINES)
def test_arithmetic_and_events_agree(engine: str) -> None:
    for times in ((), (20.0,), (20.0, 33.3)):
        left, right = run(scenario(engine, *times)), run(scenario(engine, *times), jump=False)
        assert left.wall_s == pytest.approx(right.wall_s, rel=1e-9)
        assert left.ledger_s == pytest.approx(right.ledger_s, abs=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_written_is_what_was_saved(engine: str) -> None:
    # Event by event, without failures: every save writes each byte of its storage transfers once.
    prepared = Prepared(scenario(engine, interval=1.0), 1.0, jump=False)
    job = Job(prepared, 0, 0)
    result = job.run()
    saves = sum(entry.event == "save_durable" and entry.subject == "shared" for entry in result.log.entries())
    moved = math.fsum(t.bytes for t in prepared.transfers if t.channel == "storage")
    assert job.storage.moved["read"] == 0
    if moved:
        assert saves > 0
        assert saves * moved <= job.storage.moved["write"] * (1 + 1e-9) <= (saves + 1) * moved * (1 + 1e-9)
    else:
        assert job.storage.moved["write"] == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_on_infinitely_fast_resources_saving_costs_next_to_nothing(engine: str) -> None:
    made = build(nodes=4, gpus=2, checkpoint={"kind": engine, "interval": 12.0, "planning": 0.0}, steps=50)
    result = run_replica_of(made)
    assert result.wall_s == pytest.approx(50.0, abs=1e-3)


def run_replica_of(made: Scenario) -> RunResult:
    return Job(Prepared(made, 1.0), 0, 0).run()


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_are_written_as_they_are_read(engine: str) -> None:
    part = CheckpointEngine.build({"engine": engine, "interval": "10 min"})
    assert CheckpointEngine.build(part.dump()) == part
