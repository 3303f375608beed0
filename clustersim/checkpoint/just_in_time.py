"""Just-in-time checkpoints: nothing is saved before a failure; then healthy replicas save what the failed one held."""

from __future__ import annotations

from clustersim.checkpoint.engine import CheckpointEngine, Load, Often, SaveSite, Transfer
from clustersim.checkpoint.interval import Interval, Steps
from clustersim.checkpoint.placement import Placement, Replicas
from clustersim.checkpoint.tiers import Tier


class ReplicaEngine(CheckpointEngine):
    """Base of engines that live on the copies which data-parallel replicas hold: the state of the last step survives as
    long as one replica of every part does.

    Each part is taken to lie on as many nodes as there are replicas in different nodes; with one replica, or with an
    optimizer that ZeRO spreads over replicas, nothing survives the loss of a node.
    """

    interval: Interval = Steps(steps=1)
    base_every: Often | None = None
    """Steps from one full save (asynchronous, to shared storage) to the next; null: none."""

    def replicated(self, site: SaveSite) -> bool:
        """Whether every byte is held by at least two replicas."""
        return site.state.replicas > 1 and site.state.read_by_all >= site.state.total * site.state.replicas * 0.999

    def placement(self, site: SaveSite) -> Placement | None:
        """Nodes of the same place in all replicas."""
        gpus = site.cluster.node.gpus
        if site.ranks_per_replica < gpus:
            return Replicas(1, site.cluster.nodes)
        span = -(-site.ranks_per_replica // gpus)
        return Replicas(span, max(1, site.cluster.nodes // span))

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """Nothing that takes time at a step; at times a full save."""
        held = (Transfer(True, 0.0, tier=Tier.REPLICA),) if self.replicated(site) else ()
        if self.base_every is None:
            return held
        staged = Transfer(True, self.plan_s(site) + self.copy_s(site), self.size(site), every=self.base_every,
                          via="copy-engine")  # fmt: skip
        return *held, staged, self.upload(site, every=self.base_every, beside=True)

    def host_memory(self, site: SaveSite) -> float:
        """A copy while it is saved."""
        return self.size(site) / site.cluster.nodes


class JustInTime(ReplicaEngine, kind="just-in-time"):
    """After a failure a healthy replica saves its state to shared storage, and the whole job reads it back: at most the
    step under way is lost.

    Gupta et al., EuroSys 2024. Needs a second replica of every byte (no ZeRO across replicas).
    """

    def load_near(self, site: SaveSite, tier: Tier) -> Load:
        """Copy to host memory, write, then read as from any checkpoint."""
        read, storage, cluster = self.load_shared(site), site.cluster.storage, site.cluster
        writers = max(1, round(cluster.nodes / site.state.replicas))
        saved = self.copy_s(site, site.state.total * site.state.replicas) + storage.opening_s(cluster.gpus)
        saved += storage.alone_s(site.state.total, "write", writers)
        return Load(read.seconds + saved, read.bytes, read.clients, read.per_client)


class PeerRebuild(ReplicaEngine, kind="peer-rebuild"):
    """Nothing is ever saved: a replacement gets its state over the network from a healthy replica."""

    def load_near(self, site: SaveSite, tier: Tier) -> Load:
        """One node's part of a replica over the network, GPU to GPU."""
        held = site.state.read_by_all / site.cluster.nodes
        return Load(held / site.cluster.node.network_bandwidth)
