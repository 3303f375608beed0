"""What every recovery strategy keeps to, whichever are registered: new ones are picked up unasked."""

from __future__ import annotations

import itertools
import math

import pytest

from clustersim.recovery.strategy import RecoveryStrategy
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from tests.run.synthetic import build, planted

STRATEGIES = sorted(name for name, part in RecoveryStrategy.kinds.items() if part.kind == name)
STAGES = {"diagnose": 1.0, "reschedule": 2.0, "start": 2.0, "communicators": 1.0, "warm_up": 1.5}


def run(strategy: str, *times: float, severity: str = "node", spares: int = 1, free: bool = False) -> RunResult:
    stages = dict.fromkeys(STAGES, 0.0) if free else STAGES
    made = build(nodes=4, spares=spares, nodes_per_rack=2, recovery={"kind": strategy, "stages": stages}, steps=40, crews=1,
                 failures=[planted(*times, severity=severity, detection=0.0 if free else 0.5, lasting=0.0 if free else 25.0)],
                 checkpoint={"kind": "async", "interval": 10.0, "stall": 0.0 if free else 1.0, "persist": 0.0 if free else 3.0})  # fmt: skip
    job = Job(Prepared(made, 1.0), 0, 0)
    result = job.run()
    assert math.fsum(result.ledger_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    assert sum(job.fleet.counts) == 4 + spares
    assert result.steps == 40
    return result


@pytest.mark.parametrize("severity", ["process", "node", "rack", "cluster"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_second_and_no_node_is_lost_wherever_a_second_failure_strikes(strategy: str, severity: str) -> None:
    times = sorted({round(entry.time_s, 9) for entry in run(strategy, 17.0).log.entries()})
    for instant in (*times, *((a + b) / 2 for a, b in itertools.pairwise(times))):
        run(strategy, 17.0, instant, severity=severity)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_coming_back_at_no_cost_costs_only_lost_work(strategy: str) -> None:
    result = run(strategy, 17.0, spares=4, free=True)
    assert result.wall_s == pytest.approx(40.0 + result.lost_work_s)
    assert result.lost_work_s <= 10.0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_more_spare_never_hurts(strategy: str) -> None:
    walls = [run(strategy, 17.0, 21.0, 44.0, spares=spares).wall_s for spares in range(5)]
    assert all(more <= fewer + 1e-9 for fewer, more in itertools.pairwise(walls))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_are_written_as_they_are_read(strategy: str) -> None:
    part = RecoveryStrategy.build({"strategy": strategy, "stages": {"start": "1 min"}})
    assert RecoveryStrategy.build(part.dump()) == part
