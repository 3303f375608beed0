"""GoCkpt: the state leaves the GPU in parts over several steps; gradients bring all parts to the same version."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from clustersim.checkpoint.engine import CheckpointEngine, SaveSite, Transfer
from clustersim.checkpoint.tiers import Tier


class GoCkpt(CheckpointEngine, kind="gockpt"):
    """A part of the state moves beside each of ``window`` steps; of parts that have moved, the 16-bit gradients follow
    each remaining step and the CPU replays the missing updates; what is left after the window is sent at its end.

    Zhang et al. 2025 (arXiv 2511.07035). The window lies before the step whose state is saved, so what it costs is booked
    at that step's end. The CPU is taken to keep up with the replay.
    """

    window: int = Field(default=7, gt=0)
    overlap_gradients: bool = True
    """Gradients too move beside training (GoCkpt-O); false: the update of each step waits for them (GoCkpt)."""
    target: Literal["disk", "storage"] = "disk"
    """Where the copy is persisted: the node's NVMe, or shared storage."""

    def gradients(self, site: SaveSite) -> float:
        """Bytes of gradients over the window: of the part that moved in step j, window − j steps, 2 B a parameter."""
        parameters = site.state.weights / 2.0
        return 2.0 * parameters * self.fraction * (self.window - 1) / 2

    def stall_s(self, site: SaveSite) -> float:
        """Seconds by which a save lengthens its window."""
        grads = self.copy_s(site, self.gradients(site))
        room = self.window * max(0.0, site.step.seconds - site.step.update_s)
        if self.overlap_gradients:
            return max(0.0, self.copy_s(site) + grads - self.window * site.step.seconds)
        return grads + max(0.0, self.copy_s(site) - room)

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """What the window costs, then the write in the background."""
        moved = self.size(site) + self.gradients(site)
        staged = Transfer(True, self.plan_s(site) + self.stall_s(site), moved, via="copy-engine")
        if self.target == "storage":
            return staged, self.upload(site)
        seconds = self.size(site) / site.cluster.nodes / site.cluster.node.local_disk_write
        return staged, Transfer(False, seconds, self.size(site), tier=Tier.DISK, via="disk")

    def host_memory(self, site: SaveSite) -> float:
        """One copy, and the gradients of a step."""
        return (self.size(site) + site.state.weights) / site.cluster.nodes
