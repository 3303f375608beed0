"""DataStates-LLM: lazy copies into a bounded pinned cache, streamed to storage while they arrive."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from clustersim.checkpoint.engine import CheckpointEngine, SaveSite, Transfer
from clustersim.units import Seconds


class DataStates(CheckpointEngine, kind="datastates", aliases=("lazy",)):
    """The state does not change in the forward and backward pass: it is copied then, and the update waits for the copy.
    The flush to storage streams as data arrives; a full cache makes the next save wait (back-pressure).

    Maurya et al., HPDC 2024 (arXiv 2406.10707). ``staging`` is the pinned cache of a node (64 GB there).
    """

    when_busy: Literal["wait", "skip", "block"] = "block"
    planning: Seconds = 0.27
    """Launch of a save. Default and ``interference`` follow from the blocking throughput by data-parallel degree (their
    figures 9 and 10: 0.27 s + bytes a GPU ÷ 13 GB/s on A100 behind PCIe 4), a measurement of the copy alone."""
    interference: float = Field(default=1.0, ge=0, le=1)
    """Seconds that training loses a second of copying beside it (copies share PCIe and host memory with training)."""

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """What the update waits, what copying takes from training, and a stream to storage that starts with the copy."""
        copy, plan = self.copy_s(site), self.plan_s(site)
        waits = self.exposed_s(site, copy)
        stall = waits + self.interference * (copy - waits)
        upload, limit = self.upload(site), site.cluster.node.gpus * self.copies_a_gpu(site)
        limit = limit if upload.per_client is None else min(limit, upload.per_client)
        staged = Transfer(True, stall, self.size(site), via="copy-engine")
        flush = replace(upload, per_client=limit, streams=True)
        return *((Transfer(True, plan),) if plan else ()), staged, flush

    def host_memory(self, site: SaveSite) -> float:
        """The pinned cache."""
        return self.staging if self.staging is not None else self.depth(site) * self.size(site) / site.cluster.nodes
