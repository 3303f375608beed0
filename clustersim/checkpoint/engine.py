"""The family of checkpoint engines: what is saved where, what stalls, and what survives which loss.

An engine says what one save consists of, as a sequence of ``Transfer``; the run executes it (``run/saver.py`` event by
event, ``checkpoint/pattern.py`` and ``played.py`` by arithmetic while nothing disturbs it), so that an engine needs no
clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from clustersim.checkpoint.interval import Auto, Interval
from clustersim.checkpoint.placement import Placement
from clustersim.checkpoint.state import StateBytes
from clustersim.checkpoint.tiers import Tier
from clustersim.faults.failure import Severity
from clustersim.hardware.cluster import Cluster
from clustersim.part import Part
from clustersim.units import Bytes, PositiveBytesPerSecond, Seconds

Resource = Literal["copy-engine", "host-memory", "network", "disk", "storage"]
"""What transfers cross: GPUs' copies to host memory, its bandwidth, the NICs of training, the local disks, shared storage."""

Restore = Literal["all-read", "broadcast", "peer", "reshard"]
"""How a copy comes back from shared storage, see ``CheckpointEngine.restore``."""

HOST_TO_DEVICE = 54.8 / 46.8
"""Copies to a GPU ÷ copies from it (H100 PCIe, https://github.com/aigatech/vpbenchmarking: 54.8 and 46.8 GB/s)."""


Often = Annotated[int, Field(gt=0, le=10_000)]
"""Every how many saves something happens. What repeats is played through once: 10,000 saves take seconds."""


@dataclass(frozen=True)
class StepShape:
    """What an engine may know of a step.

    Attributes:
        seconds: time of a step.
        update_s: the optimizer's part at its end, before which the state is not changed.
        network_s: time in which training uses the network between nodes.
    """

    seconds: float = 0.0
    update_s: float = 0.0
    network_s: float = 0.0


@dataclass(frozen=True)
class SaveSite:
    """What an engine may know when it plans a save: the bytes, and the cluster that they lie on."""

    state: StateBytes
    cluster: Cluster
    step: StepShape = StepShape()
    ranks_per_replica: int = 1
    """GPUs that hold one copy of the model (tp · pp)."""
    rates: Mapping[Severity, float] = field(default_factory=dict)
    """Failures a second by severity."""
    interval_s: float | None = None
    """Training time between saves, where it is known before a save is planned."""

    @property
    def per_gpu(self) -> float:
        """Bytes of the de-duplicated state that each GPU saves."""
        return self.state.total / self.cluster.gpus

    @property
    def per_node(self) -> float:
        """Bytes of the de-duplicated state that each node saves."""
        return self.state.total / self.cluster.nodes

    def rate(self, *severities: Severity) -> float:
        """Failures a second of these severities."""
        return math.fsum(self.rates.get(severity, 0.0) for severity in severities)


@dataclass(frozen=True)
class Transfer:
    """One leg of a save.

    Attributes:
        blocking: training stands still meanwhile. Blocking transfers come first.
        seconds: how long it takes by itself (``channel`` local), or its latency (``channel`` storage).
        bytes: what it moves over all nodes.
        channel: ``storage``: a flow on shared storage at the bandwidth which that leaves; ``local``: a fixed time.
        tier: where a copy is durable once it has ended; None: nowhere yet.
        every: it is part of every so many-th save only (each must divide the next larger).
        beside: it starts when training goes on, beside the rest, and holds no later save up.
        clients: nodes that write; None: all.
        per_client: bytes/s that each of them writes at most, beside the storage system's own limit.
        via: what the bytes cross; transfers that are under way together share it max–min fair.
        streams: the first transfer in the background flows from the start of the last blocking one on, and ``seconds`` is
            what it takes to finish when both have ended.
    """

    blocking: bool
    seconds: float
    bytes: float = 0.0
    channel: Literal["storage", "local"] = "local"
    tier: Tier | None = None
    every: int = 1
    beside: bool = False
    clients: int | None = None
    per_client: float | None = None
    via: Resource | tuple[Resource, ...] | Literal[""] = ""
    streams: bool = False

    @property
    def crosses(self) -> tuple[str, ...]:
        """All that the bytes cross: ``via``, and the host memory that everything passes through."""
        named: tuple[str, ...] = (self.via,) if isinstance(self.via, str) else self.via
        if not any(named):
            return ()
        return named if "host-memory" in named else (*named, "host-memory")


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

    @classmethod
    def joined(cls, loads: Sequence[Load]) -> Load:
        """One read after the other: the fixed times and the bytes add up, the last one's readers read them all."""
        last = max(loads, key=lambda load: load.bytes)
        return cls(math.fsum(load.seconds for load in loads), math.fsum(load.bytes for load in loads), last.clients,
                   last.per_client)  # fmt: skip


