"""Shared storage: who may write and read how fast."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from clustersim.part import Part
from clustersim.units import Bytes, PositiveBytesPerSecond, Seconds


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
    slots: int | None = Field(default=None, gt=0)
    """Requests that are served at once (RPC slots); null: no limit."""
    slot_bandwidth: PositiveBytesPerSecond | None = None
    """What one of them carries; needed with ``slots``."""
    files_per_second: float | None = Field(default=None, gt=0)
    """Files that the metadata service creates a second; null: no limit."""
    capacity: Bytes | None = None
    """Room for files; null: no limit."""
    used: float = Field(default=0.0, ge=0, le=1)
    """Share of the capacity that is taken by others."""

    @model_validator(mode="after")
    def _slots_have_a_rate(self) -> Storage:
        if (self.slots is None) != (self.slot_bandwidth is None):
            raise ValueError("'slots' and 'slot_bandwidth' need each other")
        return self

    def bandwidth(self, direction: Literal["read", "write"]) -> float:
        """What all nodes together can move, bytes/s: less what other tenants take, and no more than the slots carry."""
        full = self.read_bandwidth if direction == "read" else self.write_bandwidth
        slots = self.slots * self.slot_bandwidth if self.slots and self.slot_bandwidth else math.inf
        return min(full * (1.0 - self.background_load), slots)

    def opening_s(self, files: int = 1) -> float:
        """Latency, and the creation of files, seconds."""
        return self.latency + (files / self.files_per_second if self.files_per_second else 0.0)

    def alone_s(self, size: float, direction: Literal["read", "write"], clients: int, limit: float = math.inf) -> float:
        """Seconds that ``size`` bytes take by ``clients`` nodes of at most ``limit`` bytes/s each, with the storage for
        themselves (opening apart)."""
        each = min(limit, self.per_node_bandwidth or math.inf)
        return size / min(self.bandwidth(direction), each * clients)

    @property
    def room(self) -> float:
        """Bytes that are free; inf: no limit."""
        return math.inf if self.capacity is None else self.capacity * (1.0 - self.used)


class SharedFilesystem(Storage, kind="shared-filesystem"):
    """A parallel file system (Lustre, GPFS, Tectonic, VAST)."""


class ObjectStore(Storage, kind="object-store"):
    """An object store: a latency a request, bandwidth a node."""

    latency: Seconds = 30e-3
