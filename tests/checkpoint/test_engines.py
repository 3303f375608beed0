"""Each engine worked out by hand: stall, time until durable, bytes; and what a cluster cannot give it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from clustersim.checkpoint.engine import StepShape
from clustersim.checkpoint.interval import Costs, Interval
from clustersim.checkpoint.tiers import Tier
from clustersim.errors import DoesNotFit, ImpossibleError
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.scenario.load import load
from clustersim.validation.checkpoint_jobs import KnownStep, prepared
from tests.run.synthetic import build, job_failure, planted

H100 = Path(__file__).parents[2] / "scenarios" / "512-h100-70b.yaml"
GB = 1e9
STATE = 160 * GB  # on 2 nodes of 8 GPUs: 10 GB a GPU, 80 GB a node
STORAGE = {"kind": "shared-filesystem", "write_bandwidth": 16 * GB, "read_bandwidth": 32 * GB, "latency": 0.0}
NODE = {"pinned_bandwidth_per_gpu": 20 * GB, "nics": 8, "nic_bandwidth": 10 * GB, "local_disk_write": 4 * GB}


def made(kind: str, *, step: float = 2.0, update: float = 0.25, network: float = 0.0, layout: dict[str, Any] | None = None,
         storage: dict[str, Any] | None = None, **keys: Any) -> Prepared:  # fmt: skip
    engine = {"kind": kind, "interval": {"steps": 10}, **keys}
    return prepared(engine, gpus=16, per_node=8, bytes_total=STATE, node=NODE, storage={**STORAGE, **(storage or {})},
                    layout=layout, step=KnownStep(step, shape=StepShape(step, update, network)), steps=100)  # fmt: skip


def after(job: Prepared, tier: Tier, number: int = 0) -> float:
    found = job.saves[number].after_s(tier)
    assert found is not None
    return found


def test_sync_and_async() -> None:
    # 160 GB at 16 GB/s: 10 s; copies of 10 GB at 20 GB/s: 0.5 s.
    assert made("sync").saves[0].stall_s == pytest.approx(10.0)
    job = made("async")
    assert job.saves[0].stall_s == pytest.approx(0.5)
    assert after(job, Tier.SHARED) == pytest.approx(10.5)
    assert made("async", planning=1.0, planning_per_rank=0.125).saves[0].stall_s == pytest.approx(3.5)


def test_a_writer_bounds_what_a_gpu_writes() -> None:
    assert made("sync", writer_bandwidth=0.5 * GB).saves[0].stall_s == pytest.approx(20.0)
    # A pipeline of copies and writes goes at the pace of the slower.
    assert made("torchsnapshot", writer_bandwidth=0.5 * GB).saves[0].stall_s == pytest.approx(20.0)
    fast = {"write_bandwidth": 1e15}
    assert made("torchsnapshot", storage=fast).saves[0].stall_s == pytest.approx(0.5)


def test_bytes_follow_from_what_is_saved() -> None:
    # ZeRO 1 over 16 replicas: 14 B a parameter once; without de-duplication 2 B × 16 more than once.
    whole = made("sync").transfers[-1].bytes
    assert made("sync", content="weights").transfers[-1].bytes == pytest.approx(whole / 7)
    assert made("sync", fraction=0.5).transfers[-1].bytes == pytest.approx(whole / 2)
    everything = made("sync", deduplicate=False, layout={"dp": 16, "zero": 1}).transfers[-1].bytes
    assert everything == pytest.approx(whole * (2 * 16 + 12) / 14)


def test_checkfreq_hides_the_copy_behind_the_next_step() -> None:
    assert made("checkfreq").saves[0].stall_s == 0.0  # 0.5 s < 1.75 s before the update
    assert after(made("checkfreq"), Tier.SHARED) == pytest.approx(10.5)
    slow = made("checkfreq", copy_bandwidth=4 * GB)  # 2.5 s: 0.75 s are left when the update waits
    assert slow.saves[0].stall_s == pytest.approx(0.75)
    assert after(slow, Tier.SHARED) == pytest.approx(12.5)
    assert made("checkfreq", overlap=False).saves[0].stall_s == pytest.approx(0.5)


def test_lazy_copies_wait_for_the_update_and_stream() -> None:
    job = made("datastates", planning=0.0, interference=0.0, copy_bandwidth=4 * GB)
    assert job.saves[0].stall_s == pytest.approx(0.75)
    assert after(job, Tier.SHARED) == pytest.approx(10.0)  # streams from the first byte on
    assert made("datastates", planning=0.25).saves[0].stall_s == pytest.approx(0.75)  # interference 1: all of the copy


def test_a_full_cache_makes_the_next_save_wait() -> None:
    # Flush of 10 s, a save every 2 steps of 2 s: with room for one copy a period is what a flush takes; with room for
    # four, 3 saves more go out first.
    def wall(staging: float) -> float:
        engine = {"staging": staging, "planning": 0.0, "interference": 0.0, "interval": {"steps": 2}}
        return Job(made("datastates", **engine), 0, 0).run().wall_s

    one, four, all_ = wall(100 * GB), wall(4.5 * 80 * GB), wall(1e15)
    assert all_ == pytest.approx(200.0)
    assert one == pytest.approx(4.0 + 48 * 10.0 + 4.0, abs=0.5)
    assert one - four == pytest.approx(3 * (10.0 - 0.0), abs=0.5)


def test_gockpt_spreads_the_copy_over_its_window() -> None:
    # 160 GB ÷ 14 × 2 = 22.86 GB of weights and gradients; 3 × as many gradient bytes over 7 steps: 68.6 GB, 4.29 GB a GPU.
    grads = STATE / 7 * 3 / 16 / (20 * GB)
    assert made("gockpt").saves[0].stall_s == 0.0
    assert made("gockpt", overlap_gradients=False).saves[0].stall_s == pytest.approx(grads)
    short = made("gockpt", step=0.05, update=0.0)
    assert short.saves[0].stall_s == pytest.approx(0.5 + grads - 7 * 0.05)
    assert after(made("gockpt"), Tier.DISK) == pytest.approx(80 / 4)


def test_gemini_sends_in_the_gaps_of_the_network() -> None:
    # 80 GB a node at 80 GB/s: 1 s, of a network that training uses for half of the time 2 s.
    assert after(made("gemini"), Tier.PEER) == pytest.approx(0.5 + 1.0)
    assert after(made("gemini", network=1.0), Tier.PEER) == pytest.approx(0.5 + 2.0)
    assert after(made("gemini", copies=3), Tier.PEER) == pytest.approx(0.5 + 2.0)
    waits = made("gemini", interleave=False)
    assert waits.saves[0].stall_s == pytest.approx(1.5)
    upload = made("gemini", persist_every=2, interval={"steps": 10})
    assert upload.transfers[-1].every == 2
    # An upload of 10 s and saves every step of 2 s: not more often than every 5th.
    assert made("gemini", persist_every=2, interval={"steps": 1}).transfers[-1].every == 5


def test_transom_stalls_for_its_cache_alone() -> None:
    job = made("transom")
    assert job.saves[0].stall_s == pytest.approx(0.5)
    assert (after(job, Tier.HOST), after(job, Tier.PEER)) == pytest.approx((0.5, 1.5))
    assert after(job, Tier.SHARED) == pytest.approx(10.5)


@pytest.mark.parametrize(("zero", "share"), [(0, 0.0), (1, 12 / 14), (3, 1.0)])
def test_fftrainer_sends_what_no_replica_holds(zero: int, share: float) -> None:
    job = made("fftrainer", layout={"dp": 16, "zero": zero})
    sent = sum(transfer.bytes for transfer in job.transfers if transfer.tier == Tier.PEER)
    assert sent == pytest.approx(share * job.state.total)


def test_tiercheck_saves_differences_and_replays_them() -> None:
    job = made("tiercheck", difference=0.1, persist_every=4)
    assert job.saves[1].stall_s == pytest.approx(0.05)
    assert job.saves[0].stall_s == pytest.approx(0.5)  # the base
    near, plain = job.loads[Tier.HOST].seconds, made("gemini").loads[Tier.HOST].seconds
    assert near == pytest.approx(plain * 1.2)
    assert job.transfers[-1].bytes == pytest.approx(job.state.total)


def test_just_in_time_needs_a_second_replica_of_every_byte() -> None:
    def lost(zero: int, severity: str = "node") -> list[int | None]:
        scenario = build(nodes=4, spares=4, steps=25, checkpoint="just-in-time", failures=[planted(20.5, severity=severity)])
        made = scenario.replace("parallelism.zero", zero)
        return [entry.step for entry in Job(Prepared(made, 1.0), 0, 0).run().log.entries() if entry.event == "resume"]

    assert lost(0) == [20]
    assert lost(1) == [0]  # the optimizer's state has no copy
    assert lost(0, "cluster") == [0]


def test_a_rebuild_from_peers_reads_nothing_from_storage() -> None:
    scenario = build(nodes=4, spares=4, steps=25, checkpoint="peer-rebuild", failures=[planted(20.5, severity="node")])
    job = Job(Prepared(scenario.replace("parallelism.zero", 0), 1.0), 0, 0)
    job.run()
    assert job.storage.moved == {"read": 0.0, "write": 0.0}


def test_megascale_reads_once_and_survives_a_crash_in_host_memory() -> None:
    job = made("megascale", layout={"dp": 16})
    assert job.load.bytes == pytest.approx(job.state.total)
    assert made("async", layout={"dp": 16, "zero": 1}).load.bytes > job.load.bytes
    assert after(job, Tier.HOST) == pytest.approx(0.5)


def test_ways_to_read_a_copy_back() -> None:
    # 16 replicas, ZeRO 1: all read 16 × the weights and the optimizer's state; 160 GB once; 8 files a node are opened.
    def read(restore: str, **keys: Any) -> Any:
        return made("async", layout={"dp": 16, "zero": 1}, restore=restore, storage={"latency": 0.5}, **keys).load

    job = made("async", layout={"dp": 16, "zero": 1})
    weights, rest, nic = job.state.weights, job.state.optimizer, job.scenario.cluster.node.network_bandwidth
    assert read("all-read").bytes == pytest.approx(16 * weights + rest)
    assert read("broadcast").bytes == pytest.approx(weights + rest)
    assert read("broadcast").clients == 1
    assert read("peer").bytes == 0
    assert read("reshard").bytes == pytest.approx(weights + rest)
    assert read("reshard").seconds == pytest.approx(0.5 * 8 + (16 * weights + rest) / 2 / nic)
    assert read("broadcast", content="weights").bytes == pytest.approx(weights)


# -- luck: saves that fail, copies that cannot be read


def test_an_unreadable_copy_costs_a_read_and_falls_back_to_the_next_older() -> None:
    def run(keep: int) -> Any:
        scenario = build(steps=60, failures=[planted(45.5)], storage={"read_bandwidth": 14.0 * 50_000, "latency": 0.0},
                         checkpoint={"kind": "sync", "interval": 10.0, "stall": 0.0, "keep": keep, "corrupt": 0.999999})  # fmt: skip
        return Job(Prepared(scenario, 1.0), 0, 0).run()

    one, three = run(1), run(3)
    assert [entry.step for entry in one.log.entries() if entry.event == "resume"] == [0]
    assert three.ledger_s["load"] == pytest.approx(2 * one.ledger_s["load"])  # 3 bad reads + 1 against 1 + 1


def test_a_save_that_fails_is_none() -> None:
    scenario = build(steps=60, failures=[planted(45.5)], checkpoint={"kind": "sync", "interval": 10.0, "stall": 1.0, "failing": 0.999999})
    result = Job(Prepared(scenario, 1.0), 0, 0).run()
    assert [entry.step for entry in result.log.entries() if entry.event == "resume"] == [0]
    assert not [entry for entry in result.log.entries() if entry.event == "save_durable"]


# -- what a cluster cannot give


def test_staging_that_does_not_fit_is_refused() -> None:
    scenario = build(nodes=2, gpus=8, checkpoint="async", steps=10).replace({
        "cluster.node.host_memory": "200 kB", "checkpoint.resident": "150 kB"})  # fmt: skip
    with pytest.raises(DoesNotFit, match="host memory a node beside"):
        Prepared(scenario, 1.0)


def test_copies_that_do_not_fit_on_storage_are_refused() -> None:
    scenario = build(checkpoint={"kind": "sync", "interval": 10.0, "keep": 3}, steps=10, storage={"capacity": 6e6, "used": 0.5})
    with pytest.raises(DoesNotFit, match=r"keep 3 needs room for 4 saves of .*keep 1 would fit|keep 2 would fit|free some space"):
        Prepared(scenario, 1.0)


def test_slots_files_and_other_tenants_slow_a_save() -> None:
    slots = made("sync", storage={"slots": 4, "slot_bandwidth": 2 * GB})
    assert slots.saves[0].stall_s == pytest.approx(20.0)
    files = made("sync", storage={"files_per_second": 8.0}, files_per_gpu=3)
    assert files.saves[0].stall_s == pytest.approx(10.0 + 48 / 8)
    assert made("sync", storage={"background_load": 0.75}).saves[0].stall_s == pytest.approx(40.0)


# -- intervals


def test_bounded_and_adaptive_intervals() -> None:
    costs = Costs(stall_s=7.0, persist_s=100.0, mtbf_s=1e6)
    assert Interval.build("bounded").resolve(costs).seconds == pytest.approx(200.0)
    assert Interval.build({"kind": "bounded", "overhead": 0.5}).resolve(costs).seconds == 100.0
    policy = Interval.build({"kind": "adaptive", "prior": "1 h"})
    first = policy.resolve(Costs(7.0, 0.0, math.inf)).seconds
    again = policy.again(Costs(7.0, 0.0, math.inf), 3600.0, 7)
    assert first is not None
    assert again is not None
    assert again.seconds is not None
    assert again.seconds / first == pytest.approx(0.5, rel=0.05)  # 8 × the rate: a half, for √(2 d M)


def test_an_adaptive_interval_comes_to_the_optimum_of_the_true_rate() -> None:
    def ettr(interval: Any) -> float:
        scenario = build(failures=[job_failure(1800.0)], duration=30 * 86400.0, stages={"start": 60.0},
                         checkpoint={"kind": "sync", "stall": 10.0, "interval": interval})  # fmt: skip
        return Job(Prepared(scenario, 5.0), 3, 0, events=False).run().ettr

    wrong = ettr("40 min")  # the optimum for an MTBF of 4 d
    adaptive = ettr({"kind": "adaptive", "prior": "4 d"})
    assert adaptive > wrong + 0.1
    assert adaptive == pytest.approx(ettr("auto"), abs=0.006)


def test_the_watchdog() -> None:
    # DeepSpeed 7533: a save of 600.051 s under a time-out of 600 s.
    with pytest.raises(ImpossibleError, match="longer than the watchdog's 600"):
        made("sync", storage={"write_bandwidth": STATE / 600.051}, watchdog=600.0)
    made("async", storage={"write_bandwidth": STATE / 600.051}, watchdog=600.0)


def test_an_upload_over_trainings_own_network_slows_steps_beside_it() -> None:
    # The step model answers: a share of each node's NICs is taken while the upload runs.
    base = load(H100)
    own, shared = (Prepared(base.replace("checkpoint", {"engine": "async", "interval": "10 min", "uplink": uplink}))
                   for uplink in ("own", "training"))  # fmt: skip
    assert own.pace.saving_s == own.pace.step_s
    assert shared.pace.saving_s > shared.pace.step_s
    # A faster writer takes more of the network, and training loses more.
    slow = Prepared(base.replace("checkpoint", {
        "engine": "async", "interval": "10 min", "uplink": "training", "writer_bandwidth": "10 MB/s"}))  # fmt: skip
    assert own.pace.saving_s < slow.pace.saving_s < shared.pace.saving_s
    result = Job(shared, 0, 0, events=False).run()
    assert result.ledger_s["checkpoint_slowdown"] > 0
    assert Job(own, 0, 0, events=False).run().ledger_s["checkpoint_slowdown"] == 0


@pytest.mark.parametrize("jump", [True, False])
def test_steps_are_slow_beside_uploads_over_trainings_network_and_beside_nothing_else(jump: bool) -> None:
    # Copies to peers go in the gaps and slow nothing; an upload in 8 saves slows the steps that start while it is under way.
    base = load(H100).replace({
        "failures": [], "training.duration": None, "training.steps": 80})  # fmt: skip
    engine = {"engine": "gemini", "uplink": "training", "persist_every": 8}
    job = Prepared(base.replace("checkpoint", engine), jump=jump)
    upload, more = job.transfer_s[-1], job.pace.saving_s - job.pace.step_s
    assert more > 0
    beside = math.ceil(upload / job.pace.saving_s)
    slow = Job(job, 0, 0).run().ledger_s["checkpoint_slowdown"] / more
    assert slow == pytest.approx((80 // 8 - 1) * beside)  # the last save would fall due with the last step
    alone = Prepared(base.replace("checkpoint", {**engine, "persist_every": None}), jump=jump)
    assert alone.pace.saving_s == alone.pace.step_s  # nothing is ever uploaded


def test_idle_gaps_of_the_network_are_those_of_the_step_model() -> None:
    base = load(H100)
    job = Prepared(base.replace("checkpoint", {"engine": "gemini"}))
    assert 0 < job.site.step.network_s < job.site.step.seconds
    assert 0 < job.site.step.update_s < job.site.step.seconds
    alone = job.site.per_node / job.scenario.cluster.node.network_bandwidth
    sent = next(s for t, s in zip(job.transfers, job.transfer_s, strict=True) if t.tier == Tier.PEER)
    assert sent == pytest.approx(alone / (1 - job.site.step.network_s / job.site.step.seconds))
