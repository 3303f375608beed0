"""The family of checkpoint engines: what is saved where, what stalls, and what survives which loss.

An engine says what one save consists of, as a sequence of ``Transfer``; the run executes it (``run/saver.py`` event by
event, ``checkpoint/pattern.py`` by arithmetic while nothing disturbs it), so that an engine needs no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from clustersim.checkpoint.interval import Auto, Interval
from clustersim.checkpoint.state import StateBytes
from clustersim.checkpoint.tiers import Tier
from clustersim.hardware.cluster import Cluster
from clustersim.part import Part


@dataclass(frozen=True)
class SaveSite:
    """What an engine may know when it plans a save: the bytes, and the cluster that they lie on."""

    state: StateBytes
    cluster: Cluster


@dataclass(frozen=True)
class Transfer:
    """One leg of a save.

    Attributes:
        blocking: training stands still meanwhile. Blocking transfers come first.
        seconds: how long it takes by itself (``channel`` local), or its latency (``channel`` storage).
        bytes: what it moves over all nodes.
        channel: ``storage``: a flow on shared storage at the bandwidth which that leaves; ``local``: a fixed time.
        tier: where a copy is durable once it has ended; None: nowhere yet.
    """

    blocking: bool
    seconds: float
    bytes: float = 0.0
    channel: Literal["storage", "local"] = "local"
    tier: Tier | None = None


@dataclass(frozen=True)
class Load:
    """Reading a state back: a fixed time, then a flow on shared storage.

    Attributes:
        seconds: fixed part.
        bytes: bytes read from storage.
        clients: nodes that read.
        per_client: bytes/s that each reader takes at most, beside the storage system's own limit; None: no limit.
    """

    seconds: float
    bytes: float = 0.0
    clients: int = 1
    per_client: float | None = None


class CheckpointEngine(Part, family="checkpoint engine", key="engine"):
    """How training state is saved and restored."""

    interval: Interval = Auto()
    restore: Literal["all-read", "broadcast", "peer"] = "all-read"
    """``all-read``: every rank reads its weights and its own optimizer shard; ``broadcast``: each byte is read once and
    sent on over the network; ``peer``: every node fetches its part from another node, none from storage."""
    final: bool = False
    """Save once more at the end of training, and wait for it."""
    when_busy: Literal["wait", "skip", "block"] = "wait"
    """A save that is due while one is in flight: starts at the first step's end after the other is durable; is left
    out; or makes training stand still until then."""
    slowdown: float = Field(default=1.0, ge=1)
    """Factor on the time of steps that start while a save is in flight."""

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """``engine`` names the kind in the scenario (``checkpoint: {engine: async, interval: 10 min}``)."""
        if isinstance(value, dict) and "engine" in value:
            engine = value["engine"]
            rest = {key: item for key, item in value.items() if key != "engine"}
            return {**rest, **engine} if isinstance(engine, dict) else {**rest, "kind": engine}
        return super().short_form(value)

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """What one save consists of; empty: this engine never saves."""
        return ()

    def load(self, site: SaveSite) -> Load:
        """What reading the newest copy back takes."""
        state, cluster = site.state, site.cluster
        latency = cluster.storage.latency
        if self.restore == "all-read":
            return Load(latency, state.read_by_all, cluster.nodes)
        if self.restore == "broadcast":
            readers = max(1, min(cluster.nodes, round(cluster.nodes / state.replicas)))
            return Load(latency, state.total, readers, cluster.node.network_bandwidth)
        return Load(latency + state.read_by_all / cluster.nodes / cluster.node.network_bandwidth)


class NoCheckpoint(CheckpointEngine, kind="none"):
    """Never saves: a failure starts the job from its beginning."""

    def load(self, site: SaveSite) -> Load:
        """Nothing: the state is initialised anew."""
        return Load(0.0)


__all__ = ["CheckpointEngine", "Load", "NoCheckpoint", "SaveSite", "Transfer"]
