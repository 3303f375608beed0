"""What each strategy does: which way it takes, what it keeps, what it waits for, and what a step costs meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clustersim.faults.failure import ComponentFailure, Severity
from clustersim.pipeline.conditions import Conditions
from clustersim.recovery.ground import Ground, Seat
from clustersim.recovery.shrinking import busiest
from clustersim.recovery.standby import ring_survives, standbys
from clustersim.recovery.strategy import NOTHING, RecoveryStrategy
from clustersim.run.job import Job
from clustersim.run.outlook import Snapshot, kept_share, outlook
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.scenario.load import load
from clustersim.scenario.schema import Scenario
from tests.run.synthetic import build, planted

STAGES = {"diagnose": 1.0, "reschedule": 20.0, "start": 5.0, "communicators": 3.0, "load": 4.0, "warm_up": 6.0}
FULL = 39.0


def scenario(kind: str, *times: float, spares: int = 4, severity: str = "node", place: int = 1, nodes: int = 8, lasting: float = 500.0,
             steps: int = 100, **own: Any) -> Scenario:  # fmt: skip
    keys = {key: own.pop(key) for key in ("during", "nodes_per_rack", "failures", "crews") if key in own}
    causes = keys.pop("failures", [planted(*times, severity=severity, lasting=lasting, place=place, detection=2.0)])
    return build(nodes=nodes, spares=spares, recovery={"kind": kind, "stages": STAGES, **own}, steps=steps, failures=causes,
                 checkpoint={"kind": "sync", "interval": 20.0, "stall": 0.0}, **keys)  # fmt: skip


def go(made: Scenario, step: float = 1.0) -> tuple[RunResult, Job]:
    job = Job(Prepared(made, step), 0, 0)
    return job.run(), job


def spent(result: RunResult) -> dict[str, float]:
    return {
        name: seconds for name, seconds in result.ledger_s.items() if seconds > 1e-9 and name not in ("train", "rework")
    }


# -- in place and on standbys


def test_a_restart_takes_all_stages() -> None:
    result, job = go(scenario("restart", 50.5))
    assert spent(result) == pytest.approx({"detect": 2.0, **STAGES})
    assert result.lost_work_s == pytest.approx(10.5)
    assert result.steps_lost == 10
    assert job.turnover.paths == {"restart": 1}


def test_a_job_that_is_started_again_in_its_allocation_does_not_queue() -> None:
    result, _ = go(scenario("in-job", 50.5, rendezvous=7.0))
    assert spent(result) == pytest.approx({"detect": 2.0, **STAGES, "reschedule": 7.0})


@pytest.mark.parametrize("kind", ["in-job", "in-process"])
def test_the_first_place_is_a_single_point_of_failure(kind: str) -> None:
    assert go(scenario(kind, 50.5, place=0))[1].turnover.paths == {"restart": 1}
    assert go(scenario(kind, 50.5, place=1))[1].turnover.paths == {kind: 1}


def test_in_process_restart_costs_its_documented_steps() -> None:
    # One step to drain, 0.5 s abort, 1 s last call, 0.5 s ranks, a barrier of 0.5 s ÷ 16,384 a rank; a hang adds 66 s.
    result, _ = go(scenario("in-process", 50.5))
    assert spent(result) == pytest.approx(
        {"detect": 2.0, "reschedule": 3.0 + 8 * 0.5 / 16384, "communicators": 3.0, "load": 4.0}
    )
    hung, _ = go(scenario("in-process", 50.5, hangs=["failure"]))
    assert hung.wall_s == pytest.approx(result.wall_s + 66.0)


def test_a_standby_saves_queue_start_and_warm_up() -> None:
    result, _ = go(scenario("hot-spare", 50.5, swap=0.5))
    assert spent(result) == pytest.approx(
        {"detect": 2.0, "diagnose": 1.0, "migrate": 0.5, "communicators": 3.0, "load": 4.0}
    )
    again, job = go(scenario("hot-spare", 50.5, severity="process"))
    assert job.turnover.paths == {"in place": 1}
    assert again.ledger_s["reschedule"] == 0


@pytest.mark.parametrize("kind", ["in-job", "in-process", "hot-spare", "trainmover"])
def test_when_spares_are_exhausted_all_stages_run_and_the_node_is_waited_for(kind: str) -> None:
    result, job = go(scenario(kind, 50.5, spares=0, lasting=100.0))
    assert job.turnover.paths == {"restart": 1}
    assert result.ledger_s["wait_for_nodes"] == pytest.approx(100.0 - 21.0)  # diagnose and reschedule run meanwhile


def test_standbys_are_the_quantile_of_a_binomial() -> None:
    # ByteRobust: 2, 2, 3, 4 machines for 128, 256, 512, 1,024; all match p = 1.2e-3.
    assert [standbys(nodes, 1.2e-3) for nodes in (128, 256, 512, 1024)] == [2, 2, 3, 4]
    assert standbys(10, 0.0) == 0


def ground_of(made: Scenario) -> Ground:
    return Prepared(made, 1.0).ground


def test_trainmover_hides_the_transfer_behind_phase_two() -> None:
    # The state of a node moves beside phase two: only what takes longer than that shows.
    own = {"phase_two": 2.0, "switch": 1.0, "copies": "replica"}
    bytes_ = ground_of(scenario("trainmover")).node_state
    for seconds in (0.5, 1.9, 3.0, 10.0):
        result, _ = go(scenario("trainmover", 50.5, transfer=bytes_ / seconds, **own))
        stages = sum(result.ledger_s[name] for name in ("communicators", "migrate"))
        assert stages == pytest.approx(max(2.0, seconds) + 1.0)
        assert result.lost_work_s == pytest.approx(0.5)  # the broken step alone: a replica has the state


def test_trainmover_goes_to_storage_where_the_optimizer_is_sharded() -> None:
    kept = {
        copies: go(scenario("trainmover", 50.5, copies=copies))[0].lost_work_s
        for copies in ("auto", "replica", "peer", "storage")
    }
    assert kept["auto"] == kept["storage"] == pytest.approx(10.5)  # ZeRO 1 is the layout's default
    assert kept["replica"] == kept["peer"] == pytest.approx(0.5)


def test_trainmover_loads_beside_phase_two() -> None:
    result, _ = go(scenario("trainmover", 50.5, phase_two=2.5, switch=1.0))
    assert spent(result) == pytest.approx({"detect": 2.0, "diagnose": 1.0, "load": 4.0, "migrate": 1.0})


def test_fftrainer_restores_and_connects_side_by_side() -> None:
    result, _ = go(scenario("fftrainer", 50.5, pod=2.0, connect=3.0, heartbeat=1.0))
    assert spent(result) == pytest.approx({"detect": 1.0, "reschedule": 2.0, "communicators": 3.0})
    assert result.lost_work_s == pytest.approx(0.5)


def test_fftrainer_loses_what_a_node_and_its_neighbour_held() -> None:
    assert ring_survives(frozenset({3}), 8)
    assert not ring_survives(frozenset({3, 4}), 8)
    assert not ring_survives(frozenset({7, 0}), 8)
    result, _ = go(scenario("fftrainer", 50.5, severity="rack", nodes_per_rack=2, place=2, pod=2.0, connect=3.0))
    assert result.lost_work_s == pytest.approx(0.5)  # places 2 and 3 are aimed at one by one by the planted failure
    both = [
        planted(50.5, severity="node", lasting=9.0, place=2),
        planted(51.0, severity="node", lasting=9.0, place=3, name="b"),
    ]
    assert go(scenario("fftrainer", failures=both))[0].lost_work_s == pytest.approx(10.5)


def test_fftrainer_costs_steps_what_the_network_cannot_hide() -> None:
    # 8 nodes of one GPU over 100 GB/s: the copy hides in any step but one shorter than itself ÷ 0.97.
    made = scenario("fftrainer")
    share = ground_of(made).state.total / 8 / 1e11
    assert made.recovery.overhead_s(Prepared(made, share).ground) == pytest.approx(0.03 * share)
    assert made.recovery.overhead_s(Prepared(made, 2 * share).ground) == 0


# -- planned swaps


def planned(at: float, notice: float = 60.0, spares: int = 1, **own: Any) -> tuple[RunResult, Job]:
    cause = planted(at, severity="node", lasting=30.0, planned=True, place=2)
    migration = {"notice": notice, "prepare": 5.0, "stages": {"migrate": 2.0}}
    return go(scenario("migration", failures=[cause], spares=spares, migration=migration, **own))


def test_a_planned_eviction_loses_no_work() -> None:
    result, job = planned(50.5)
    assert result.lost_work_s == 0
    assert result.wall_s == pytest.approx(102.0)  # two seconds at the end of a step
    assert (result.interruptions, result.interruptions_planned) == (0, 1)
    assert job.turnover.paths == {"swap": 1}
    hold = next(entry for entry in result.log.entries() if entry.event == "hold")
    assert hold.time_s == pytest.approx(56.0)  # ready at 55.5; the step under way ends then
    assert hold.step == 56


def test_without_a_spare_in_time_the_planned_failure_strikes() -> None:
    result, job = planned(50.5, spares=0, notice=20.0)
    assert job.turnover.paths == {"restart": 1}
    assert result.lost_work_s > 0
    assert result.interruptions_planned == 1


def test_a_swap_that_is_due_during_a_recovery_comes_after_it() -> None:
    causes = [planted(50.5, severity="node", lasting=30.0, planned=True, place=2),
              planted(53.0, severity="process", place=5, name="soft", component="node")]  # fmt: skip
    migration = {"notice": 300.0, "prepare": 5.0, "stages": {"migrate": 2.0}}
    result, job = go(scenario("migration", failures=causes, migration=migration))
    assert job.turnover.paths == {"restart": 1, "swap": 1}
    assert result.steps == 100


# -- fewer nodes


def test_an_elastic_job_goes_on_without_a_replica_and_takes_it_in_again() -> None:
    result, job = go(scenario("elastic", 50.5, spares=0, lasting=20.0, reconfigure=1.0, rejoining=2.0, ready=3.0))
    assert result.lost_work_s == pytest.approx(0.5)
    assert job.turnover.paths == {"elastic": 1, "rejoin": 1}
    # Down at 50.5, up at 54.5 after detection, diagnosis, regrouping. Removed at 52.5, back at 72.5, ready at 75.5, just as a
    # step ends, where it joins: 21 steps at 7 of 8 replicas.
    assert result.ledger_s["degraded"] == pytest.approx(21 / 8)
    assert result.tokens == pytest.approx(64 * (100 - 21 / 8))
    assert result.wall_s == pytest.approx(100 + 0.5 + 4.0 + 2.0)


def test_with_the_whole_batch_kept_the_step_is_longer_instead() -> None:
    result, _ = go(scenario("elastic", 50.5, spares=0, lasting=1e6, reconfigure=1.0, keep_batch=True))
    assert result.tokens == pytest.approx(64 * 100)
    assert result.ledger_s["degraded"] == pytest.approx(50 / 7)


def test_below_the_quorum_an_elastic_job_waits() -> None:
    hits = [
        planted(30.5, severity="node", lasting=100.0, place=place, name=f"f{place}", detection=2.0)
        for place in range(5)
    ]
    result, job = go(scenario("elastic", failures=hits, spares=0, least=0.5))
    assert "restart" in job.turnover.paths
    assert result.ledger_s["wait_for_nodes"] > 0
    spared, job = go(scenario("elastic", failures=hits, spares=0, least=0.3))
    assert "restart" not in job.turnover.paths
    assert spared.wall_s < result.wall_s


def test_a_process_that_failed_comes_back_to_its_replica() -> None:
    made = scenario("elastic", failures=[{**planted(50.5, severity="process", place=3, detection=2.0), "component": "node"}],
                    reconfigure=1.0, rejoining=1.0, ready=10.0, spares=0)  # fmt: skip
    result, job = go(made)
    assert job.turnover.paths == {"elastic": 1, "rejoin": 1}
    assert result.nodes_down_p99 == 0


def test_a_sharded_state_without_copies_is_rolled_back() -> None:
    result, _ = go(scenario("elastic", 50.5, replicated=False))
    assert result.lost_work_s == pytest.approx(10.5)


def test_idle_nodes_fail_without_stopping_anybody() -> None:
    # Two GPUs a replica on two nodes: the partner of a lost node stands idle.
    causes = [
        planted(50.5, severity="node", lasting=900.0, place=0),
        planted(60.5, severity="node", lasting=900.0, place=4, name="b"),
    ]
    made = scenario("elastic", failures=causes, spares=0)
    both = made.replace({"parallelism.pp": 2, "parallelism.dp": 4, "model.layers": 2})
    ground = ground_of(both)
    assert ground.seats(0) == (Seat(0, 0),)
    assert ground.seats(4) == (Seat(0, 1),)
    result, _ = go(both)
    assert result.interruptions == 1
    assert [entry.event for entry in result.log.entries() if entry.place == 4][:1] == ["idle_failure"]


def conditions(kind: str, made: Scenario, *places: int, **keys: Any) -> Conditions | None:
    return RecoveryStrategy.build({"kind": kind, **keys}).conditions(frozenset(places), ground_of(made))


PIPES = {"parallelism.pp": 4, "parallelism.dp": 4, "model.layers": 8, "training.global_batch": 64}


def pipes() -> Scenario:
    """16 nodes of one GPU: place = stage · 4 + replica."""
    return build(nodes=16, steps=10).replace(PIPES)


def test_rerouting_gives_a_stage_its_lost_share() -> None:
    made = pipes()
    assert conditions("reroute", made) == Conditions()
    assert conditions("reroute", made, 4) == Conditions(slow_gpus=((4, 4 / 3),))
    assert conditions("reroute", made, 4, 5) == Conditions(slow_gpus=((4, 2.0),))
    assert conditions("reroute", made, 4, 9) == Conditions(slow_gpus=((4, 4 / 3), (8, 4 / 3)))
    assert conditions("reroute", made, 4, 5, 6, 7) is None  # no replica has the stage any more


@pytest.mark.parametrize(("replicas", "places", "kept"), [(1, {1}, False), (4, {4}, True), (4, {4, 5}, True), (4, {4, 5, 6, 7}, False)])
def test_oobleck_keeps_what_another_pipeline_holds(replicas: int, places: set[int], kept: bool) -> None:
    # A pipeline of fewer nodes can compute all layers, but the state of those that were lost must lie somewhere.
    made = pipes() if replicas == 4 else build(nodes=4, steps=10).replace({**PIPES, "parallelism.dp": 1})
    cause = ComponentFailure.build({"mtbf": 1e6, "severity": "node", "name": "x"})
    loss = NOTHING.also(cause, frozenset(places), False, 1.0)
    strategy = RecoveryStrategy.build("oobleck")
    assert strategy.keeps(Snapshot(ground_of(made), loss, True, 4)) is kept


def test_oobleck_spreads_the_batch_by_speed() -> None:
    # 8 layers on 4 nodes are 2 each; on 3 nodes ⌈8 ÷ 3⌉ = 3: two thirds of the speed. A pipeline two short drops out.
    made = pipes()
    found = conditions("oobleck", made, 4)
    assert found is not None
    assert [factor for _, factor in found.slow_gpus] == pytest.approx([4 / (3 + 2 / 3)] * 4)
    found = conditions("oobleck", made, 4, 8)
    assert found is not None
    assert [factor for _, factor in found.slow_gpus] == pytest.approx([4 / 3] * 4)
    assert conditions("oobleck", made, *range(4), *range(4, 8)) is None


def test_bamboo_has_the_stage_before_do_both_but_not_for_neighbours() -> None:
    made = pipes()
    assert conditions("bamboo", made, 8) == Conditions(slow_gpus=((4, 2.0),))
    assert conditions("bamboo", made, 0) == Conditions(slow_gpus=((12, 2.0),))
    assert conditions("bamboo", made, 4, 8) is None
    assert conditions("bamboo", made, 4, 9) is not None  # another replica
    ground = ground_of(made)
    # 16 microbatches: 16 redundant forwards, a bubble of 9: 7 of 57 forward times show.
    assert RecoveryStrategy.build("bamboo").overhead_s(ground) == pytest.approx(7 / 57)


def test_stacked_shards_are_done_once_as_long_as_a_holder_is_left() -> None:
    assert busiest(8, 3, frozenset()) == 1
    assert busiest(8, 3, frozenset({2})) == busiest(8, 3, frozenset({2, 5})) == 2
    assert busiest(8, 3, frozenset({2, 3, 4})) is None  # all holders of shard 2
    assert busiest(8, 2, frozenset({2, 3})) is None
    assert busiest(8, 3, frozenset({1, 2})) in (2, 3)
    assert busiest(4, 9, frozenset({0, 1, 2})) == 4


def test_an_averaged_stage_costs_convergence_but_no_work() -> None:
    made = scenario("checkfree", 50.5, penalty=0.25, nodes=4).replace(
        {"parallelism.pp": 4, "parallelism.dp": 1, "model.layers": 4, "training.global_batch": 4})  # fmt: skip
    result, job = go(made)
    assert job.turnover.paths == {"averaged": 1}
    assert result.lost_work_s == pytest.approx(0.5)
    assert result.tokens == pytest.approx(32 * (50 + 50 / 1.25))
    assert result.ledger_s["degraded"] == pytest.approx(50 - 50 / 1.25)


def test_a_stage_that_a_replica_holds_is_copied_at_no_penalty() -> None:
    result, job = go(scenario("checkfree", 50.5, penalty=0.25))
    assert job.turnover.paths == {"copied": 1}
    assert result.ledger_s["degraded"] == 0


# -- mixtures


def test_a_mixture_chooses_by_severity_spares_and_repair() -> None:
    def path(severity: str, spares: int, lasting: float) -> str:
        job = go(scenario("adaptive", 50.5, severity=severity, spares=spares, lasting=lasting, patience=60.0, place=3))[
            1
        ]
        return next(iter(job.turnover.paths))

    assert path("process", 0, 5.0) == "in-process"
    assert path("node", 1, 5.0) == "hot-spare"
    assert path("node", 0, 5.0) == "restart"
    assert path("node", 0, 500.0) == "elastic"


def test_rules_of_a_mixture_are_asked_in_order() -> None:
    rules = [
        {"use": "fftrainer", "nodes_at_most": 1, "severity": ["node"]},
        {"use": {"strategy": "in-job", "rendezvous": "9 s"}},
    ]
    assert go(scenario("adaptive", 50.5, rules=rules))[1].turnover.paths == {"neighbour": 1}
    result, job = go(scenario("adaptive", 50.5, rules=rules, severity="process", place=3))
    assert job.turnover.paths == {"in-job": 1}
    assert result.ledger_s["reschedule"] == pytest.approx(9.0)
    assert result.ledger_s["warm_up"] == pytest.approx(6.0)  # the stages of the mixture


# -- what goes wrong


def test_a_wrong_diagnosis_takes_a_healthy_node_and_the_failure_comes_again() -> None:
    wrong = {"wrong": 1.0, "relapse": 100.0, "check": 15.0}
    result, _ = go(scenario("restart", 50.5, diagnosis=wrong, spares=1, steps=120))
    assert result.interruptions >= 2
    events = [entry.event for entry in result.log.entries()]
    assert events.count("wrong_diagnosis") >= 2
    right, _ = go(scenario("restart", 50.5, spares=1, steps=120))
    assert right.interruptions == 1


def test_a_dead_spare_costs_another_round() -> None:
    dead = {"share": 1.0, "found": 8.0}
    result, _ = go(scenario("hot-spare", 50.5, dead_spares=dead, spares=1, lasting=30.0, steps=60))
    # The spare is dead: found after 8 s; then no spare is left, the node comes back, and is put in as well.
    assert result.interruptions >= 2
    assert result.ledger_s["detect"] >= 10.0
    none, _ = go(scenario("hot-spare", 50.5, dead_spares={"share": 0.0}, spares=1, lasting=30.0, steps=60))
    assert none.interruptions == 1


def test_a_heartbeat_caps_detection() -> None:
    causes = [planted(50.5, severity="node", detection=600.0, lasting=9.0)]
    slow, fast = (go(scenario("restart", failures=causes, heartbeat=heartbeat))[0] for heartbeat in (None, 6.0))
    assert (slow.ledger_s["detect"], fast.ledger_s["detect"]) == pytest.approx((600.0, 6.0))


# -- told


def test_the_outlook_names_ways_shares_and_the_interval() -> None:
    causes = [
        {"component": "node", "severity": "node", "mtbf": 8000.0},
        {"component": "job", "severity": "process", "mtbf": 3000.0},
    ]
    made = scenario("elastic", failures=causes)
    ready = Prepared(made.replace("checkpoint", {"engine": "sync", "interval": "auto", "stall": "2 s"}), 1.0)
    assert kept_share(ready) == pytest.approx(0.75)
    told = outlook(ready)
    assert {way["path"]: way["share"] for way in told["ways"]} == pytest.approx({"elastic": 0.75, "restart": 0.25})
    # Only one failure in four goes back to a checkpoint: the optimum of four times the time between failures.
    from clustersim.checkpoint.optimum import exact

    assert told["best_interval_s"] == pytest.approx(exact(2.0, 4 * 750.0))


def test_a_strategy_sees_a_loss_as_a_value() -> None:
    cause = ComponentFailure(name="x", mtbf=1.0, severity=Severity.RACK)
    loss = NOTHING.also(cause, frozenset({1}), False, 5.0).also(cause, frozenset({2}), False, 3.0)
    assert loss.places == {1, 2}
    assert loss.repair_s == 5.0
    seen = Snapshot(ground_of(pipes()), loss, True, 0)
    assert RecoveryStrategy.build("reroute").keeps(seen)


def test_a_run_bounded_by_tokens_trains_them_with_fewer_replicas_too() -> None:
    keys = {"reconfigure": 1.0, "rejoining": 2.0, "ready": 3.0}
    made = build(nodes=8, recovery={"kind": "elastic", "stages": STAGES, **keys}, tokens=64 * 100.0,
                 failures=[planted(50.5, severity="node", lasting=20.0, place=1, detection=2.0)],
                 checkpoint={"kind": "sync", "interval": 20.0, "stall": 0.0})  # fmt: skip
    result, _ = go(made)
    assert 6400 <= result.tokens < 6400 + 64
    assert result.steps == 103  # 22 of them train 7/8: 2.75 more


def test_a_straggler_that_is_found_is_swapped_without_losing_work() -> None:
    path = Path(__file__).parents[2] / "scenarios" / "cases" / "fail-slow-watched.yaml"
    found = {kind: go(load(str(path), (f"recovery.strategy={kind}", "training.duration=10 d")), 6.0)[0] for kind in ("restart", "migration")}
    assert found["restart"].lost_work_s > 0
    assert found["migration"].steps_lost == 0
    assert found["migration"].interruptions_planned >= found["restart"].interruptions - 1 > 0
    assert found["migration"].ettr > found["restart"].ettr


def test_a_node_that_is_leaving_cannot_be_announced_again() -> None:
    cause = planted(50.5, 51.5, severity="node", lasting=30.0, planned=True, place=2)
    migration = {"notice": 60.0, "prepare": 5.0, "stages": {"migrate": 2.0}}
    result, job = go(scenario("migration", failures=[cause], migration=migration))
    assert job.turnover.paths == {"swap": 1}
    assert result.interruptions_planned == 1


def test_a_node_that_was_idle_is_not_any_more_during_a_full_restart() -> None:
    # Place 2 is lost and a spare is getting ready in its place when everything goes down; what hits it during the restart of all
    # strikes like anywhere else.
    causes = [planted(50.5, severity="node", lasting=900.0, place=2, detection=2.0),
              planted(60.5, severity="cluster", name="power", detection=2.0),
              planted(80.5, severity="node", lasting=900.0, place=2, name="again", detection=2.0)]  # fmt: skip
    result, _ = go(scenario("elastic", failures=causes, spares=3, ready=500.0))
    assert result.interruptions == 3
    assert result.steps == 100
