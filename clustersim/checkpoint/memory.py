"""Base of engines that keep copies in host memory, their own and other nodes', and upload some of them."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from clustersim.checkpoint.engine import CheckpointEngine, Often, SaveSite, Transfer
from clustersim.checkpoint.placement import Group, Placement, Ring
from clustersim.checkpoint.tiers import Tier
from clustersim.units import Seconds


class MemoryEngine(CheckpointEngine):
    """Copies in host memory at every save; every ``persist_every``-th goes to shared storage too."""

    copies: int = Field(default=2, gt=0)
    """Copies in host memory, the owner's own one counted."""
    placed: Literal["group", "ring"] = "group"
    """``group``: nodes hold each other's parts in groups; ``ring``: the next nodes in order hold a part."""
    stride: int = Field(default=1, gt=0)
    """Of a ring: how far apart holders are (1: neighbours; more than a rack or NVLink domain: outside of it)."""
    persist_every: Often | None = None
    """Saves from one upload to the next; null: never."""
    stall: Seconds | None = None
    """How long training stands still; null: what follows from bytes and bandwidths."""

    def placement(self, site: SaveSite) -> Placement | None:
        """Where the parts of each node lie."""
        if self.copies < 2:
            return None
        return Group(self.copies) if self.placed == "group" else Ring(self.copies, self.stride)

    def sent_s(self, site: SaveSite) -> float:
        """Seconds in which every node sends its part to those that hold it."""
        return self.network_s(site, self.size(site) / site.cluster.nodes * (self.copies - 1))

    def sent(self, site: SaveSite, seconds: float | None = None, blocking: bool = False) -> tuple[Transfer, ...]:
        """The transfer to other nodes' memory, where there is one."""
        if self.copies < 2:
            return ()
        size = self.size(site) * (self.copies - 1)
        seconds = self.sent_s(site) if seconds is None else seconds
        return (Transfer(blocking, seconds, size, tier=Tier.PEER, via="network"),)

    def persisted(self, site: SaveSite) -> tuple[Transfer, ...]:
        """The upload from host memory, beside training and later saves."""
        every = self.uploads_every(site)
        return () if every is None else (self.upload(site, every=every, beside=True),)

    def uploads_every(self, site: SaveSite) -> int | None:
        """Saves from one upload to the next; at least so many that an upload has ended before the next begins."""
        if self.persist_every is None:
            return None
        each = self.interval.about_s(site.step.seconds) or site.interval_s
        if not each:
            return self.persist_every
        upload, node = self.upload(site), site.cluster
        takes = upload.seconds + node.storage.alone_s(upload.bytes, "write", node.nodes, upload.per_client or math.inf)
        return max(self.persist_every, math.ceil(takes / each))

    def host_memory(self, site: SaveSite) -> float:
        """``copies`` complete copies and one that is being made (so that the last one stays whole meanwhile)."""
        return (self.copies + 1) * self.size(site) / site.cluster.nodes
