"""Synchronous saves."""

from __future__ import annotations

from clustersim.checkpoint.engine import CheckpointEngine, SaveSite, Transfer
from clustersim.checkpoint.tiers import Tier
from clustersim.units import Seconds


class Sync(CheckpointEngine, kind="sync"):
    """Training stands still until the state is durable on shared storage."""

    stall: Seconds | None = None
    """How long a save takes; null: planning, copies to host memory, then bytes ÷ the bandwidth of shared storage."""

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """Planning, then one blocking transfer to shared storage (each part goes out as it is copied)."""
        if self.stall is not None:
            return (Transfer(True, self.stall, tier=Tier.SHARED),)
        plan = self.plan_s(site)
        planned = (Transfer(True, plan),) if plan else ()
        return (*planned, self.upload(site, blocking=True))
