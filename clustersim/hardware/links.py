"""Links shared by several flows: max-min fair rates, and the times at which flows end.

A flow crosses one or more links and may have a rate limit of its own. Rates are max-min fair: no flow can gain without
taking from one that has no more. When a flow ends, the others share what it leaves.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple


class Flow(NamedTuple):
    """``size`` bytes over ``links``, from ``start`` on, at most ``limit`` bytes/s."""

    size: float
    links: tuple[Hashable, ...]
    start: float = 0.0
    limit: float = math.inf


def fair_rates(flows: Sequence[tuple[tuple[Hashable, ...], float]], capacity: Mapping[Hashable, float]) -> list[float]:
    """Max-min fair rates, bytes/s, of ``(links, limit)`` under the links' capacities (progressive filling).

    Raises:
        ValueError: for a flow without link and limit (it would be infinitely fast), or an unknown link.
    """
    rates = [0.0] * len(flows)
    left = dict(capacity)
    active = set(range(len(flows)))
    for links, limit in flows:
        if not links and math.isinf(limit):
            raise ValueError("a flow needs a link or a limit")
        if any(link not in left for link in links):
            raise ValueError(f"a flow uses a link without capacity: {links}")
    while active:
        count: dict[Hashable, int] = {}
        for i in active:
            for link in flows[i][0]:
                count[link] = count.get(link, 0) + 1
        step = min(left[link] / n for link, n in count.items()) if count else math.inf
        step = max(0.0, min(step, min(flows[i][1] - rates[i] for i in active)))
        for i in active:
            rates[i] += step
        for link, n in count.items():
            left[link] -= step * n
        full = {link for link in count if left[link] <= 1e-12 * capacity[link]}
        done = {i for i in active if rates[i] >= flows[i][1] * (1 - 1e-12) or full.intersection(flows[i][0])}
        active -= done or active  # rounding may leave nobody exactly full: then this step was the last
    return rates


def finish_times(flows: Sequence[Flow], capacity: Mapping[Hashable, float]) -> list[float]:
    """Seconds at which each flow ends when all share the links max-min fairly (fluid model).

    A link's work is conserved: it never idles while a flow that could use it waits.
    """
    left = [flow.size for flow in flows]
    end = [flow.start if flow.size <= 0 else math.inf for flow in flows]
    now = min((flow.start for flow in flows), default=0.0)
    while any(math.isinf(time) for time in end):
        live = [i for i, flow in enumerate(flows) if math.isinf(end[i]) and flow.start <= now]
        coming = min(
            (flow.start for i, flow in enumerate(flows) if math.isinf(end[i]) and flow.start > now), default=math.inf
        )
        rates = fair_rates([(flows[i].links, flows[i].limit) for i in live], capacity)
        if live and math.isinf(coming) and not any(rates):
            raise ValueError("flows on links without capacity never end")
        until = min([coming, *(now + left[i] / rate for i, rate in zip(live, rates, strict=True) if rate > 0)])
        for i, rate in zip(live, rates, strict=True):
            left[i] -= rate * (until - now)
            if left[i] <= 1e-9 * flows[i].size:
                end[i] = until
        now = until
    return end


def slowdown(own: float, other: float) -> float:
    """Factor on a transfer that needs ``own`` seconds alone while another that needs ``other`` seconds shares its
    link fairly.

    Both start together: while both run each has half the rate, so the shorter takes twice its time.
    """
    if own <= 0 or other <= 0:
        return 1.0
    return 2.0 if own <= other else (own + other) / own
