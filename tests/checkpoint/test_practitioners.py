"""What practitioners ask about saving, each with the inputs that they gave and the answer that is right."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from clustersim.checkpoint import what_if
from clustersim.errors import DoesNotFit, ImpossibleError
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.scenario.load import load
from clustersim.validation.checkpoint_jobs import KnownStep, prepared
from tests.run.synthetic import build, job_failure, planted

MINUTE, HOUR, GB = 60.0, 3600.0, 1e9
SCENARIOS = Path(__file__).parents[2] / "scenarios"


def run(checkpoint: dict[str, Any], step: float = 10.0, **keys: Any) -> RunResult:
    return Job(Prepared(build(checkpoint=checkpoint, **keys), step), 0, 0).run()


def test_a_crash_before_the_first_hourly_save_replays_everything() -> None:
    # marin 8506: 54 min into the first hour. Saves every 15 min lose 9 min of it.
    def lost(interval: float) -> float:
        return run({"kind": "sync", "interval": interval, "stall": 0.0}, failures=[planted(54 * MINUTE)], duration=3 * HOUR).lost_work_s

    assert lost(HOUR) == pytest.approx(54 * MINUTE)
    assert lost(15 * MINUTE) == pytest.approx(9 * MINUTE)
    assert what_if.replay_after(54.0, 60.0) == 54.0
    assert what_if.replay_after(54.0, 15.0) == 9.0
    assert what_if.replay_after(54.0, 60.0, first_save=10.0) == 44.0


def test_a_crash_loop_makes_no_progress_until_saves_come_earlier() -> None:
    crashes = [planted(*[54 * MINUTE * (i + 1) for i in range(20)])]
    hourly = run({"kind": "sync", "interval": HOUR, "stall": 1.0}, failures=crashes, duration=18 * HOUR)
    often = run({"kind": "sync", "interval": 5 * MINUTE, "stall": 1.0}, failures=crashes, duration=18 * HOUR)
    assert hourly.ettr <= 0.05
    assert often.ettr > 0.9


def test_host_memory_that_leaks_a_save() -> None:
    # marin 6774: 26 GB a save on 128 GB hosts; maxtext 831: about 60 saves to a crash.
    assert what_if.saves_until_full(128 * GB, 24 * GB, 26 * GB) == 4
    assert what_if.saves_until_full(128 * GB, 24 * GB, 0.0) == math.inf
    assert what_if.saves_until_full(100.0, 40.0, 1.0) == 60
    # As a cause of failures: a crash every so many saves; saving half as often doubles the time between crashes.
    for interval in (10 * MINUTE, 20 * MINUTE):
        mtbf = what_if.crash_interval(4, interval)
        result = run({"kind": "sync", "interval": interval, "stall": 0.0}, duration=40 * mtbf, failures=[
            {"component": "job", "severity": "process", "mtbf": mtbf, "distribution": "weibull", "shape": 50.0, "age": "new",
             "detection": 0.0}])  # fmt: skip
        assert result.interruptions == pytest.approx(40, abs=2)


def test_staging_that_doubles_what_is_resident() -> None:
    # radixark/Megatron-LM 61, dlrover 941, marin: 55 GiB resident, 55 more while a save is staged.
    assert what_if.staging_peak(55.0, 55.0) == 110.0

    def job(memory: float) -> Prepared:
        return prepared({"kind": "async", "resident": 55.0 * GB, "interval": {"steps": 10}}, gpus=8, per_node=8, step=KnownStep(1.0),
                        bytes_total=55 * GB, node={"host_memory": memory}, steps=10,
                        storage={"kind": "shared-filesystem", "write_bandwidth": 1e12, "read_bandwidth": 1e12})  # fmt: skip

    # ``host_memory`` and ``resident`` are not scaled down with the model: compare at its own size.
    own = job(1e15)
    assert own.scenario.checkpoint.host_memory(own.site) == pytest.approx(own.state.total)
    tight = own.scenario.replace({"cluster.node.host_memory": own.state.total * 1.9,
                                  "checkpoint.resident": own.state.total})  # fmt: skip
    with pytest.raises(DoesNotFit, match="GB more than the node's"):
        Prepared(tight, 1.0)
    Prepared(tight.replace("checkpoint.resident", own.state.total * 0.89), 1.0)
    Prepared(tight.replace("checkpoint", {"engine": "sync", "interval": "1 min", "resident": own.state.total}), 1.0)


def test_a_central_plan_grows_with_the_ranks() -> None:
    # accelerate 4105: 2,816 ranks time out; ByteCheckpoint: 62 s of planning at 8,960 ranks without a cache.
    def stall(nodes: int, **keys: float) -> float:
        made = build(nodes=nodes, gpus=8, checkpoint={"kind": "async", "persist": 1.0, "interval": HOUR, **keys}, steps=10)
        return Prepared(made, 10.0).saves[0].stall_s

    each = 62.0 / 8960
    assert stall(1120, planning_per_rank=each) == pytest.approx(62.0, rel=1e-3)
    assert stall(352, planning_per_rank=each) == pytest.approx(62.0 * 2816 / 8960, rel=1e-3)
    with pytest.raises(ImpossibleError, match="watchdog"):
        stall(352, planning_per_rank=1800 / 2000, watchdog=1800.0)
    assert stall(352, planning=0.4) == pytest.approx(0.4, abs=1e-3)  # a cached plan


def test_one_straggling_writer_holds_a_save_up() -> None:
    # verl 2860: 10,480 s, two files an hour later than all others. The barrier waits; an asynchronous save does not.
    others = 10_480.0 - HOUR

    def save(kind: str, late: float) -> tuple[float, float]:
        job = prepared({"kind": kind, "straggler": late, "interval": {"steps": 10}}, gpus=16, per_node=8, bytes_total=1e12, steps=10,
                       step=KnownStep(1.0), storage={"kind": "shared-filesystem", "write_bandwidth": 1e12 / others,
                                                     "read_bandwidth": 1e12, "latency": 0.0})  # fmt: skip
        shape = job.saves[0]
        return shape.stall_s, max(after for after, _ in shape.durable)

    assert save("sync", HOUR)[0] == pytest.approx(10_480.0)
    assert save("sync", 0.0)[0] == pytest.approx(others)
    stall, durable = save("async", HOUR)
    assert stall < 10
    assert durable == pytest.approx(10_480.0, rel=1e-2)


def test_saves_that_meet_on_the_storage() -> None:
    # Megatron-LLM 69: 5 min, then 15 min for the same save: two other jobs on the same file system.
    def stall(load: float) -> float:
        storage = {"write_bandwidth": 14.0 * 48_384 / 300, "background_load": load}
        return Prepared(build(checkpoint={"kind": "sync", "interval": HOUR}, storage=storage, steps=10), 10.0).saves[0].stall_s

    assert stall(2 / 3) == pytest.approx(3 * stall(0.0), rel=1e-6)


def test_a_file_system_that_is_nearly_full() -> None:
    # awsome-distributed-ai 1225: 459 GB free in all, yet one target is full: a file of 53 GB in one piece fails.
    free = 459 * GB / 24
    assert not what_if.file_fits(53 * GB, targets=24, free=free)
    assert what_if.file_fits(53 * GB, targets=24, free=free, stripes=24)
    assert what_if.file_fits(53 * GB, targets=24, free=free, files=8)
    with pytest.raises(ValueError, match="stripes"):
        what_if.file_fits(1.0, targets=2, free=1.0, stripes=3)
    # Retention: three copies and the one that is being written need room for four.
    made = build(checkpoint={"kind": "sync", "interval": HOUR, "keep": 3}, steps=10)
    size = Prepared(made, 1.0).state.total
    with pytest.raises(DoesNotFit, match="keep 2 would fit"):
        Prepared(made.replace("cluster.storage.capacity", 3.5 * size), 1.0)
    Prepared(made.replace({"cluster.storage.capacity": 3.5 * size, "checkpoint.keep": 2}), 1.0)
    Prepared(made.replace("cluster.storage.capacity", 4.0 * size), 1.0)


def test_a_bad_copy_in_a_peers_memory() -> None:
    # nvidia-resiliency-ext 348: the copy is found unreadable at the load; the job falls back to storage.
    engine = {"kind": "gemini", "persist_every": 10, "corrupt": 0.999999}
    result = run(engine, step=1.0, nodes=4, spares=2, steps=60, failures=[planted(45.5, severity="node")])
    assert [entry.step for entry in result.log.entries() if entry.event == "resume"] == [0]
    good = run({**engine, "corrupt": 0.0}, step=1.0, nodes=4, spares=2, steps=60, failures=[planted(45.5, severity="node")])
    assert [entry.step for entry in good.log.entries() if entry.event == "resume"] == [45]


def test_a_second_failure_during_recovery_starts_it_again() -> None:
    stages = {"start": 60.0}
    once = run({"kind": "sync", "interval": 100.0, "stall": 0.0}, stages=stages, steps=100, failures=[planted(500.0)])
    twice = run({"kind": "sync", "interval": 100.0, "stall": 0.0}, stages=stages, steps=100, failures=[planted(500.0, 530.0)])
    assert twice.wall_s - once.wall_s == pytest.approx(30.0)


@pytest.mark.parametrize("path", sorted((SCENARIOS / "cases").glob("save-*.yaml")), ids=lambda path: path.stem)
def test_cases_load_and_answer(path: Path) -> None:
    scenario = load(str(path))
    try:
        made = Prepared(scenario, 10.0)
    except ImpossibleError as error:
        assert "checkpoint" in str(error)  # the answer is no, with the reason
        assert scenario.name in ("save-outlives-watchdog", "save-does-not-fit-host", "save-does-not-fit-storage")
        return
    result = Job(made, 0, 0, events=False).run()
    assert 0 <= result.ettr <= 1


def test_how_often_failures_and_saves_must_come_to_lose_less() -> None:
    # More saves help until they cost what they spare: the exact optimum lies between.
    def ettr(interval: float) -> float:
        made = build(checkpoint={"kind": "sync", "interval": interval, "stall": 40.0}, duration=100 * HOUR * 24,
                     failures=[job_failure(6 * HOUR)])  # fmt: skip
        return Job(Prepared(made, 10.0), 1, 0, events=False).run().ettr

    best = ettr(1312.0)  # √(2 · 40 s · 6 h), less the stall
    assert best > ettr(120.0)
    assert best > ettr(6 * HOUR)
