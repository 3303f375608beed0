"""Several collectives at once: those that use the same links share them max-min fairly.

A collective is its latency (what an almost empty one takes) and a flow of what is left. Flows inside a domain share its
links, flows between domains its NICs; each alone would run at the rate that it has alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clustersim.hardware.collectives import Group, Op, collective_time
from clustersim.hardware.links import Flow, finish_times

EMPTY = 1.0
"""Bytes of an almost empty collective: its time is latency alone."""


class Collective(NamedTuple):
    """One collective that starts at ``start`` seconds."""

    op: Op
    size: float
    group: Group
    start: float = 0.0


def concurrent_times(collectives: Sequence[Collective]) -> list[float]:
    """Seconds at which each collective ends when all run on the same ranks' links.

    A link's capacity is 1: a flow alone takes all of it, two flows half each, and when one ends the other speeds up.
    """
    flows, delays = [], []
    for op, size, group, start in collectives:
        alone = collective_time(op, size, group)
        delay = min(alone, collective_time(op, min(size, EMPTY), group))
        link = "links" if group.domains == 1 else "nics"
        flows.append(Flow(alone - delay, (link,), start + delay, 1.0))
        delays.append(start + delay)
    ends = finish_times(flows, {"links": 1.0, "nics": 1.0})
    return [max(end, delay) for end, delay in zip(ends, delays, strict=True)]
