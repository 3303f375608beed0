"""The cluster that a job runs on."""

from __future__ import annotations

import math

from pydantic import Field, model_validator

from clustersim.distributions import Distribution
from clustersim.hardware.network import FatTree, Network
from clustersim.hardware.node import Node
from clustersim.hardware.storage import Storage
from clustersim.part import Block

MOST_NODES = 1_000_000
"""Nodes of a job, and spares beside it: more is a slip of the pen, and every node has a state of its own in a run."""


class Cluster(Block):
    """``nodes`` that the job holds, ``spare_nodes`` that wait, powered, to be swapped in, ``cold_spare_nodes`` that are off."""

    nodes: int = Field(gt=0, le=MOST_NODES)
    spare_nodes: int = Field(default=0, ge=0, le=MOST_NODES)
    cold_spare_nodes: int = Field(default=0, ge=0, le=MOST_NODES)
    """Further spares that are off: they do not fail, and take ``power_up`` before they can be placed. As many as
    ``spare_nodes`` are kept powered, and one for every vacant place; a node that comes back beyond those is switched off."""
    power_up: Distribution | None = None
    """From the switch to a node that has booted and passed its checks; needed with ``cold_spare_nodes``."""
    node: Node
    network: Network = FatTree()
    storage: Storage
    nodes_per_rack: int = Field(default=4, gt=0)

    @model_validator(mode="after")
    def _power_up_known(self) -> Cluster:
        if self.cold_spare_nodes and self.power_up is None:
            raise ValueError("'cold_spare_nodes' need a 'power_up': how long one takes to boot and to be checked")
        return self

    @property
    def all_spare_nodes(self) -> int:
        """Warm and cold spares."""
        return self.spare_nodes + self.cold_spare_nodes

    @property
    def gpus(self) -> int:
        """GPUs of the job's nodes."""
        return self.nodes * self.node.gpus

    @property
    def racks(self) -> int:
        """Racks that the job's nodes fill: ⌈nodes ÷ nodes_per_rack⌉."""
        return math.ceil(self.nodes / self.nodes_per_rack)
