"""Estimators that are applied alike to a real log and to a simulated one, so that the two can be compared.

* recurrence: of the repairs that were seen, the share followed by a fault of the same node within 7 days;
* co-occurrence: share of faults that start within 10 minutes of a fault of another node;
* nodes down at once: time-weighted quantiles;
* dispersion: variance ÷ mean of daily counts; lemons: share of faults on the worst nodes.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from clustersim.faults.fit.families import Array
from clustersim.faults.fit.log import FaultLog

DAY = 86400.0


@dataclass(frozen=True)
class Description:
    """Figures of one log; shares are fractions, ``down_*`` are nodes. Null where undefined."""

    faults: int
    nodes_with_fault: int
    per_1000_node_days: float
    recurrence: float | None
    recurrence_independent: float
    cooccurrence: float | None
    cooccurrence_independent: float
    down_mean: float
    down_variance: float
    down_p50: float
    down_p90: float
    down_p99: float
    daily_dispersion: float | None
    top_5pct_share: float | None

    def row(self) -> dict[str, float | int | None]:
        """As plain data."""
        return asdict(self)


def describe(log: FaultLog, *, recurrence_s: float = 7 * DAY, together_s: float = 600.0) -> Description:
    """All figures of a log.

    The two ``*_independent`` figures are what a Poisson process of the same rate, the same for all nodes, would give.
    """
    rate = len(log) / log.window_s
    p50, p90, p99 = down_quantiles(log, (0.5, 0.9, 0.99))
    mean, variance = down_moments(log)
    per_node = np.bincount(log.node, minlength=len(log.nodes))
    return Description(
        faults=len(log),
        nodes_with_fault=int((per_node > 0).sum()),
        per_1000_node_days=rate * DAY * 1000 / log.population,
        recurrence=recurrence(log, recurrence_s),
        recurrence_independent=-math.expm1(-rate / log.population * recurrence_s),
        cooccurrence=cooccurrence(log, together_s),
        cooccurrence_independent=-math.expm1(-2 * rate * together_s),
        down_mean=mean,
        down_variance=variance,
        down_p50=p50,
        down_p90=p90,
        down_p99=p99,
        daily_dispersion=daily_dispersion(log),
        top_5pct_share=top_share(log, 0.05),
    )


def gaps_after_repair(log: FaultLog) -> tuple[Array, np.ndarray, np.ndarray]:
    """Up time of a node from each repair to its next fault.

    Returns:
        ``(gap_s, observed, index)`` with one entry for every fault whose repair was seen: the up time in seconds (to the
        window's end where no fault followed), whether a fault followed, and the index of that fault (-1 if none).
        A fault during another's down time has a gap of 0.
    """
    if not len(log):
        return np.empty(0), np.empty(0, dtype=bool), np.empty(0, dtype=np.int64)
    order = np.lexsort((log.start_s, log.node))
    after = np.append(order[1:], -1)
    follows = np.append(log.node[order[1:]] == log.node[order[:-1]], False)[: len(order)]
    ends = log.end_s[order]
    until = np.where(follows, log.start_s[after], log.window_s)
    seen = follows | (ends <= log.window_s)
    return np.maximum(until - ends, 0.0)[seen], follows[seen], np.where(follows, after, -1)[seen]


def recurrence(log: FaultLog, within_s: float = 7 * DAY) -> float | None:
    """Share of repairs that are followed by a fault of the same node within ``within_s``; null without a repair."""
    gaps, observed, _ = gaps_after_repair(log)
    return float((observed & (gaps <= within_s)).mean()) if len(gaps) else None


def cooccurrence(log: FaultLog, within_s: float = 600.0) -> float | None:
    """Share of faults that start within ``within_s`` of a fault of another node; null without a fault."""
    if not len(log):
        return None
    low = np.searchsorted(log.start_s, log.start_s - within_s, side="left")
    high = np.searchsorted(log.start_s, log.start_s + within_s, side="right")
    runs = np.flatnonzero(np.diff(log.node)) + 1  # a run is of faults of one node in a row: others lie before and behind it
    run = np.searchsorted(runs, np.arange(len(log)), side="right")
    first, last = np.concatenate([[0], runs])[run], np.concatenate([runs, [len(log)]])[run]
    return float(((first > low) | (last < high)).mean())


def down_profile(log: FaultLog) -> tuple[Array, np.ndarray]:
    """Nodes down over time: ``(lengths_s, counts)`` of the stretches between changes; a node counts once at a time."""
    begins, ends = merged_down(log)
    times = np.concatenate([begins, ends])
    steps = np.concatenate([np.ones(len(begins)), -np.ones(len(ends))])
    order = np.argsort(times, kind="stable")
    edges = np.concatenate([[0.0], times[order], [log.window_s]])
    return np.diff(edges), np.concatenate([[0], np.cumsum(steps[order])]).astype(np.int64)


def merged_down(log: FaultLog) -> tuple[Array, Array]:
    """Begins and ends of the down times, those of one node that touch or overlap made one; cut at the window."""
    if not len(log):
        return np.empty(0), np.empty(0)
    order = np.lexsort((log.start_s, log.node))
    start, end = log.start_s[order], np.minimum(log.end_s, log.window_s)[order]
    apart = log.node[order] * (2 * log.window_s)  # one node after the other on one axis
    latest = np.maximum.accumulate(end + apart)
    which = np.maximum.accumulate(np.where(end + apart >= latest, np.arange(len(end)), 0))
    opens = np.concatenate([[True], (start + apart)[1:] > latest[:-1]])
    return start[opens], end[which[np.concatenate([opens[1:], [True]])]]


def down_quantiles(log: FaultLog, levels: tuple[float, ...]) -> tuple[float, ...]:
    """Time-weighted quantiles of the number of nodes down: the smallest count that the share of time is at or below."""
    lengths, down = down_profile(log)
    share = np.bincount(down, weights=lengths) / lengths.sum()
    total = np.cumsum(share)
    return tuple(float(np.searchsorted(total, level * (1 - 1e-12))) for level in levels)


def down_moments(log: FaultLog) -> tuple[float, float]:
    """Time-weighted mean and variance of the number of nodes down."""
    lengths, down = down_profile(log)
    weight = lengths / lengths.sum()
    mean = float((weight * down).sum())
    return mean, float((weight * (down - mean) ** 2).sum())


def daily_dispersion(log: FaultLog) -> float | None:
    """Variance ÷ mean of faults a day (1 for a Poisson process); null for windows under two days."""
    days = int(log.window_s // DAY)
    if days < 2 or not len(log):
        return None
    daily = np.bincount((log.start_s // DAY).astype(np.int64), minlength=days)[:days]
    return float(daily.var() / daily.mean()) if daily.mean() > 0 else None


def top_share(log: FaultLog, share: float) -> float | None:
    """Share of the faults that fell on the worst ``share`` of all nodes; null without a fault."""
    if not len(log):
        return None
    per_node = np.sort(np.bincount(log.node, minlength=log.population))[::-1]
    return float(per_node[: max(1, round(share * log.population))].sum() / len(log))


def lemons(log: FaultLog, *, worst: int = 10) -> list[tuple[str, int, float]]:
    """The worst nodes: ``(name, faults, p)`` with p the chance of so many on the worst of equal nodes.

    ``p`` is that of the largest of ``population`` Poisson counts with the fleet's mean reaching the node's count; small
    values say that the node is no ordinary one.
    """
    from scipy.stats import poisson

    per_node = np.bincount(log.node, minlength=len(log.nodes))
    mean = len(log) / log.population
    order = sorted(range(len(log.nodes)), key=lambda index: (-per_node[index], log.nodes[index]))[:worst]
    chance = [-math.expm1(log.population * math.log1p(-min(poisson.sf(per_node[i] - 1, mean), 1 - 1e-16))) for i in order]
    return [(log.nodes[i], int(per_node[i]), float(p)) for i, p in zip(order, chance, strict=True)]
