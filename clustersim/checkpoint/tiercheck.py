"""TierCheck: frequent differential copies in local and peer memory, full ones migrated to storage in the background."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field

from clustersim.checkpoint.engine import Load, Often, SaveSite, Transfer
from clustersim.checkpoint.memory import MemoryEngine
from clustersim.checkpoint.tiers import Tier


class TierCheck(MemoryEngine, kind="tiercheck"):
    """A save keeps a compressed difference to the last base in host and peer memory; every ``persist_every``-th save
    makes a new base, which moves to shared storage beside training. A restore replays differences on the base.

    Han et al. 2026 (arXiv 2605.17821). Replay is not bitwise exact, which a run does not tell.
    """

    difference: float = Field(default=0.1, gt=0, le=1)
    """Bytes of a difference ÷ bytes of the state (assumed; the paper's ratios were not seen)."""
    persist_every: Often | None = 20

    def size(self, site: SaveSite) -> float:
        """Bytes of a difference."""
        return super().size(site) * self.difference

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """A blocking copy of the difference, its copies, and at times a base to shared storage."""
        every = self.uploads_every(site) or 1
        stall = self.stall if self.stall is not None else self.plan_s(site) + self.copy_s(site)
        steps = [Transfer(True, stall, self.size(site), tier=Tier.HOST, via="copy-engine")]
        base = super().size(site)
        if self.persist_every is not None:
            rest = base - self.size(site)
            steps.append(Transfer(True, self.copy_s(site, rest), rest, every=every, via="copy-engine"))
        return *steps, *self.sent(site), *self.persisted(site)

    def upload(self, site: SaveSite, blocking: bool = False, **keys: Any) -> Transfer:
        """The whole base goes to storage."""
        return replace(super().upload(site, blocking, **keys), bytes=super().size(site))

    def load_near(self, site: SaveSite, tier: Tier) -> Load:
        """The base and, on average, half of the differences since."""
        behind = (self.persist_every or 1) / 2 * self.difference
        return Load(super().load_near(site, tier).seconds * (1 + behind))

    def host_memory(self, site: SaveSite) -> float:
        """A base and its differences, own and others'."""
        kept = 1 + (self.persist_every or 1) * self.difference
        return self.copies * kept * super().size(site) / site.cluster.nodes
