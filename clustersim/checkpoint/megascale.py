"""MegaScale: two stages, host memory then HDFS; one reader a data-parallel group, then a broadcast."""

from __future__ import annotations

from clustersim.checkpoint.engine import CheckpointEngine, Restore, SaveSite, Transfer
from clustersim.checkpoint.tiers import Tier


class MegaScale(CheckpointEngine, kind="megascale", aliases=("two-stage",)):
    """Training stands still while each GPU copies its part to host memory (seconds); another process of the node writes
    it to shared storage in the background. One worker of each data-parallel group reads it back and broadcasts.

    Jiang et al., NSDI 2024 (arXiv 2402.15627).
    """

    restore: Restore = "broadcast"

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """A blocking copy to host memory, which outlives the trainer, then the upload."""
        copy = self.plan_s(site) + self.copy_s(site)
        return Transfer(True, copy, self.size(site), tier=Tier.HOST, via="copy-engine"), self.upload(site)

    def host_memory(self, site: SaveSite) -> float:
        """The staged copies, and the one that is being made."""
        return (self.depth(site) + 1) * self.size(site) / site.cluster.nodes
