"""What a run means, second by second, on scenarios small enough to work out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from clustersim.errors import InputError
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.run.simulate import run_replica, simulate
from tests.run.synthetic import build, job_failure, planted

STAGES = {"diagnose": 2.0, "reschedule": 3.0, "start": 4.0, "communicators": 5.0, "load": 6.0, "warm_up": 7.0}


def run(step: float = 1.0, jump: bool = True, **keys: Any) -> RunResult:
    return run_replica(Prepared(build(**keys), step, jump=jump), 0, 0)


def booked(result: RunResult) -> dict[str, float]:
    """Ledger categories that are not empty."""
    assert math.fsum(result.ledger_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    return {category: seconds for category, seconds in result.ledger_s.items() if abs(seconds) > 1e-9}


def test_one_failure_from_first_to_last_second() -> None:
    # Save due every 10 s of training and 1 s of stall: saves at 10, 21, 32; the failure at 35.5 finds the third
    # durable.
    result = run(checkpoint={"kind": "sync", "interval": 10.0, "stall": 1.0}, stages=STAGES, steps=40,
                 failures=[planted(35.5, detection=1.5)])  # fmt: skip
    assert booked(result) == pytest.approx({
        "train": 40.0, "checkpoint_stall": 3.0, "rework": 2.5, "detect": 1.5, "diagnose": 2.0, "reschedule": 3.0,
        "start": 4.0, "communicators": 5.0, "load": 6.0, "warm_up": 7.0})  # fmt: skip
    assert (result.steps, result.interruptions, result.mtti_s) == (40, 1, result.wall_s)
    assert result.lost_work_s == pytest.approx(2.5)


def test_a_save_that_is_cut_off_never_counts() -> None:
    # The failure at 21.5 hits the second save: back to step 10; steps 11–20, the first half of the stall are lost.
    result = run(checkpoint={"kind": "sync", "interval": 10.0, "stall": 1.0}, steps=25, failures=[planted(21.5)])
    assert booked(result) == pytest.approx({"train": 25.0, "checkpoint_stall": 2.0, "rework": 10.5})


def test_an_asynchronous_save_counts_from_the_moment_it_is_durable() -> None:
    engine = {"kind": "async", "interval": 10.0, "stall": 1.0, "persist": 4.0}
    early = run(checkpoint=engine, steps=16, failures=[planted(14.9)])
    late = run(checkpoint=engine, steps=16, failures=[planted(15.0)])
    assert booked(early) == pytest.approx({"train": 16.0, "checkpoint_stall": 1.0, "rework": 14.9})
    assert booked(late) == pytest.approx({"train": 16.0, "checkpoint_stall": 1.0, "rework": 4.0})


def test_what_ends_at_an_instant_has_ended_before_a_failure_of_that_instant() -> None:
    # Tie-break rule: the stall ends at 11.0 and the failure strikes at 11.0, so the save is durable and nothing is
    # lost.
    engine = {"kind": "sync", "interval": 10.0, "stall": 1.0}
    assert booked(run(checkpoint=engine, steps=15, failures=[planted(11.0)])) == pytest.approx(
        {"train": 15.0, "checkpoint_stall": 1.0}
    )
    # The last step ends at 16.0: training is over before the failure of that instant.
    over = run(checkpoint=engine, steps=15, failures=[planted(16.0)])
    assert (over.interruptions, over.wall_s) == (0, 16.0)


def test_two_failures_of_one_instant_are_both_counted() -> None:
    result = run(steps=10, failures=[planted(4.0, detection=1.0), planted(4.0, detection=3.0)])
    assert result.interruptions == 2
    assert booked(result) == pytest.approx({"train": 10.0, "rework": 4.0, "detect": 3.0})


def test_a_failure_during_recovery_is_detected_anew_and_the_stages_start_again() -> None:
    # First failure at 5 (noticed 6): diagnose 6–8, reschedule from 8; second at 10 (noticed 11).
    result = run(steps=10, stages=STAGES, failures=[planted(5.0, 10.0, detection=1.0)])
    assert booked(result) == pytest.approx(
        {
            "train": 10.0,
            "rework": 5.0,
            "detect": 2.0,
            "diagnose": 4.0,
            "reschedule": 5.0,
            "start": 4.0,
            "communicators": 5.0,
            "load": 6.0,
            "warm_up": 7.0,
        }
    )
    assert result.interruptions == 2


def test_a_failure_before_the_first_is_noticed_moves_the_start_of_the_recovery() -> None:
    result = run(steps=10, stages={"start": 2.0}, failures=[planted(5.0, 8.0, detection=4.0)])
    assert booked(result) == pytest.approx({"train": 10.0, "rework": 5.0, "detect": 7.0, "start": 2.0})


def test_failures_may_be_kept_away_from_saves_and_recovery() -> None:
    engine = {"kind": "sync", "interval": 10.0, "stall": 1.0}
    quiet = run(checkpoint=engine, steps=15, failures=[planted(10.5)], during={"save": False})
    assert quiet.interruptions == 0
    once = run(
        steps=10, stages={"start": 5.0}, failures=[planted(5.0, 5.5, 8.0, detection=1.0)], during={"recovery": False}
    )
    assert once.interruptions == 1
    dead = run(
        steps=10, stages={"start": 5.0}, failures=[planted(5.0, 5.5, 8.0, detection=1.0)], during={"detection": False}
    )
    assert dead.interruptions == 2


def test_a_duration_ends_in_mid_step_and_mid_recovery() -> None:
    training = run(duration=10.25, checkpoint={"kind": "sync", "interval": 4.0, "stall": 1.0})
    assert booked(training) == pytest.approx({"train": 8.0, "checkpoint_stall": 2.0, "other": 0.25})
    down = run(duration=10.25, stages=STAGES, failures=[planted(5.5, detection=1.0)])
    assert booked(down) == pytest.approx({"rework": 5.5, "detect": 1.0, "diagnose": 2.0, "reschedule": 1.75})
    assert down.steps == 0
    assert down.ettr == 0
    assert down.verdict is not None
    saving = run(duration=10.25, checkpoint={"kind": "sync", "interval": 10.0, "stall": 1.0})
    assert booked(saving) == pytest.approx({"train": 10.0, "checkpoint_stall": 0.25})


def test_a_duration_run_keeps_steps_after_the_last_save() -> None:
    result = run(duration=19.0, checkpoint={"kind": "sync", "interval": 10.0, "stall": 1.0})
    assert result.steps == 18


def test_a_cold_start_comes_up_first() -> None:
    result = run(steps=10, stages=STAGES, recovery={"cold_start": True})
    assert booked(result) == pytest.approx({"train": 10.0, "diagnose": 2.0, "reschedule": 3.0, "start": 4.0,
                                            "communicators": 5.0, "load": 6.0, "warm_up": 7.0})  # fmt: skip
    assert result.interruptions == 0


def test_planned_interruptions_are_counted_apart() -> None:
    result = run(steps=10, failures=[planted(5.0, planned=True)])
    assert (result.interruptions, result.interruptions_planned, result.mtti_s) == (0, 1, None)


def test_a_stage_whose_name_is_no_category_books_under_other() -> None:
    result = run(steps=10, stages={"pray": 3.0}, failures=[planted(5.0)])
    assert booked(result)["other"] == pytest.approx(3.0)


def test_nodes_come_from_spares_then_from_repair() -> None:
    # Node 0 fails at 5 and 20. One spare takes the place at once; the second time both nodes are gone, and the first
    # to be repaired (at 6 + 50) ends the wait before `start`.
    result = run(steps=40, spares=1, stages={"reschedule": 1.0, "start": 2.0}, repair=50.0, during={"spare": False},
                 failures=[planted(5.0, 20.0, severity="node", lasting=50.0, detection=1.0)])  # fmt: skip
    assert booked(result)["wait_for_nodes"] == pytest.approx(56.0 - 22.0)
    assert booked(result)["start"] == pytest.approx(4.0)
    stages = [entry.subject for entry in result.log.entries() if entry.event == "stage"]
    assert stages == ["reschedule", "start", "reschedule", "wait_for_nodes", "start"]


def test_a_dead_node_cannot_die_again() -> None:
    # The place is hit at 5 (noticed 15) and at 8: the second finds a node that is dead already.
    result = run(
        steps=20, spares=1, failures=[planted(5.0, 8.0, severity="node", detection=10.0)], during={"spare": False}
    )
    assert result.interruptions == 1


def test_nodes_that_wait_for_a_crew_are_repaired_in_order() -> None:
    result = run(
        nodes=4,
        steps=100,
        spares=0,
        crews=1,
        repair=30.0,
        nodes_per_rack=4,
        stages={"start": 1.0},
        failures=[
            {
                "kind": "planted",
                "component": "rack",
                "severity": "rack",
                "times": (5.0,),
                "detection": 0.0,
                "lasting": 30.0,
                "place": 0,
            }
        ],
    )
    assert result.interruptions == 1  # planted failures take one place; it alone is repaired
    assert booked(result)["wait_for_nodes"] == pytest.approx(30.0)


@pytest.mark.parametrize(("severity", "nodes_gone"), [("process", 0), ("gpu", 1), ("node", 1), ("cluster", 0)])
def test_severities_take_their_nodes(severity: str, nodes_gone: int) -> None:
    result = run(nodes=4, spares=8, steps=50, repair=1000.0, during={"spare": False},
                 failures=[planted(5.0, severity=severity, lasting=1000.0)])  # fmt: skip
    assert result.interruptions == 1
    assert max(result.down_s) == nodes_gone


@pytest.mark.parametrize(
    ("component", "severity", "gone"),
    [
        ("rack", "rack", 3),
        ("node", "rack", 3),
        ("rack", "node", 1),
        ("gpu", "nvlink-domain", 2),
        ("nvlink-domain", "nvlink-domain", 2),
        ("power-feed", "rack", 3),
        ("job", "node", 1),
    ],
)
def test_domains_fail_together(component: str, severity: str, gone: int) -> None:
    cause = {"component": component, "severity": severity, "mtbf": 1000.0, "detection": 0.0, "units": None}
    scenario = build(nodes=6, gpus=2, spares=600, nodes_per_rack=3, domain_gpus=4, failures=[cause], duration=200.0,
                     repair=1e9, during={"spare": False})  # fmt: skip
    prepared = Prepared(scenario, 1.0)
    seen = 0
    for replica in range(30):
        result = run_replica(prepared, 0, replica)
        if result.interruptions:
            assert sorted(result.down_s)[1] == gone
            seen += 1
    assert seen > 3


def test_a_storage_outage_stops_saves_and_loads_but_not_training() -> None:
    # Saves take 1 s; the outage of 30 s at 10.5 stretches the first to 31 s. No interruption is counted.
    storage = {"write_bandwidth": 1e6, "latency": 0.0}
    scenario = build(checkpoint={"kind": "sync", "interval": 10.0}, storage=storage, steps=1)
    size = Prepared(scenario, 1.0).state.total
    storage["write_bandwidth"] = size
    result = run(checkpoint={"kind": "sync", "interval": 10.0}, storage=storage, steps=15,
                 failures=[planted(10.5, severity="storage", lasting=30.0)])  # fmt: skip
    assert booked(result) == pytest.approx({"train": 15.0, "checkpoint_stall": 31.0})
    assert result.interruptions == 0


def test_no_progress_is_said_of_a_duration_and_ends_a_run_of_steps() -> None:
    slow = {"stages": {"start": 3600.0}, "failures": [job_failure(1.0)]}
    bounded = run(duration=36000.0, **slow)
    assert bounded.wall_s == 36000.0
    assert not bounded.hopeless
    assert bounded.verdict is not None
    assert "no progress" in bounded.verdict
    endless = run(steps=1000, **slow)
    assert endless.hopeless
    assert endless.verdict is not None
    assert "between interruptions" in endless.verdict
    assert endless.steps == 0
    assert math.fsum(endless.ledger_s.values()) == pytest.approx(endless.wall_s, rel=1e-9)


def test_patience_ends_at_a_thousand_times_the_nominal_time() -> None:
    result = run(steps=10, stages={"start": 1e9}, failures=[planted(5.0)])
    assert result.hopeless
    assert result.wall_s == pytest.approx(10_000.0)


def test_the_events_and_the_ledger_as_frames() -> None:
    result = simulate(build(checkpoint={"kind": "async", "interval": 10.0, "stall": 1.0, "persist": 2.0}, stages=STAGES,
                            steps=40, failures=[planted(35.5)]), step=1.0)  # fmt: skip
    events, ledger = result.events, result.ledger
    assert list(events["time_s"]) == sorted(events["time_s"])
    assert (events["event"] == "save_durable").sum() == 3
    assert ledger["seconds"].sum() == pytest.approx(result.wall_s)
    assert ledger["share"].sum() == pytest.approx(1.0)


def test_the_log_goes_to_parquet(tmp_path: Any) -> None:
    result = simulate(build(steps=10, failures=[planted(5.0)]), step=1.0)
    result.events.to_parquet(tmp_path / "events.parquet")
    import pandas as pd

    assert len(pd.read_parquet(tmp_path / "events.parquet")) == len(result.events)


def test_causes_of_one_name_have_streams_of_their_own() -> None:
    twice = build(duration=1e6, failures=[job_failure(1e4), job_failure(1e4)])
    result = run_replica(Prepared(twice, 1.0), 0, 0)
    times = [entry.time_s for entry in result.log.entries() if entry.event == "failure"]
    assert len(set(times)) == len(times) > 100


def test_failures_that_no_run_would_outlast_are_refused() -> None:
    made = build(duration=10 * 86400.0, failures=[{"name": "flood", "component": "job", "mtbf": 1e-3, "severity": "process"}])
    with pytest.raises(InputError, match=r"failures\.0\.mtbf.*'flood' strike 8\.6e\+08 times"):
        Prepared(made, 1.0)


def test_what_the_whole_job_meets_is_not_counted_once_a_node() -> None:
    often = {"kind": "false-alarm", "mtbf": 60.0}  # 1,440 a day, whatever the size of the job
    Prepared(build(nodes=131072, duration=90 * 86400.0, failures=[often]), 1.0)
    with pytest.raises(InputError, match="'link-flap' strike"):
        Prepared(build(duration=10 * 86400.0, failures=[{"kind": "link-flap", "mtbf": 1e-3, "outage": 5.0}]), 1.0)
