"""Published figures of failures: counts, spares, links, slow-downs, replication; each from its own inputs."""

from __future__ import annotations

import collections
import functools
import math
from typing import Any

import numpy as np
import pytest

from clustersim.distributions import Constant
from clustersim.faults.failure import FailureModel
from clustersim.faults.fit.describe import down_quantiles
from clustersim.faults.process import Site
from clustersim.faults.simulate import simulate_log
from clustersim.hardware.cluster import Cluster
from clustersim.part import expand_preset
from clustersim.rng import stream

DAY, HOUR, MONTH = 86400.0, 3600.0, 30 * 86400.0


def cluster(nodes: int, **extra: Any) -> Cluster:
    return Cluster.model_validate({"nodes": nodes, "node": "dgx-h100", "storage": "tectonic", **extra})


def hits(causes: list[FailureModel], nodes: int, days: float, replica: int) -> collections.Counter[str]:
    site = Site(cluster(nodes), nodes, functools.partial(stream, 0, replica), Constant(value=DAY), None, days * DAY)
    count: collections.Counter[str] = collections.Counter()
    for cause in causes:
        source = cause.arrivals(site)
        while source is not None and source.next_s <= days * DAY:
            count[source.pop().cause.name] += 1
    return count


LLAMA3 = {
    "faulty-gpu": 148, "hbm3-memory": 72, "software-bug": 54, "switch-or-cable": 35, "host-maintenance": 32, "gpu-sram": 19,
    "gpu-system-processor": 17, "nic": 7, "nccl-watchdog": 7, "silent-data-corruption": 6, "gpu-thermal-interface": 6, "ssd": 3,
    "power-supply": 3, "chassis": 2, "io-board": 2, "dependency": 2, "cpu": 2, "system-memory": 2,
}  # fmt: skip


def test_llama_3_has_its_18_causes_in_their_counts() -> None:
    # Table 5 of the report: 419 unexpected interruptions in 54 d. Poisson: 4 standard errors over 100 replicas.
    causes = [FailureModel.build(each) for each in expand_preset("failures", "llama3-h100")["failures"]]
    causes = [cause for cause in causes if not cause.planned]
    total: collections.Counter[str] = collections.Counter()
    for replica in range(100):
        total += hits(causes, 2048, 54, replica)
    assert set(total) == set(LLAMA3)
    assert sum(LLAMA3.values()) == 419
    for name, count in LLAMA3.items():
        assert total[name] / 100 == pytest.approx(count, abs=4 * math.sqrt(count / 100)), name
    assert sum(total.values()) / 100 == pytest.approx(419, abs=4 * math.sqrt(4.19))


@pytest.mark.parametrize(("nodes", "mtti_h"), [(2048, 1.8029), (16384, 0.2254), (1, 3692.3)])
def test_rsc_1_projection(nodes: int, mtti_h: float) -> None:
    # Kokolis et al.: 6.5 failures a 1,000 node-days; the job's MTTF is 24 h ÷ (nodes × rate). 16,384 nodes are 131,072 GPUs.
    cause = FailureModel.build({"component": "node", "mtbf": 1000 / 6.5 * DAY})
    site = Site(cluster(nodes), nodes, functools.partial(stream, 0, 0), Constant(value=DAY))
    assert 1 / cause.rate(site) / HOUR == pytest.approx(mtti_h, rel=1e-3)


@pytest.mark.parametrize(("machines", "standbys"), [(128, 2), (256, 2), (512, 3), (1024, 4)])
def test_byterobust_standbys(machines: int, standbys: int) -> None:
    # Table 5: the 99th percentile of simultaneous failures; all four follow from p = 1.2e-3 a machine and window. A machine
    # that is down for a window of a day every 1/p windows is down with that probability, whatever else.
    p = 1.2e-3
    cause = FailureModel.build({"kind": "fleet", "mtbf": DAY * (1 - p) / p, "repair": DAY})
    log = simulate_log([cause], cluster(machines), 30000 * DAY if machines < 512 else 10000 * DAY)
    assert down_quantiles(log, (0.99,))[0] == standbys


def test_hpn_link_failures_crash_a_job_once_or_twice_a_month() -> None:
    # HPN (SIGCOMM 24): 0.057 % of NIC-ToR links fail in a month; 3,000 links: 1.71 a month; "1-2 crashes a month".
    cause = FailureModel.build({"component": "link", "severity": "process", "mtbf": MONTH / 0.00057, "units": 3000})
    months = 400
    count = hits([cause], 375, 30.0 * months, 0)["failure"] / months
    assert count == pytest.approx(1.71, abs=4 * math.sqrt(1.71 / months))
    assert 1 < count < 2


def test_falcon_slow_down_from_one_depth() -> None:
    # FALCON: jobs of 512 GPUs and more with fail-slow (episodes of 72 min in the mean) took 1.34 times as long. With episodes
    # that begin as often as they end (one under way in the mean) the job is slow a share b = 1 - 1/e of the time and takes
    # 1 / (1 - b (1 - 1/d)) as long: the one depth d that gives 1.34 is 1.671.
    from clustersim.run.prepared import Prepared
    from clustersim.run.simulate import run_replica
    from clustersim.scenario.schema import Scenario

    episode, busy = 72 * 60.0, 1 - math.exp(-1)
    depth = 1 / (1 - (1 - 1 / 1.34) / busy)
    assert depth == pytest.approx(1.671, abs=0.001)
    scenario = Scenario.model_validate({
        "model": "llama3-8b", "cluster": {"nodes": 64, "node": "dgx-h100", "storage": "tectonic"},
        "training": {"seq_len": 8192, "global_batch": 512, "micro_batch": 1, "duration": 60 * DAY}, "parallelism": {"tp": 2, "pp": 4},
        "failures": [{"kind": "fail-slow", "mtbf": 64 * episode, "depth": round(depth, 3),
                      "length": {"kind": "exponential", "mean": episode}}],
    })  # fmt: skip
    prepared = Prepared(scenario, 10.0)
    slowdown = [1 / run_replica(prepared, 0, replica, events=False).ettr for replica in range(8)]
    # 9,600 episodes in all: the share of busy time has a relative standard error below √2/√9600 = 1.5 %.
    assert np.mean(slowdown) == pytest.approx(1.34, abs=4 * 0.015 * 0.34)


@pytest.mark.parametrize("pairs", [8, 64])
def test_mirrored_pairs_die_after_the_published_number_of_failures(pairs: int) -> None:
    # Failures (of machines alive, no repair) until both of a pair are gone: 4^b / C(2b, b); 14.207 for 64 pairs.
    expected = math.exp(pairs * math.log(4) - math.lgamma(2 * pairs + 1) + 2 * math.lgamma(pairs + 1))
    if pairs == 64:
        assert expected == pytest.approx(14.207, abs=5e-4)
    cause = FailureModel.build({"kind": "fleet", "mtbf": DAY, "repair": 1e9 * DAY})
    needed = []
    for replica in range(200):
        log = simulate_log([cause], cluster(2 * pairs), 2 * DAY / (pairs / 16), replica=replica)
        dead: set[int] = set()
        for row in range(len(log)):
            node = int(log.nodes[log.node[row]])
            if node ^ 1 in dead:
                needed.append(row + 1)
                break
            dead.add(node)
    assert len(needed) == 200
    assert np.mean(needed) == pytest.approx(expected, abs=4 * float(np.std(needed)) / math.sqrt(200))
