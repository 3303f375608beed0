"""What practitioners ask about coming back, each a small scenario whose answer can be worked out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.run.simulate import run_replica
from clustersim.scenario.load import load
from clustersim.scenario.schema import Scenario
from tests.run.synthetic import DAY, HOUR, MINUTE, build, job_failure, planted


def go(made: Scenario, step: float = 10.0, replica: int = 0) -> RunResult:
    return run_replica(Prepared(made, step), 0, replica)


def every(seconds: float, stall: float = 0.0) -> dict[str, Any]:
    return {"kind": "sync", "interval": seconds, "stall": stall}


def test_a_crash_loop_before_the_first_hourly_save() -> None:
    # "A fault killed the first attempt after 54 min, before its first hourly save." One every 54 min: nothing is ever kept.
    faults = [planted(*(54 * MINUTE * n for n in range(1, 200)), detection=0.0)]
    hourly = go(build(failures=faults, checkpoint=every(HOUR), duration=5 * DAY))
    assert hourly.steps < 54 * 6 + 1  # but what ran after the last fault
    assert hourly.ettr < 0.01
    earlier = go(build(failures=faults, checkpoint=every(10 * MINUTE), duration=5 * DAY))
    assert earlier.ettr == pytest.approx(50 / 54, abs=0.01)
    bounded = go(build(failures=[job_failure(10 * MINUTE)], checkpoint=every(3 * HOUR), steps=10_000))
    assert bounded.hopeless  # says so instead of running for ever
    assert bounded.verdict is not None
    assert "no progress" in bounded.verdict


def test_one_fault_before_the_first_save_loses_all_of_it() -> None:
    assert go(
        build(failures=[planted(54 * MINUTE)], checkpoint=every(HOUR), duration=DAY)
    ).lost_work_s == pytest.approx(54 * MINUTE)


def test_spares_beyond_the_maximum_of_nodes_cover_as_many_losses() -> None:
    # "Redundant hosts beyond the maximum": so many replacements, and no more, cost no wait.
    faults = [planted(1000.0 * n, severity="node", place=n, lasting=1e6, name=f"f{n}") for n in range(1, 4)]
    waits = [go(build(nodes=4, spares=spares, failures=faults, stages={"start": 5.0}, duration=10_000.0)).ledger_s["wait_for_nodes"]
             for spares in range(4)]  # fmt: skip
    assert waits == pytest.approx([9000.0, 8000.0, 7000.0, 0.0], abs=11)


def test_a_buffer_of_four_hosts_and_five_losses_in_a_day() -> None:
    faults = [planted(3600.0 * n, severity="node", place=n, lasting=DAY, name=f"f{n}") for n in range(1, 6)]
    runs = {spares: go(build(nodes=8, spares=spares, failures=faults, duration=2 * DAY)) for spares in (4, 5)}
    assert runs[4].ledger_s["wait_for_nodes"] == pytest.approx(DAY - 4 * HOUR)  # until the first is repaired
    assert runs[5].ledger_s["wait_for_nodes"] == 0


def test_a_second_failure_during_recovery_starts_it_again() -> None:
    stages = {"start": 60.0, "communicators": 60.0, "load": 60.0}
    second = go(build(failures=[planted(1000.0, 1150.0)], stages=stages, checkpoint=every(100.0), steps=200))
    first = go(build(failures=[planted(1000.0)], stages=stages, checkpoint=every(100.0), steps=200))
    assert second.wall_s == pytest.approx(first.wall_s + 150.0)


def test_a_bad_copy_of_a_peer_means_reading_an_older_one() -> None:
    fine = {"kind": "async", "interval": 100.0, "stall": 0.0, "persist": 0.0, "keep": 4}
    made = {
        corrupt: build(failures=[planted(1005.0)], checkpoint={**fine, "corrupt": corrupt}, steps=200)
        for corrupt in (0.0, 0.5)
    }
    lost = {
        corrupt: [go(scenario, replica=replica).lost_work_s for replica in range(20)]
        for corrupt, scenario in made.items()
    }
    assert set(lost[0.0]) == {5.0}
    assert {round(value) for value in lost[0.5]} > {5, 105}


def test_an_unseen_hang_costs_its_watchdog_each_time() -> None:
    hang = [planted(10_000.0, 50_000.0, detection=15 * MINUTE)]
    slow, fast = (
        go(build(failures=hang, recovery={"heartbeat": beat}, checkpoint=every(HOUR), duration=DAY))
        for beat in (None, 30.0)
    )
    assert slow.ledger_s["detect"] == pytest.approx(30 * MINUTE)
    assert fast.ledger_s["detect"] == pytest.approx(MINUTE)


def test_the_first_signal_counts_not_the_last_timeout() -> None:
    # "The coordinator knows of the death, but peers wait for their time-out": detection is the smallest of all signals.
    hang = [planted(10_000.0, detection=300.0)]
    found = [
        go(build(failures=hang, recovery={"heartbeat": beat}, duration=DAY)).ledger_s["detect"]
        for beat in (120.0, 200.0, 400.0)
    ]
    assert found == pytest.approx([120.0, 200.0, 300.0])


def test_reading_the_data_again_costs_more_the_further_the_job_is() -> None:
    # "Skipping 93,017 of 122,500 batches took 6.6 h": 0.255 s a batch, longer than the work that was lost.
    stages = {"data": {"time": 0.0, "per_step": 0.255, "books": "load"}, "load": 0.0}
    runs = {
        at: go(build(failures=[planted(at * 10.0 + 5.0)], stages=stages, checkpoint=every(100.0), steps=122_500))
        for at in (1000, 93_020)
    }
    assert runs[1000].ledger_s["load"] == pytest.approx(1000 * 0.255)
    assert runs[93_020].ledger_s["load"] == pytest.approx(6.6 * HOUR, rel=0.01)
    assert runs[93_020].ledger_s["load"] > 100 * runs[93_020].lost_work_s


@pytest.mark.parametrize(("heal", "elastic_wins"), [(60.0, True), (948.0, False)])
def test_a_replica_that_heals_slowly_is_worth_less_than_a_restart(heal: float, elastic_wins: bool) -> None:
    # "Healing takes 948 s, slower than a plain restart": two replica groups, the others wait while one heals.
    faults = [planted(20_000.0, severity="node", lasting=100.0, detection=30.0)]

    def tokens(**recovery: Any) -> float:
        made = build(nodes=2, spares=1, failures=faults, recovery=recovery, checkpoint=every(300.0),
                     stages={"start": 120.0, "communicators": 30.0, "load": 60.0}, duration=DAY)  # fmt: skip
        return go(made, step=5.0).tokens

    elastic = tokens(kind="elastic", reconfigure=30.0, rejoining=heal, ready=0.0)
    assert (elastic > tokens(kind="restart")) == elastic_wins


def test_communicators_by_size_of_the_job() -> None:
    # "Init takes 2.5 min at several thousand GPUs": with a barrier after each group it grows with the square.
    def back(nodes: int, **growth: Any) -> float:
        made = build(
            nodes=nodes,
            failures=[planted(100.0)],
            stages={"communicators": {"time": 1.0, **growth}, "load": 0.0},
            steps=100,
        )
        return go(made).ledger_s["communicators"]

    assert back(64, per_pair=0.01) - 1 == pytest.approx(16 * (back(16, per_pair=0.01) - 1))
    assert back(64, per_gpu=0.01) - 1 == pytest.approx(4 * (back(16, per_gpu=0.01) - 1))
    assert back(64, per_doubling=2.0) - back(16, per_doubling=2.0) == pytest.approx(4.0)


def test_draining_a_failing_link_early_or_waiting_for_it_to_fail() -> None:
    # A prediction five days ahead: the swap costs seconds; the failure costs detection, restart and lost work.
    swap = {"kind": "migration", "migration": {"notice": 5 * DAY, "prepare": 300.0, "stages": {"migrate": 15.0}}}
    stages = {"start": 300.0, "load": 100.0}
    known = [planted(DAY, severity="node", lasting=DAY, planned=True)]
    early = go(
        build(
            nodes=4,
            spares=1,
            failures=known,
            recovery={**swap, "stages": stages},
            checkpoint=every(HOUR),
            duration=10 * DAY,
        )
    )
    late = go(build(nodes=4, spares=1, failures=[planted(6 * DAY + 1800.0, severity="node", lasting=DAY, detection=60.0)], stages=stages,
                    checkpoint=every(HOUR), duration=10 * DAY))  # fmt: skip
    assert (1 - early.ettr) * 10 * DAY == pytest.approx(15.0, abs=10)  # and the step that the end cuts off
    assert (1 - late.ettr) * 10 * DAY == pytest.approx(60 + 400 + 1800, abs=10)


def test_false_alarms_of_a_predictor_cost_a_swap_each() -> None:
    swap = {"kind": "migration", "migration": {"prepare": 10.0, "stages": {"migrate": 15.0}}}
    alarms = [planted(*(HOUR * n for n in range(1, 11)), severity="node", lasting=600.0, planned=True)]
    result = go(build(nodes=4, spares=1, failures=alarms, recovery=swap, duration=DAY))
    assert result.interruptions_planned == 10
    assert result.ledger_s["migrate"] == pytest.approx(150.0)
    assert result.lost_work_s == 0


def test_host_memory_that_grows_with_every_save_is_a_failure_after_so_many() -> None:
    # 26 GB a save into 128 GB × 4: out of memory after about 20 saves; with a save every 600 s, every 12,000 s of training.
    leak = {
        "component": "job",
        "severity": "process",
        "mtbf": 12_000.0,
        "distribution": "gamma",
        "shape": 100.0,
        "age": "new",
    }
    result = go(build(failures=[leak], checkpoint=every(600.0), stages={"start": 60.0}, duration=5 * DAY))
    assert result.interruptions == pytest.approx(5 * DAY / 12_000, abs=2)
    seldom = go(
        build(failures=[{**leak, "mtbf": 36_000.0}], checkpoint=every(1800.0), stages={"start": 60.0}, duration=5 * DAY)
    )
    assert seldom.interruptions < result.interruptions / 2.5


def test_every_second_has_one_bucket() -> None:
    causes = [
        {"component": "node", "severity": "node", "mtbf": 4 * DAY, "detection": 60.0},
        job_failure(DAY, detection=600.0),
    ]
    stages = {
        "diagnose": 30.0,
        "reschedule": 90.0,
        "start": 60.0,
        "communicators": 65.0,
        "load": 50.0,
        "warm_up": 108.0,
    }
    result = go(
        build(
            nodes=8,
            spares=1,
            failures=causes,
            stages=stages,
            checkpoint=every(HOUR, 30.0),
            repair=DAY,
            duration=60 * DAY,
        )
    )
    assert sum(result.ledger_s.values()) == pytest.approx(60 * DAY, rel=1e-9)
    assert all(
        result.ledger_s[name] > 0 for name in (*stages, "detect", "rework", "checkpoint_stall", "wait_for_nodes")
    )


@pytest.mark.parametrize(("spares", "enough"), [(3, False), (7, True)])
def test_how_many_spares_for_sixty_four_nodes(spares: int, enough: bool) -> None:
    # "5 to 10 %": nodes in repair are Poisson of mean 64 · rate · repair; 6.5e-3 a day and 5.5 d are 2.3: 7 cover 99.7 %.
    causes = [{"component": "node", "severity": "node", "mtbf": DAY / 6.5e-3, "detection": 0.0}]
    made = build(
        nodes=64, spares=spares, failures=causes, repair={"kind": "exponential", "mean": 5.5 * DAY}, duration=400 * DAY
    )
    waits = [go(made, 600.0, replica).ledger_s["wait_for_nodes"] / (400 * DAY) for replica in range(6)]
    assert (sum(waits) / 6 < 0.01) == enough


def test_the_inner_time_out_has_to_end_first_for_healing_to_happen() -> None:
    # "120 < 200 < 300 s": a replica is given up before its collectives end, and these before the launcher kills the whole job.
    # Whichever ends first decides who answers: healing goes on without the replica, the launcher restarts all from the save.
    hang = [planted(20_005.0, severity="node", lasting=600.0, detection=3600.0)]
    stages = {"start": 120.0, "communicators": 30.0, "load": 60.0}

    def lost(**recovery: Any) -> float:
        made = build(nodes=4, spares=1, failures=hang, recovery=recovery, checkpoint=every(HOUR), stages=stages, duration=DAY)
        result = go(made, step=5.0)
        return DAY - result.tokens / made.training.tokens_per_step * 5.0

    in_order = lost(kind="elastic", heartbeat=120.0, reconfigure=30.0, rejoining=20.0, ready=100.0)
    killed = lost(kind="restart", heartbeat=100.0)
    since_save = 20_005.0 % HOUR
    assert killed == pytest.approx(100 + 210 + since_save, abs=11)
    # the wait, regrouping, a quarter of the tokens until the node is back, joining; at most two steps at the joints
    assert in_order == pytest.approx(120 + 30 + 20 + (100.0 / 4), abs=11)


@pytest.mark.parametrize("nodes", [2, 64])
def test_kernels_that_each_new_process_loads_cost_the_same_at_any_size(nodes: int) -> None:
    # "One communicator of 8 GPUs takes 55 s, 52.5 s of it loading kernels": paid by every start of processes, not by those that live on.
    stages = {"start": 10.0, "communicators": 2.5, "warm_up": 52.5}
    crash = [planted(100.0, detection=0.0)]

    def down(kind: str) -> float:
        result = go(build(nodes=nodes, failures=crash, stages=stages, recovery={"kind": kind}, steps=50))
        return sum(result.ledger_s[name] for name in ("start", "communicators", "warm_up"))

    assert down("restart") == pytest.approx(65.0)
    assert down("in-process") == pytest.approx(2.5)


@pytest.mark.parametrize("allowed", [6, 12, 24])
def test_how_many_retries_to_allow(allowed: int) -> None:
    # A retry that meets the same fault with probability q helps with 1 − q^k after k of them, 11 min each.
    file = str(Path(__file__).parents[2] / "scenarios" / "cases" / "retry-chain.yaml")
    ready = Prepared(load(file, (f"training.duration={1 + 11 * allowed + 0.5} min",)))
    ended = [run_replica(ready, 1, replica).ledger_s["detect"] < allowed * 660.0 - 1 for replica in range(400)]
    assert sum(ended) / 400 == pytest.approx(1 - 0.9452**allowed, abs=3 * 0.5 / 400**0.5)


def test_a_search_for_a_slow_node_pays_when_its_rounds_cost_less_than_what_it_slows() -> None:
    # 5 % slower steps against 8.5 restarts of 600 s: even after 28 h; the mean search is worth it in a run of two days, not in one of 10 h.
    def lost(span: float, step: float, failures: list[dict[str, Any]]) -> float:
        made = build(nodes=48, failures=failures, stages={"start": 600.0}, checkpoint=every(300.0), duration=span)
        return span - go(made, step).steps * 10.0

    search = [planted(*(100.0 + 1000.0 * n for n in range(9)), detection=0.0, planned=True)]
    for span, worth in ((10 * HOUR, False), (2 * DAY, True)):
        slowed = lost(span, 10.5, [])
        assert slowed == pytest.approx(span * (1 - 1 / 1.05), rel=0.02)
        assert (lost(span, 10.0, search) < slowed) == worth
