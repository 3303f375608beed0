"""A node: GPUs, the links between them, NICs, host memory and local disks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from clustersim.hardware.gpu import Gpu
from clustersim.part import Block, PresetModel
from clustersim.units import Bytes, PositiveBytesPerSecond, Seconds


class IntraNode(Block):
    """How the GPUs of a node (or of one NVLink domain) reach each other."""

    kind: Literal["nvswitch", "nvlink-mesh", "pcie", "xgmi"] = "nvswitch"
    bandwidth_per_direction: PositiveBytesPerSecond | None = None
    """One GPU, one direction; default: the GPU's own link."""
    latency: Seconds = 3e-6
    in_network_reduction: bool = False
    """NVLink SHARP (NVLS): the switch adds up an all-reduce."""
    domain_gpus: int | None = Field(default=None, gt=0)
    """GPUs of one fast domain; default: the GPUs of a node (72 for NVL72 racks)."""


class Node(PresetModel, folder="nodes"):
    """One host: ``gpus`` of one type, ``nics`` network cards of ``nic_bandwidth`` each (one direction)."""

    name: str = ""
    gpu: Gpu
    gpus: int = Field(default=8, gt=0)
    intra_node: IntraNode = IntraNode()
    nics: int = Field(default=8, gt=0)
    nic_bandwidth: PositiveBytesPerSecond
    host_memory: Bytes = 2.0 * 2**40
    pinned_bandwidth_per_gpu: PositiveBytesPerSecond | None = None
    """Device-to-host copy of one GPU into pinned memory; default: 0.85 of its PCIe bandwidth."""
    host_memory_bandwidth: PositiveBytesPerSecond | None = None
    """What copies to, from and within host memory share; null: no limit."""
    local_disk_write: PositiveBytesPerSecond = 4e9
    local_disk_read: PositiveBytesPerSecond = 8e9
    cpu_cores: int = Field(default=96, gt=0)

    @property
    def network_bandwidth(self) -> float:
        """All NICs of the node together, one direction, bytes/s."""
        return self.nics * self.nic_bandwidth

    @property
    def link_bandwidth(self) -> float:
        """One GPU to its neighbours in the node, one direction, bytes/s."""
        return self.intra_node.bandwidth_per_direction or self.gpu.link_bandwidth_per_direction

    @property
    def device_to_host(self) -> float:
        """One GPU to pinned host memory, bytes/s."""
        return self.pinned_bandwidth_per_gpu or 0.85 * self.gpu.pcie_bandwidth_per_direction
