"""The network between nodes: kinds of topology, each with its tiers of latency, bandwidth and oversubscription."""

from __future__ import annotations

import math
from typing import NamedTuple

from pydantic import Field

from clustersim.part import Part
from clustersim.units import Bytes, Seconds


class Tier(NamedTuple):
    """One distance in the network: groups of up to ``gpus`` consecutive GPUs stay within it."""

    name: str
    gpus: float
    """GPUs that the tier holds; infinite for the last."""
    hops: int
    """Switches that a message passes."""
    oversubscription: float
    """Bandwidth below ÷ bandwidth above, at least 1."""


class Network(Part, family="network", folder="networks", implied="fat-tree"):
    """How nodes reach each other. A kind says how many GPUs share which bandwidth at which distance."""

    latency: Seconds = 5e-6
    """One message between two nodes of one pod, software included."""
    efficiency: float = Field(default=0.88, gt=0, le=1)
    """Share of the NIC's rate that large messages reach."""
    congestion: float = Field(default=1.0, ge=1)
    """Factor on transfer times where flows collide (RoCE without adaptive routing: 1.2 to 2)."""
    scattered: bool = False
    """The job's nodes lie anywhere, so that neighbours in a ring are rarely in one pod: all traffic meets the
    oversubscription, instead of one message a pod."""
    in_network_reduction: bool = False
    """SHARP in the switches."""
    startup: Seconds = 50e-6
    """Fixed time of a collective that leaves a node: kernel, proxy threads, first handshake."""
    ramp_time: Seconds = 0.0
    """Time that a large collective needs beyond ``startup`` and bytes ÷ rate (protocol changes, filling the
    pipeline)."""
    ramp_bytes: Bytes = 2.0**20
    """Bytes a NIC at which half of ``ramp_time`` is reached."""

    def tiers(self, node_gpus: int) -> tuple[Tier, ...]:
        """Distances from the nearest to the farthest; ``node_gpus`` GPUs make a node."""
        return (Tier("network", math.inf, 1, 1.0),)

    def tier_of(self, gpus: int, node_gpus: int) -> Tier:
        """The smallest tier that holds ``gpus`` consecutive GPUs."""
        tiers = self.tiers(node_gpus)
        return next((tier for tier in tiers if gpus <= tier.gpus), tiers[-1])

    def oversubscription_at(self, gpus: int, node_gpus: int) -> float:
        """Factor by which a group spread over ``gpus`` consecutive GPUs finds its bandwidth shared, at least 1."""
        return self.tier_of(gpus, node_gpus).oversubscription

    def latency_at(self, gpus: int, node_gpus: int) -> float:
        """Seconds of one message across a group of ``gpus`` consecutive GPUs: ``latency``, and 0.5 µs a switch
        beyond the first.

        Half a microsecond is a cut-through switch (0.2 to 0.3 µs) and some tens of metres of fibre (5 ns a metre).
        """
        return self.latency + 0.5e-6 * (self.tier_of(gpus, node_gpus).hops - 1)


class FatTree(Network, kind="fat-tree"):
    """A folded Clos: full bisection inside a pod, ``oversubscription`` : 1 between pods."""

    pod_gpus: int | None = Field(default=None, gt=0)
    leaf_gpus: int | None = Field(default=None, gt=0)
    """GPUs under one leaf switch (one hop); default: a node's."""
    oversubscription: float = Field(default=1.0, ge=1)

    def tiers(self, node_gpus: int) -> tuple[Tier, ...]:
        leaf = Tier("leaf", float(self.leaf_gpus or node_gpus), 1, 1.0)
        if self.pod_gpus is None:
            return (leaf, Tier("spine", math.inf, 3, 1.0))
        return (leaf, Tier("pod", float(self.pod_gpus), 3, 1.0), Tier("core", math.inf, 5, self.oversubscription))


class RailOptimized(Network, kind="rail-optimized"):
    """One leaf switch a NIC index: rank i of every node is one hop away; across rails one more (or NVLink first)."""

    rail_nodes: int | None = Field(default=None, gt=0)
    """Nodes that a set of leaf switches (a scalable unit) serves; null: all of them."""
    oversubscription: float = Field(default=1.0, ge=1)

    def tiers(self, node_gpus: int) -> tuple[Tier, ...]:
        if self.rail_nodes is None:
            return (Tier("rail", math.inf, 1, 1.0),)
        rail = Tier("rail", float(self.rail_nodes * node_gpus), 1, 1.0)
        return (rail, Tier("spine", math.inf, 3, self.oversubscription))


class Dragonfly(Network, kind="dragonfly"):
    """Groups of all-to-all connected routers, thin links between groups (Cray Aries, Slingshot)."""

    group_gpus: int = Field(default=384, gt=0)
    oversubscription: float = Field(default=2.0, ge=1)

    def tiers(self, node_gpus: int) -> tuple[Tier, ...]:
        group = Tier("group", float(self.group_gpus), 2, 1.0)
        return (group, Tier("global", math.inf, 5, self.oversubscription))


class Torus(Network, kind="torus"):
    """A torus of ``dims`` (nodes along each axis); rings along an axis are free of contention."""

    dims: tuple[int, ...] = (16, 16, 16)

    def tiers(self, node_gpus: int) -> tuple[Tier, ...]:
        axis = Tier("axis", float(max(self.dims) * node_gpus), 1, 1.0)
        # A group over several axes keeps rings of neighbours, but all-to-all traffic crosses the bisection: on average
        # dims ÷ 2 links are shared by each flow of a dimension-ordered route.
        return (axis, Tier("torus", math.inf, max(1, max(self.dims) // 2), max(1.0, len(self.dims) / 2)))


class Mesh(Network, kind="mesh"):
    """A mesh of dies without wrap-around (wafer scale, chiplets): ``dims`` dies along each axis."""

    dims: tuple[int, ...] = (8, 8)
    latency: Seconds = 1e-6
    startup: Seconds = 5e-6

    def tiers(self, node_gpus: int) -> tuple[Tier, ...]:
        row = Tier("row", float(max(self.dims) * node_gpus), 1, 1.0)
        # Without wrap-around a ring is closed over the same links in the other direction, and the bisection is half
        # a torus's.
        return (row, Tier("mesh", math.inf, max(1, sum(self.dims) // 2), float(len(self.dims))))


class Ethernet(Network, kind="ethernet"):
    """Plain Ethernet with TCP between nodes: a long software path and no remote memory access."""

    latency: Seconds = 30e-6
    efficiency: float = Field(default=0.7, gt=0, le=1)
    startup: Seconds = 150e-6
    oversubscription: float = Field(default=1.0, ge=1)
    switch_gpus: int | None = Field(default=None, gt=0)

    def tiers(self, node_gpus: int) -> tuple[Tier, ...]:
        if self.switch_gpus is None:
            return (Tier("switch", math.inf, 1, 1.0),)
        return (Tier("switch", float(self.switch_gpus), 1, 1.0), Tier("core", math.inf, 3, self.oversubscription))
