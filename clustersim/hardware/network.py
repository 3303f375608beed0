"""The network between nodes: kinds of topology, each with its tiers."""

from __future__ import annotations

from pydantic import Field

from clustersim.part import Part
from clustersim.units import Seconds


class Network(Part, family="network", folder="networks"):
    """How nodes reach each other. A kind says how many GPUs share which bandwidth at which distance."""

    latency: Seconds = 5e-6
    """One message between two nodes of one pod, software included."""
    efficiency: float = Field(default=0.88, gt=0, le=1)
    """Share of the NIC's rate that large messages reach."""
    congestion: float = Field(default=1.0, ge=1)
    """Factor on transfer times where flows collide (RoCE without adaptive routing: 1.2 to 2)."""
    in_network_reduction: bool = False
    """SHARP in the switches."""

    def oversubscription_at(self, gpus: int, node_gpus: int) -> float:
        """Factor by which a group spread over ``gpus`` consecutive GPUs finds its bandwidth shared, at least 1."""
        return 1.0


class FatTree(Network, kind="fat-tree"):
    """A folded Clos: full bisection inside a pod, ``oversubscription`` : 1 between pods."""

    pod_gpus: int | None = Field(default=None, gt=0)
    oversubscription: float = Field(default=1.0, ge=1)

    def oversubscription_at(self, gpus: int, node_gpus: int) -> float:
        return self.oversubscription if self.pod_gpus is not None and gpus > self.pod_gpus else 1.0


class RailOptimized(Network, kind="rail-optimized"):
    """One leaf switch a NIC index: rank i of every node is one hop away; across rails one more (or NVLink first)."""

    rail_nodes: int | None = Field(default=None, gt=0)
    oversubscription: float = Field(default=1.0, ge=1)

    def oversubscription_at(self, gpus: int, node_gpus: int) -> float:
        beyond = self.rail_nodes is not None and gpus > self.rail_nodes * node_gpus
        return self.oversubscription if beyond else 1.0


class Dragonfly(Network, kind="dragonfly"):
    """Groups of all-to-all connected routers, thin links between groups (Cray Aries, Slingshot)."""

    group_gpus: int = Field(default=384, gt=0)
    oversubscription: float = Field(default=2.0, ge=1)

    def oversubscription_at(self, gpus: int, node_gpus: int) -> float:
        return self.oversubscription if gpus > self.group_gpus else 1.0


class Torus(Network, kind="torus"):
    """A torus of ``dims`` (nodes along each axis); rings along an axis are free of contention."""

    dims: tuple[int, ...] = (16, 16, 16)

    def oversubscription_at(self, gpus: int, node_gpus: int) -> float:
        nodes = max(1, gpus // node_gpus)
        return 1.0 if nodes <= max(self.dims) else len(self.dims) / 2