class CheckpointEngine(Part, family="checkpoint engine", key="engine"):
    """How training state is saved and restored."""

    interval: Interval = Auto()
    keep: int = Field(default=1, gt=0)
    """Copies that are kept on storage and disks: what to fall back to when the newest is unreadable."""
    failing: float = Field(default=0.0, ge=0, lt=1)
    """Probability that a save fails unnoticed or is given up: it never becomes durable."""
    corrupt: float = Field(default=0.0, ge=0, lt=1)
    """Probability that a copy is unreadable, found out only when it is loaded: the next older one is loaded then."""
    snapshots: int = Field(default=1, gt=0)
    """Saves that may be in flight at once: copies that the staging memory holds."""
    queued: bool = True
    """Of saves in flight the background parts go out one by one; false: at once, and share what they cross."""
    restore: Restore = "all-read"
    """``all-read``: every rank reads its weights and its own optimizer shard; ``broadcast``: each byte is read once and
    sent on over the network; ``peer``: every node fetches its part from another node, none from storage; ``reshard``: the
    layout has changed, so every node opens all files, reads an even part of the bytes, and sends on what others need."""
    final: bool = False
    """Save once more at the end of training, and wait for it."""
    when_busy: Literal["wait", "skip", "block"] = "wait"
    """A save that is due while one is in flight: starts at the first step's end after the other is durable; is left
    out; or makes training stand still until then."""
    slowdown: float = Field(default=1.0, ge=1, le=1e6)
    """Factor on the time of steps that start while a save is in flight: what the resources of the model do not tell
    (interpreter locks, unpinned memory)."""
    content: Literal["all", "weights"] = "all"
    """``weights``: the optimizer's state is not saved, and starts anew after a restore."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of the bytes that a save writes: quantised, sparse, differential, or some layers of each save."""
    deduplicate: bool = True
    """Each byte is saved once; false: every data-parallel replica writes the weights that it holds."""
    planning: Seconds = 0.0
    """Training stands still to plan a save, collect tensors and build headers; also for what a save's own thread does
    later under a lock that training's needs (Python's), which is by the tensor, not by the byte."""
    planning_per_rank: Seconds = 0.0
    """The part of it that grows with the number of ranks (a central plan)."""
    writer_bandwidth: PositiveBytesPerSecond | None = None
    """What one GPU's process writes to storage at most; null: no limit of its own."""
    reader_bandwidth: PositiveBytesPerSecond | None = None
    """What one GPU's process reads and unpacks from storage at most; null: no limit of its own."""
    uplink: Literal["own", "training"] = "own"
    """Which network carries uploads: one of its own, or the one of training, whose traffic is slower meanwhile."""
    files_per_gpu: int = Field(default=1, gt=0)
    straggler: Seconds = 0.0
    """By how much the slowest writer ends after all others: a save counts when its last file is there."""
    copy_bandwidth: PositiveBytesPerSecond | None = None
    """One GPU to host memory; null: the node's pinned copies."""
    staging: Bytes | None = None
    """Pinned host memory a node for copies on their way; null: room for ``snapshots``."""
    resident: Bytes = 0.0
    """Host memory a node that training itself holds."""
    watchdog: Seconds | None = None
    """The job is killed when a save stalls for longer; null: never."""

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

    # -- bytes and seconds that engines are made of

    def size(self, site: SaveSite) -> float:
        """Bytes of one save, over all nodes."""
        state = site.state
        if self.deduplicate:
            whole = state.total if self.content == "all" else state.weights
        else:
            whole = state.read_by_all if self.content == "all" else state.weights * state.replicas
        return whole * self.fraction

    def plan_s(self, site: SaveSite) -> float:
        """Seconds of planning before any byte moves."""
        return self.planning + self.planning_per_rank * site.cluster.gpus

    def copy_s(self, site: SaveSite, size: float | None = None) -> float:
        """Seconds in which every GPU copies its part of ``size`` bytes (null: a save) to host memory."""
        each = (self.size(site) if size is None else size) / site.cluster.gpus
        return each / self.copies_a_gpu(site)

    def copies_a_gpu(self, site: SaveSite) -> float:
        """Bytes/s of one GPU to host memory while all of its node copy."""
        node = site.cluster.node
        return min(self.copy_bandwidth or node.device_to_host, (node.host_memory_bandwidth or math.inf) / node.gpus)

    def capacities(self, site: SaveSite) -> dict[str, float]:
        """Bytes/s of a node's resources that saves may take beside training; inf: no end."""
        node = site.cluster.node
        return {
            "copy-engine": node.gpus * self.copies_a_gpu(site),
            "host-memory": node.host_memory_bandwidth or math.inf,
            "network": node.network_bandwidth * self.gaps(site),
            "disk": node.local_disk_write,
        }

    def gaps(self, site: SaveSite) -> float:
        """Share of the network's time that training leaves, at least 1 %."""
        busy = site.step.network_s / site.step.seconds if site.step.seconds > 0 else 0.0
        return max(1.0 - busy, 0.01)

    def exposed_s(self, site: SaveSite, copy_s: float) -> float:
        """What is left of a copy that runs beside the forward and backward pass when the update has to wait for it."""
        return max(0.0, copy_s - max(0.0, site.step.seconds - site.step.update_s))

    def network_s(self, site: SaveSite, size_per_node: float) -> float:
        """Seconds in which every node sends ``size_per_node`` bytes in the gaps that training leaves on its network."""
        return size_per_node / site.cluster.node.network_bandwidth / self.gaps(site)

    def upload(self, site: SaveSite, blocking: bool = False, **keys: Any) -> Transfer:
        """The transfer of a save to shared storage; ``keys``: of ``Transfer``."""
        storage, node = site.cluster.storage, site.cluster.node
        limit = None if self.writer_bandwidth is None else node.gpus * self.writer_bandwidth
        via: tuple[Resource, ...] = ("storage",)
        if self.uplink == "training":
            limit, via = min(limit or math.inf, node.network_bandwidth), ("network", "storage")
        opening = storage.opening_s(site.cluster.gpus * self.files_per_gpu) + self.straggler
        return Transfer(blocking, opening, self.size(site), "storage", Tier.SHARED, per_client=limit, via=via, **keys)

    def network_share(self, site: SaveSite) -> float:
        """Share of a node's training network that an upload takes while it runs."""
        if self.uplink == "own":
            return 0.0
        node, storage = site.cluster.node, site.cluster.storage
        limits = [storage.bandwidth("write") / site.cluster.nodes, node.network_bandwidth]
        if self.writer_bandwidth is not None:
            limits.append(node.gpus * self.writer_bandwidth)
        if storage.per_node_bandwidth is not None:
            limits.append(storage.per_node_bandwidth)
        return min(limits) / node.network_bandwidth

    def depth(self, site: SaveSite) -> int:
        """Saves that may be in flight at once: as many as the staging memory holds, at least one."""
        if self.staging is None:
            return self.snapshots
        return max(1, int(self.staging / max(1.0, self.size(site) / site.cluster.nodes)))

    def host_memory(self, site: SaveSite) -> float:
        """Bytes of host memory a node that this engine holds at most."""
        return 0.0

    def placement(self, site: SaveSite) -> Placement | None:
        """Where copies in other nodes' memory lie; None: this engine makes none."""
        return None

    def load(self, site: SaveSite, tier: Tier = Tier.SHARED) -> Load:
        """What reading a copy back from a tier takes."""
        return self.load_shared(site) if tier == Tier.SHARED else self.load_near(site, tier)

    def load_near(self, site: SaveSite, tier: Tier) -> Load:
        """What reading a copy back from host memory, a disk or other nodes takes.

        Every node copies its share of the state to its GPUs, whose replicas get theirs over the network; after the loss of
        a node its replacement first fetches its part.
        """
        cluster = site.cluster
        seconds = self.copy_s(site, site.state.total) / HOST_TO_DEVICE
        seconds += (site.state.read_by_all - site.state.total) / cluster.nodes / cluster.node.network_bandwidth
        if tier == Tier.DISK:
            seconds = max(seconds, site.per_node / cluster.node.local_disk_read)
        if tier in (Tier.PEER, Tier.REPLICA):
            seconds += site.per_node / cluster.node.network_bandwidth
        return Load(seconds)

    def load_shared(self, site: SaveSite) -> Load:
        """What reading the newest copy back from shared storage takes."""
        state, cluster, all_ = site.state, site.cluster, self.content == "all"
        latency, network = cluster.storage.latency, cluster.node.network_bandwidth
        once = state.total if all_ else state.weights
        by_all = state.read_by_all if all_ else min(state.read_by_all, state.weights * state.replicas)
        limit = None if self.reader_bandwidth is None else cluster.node.gpus * self.reader_bandwidth
        if self.restore == "all-read":
            return Load(latency, by_all, cluster.nodes, limit)
        if self.restore == "broadcast":
            readers = max(1, min(cluster.nodes, round(cluster.nodes / state.replicas)))
            return Load(latency, once, readers, network if limit is None else min(network, limit))
        if self.restore == "reshard":
            opening = latency * cluster.node.gpus * self.files_per_gpu  # one file after the other, nodes side by side
            return Load(opening + by_all / cluster.nodes / network, once, cluster.nodes, limit)
        return Load(latency + by_all / cluster.nodes / network)


class NoCheckpoint(CheckpointEngine, kind="none"):
    """Never saves: a failure starts the job from its beginning."""

    def load(self, site: SaveSite, tier: Tier = Tier.SHARED) -> Load:
        """Nothing: the state is initialised anew."""
        return Load(0.0)


__all__ = ["CheckpointEngine", "Load", "NoCheckpoint", "SaveSite", "StepShape", "Transfer"]
