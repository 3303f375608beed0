"""Synchronous saves."""

from __future__ import annotations

from clustersim.checkpoint.engine import CheckpointEngine, SaveSite, Transfer
from clustersim.checkpoint.tiers import Tier
from clustersim.units import Seconds


class Sync(CheckpointEngine, kind="sync"):
    """Training stands still until the state is durable on shared storage."""

    stall: Seconds | None = None
    """How long a save takes; null: bytes ÷ the bandwidth of shared storage."""

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """One blocking transfer to shared storage."""
        if self.stall is not None:
            return (Transfer(True, self.stall, tier=Tier.SHARED),)
        return (Transfer(True, site.cluster.storage.latency, site.state.total, "storage", Tier.SHARED),)
