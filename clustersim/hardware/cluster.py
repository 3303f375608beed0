"""The cluster that a job runs on."""

from __future__ import annotations

import math

from pydantic import Field

from clustersim.hardware.network import FatTree, Network
from clustersim.hardware.node import Node
from clustersim.hardware.storage import Storage
from clustersim.part import Block

MOST_NODES = 1_000_000
"""Nodes of a job, and spares beside it: more is a slip of the pen, and every node has a state of its own in a run."""


class Cluster(Block):
    """``nodes`` that the job holds and ``spare_nodes`` that wait, powered, to be swapped in."""

    nodes: int = Field(gt=0, le=MOST_NODES)
    spare_nodes: int = Field(default=0, ge=0, le=MOST_NODES)
    node: Node
    network: Network = FatTree()
    storage: Storage
    nodes_per_rack: int = Field(default=4, gt=0)

    @property
    def gpus(self) -> int:
        """GPUs of the job's nodes."""
        return self.nodes * self.node.gpus

    @property
    def racks(self) -> int:
        """Racks that the job's nodes fill: ⌈nodes ÷ nodes_per_rack⌉."""
        return math.ceil(self.nodes / self.nodes_per_rack)
