"""Published clusters and fault logs: nodes that are down, spares, retries, another simulator."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from clustersim.run.simulate import run_replica
from clustersim.validation.reliability_case import Case, ettr, mean, prepared, quantile, runs, told, within
from clustersim.validation.reliability_systems import lossless


def marin() -> Iterator[Case]:
    """Case 10."""
    name, source = "10 Marin 704 GB200", "marin issues 8506, 8934"
    results = runs("cases/nvlink-domain-fault.yaml")
    lost = mean(results, lambda r: r.lost_work_s / max(r.interruptions, 1)) / 60
    yield Case(name, "minutes of work lost a fault, hourly saves", 55, lost, 25, 60, source,
               "a fault before the first save: 54 to 55")  # fmt: skip
    stages = ("reschedule", "start", "communicators", "load")
    back = mean(results, lambda r: sum(r.ledger_s[stage] for stage in stages) / r.interruptions)
    yield told(name, "minutes to come back", 20, back / 60, source)
    down = mean(results, lambda r: r.nodes_down_p99)
    yield within(name, "nodes that a fault takes", 16, down, 0.0, source)


def fleet() -> Iterator[Case]:
    """Case 11."""
    name, source = "11 InfiniteHBD log", "the log itself: nodes down at once"
    ready = prepared("cases/fleet-replay.yaml")
    result = run_replica(ready, 0, 0)
    for share, published in ((0.5, 7), (0.9, 22), (0.99, 31)):
        yield within(name, f"P{share * 100:g} of nodes down", published, quantile(result, share), 0.05, source)
    counted = [entry.event for entry in result.log.entries() if entry.event in ("failure", "spare_failure")]
    yield within(
        name, "faults", 584, len(counted), 0.05, source, "of the job's nodes and of spares, not of nodes that are down"
    )


def delta() -> Iterator[Case]:
    """Case 12."""
    name, source = "12 Delta", "arXiv 2503.11901"
    for repair, published in (("2.2 h", 0.05), ("5 min", 0.02)):
        results = runs("cases/delta-spares.yaml", f"repair.time={repair}")
        need = max(quantile(result, 0.999) for result in results) / 152
        yield Case(name, f"extra nodes for 99.9 %, repair {repair}", published, need, published / 3, published * 1.2, source,
                   "nodes down at once, the worst of 20 months; their criterion is not told")  # fmt: skip


def lablup() -> Iterator[Case]:
    """Case 13."""
    name, source = "13 Lablup", "arXiv 2605.09370"
    ready = prepared("cases/retry-chain.yaml")
    results = [run_replica(ready, 0, index, events=False) for index in range(ready.scenario.simulation.replicas)]
    ended = statistics.fmean(result.ledger_s["detect"] < 6.08 * 660 - 1 for result in results)
    yield Case(name, "share of retry chains that end well", 1 / 3, ended, 0.2, 0.45, source,
               "12 chains: the standard error of theirs is 0.14; attempts independent")  # fmt: skip


def airesim() -> Iterator[Case]:
    """Case 14."""
    name, source = "14 AIReSim defaults", "its published run (arXiv 2603.07041)"
    results = runs("papers/airesim-default.yaml", replicas=2)
    yield within(name, "hours for 256 d of work on 4,096 servers", 9866, mean(results, lambda r: r.wall_s) / 3600, 0.02, source,
                 "repair times and cures: assumed")  # fmt: skip
    yield within(name, "share of it work", 0.623, ettr(results), 0.02, source)
    yield within(name, "failures", 11146, mean(results, lambda r: r.interruptions), 0.03, source)


def hlat() -> Iterator[Case]:
    """Case 15."""
    name, source = "15 HLAT on Trainium", "98.81 % automated, 77.83 % by hand; told by a third party"
    mttf = 10 * 60 / (1 - 0.9881)
    by_hand = mttf * (1 - 0.7783) / 0.7783
    auto = lossless(600, mttf)
    yield told(name, "uptime, restarts of 10 min", 0.9881, auto, source, "10 min assumed; the rate follows")
    yield told(
        name, "uptime, restarts by hand", 0.7783, lossless(by_hand, mttf), source, f"{by_hand / 3600:.1f} h follow"
    )
