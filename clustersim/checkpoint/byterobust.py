"""ByteRobust: every step in memory, copies outside the owner's parallel groups, all of it beside training."""

from __future__ import annotations

from typing import Literal

from clustersim.checkpoint.engine import SaveSite, Transfer
from clustersim.checkpoint.interval import Interval, Steps
from clustersim.checkpoint.memory import MemoryEngine
from clustersim.checkpoint.placement import Placement, Ring
from clustersim.checkpoint.tiers import Tier
from clustersim.units import Seconds


class ByteRobust(MemoryEngine, kind="byterobust"):
    """At every step each rank copies its part to its host memory and to a node outside of its tensor-, pipeline- and
    data-parallel groups, beside the next forward and backward pass; uploads are rare.

    Wan et al., SOSP 2025 (arXiv 2509.16293). The default launch of 0.02 s is the smallest stall of their table 8.
    """

    interval: Interval = Steps(steps=1)
    placed: Literal["group", "ring"] = "ring"
    planning: Seconds = 0.02

    def placement(self, site: SaveSite) -> Placement | None:
        """The part of a node lies half the job away: outside of its pipeline, and of its rack and domain; in a job of one node,
        on that node, with which it is gone."""
        return Ring(self.copies, max(1, site.cluster.nodes // self.copies))

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """What the next step does not hide, then copies in host memory."""
        copy = self.copy_s(site)
        stall = self.stall if self.stall is not None else self.plan_s(site) + self.exposed_s(site, copy)
        rest = max(0.0, copy - stall)
        hidden = self.size(site) * rest / copy if copy > 0 else 0.0
        begun = Transfer(True, stall, self.size(site) - hidden, via="copy-engine")
        own = Transfer(False, rest, hidden, tier=Tier.HOST, via="copy-engine")
        return begun, own, *self.sent(site), *self.persisted(site)
