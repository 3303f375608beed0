"""Mass returns: repairs that began at different times and end together.

Parts arrive, a switch is fixed, somebody clears the backlog: nodes that have been down for days or months are back within
minutes. Had each repair its own end, so many ends of different repairs within ``LINK_S`` would be a chance of one in very many;
such a group is a mass return if that chance, times the number of groups that were looked at, is below 1 %. In the public trace
15 nodes that had been down for 31 to 85 days were back within 90 s of day 117.7.

Faults of one group (``clusters``) count as one repair, whether or not they share it: that they end together says nothing about
others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersim.faults.fit.clusters import LINK_S, Clusters
from clustersim.faults.fit.log import FaultLog

CHANCE = 0.01
"""Chance, in the whole log, of a mass return that is none."""
AROUND_S = 10 * 86400.0
"""Ends this far before and after a group say how many are to be expected in it."""
MARGIN_S = 60.0
"""A mass return begins this long before the first end in it, and ends this long after the last one."""


@dataclass(frozen=True)
class MassReturn:
    """Nodes that were back together: from when to when (seconds), and how many repairs of different starts ended in it."""

    begin_s: float
    end_s: float
    nodes: int
    repairs: int


def mass_returns(log: FaultLog, clusters: Clusters) -> tuple[MassReturn, ...]:
    """All mass returns of a log, in order of time."""
    from scipy.stats import poisson

    closed = np.flatnonzero(log.closed & (log.down_s > 0))
    order = closed[np.argsort(log.end_s[closed], kind="stable")]
    ends, cause = log.end_s[order], clusters.primary[order]
    if not len(ends):
        return ()
    group = np.cumsum(np.concatenate([[False], np.diff(ends) > LINK_S]))
    single = np.ones(len(ends), dtype=bool)  # one end of each cause in each group
    single[1:] = ~((group[1:] == group[:-1]) & np.isin(np.arange(1, len(ends)), _repeats(group, cause)))
    found = []
    for number in range(int(group[-1]) + 1):
        own = np.flatnonzero(group == number)
        repairs = int(single[own].sum())
        if repairs < 3:
            continue
        begin, end = float(ends[own[0]]), float(ends[own[-1]])
        near = single & (np.abs(ends - begin) <= AROUND_S)
        near[own] = False
        seen = min(begin + AROUND_S, log.window_s) - max(begin - AROUND_S, 0.0)
        expected = (int(near.sum()) + 1) / seen * (end - begin + LINK_S)
        if poisson.sf(repairs - 2, expected) * (group[-1] + 1) < CHANCE:  # beyond the first, which makes the group
            found.append(MassReturn(begin - MARGIN_S, end + MARGIN_S, len(own), repairs))
    return tuple(found)


def _repeats(group: np.ndarray, cause: np.ndarray) -> np.ndarray:
    """Indices of ends whose cause has ended in the same group before."""
    seen: set[tuple[int, int]] = set()
    repeated = []
    for index, key in enumerate(zip(group.tolist(), cause.tolist(), strict=True)):
        if key in seen:
            repeated.append(index)
        seen.add(key)
    return np.array(repeated, dtype=np.int64)
