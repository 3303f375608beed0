"""TRANSOM's checkpoint engine: a cache in each node's memory, a ring of backups, asynchronous persistence."""

from __future__ import annotations

from typing import Literal

from clustersim.checkpoint.engine import Often, SaveSite, Transfer
from clustersim.checkpoint.memory import MemoryEngine
from clustersim.checkpoint.tiers import Tier


class Transom(MemoryEngine, kind="transom"):
    """Training stands still for the copy into the node's cache; a backup goes to the next node of a ring and the upload
    to shared storage, both in the background.

    Wu et al. 2023 (arXiv 2310.10046), transom-checkpoint-engine. The cache belongs to a server process of the node: it
    survives the trainer's. A rescheduled node pulls its part back from its backup.
    """

    placed: Literal["group", "ring"] = "ring"
    persist_every: Often | None = 1

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """A blocking copy to the cache, then backup and upload."""
        stall = self.stall if self.stall is not None else self.plan_s(site) + self.copy_s(site)
        cached = Transfer(True, stall, self.size(site), tier=Tier.HOST, via="copy-engine")
        return cached, *self.sent(site), *self.persisted(site)
