"""GEMINI: a copy in the memory of a group of nodes at every save, sent in the gaps of training's own traffic."""

from __future__ import annotations

from clustersim.checkpoint.engine import SaveSite, Transfer
from clustersim.checkpoint.interval import Interval, Steps
from clustersim.checkpoint.memory import MemoryEngine
from clustersim.checkpoint.tiers import Tier


class Gemini(MemoryEngine, kind="gemini", aliases=("in-memory",)):
    """Every node keeps its part of the state in its own host memory and in that of ``copies`` − 1 others of its group.

    Wang et al., SOSP 2023: copies are cut into pieces that fit the idle times of the network, so that training does not
    stand still while they do; uploads to shared storage are rare. ``interleave: false`` makes training wait for copies.
    """

    interval: Interval = Steps(steps=1)
    interleave: bool = True

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """Copies to the owner's and to other nodes' memory, and at times an upload."""
        copy = self.copy_s(site)
        if self.stall is not None:
            own = Transfer(True, self.stall, self.size(site), tier=Tier.HOST, via="copy-engine")
            return own, *self.sent(site), *self.persisted(site)
        if not self.interleave:
            straight = self.size(site) / site.cluster.nodes * (self.copies - 1) / site.cluster.node.network_bandwidth
            plan = Transfer(True, self.plan_s(site) + copy, self.size(site), tier=Tier.HOST, via="copy-engine")
            return plan, *self.sent(site, straight, blocking=True), *self.persisted(site)
        own = Transfer(False, copy, self.size(site), tier=Tier.HOST, via="copy-engine")
        plan_s = self.plan_s(site)
        planned = (Transfer(True, plan_s),) if plan_s else ()
        return *planned, own, *self.sent(site), *self.persisted(site)
