"""Asynchronous saves in two stages: copy to host memory, then upload in the background."""

from __future__ import annotations

from clustersim.checkpoint.engine import CheckpointEngine, SaveSite, Transfer
from clustersim.checkpoint.tiers import Tier
from clustersim.units import Seconds


class Async(CheckpointEngine, kind="async", aliases=("dcp-async",)):
    """Training stands still for the copy to host memory; the write to shared storage runs in the background.

    Every GPU copies its even part of the de-duplicated state. A save that is cut off by a failure never counts. The
    staged copy lies in the trainer's own process (PyTorch DCP async_save), so it survives no failure.
    """

    stall: Seconds | None = None
    """How long training stands still; null: planning, then bytes ÷ the copy bandwidth of all GPUs."""
    persist: Seconds | None = None
    """From the end of the stall until the copy is durable; null: bytes ÷ the bandwidth of shared storage."""

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """A blocking copy to host memory, then a transfer to shared storage beside training."""
        stall = self.stall if self.stall is not None else self.plan_s(site) + self.copy_s(site)
        staged = Transfer(True, stall, self.size(site), via="copy-engine")
        if self.persist is not None:
            return staged, Transfer(False, self.persist, tier=Tier.SHARED)
        return staged, self.upload(site)

    def host_memory(self, site: SaveSite) -> float:
        """The staged copies."""
        return self.depth(site) * self.size(site) / site.cluster.nodes
