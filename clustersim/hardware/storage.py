"""Shared storage: who may write and read how fast."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from clustersim.part import Part
from clustersim.units import PositiveBytesPerSecond, Seconds


class Storage(Part, family="storage", folder="storage"):
    """A storage system that every node reaches; its bandwidth is shared by all writers and readers (max-min fair)."""

    write_bandwidth: PositiveBytesPerSecond
    read_bandwidth: PositiveBytesPerSecond
    duplex: Literal["shared", "separate"] = "shared"
    """``shared``: writers and readers draw on one pool; ``separate``: each direction has its own."""
    per_node_bandwidth: PositiveBytesPerSecond | None = None
    latency: Seconds = 5e-3
    background_load: float = Field(default=0.0, ge=0, lt=1)
    """Share of the bandwidth that other tenants take."""


class SharedFilesystem(Storage, kind="shared-filesystem"):
    """A parallel file system (Lustre, GPFS, Tectonic, VAST)."""


class ObjectStore(Storage, kind="object-store"):
    """An object store: a latency a request, bandwidth a node."""

    latency: Seconds = 30e-3
