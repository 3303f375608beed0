"""Asynchronous saves in two stages: copy to host memory, then upload in the background."""

from __future__ import annotations

from clustersim.checkpoint.engine import CheckpointEngine, SaveSite, Transfer
from clustersim.checkpoint.tiers import Tier
from clustersim.units import Seconds


class Async(CheckpointEngine, kind="async"):
    """Training stands still for the copy to host memory; the write to shared storage runs in the background.

    Every GPU copies its even part of the de-duplicated state. A save that is cut off by a failure never counts.
    """

    stall: Seconds | None = None
    """How long training stands still; null: bytes ÷ the copy bandwidth of all GPUs."""
    persist: Seconds | None = None
    """From the end of the stall until the copy is durable; null: bytes ÷ the bandwidth of shared storage."""

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """A blocking copy to host memory, then a transfer to shared storage beside training."""
        cluster, size = site.cluster, site.state.total
        stall = self.stall if self.stall is not None else size / (cluster.gpus * cluster.node.device_to_host)
        if self.persist is not None:
            return Transfer(True, stall), Transfer(False, self.persist, tier=Tier.SHARED)
        return Transfer(True, stall), Transfer(False, cluster.storage.latency, size, "storage", Tier.SHARED)
