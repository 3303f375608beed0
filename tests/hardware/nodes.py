"""Nodes that the hardware tests share, built by hand so that no preset's change moves them."""

from __future__ import annotations

from typing import Any

from clustersim.hardware.gpu import Gpu
from clustersim.hardware.node import IntraNode, Node

LINKS = {"v100-32g": 150e9, "a100-80g": 300e9, "h100-sxm": 450e9, "h200": 450e9, "b200": 900e9, "l20": 31.5e9}


def make_node(
    gpu: str = "h100-sxm", *, gpus: int = 8, nics: int = 8, gbps: float = 3200, nvls: bool = False, **intra: Any
) -> Node:
    """A node of ``gpus`` with ``gbps`` Gbit/s on ``nics`` cards."""
    card = Gpu(name=gpu, memory=80e9, memory_bandwidth=2e12, peak={"bf16": 312e12}, sms=108,
               link_bandwidth_per_direction=LINKS[gpu], pcie_bandwidth_per_direction=32e9, power=400)  # fmt: skip
    kind = "pcie" if gpu == "l20" else "nvswitch"
    inside = IntraNode(**{"kind": kind, "in_network_reduction": nvls, **intra})
    return Node(gpu=card, gpus=gpus, nics=nics, nic_bandwidth=gbps * 1e9 / 8 / nics, intra_node=inside)
