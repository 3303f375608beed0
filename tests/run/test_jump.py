"""Crossing undisturbed stretches by arithmetic gives what an event for every save gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.run.simulate import run_replica
from tests.run.synthetic import build, counted, job_failure, planted

ENGINES: dict[str, dict[str, Any]] = {
    "none": {"kind": "none"},
    "sync": {"kind": "sync", "interval": 55.0, "stall": 3.25},
    "sync, zero cost": {"kind": "sync", "interval": 55.0, "stall": 0.0},
    "sync, every step": {"kind": "sync", "interval": {"steps": 1}, "stall": 0.5},
    "sync to storage": {"kind": "sync", "interval": 40.0},
    "async": {"kind": "async", "interval": 55.0, "stall": 1.5, "persist": 17.0},
    "async, slower steps": {"kind": "async", "interval": 55.0, "stall": 1.5, "persist": 17.0, "slowdown": 1.25},
    "async to storage": {"kind": "async", "interval": 60.0, "stall": 2.0},
    "async, waits": {"kind": "async", "interval": 20.0, "stall": 1.0, "persist": 47.0},
    "async, waits, slower": {"kind": "async", "interval": 20.0, "stall": 1.0, "persist": 47.0, "slowdown": 1.5},
    "async, skips": {"kind": "async", "interval": 20.0, "stall": 1.0, "persist": 47.0, "when_busy": "skip"},
    "async, blocks": {"kind": "async", "interval": 20.0, "stall": 1.0, "persist": 47.0, "when_busy": "block"},
    "async, blocks, steps": {
        "kind": "async",
        "interval": {"steps": 3},
        "stall": 1.0,
        "persist": 47.0,
        "when_busy": "block",
    },
    "final": {"kind": "async", "interval": 55.0, "stall": 1.5, "persist": 17.0, "final": True},
    "final, to storage": {"kind": "async", "interval": {"steps": 1}, "stall": 1.5, "final": True},
}
SLOW_STORAGE = {"write_bandwidth": 60_000.0, "read_bandwidth": 50_000.0, "latency": 0.125}


def both(engine: dict[str, Any], step: float = 7.0, **keys: Any) -> tuple[RunResult, RunResult]:
    """The same run by arithmetic and by events."""
    scenario = build(checkpoint=engine, storage=SLOW_STORAGE, stages={"start": 11.0, "communicators": 4.0}, **keys)
    return tuple(run_replica(Prepared(scenario, step, jump=jump), 3, 0) for jump in (True, False))  # type: ignore[return-value]


def assert_equal(left: RunResult, right: RunResult) -> None:
    """Everything agrees to rounding, the log included."""
    assert left.wall_s == pytest.approx(right.wall_s, rel=1e-12)
    assert (left.steps, left.interruptions, left.verdict) == (right.steps, right.interruptions, right.verdict)
    assert left.ledger_s == pytest.approx(right.ledger_s, rel=1e-9, abs=1e-6)
    logs = []
    for result in (left, right):
        entries = [entry for entry in result.log.entries() if entry.event != "outage"]
        logs.append(
            sorted(
                (round(entry.time_s, 5), entry.event, entry.step, round(entry.seconds or 0.0, 5)) for entry in entries
            )
        )
    assert logs[0] == logs[1]


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("end", [{"steps": 200}, {"duration": 1777.0}])
def test_random_failures(name: str, end: dict[str, Any]) -> None:
    left, right = both(ENGINES[name], failures=[job_failure(400.0, detection=9.0)], **end)
    assert_equal(left, right)
    assert left.interruptions > 0


@pytest.mark.parametrize("name", ENGINES)
def test_without_failures_wall_time_is_steps_and_stalls(name: str) -> None:
    left, right = both(ENGINES[name], steps=100)
    assert_equal(left, right)
    stalls = left.ledger_s["checkpoint_stall"] + left.ledger_s["checkpoint_slowdown"]
    assert left.wall_s == pytest.approx(100 * 7.0 + stalls, rel=1e-12)
    assert left.ledger_s["train"] == pytest.approx(700.0)
    assert left.ledger_s["rework"] == 0


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "none"])
@pytest.mark.parametrize("moment", [0.0, 20.0, 56.0, 57.25, 60.0, 115.0, 140.0, 203.0])
def test_an_outage_of_the_storage_lands_where_events_stand(name: str, moment: float) -> None:
    # The outage itself forces the arithmetic to hand over in mid-stretch; before and after, both must agree.
    left, right = both(
        ENGINES[name],
        failures=[planted(moment, 420.0, severity="storage", lasting=37.0), planted(301.0, 515.0)],
        duration=900.0,
    )
    assert_equal(left, right)


@settings(max_examples=60)
@given(st.sampled_from(sorted(ENGINES)), st.floats(0.5, 30.0), st.lists(st.floats(0.0, 900.0), max_size=5),
       st.lists(st.floats(0.0, 900.0), max_size=3))  # fmt: skip
def test_any_disturbances(name: str, step: float, failures: list[float], outages: list[float]) -> None:
    left, right = both(
        ENGINES[name],
        step,
        duration=1000.0,
        failures=[planted(*failures, detection=2.0), planted(*outages, severity="storage", lasting=21.0)],
    )
    assert_equal(left, right)


def test_cost_does_not_grow_with_the_number_of_saves() -> None:
    scenario = build(checkpoint={"kind": "async", "interval": 20.0, "stall": 1.0, "persist": 5.0}, steps=10**9)
    result, events = counted(Prepared(scenario, 1.0))
    assert result.steps == 10**9
    assert events < 10
