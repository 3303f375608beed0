"""Multi-level saves (SCR, VELOC): often to the node itself, less often to a partner, rarely to shared storage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from clustersim.checkpoint.engine import CheckpointEngine, Load, Often, SaveSite, Transfer
from clustersim.checkpoint.optimum import exact
from clustersim.checkpoint.placement import Placement, Ring
from clustersim.checkpoint.tiers import Tier, survives
from clustersim.units import Seconds


class MultiLevel(CheckpointEngine, kind="multi-level", aliases=("scr", "veloc")):
    """Every save goes to the node (memory or disk); every ``partner_every``-th also to a partner node; every
    ``flush_every``-th also to shared storage, while training waits (SCR) or in the background (VELOC).

    The best ``flush_every`` follows from first-order theory: k τ = √(2 C₂ ÷ λ₂), λ₂ the rate of failures that the node's
    own copy does not survive.
    """

    local: Literal["host", "disk"] = "host"
    local_stall: Seconds | None = None
    """What a save to the node stalls; null: copies to host memory, or to the disk."""
    local_restart: Seconds | None = None
    """What reading the node's own copy takes; null: from bytes and bandwidth."""
    partner_every: Often | None = None
    flush_every: Often | None = None
    """Saves from one on shared storage to the next, a multiple of ``partner_every``; null: the first-order optimum."""
    flush: Literal["blocking", "background"] = "background"
    flush_stall: Seconds | None = None
    """What a save to shared storage takes; null: bytes ÷ bandwidth."""
    flush_restart: Seconds | None = None

    @property
    def near(self) -> Tier:
        """The tier of the node's own copy."""
        return Tier.HOST if self.local == "host" else Tier.DISK

    def placement(self, site: SaveSite) -> Placement | None:
        """A partner half the job away; in a job of one node the node itself, with which the copy is gone."""
        return Ring(2, max(1, site.cluster.nodes // 2)) if self.partner_every else None

    def flushes_every(self, site: SaveSite) -> int:
        """Saves from one on shared storage to the next."""
        unit = self.partner_every or 1
        if self.flush_every is not None:
            return max(unit, self.flush_every // unit * unit)
        deep = site.rate(*(severity for severity in site.rates if not survives(self.near, severity)))
        every = site.rate(*site.rates)
        if deep == 0:
            return unit
        between = self.interval.about_s(site.step.seconds) or exact(self._near_s(site), 1 / every)
        best = math.sqrt(2 * self._flush_s(site) / deep)
        return max(1, round(best / max(between, site.step.seconds, 1e-9) / unit)) * unit

    def _near_s(self, site: SaveSite) -> float:
        if self.local_stall is not None:
            return self.local_stall
        copy = self.plan_s(site) + self.copy_s(site)
        if self.local == "host":
            return copy
        return max(copy, self.size(site) / site.cluster.nodes / site.cluster.node.local_disk_write)

    def _flush_s(self, site: SaveSite) -> float:
        if self.flush_stall is not None:
            return self.flush_stall
        upload, cluster = self.upload(site), site.cluster
        alone = cluster.storage.alone_s(upload.bytes, "write", cluster.nodes, upload.per_client or math.inf)
        return upload.seconds + alone

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """The node's own copy, and on its turn the partner's and that on shared storage."""
        every, blocking = self.flushes_every(site), self.flush == "blocking"
        via: Literal["copy-engine", "disk"] = "copy-engine" if self.local == "host" else "disk"
        levels = [Transfer(True, self._near_s(site), self.size(site), tier=self.near, via=via)]
        if self.partner_every:
            sent = self.network_s(site, self.size(site) / site.cluster.nodes)
            levels.append(
                Transfer(False, sent, self.size(site), tier=Tier.PEER, every=self.partner_every, via="network")
            )
        if self.flush_stall is not None:
            last = Transfer(
                blocking, self.flush_stall, tier=Tier.SHARED, every=every, beside=not blocking, via="storage"
            )
        else:
            last = self.upload(site, blocking, every=every, beside=not blocking)
        return whole_at_the_end((*levels, last))

    def load(self, site: SaveSite, tier: Tier = Tier.SHARED) -> Load:
        """The times given, else from bytes and bandwidth."""
        given = self.flush_restart if tier == Tier.SHARED else self.local_restart if tier == self.near else None
        return Load(given) if given is not None else super().load(site, tier)

    def host_memory(self, site: SaveSite) -> float:
        """Copies in memory, own and the partner's, and one that is being made."""
        kept = (2 if self.local == "host" else 1) + (1 if self.partner_every else 0)
        return kept * self.size(site) / site.cluster.nodes


def whole_at_the_end(levels: Sequence[Transfer]) -> tuple[Transfer, ...]:
    """Blocking levels first, whose copies count when training goes on: a save that is broken off has made none."""
    blocking = [level for level in levels if level.blocking]
    moves = [replace(level, tier=None) for level in blocking]
    counts = [Transfer(True, 0.0, tier=level.tier, every=level.every) for level in blocking]
    return *moves, *counts, *(level for level in levels if not level.blocking)
