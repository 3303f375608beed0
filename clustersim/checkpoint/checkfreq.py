"""CheckFreq: snapshots beside the next step, persisted one at a time, as often as a bound on their cost allows."""

from __future__ import annotations

from typing import Literal

from clustersim.checkpoint.engine import CheckpointEngine, SaveSite, Transfer
from clustersim.checkpoint.interval import Bounded, Interval
from clustersim.units import Seconds


class CheckFreq(CheckpointEngine, kind="checkfreq"):
    """The copy to host memory runs beside the next forward and backward pass; the update waits for it; then it is
    persisted in the background.

    Mohan, Phanishayee, Chidambaram, FAST 2021: the next snapshot waits until the one before is durable; the interval
    keeps the cost under 3.5 %. ``overlap: false`` is the form measured by DataStates-LLM (HPDC 2024, section 6): all
    shards but the last are copied while training stands still.
    """

    interval: Interval = Bounded()
    when_busy: Literal["wait", "skip", "block"] = "block"
    overlap: bool = True
    """The copy runs beside the next step."""
    stall: Seconds | None = None
    """How long training stands still; null: what the next step does not hide of the copy."""

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """A copy of which the next step hides a part, then the upload."""
        copy = self.copy_s(site)
        stall = self.stall
        if stall is None:
            stall = self.plan_s(site) + (self.exposed_s(site, copy) if self.overlap else copy)
        rest = copy - min(copy, stall)
        hidden = self.size(site) * rest / copy if copy > 0 else 0.0
        behind = (Transfer(False, rest, hidden, via="copy-engine"),) if rest > 0 else ()
        return Transfer(True, stall, self.size(site) - hidden, via="copy-engine"), *behind, self.upload(site)

    def host_memory(self, site: SaveSite) -> float:
        """One snapshot a save in flight."""
        return self.depth(site) * self.size(site) / site.cluster.nodes
