"""The main scenario against what is public of it, and the largest clusters."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest

from clustersim.run.simulate import prepare, run_replica
from clustersim.scenario.load import load

SCENARIO = Path(__file__).parents[2] / "scenarios" / "llama3-405b-16k.yaml"


def test_llama_3_on_16384_gpus() -> None:
    # Llama 3 report: 419 unexpected and 47 planned interruptions in 54 d; effective training time over 90 %.
    prepared = prepare(load(str(SCENARIO)))
    results = [run_replica(prepared, 0, replica, events=False) for replica in range(30)]
    for metric, expected in (("interruptions", 419.0), ("interruptions_planned", 47.0)):
        values = [float(getattr(result, metric)) for result in results]
        error = statistics.stdev(values) / math.sqrt(len(values))
        assert abs(statistics.fmean(values) - expected) <= 3 * error
    assert 0.90 <= statistics.fmean(result.ettr for result in results) <= 0.97
    for result in results:
        assert math.fsum(result.ledger_s.values()) == pytest.approx(54 * 86400, rel=1e-9)
        assert result.effective_mfu is not None
        assert result.effective_mfu == pytest.approx(prepared.mfu * result.ettr)  # type: ignore[operator]
        assert result.gpu_hours == pytest.approx(16384 * 54 * 24)


def test_the_checkpoint_has_its_bytes() -> None:
    # 405,853,388,800 parameters × 14 B = 5.68 TB (MLPerf Storage: 5,290 GiB); all ranks read 128 copies of the weights.
    prepared = prepare(load(str(SCENARIO)), 6.0)
    assert prepared.state.total == pytest.approx(405_853_388_800 * 14)
    assert prepared.state.read_by_all == pytest.approx(405_853_388_800 * (2 * 128 + 12))
    assert prepared.load_s == pytest.approx(405_853_388_800 * 268 / 2e12 + 0.005)
    assert prepared.transfer_s[0] == pytest.approx(
        prepared.state.total / (16384 * 46.8e9), rel=0.35
    )  # PCIe 5, measured


def test_broadcast_reads_each_byte_once_and_peers_read_none() -> None:
    scenario = load(str(SCENARIO))
    once = prepare(scenario.replace("checkpoint.restore", "broadcast"), 6.0)
    assert once.load.bytes == pytest.approx(once.state.total)
    assert once.load.clients == 16  # the nodes of one replica: 16 stages of 8 GPUs
    assert once.load_s == pytest.approx(once.state.total / 2e12 + 0.005)
    peers = prepare(scenario.replace("checkpoint.restore", "peer"), 6.0)
    assert peers.load.bytes == 0
    assert peers.load_s == pytest.approx(0.005 + peers.state.read_by_all / 2048 / 400e9, rel=1e-6)


@pytest.mark.prove
def test_a_million_gpus_for_ninety_days() -> None:
    import resource
    import time

    overrides = ("cluster.nodes=131072", "cluster.spare_nodes=4096", "parallelism.dp=8192", "training.global_batch=8192",
                 "repair.crews=4096", "training.duration=90 d")  # fmt: skip
    prepared = prepare(load(str(SCENARIO), overrides), 6.0)
    start = time.process_time()
    result = run_replica(prepared, 0, 0, events=False)
    assert time.process_time() - start < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2**20  # KiB: 1 GiB
    assert result.mtti_s == pytest.approx(180, rel=0.05)
    assert result.ettr < 0.01
    assert result.verdict is not None


def test_cost_per_failure_does_not_depend_on_the_size_of_the_cluster() -> None:
    # Counted in events of the simulation, not in seconds: the same failures on 2,048 and on 65,536 nodes.
    from tests.run.synthetic import DAY, build, counted

    def events(nodes: int) -> float:
        cause = {"component": "node", "severity": "node", "mtbf": DAY * nodes / 8}
        scenario = build(nodes=nodes, spares=64, failures=[cause], stages={"start": 60.0}, repair=DAY, duration=50 * DAY,
                         checkpoint={"kind": "async", "interval": 600.0, "stall": 1.0, "persist": 30.0})  # fmt: skip
        result, count = counted(prepare(scenario, 6.0))
        assert result.interruptions > 300
        return count / result.interruptions

    assert events(65_536) == pytest.approx(events(2048), rel=0.02)
    assert events(2048) < 9
