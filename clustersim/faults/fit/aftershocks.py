"""Faults that raise the rate of the whole fleet for a while: aftershocks over hours, beyond the groups that start together.

The first faults of groups arrive with the intensity

    (1 - s) · base(t) + recurrences(t) + Σ_{earlier i} n / d · exp(-(t - t_i) / d)

where base and recurrences are those of the joint fit, ``n`` is the mean number of aftershocks of one fault, ``d`` their mean
delay and ``s`` the share of the base that they replace (a Hawkes process on a known background). ``n``, ``d`` and ``s`` are
found by maximum likelihood; aftershocks are kept only if AIC asks for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from clustersim.faults.fit.clusters import Clusters
from clustersim.faults.fit.families import Array
from clustersim.faults.fit.log import FaultLog
from clustersim.faults.fit.minimum import minimise
from clustersim.faults.fit.recurrent import Recurrent, spells_of


@dataclass(frozen=True)
class Aftershocks:
    """Mean number, mean delay in seconds, the share of the base that they replace, and what AIC gains by them (> 0)."""

    number: float
    delay_s: float
    replaced: float
    gain: float


NONE = Aftershocks(0.0, 3600.0, 0.0, 0.0)


def fit_aftershocks(log: FaultLog, clusters: Clusters, joint: Recurrent) -> Aftershocks:
    """Aftershocks of a log, given the joint fit; ``NONE`` where AIC does not ask for them."""
    first = clusters.primary == np.arange(len(log))
    times = log.start_s[first]
    base, again = _background(log, clusters, joint, times)
    known = base + again > 0  # a fault of a node that is down, while all others are, is none of a process of nodes that are up
    if not known.any():
        return NONE
    times, base, again = times[known], base[known], again[known]
    lag = times[:, None] - times[None, :]
    earlier = lag > 0
    lag = np.where(earlier, lag, np.inf)
    shares = base / (base + again)
    total_base = float(shares.sum())

    def loss(theta: Array) -> float:
        replaced, number, delay = 1 / (1 + math.exp(-theta[0])), math.exp(theta[1]), math.exp(theta[2])
        shocks = (number / delay * np.exp(-lag / delay)).sum(axis=1)
        ended = float(-np.expm1(-(log.window_s - times) / delay).sum())
        return -float(np.log((1 - replaced) * base + again + shocks).sum()) + (1 - replaced) * total_base + number * ended

    nothing = -float(np.log(base + again).sum()) + total_base
    best, least = minimise(loss, np.array([-2.0, -2.5, math.log(3 * 3600.0)]),
                           [(-8, 3), (-8, -0.1), (math.log(600.0), math.log(2 * 86400.0))])  # fmt: skip
    gain = 2 * (nothing - least) - 2 * 3
    if gain <= 0:
        return NONE
    return Aftershocks(math.exp(best[1]), math.exp(best[2]), 1 / (1 + math.exp(-best[0])), gain)


def _background(log: FaultLog, clusters: Clusters, joint: Recurrent, times: Array) -> tuple[Array, Array]:
    """Intensity of the fleet at each time by the joint fit: (base, recurrences), faults a second."""
    spells = spells_of(log, clusters)
    up = (spells.begin[None, :] < times[:, None]) & (times[:, None] <= spells.end[None, :])
    idle = log.population - (int(spells.node.max()) + 1)
    base = joint.rate * joint.calendar.at(times) * (up.sum(axis=1) + idle)
    repaired = ~np.isnan(spells.age)
    age = np.where(repaired[None, :], np.maximum(times[:, None] - spells.begin[None, :], 1.0), 1.0)
    chance = np.minimum(joint.again.at(spells.fault_s) * np.where(spells.again, joint.persistence, joint.probability), 1 - 1e-9)
    survivor = np.exp(joint.delay.logsf(age.ravel(), *joint.delay_values)).reshape(age.shape)
    density = np.exp(joint.delay.logpdf(age.ravel(), *joint.delay_values)).reshape(age.shape)
    hazard = chance * density / (1 - chance * (1 - survivor))
    return base, np.where(up & repaired[None, :], hazard, 0.0).sum(axis=1)
