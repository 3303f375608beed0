"""TorchSnapshot: chunks are copied and written in a pipeline by several threads; training waits for the end."""

from __future__ import annotations

from dataclasses import replace

from clustersim.checkpoint.engine import CheckpointEngine, SaveSite, Transfer


class TorchSnapshot(CheckpointEngine, kind="torchsnapshot"):
    """Copies to host memory and writes to storage overlap chunk by chunk; training stands still until all is written.

    As measured by DataStates-LLM (HPDC 2024, section 6.2): four writer threads a GPU (``writer_bandwidth`` is that of
    all of a GPU's threads together).
    """

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """One blocking transfer at the pace of the slower of copy and write."""
        upload = self.upload(site, blocking=True)
        copies = site.cluster.node.gpus * self.copies_a_gpu(site)
        limit = copies if upload.per_client is None else min(upload.per_client, copies)
        plan = self.plan_s(site)
        return *((Transfer(True, plan),) if plan else ()), replace(upload, per_client=limit)

    def host_memory(self, site: SaveSite) -> float:
        """Chunks in flight only: at most the state of a node."""
        return min(self.staging or float("inf"), self.size(site) / site.cluster.nodes)
