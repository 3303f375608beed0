"""A fleet without a job: what its fault log would look like.

Every node is up and watched; a hit takes it down for its repair time, nobody queues. The hits come from the same
``Arrivals`` that a run uses, so a log simulated here and a log of a run differ by the job and by nothing else.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Sequence

from clustersim.distributions import Constant, Distribution
from clustersim.faults.failure import FailureModel
from clustersim.faults.fit.log import FaultLog
from clustersim.faults.process import Change, Site
from clustersim.hardware.cluster import Cluster
from clustersim.rng import stream


def simulate_log(causes: Sequence[FailureModel], cluster: Cluster, window_s: float, *, seed: int = 0, replica: int = 0,
                 repair: Distribution = Constant(value=86400.0)) -> FaultLog:  # fmt: skip
    """The fault log of the cluster's ``nodes`` over a window, seen from outside.

    Args:
        causes: failure models; those that take no node leave no line in the log.
        cluster: gives the number of nodes and their domains; spare nodes are not part of it.
        window_s: length of the window in seconds.
        seed, replica: of the random streams.
        repair: time in the shop of causes without one of their own.
    """
    bare = cluster.model_copy(update={"spare_nodes": 0, "cold_spare_nodes": 0})
    site = Site(bare, bare.nodes, functools.partial(stream, seed, replica), repair, None, window_s)
    arrivals = [found for cause in causes if (found := cause.arrivals(site)) is not None]
    heap = [(each.next_s, 1, index) for index, each in enumerate(arrivals)]
    heapq.heapify(heap)
    watching = [index for index, each in enumerate(arrivals) if each.observes]
    down: dict[int, float] = {}
    names: list[str] = []
    starts: list[float] = []
    ends: list[float] = []
    classes: list[str] = []

    def tell(change: Change) -> None:
        for index in watching:
            if arrivals[index].observe(change):
                heapq.heappush(heap, (arrivals[index].next_s, 1, index))

    while heap:
        time, kind, index = heapq.heappop(heap)
        if time > window_s:
            break
        if kind == 0:  # a repair ends; before the hits of the same moment
            if down.get(index) == time:
                del down[index]
                tell(Change(time, "repaired", index, -1))
            continue
        if arrivals[index].next_s != time:
            continue  # outdated: the arrivals have moved meanwhile and stand in the heap anew
        hit = arrivals[index].pop()
        heapq.heappush(heap, (arrivals[index].next_s, 1, index))
        if not hit.cause.severity.takes_nodes:
            continue
        for node in (hit.node,) if hit.node is not None else range(hit.first, hit.last):
            replayed = hit.cause.replays
            if node in down and not replayed:
                continue
            end = time + hit.repair_s + (hit.detection_s if replayed else 0.0)  # a log's down time holds its detection
            names.append(str(node))
            starts.append(time)
            ends.append(end)
            classes.append(hit.cause.name.rpartition("/")[2])
            down[node] = max(end, down.get(node, -math.inf))
            heapq.heappush(heap, (down[node], 0, node))
            tell(Change(time, "failed", node, node))
    return FaultLog.of(names, starts, ends, classes, window_s=window_s, population=cluster.nodes)
