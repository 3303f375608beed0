"""FFTrainer: every step, what only one rank holds goes to the neighbour's host memory while the network idles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from clustersim.checkpoint.engine import Load, SaveSite, Transfer
from clustersim.checkpoint.interval import Interval, Steps
from clustersim.checkpoint.memory import MemoryEngine
from clustersim.checkpoint.tiers import Tier


class FFTrainer(MemoryEngine, kind="fftrainer"):
    """Only the state without a data-parallel copy (with ZeRO: the optimizer's part of each rank) is sent at every step
    to the next node of a ring; what replicas hold anyway is exported by healthy ones after a failure.

    Zhao et al. 2025 (arXiv 2512.03644).
    """

    interval: Interval = Steps(steps=1)
    placed: Literal["group", "ring"] = "ring"

    def size(self, site: SaveSite) -> float:
        """Bytes that one rank alone holds: all with one replica or ZeRO 3, the optimizer's state with ZeRO 1 and 2, none
        without ZeRO."""
        state = site.state
        if state.replicas < 2 or state.read_by_all <= state.total * 1.001:
            return super().size(site)
        spread = state.read_by_all < state.total * state.replicas * 0.999
        return state.optimizer * self.fraction if spread else 0.0

    def upload(self, site: SaveSite, blocking: bool = False, **keys: Any) -> Transfer:
        """All of the state goes to storage."""
        return replace(super().upload(site, blocking, **keys), bytes=super().size(site))

    def save(self, site: SaveSite) -> tuple[Transfer, ...]:
        """A copy to the neighbour beside the next step."""
        stall = self.stall if self.stall is not None else self.plan_s(site)
        planned = (Transfer(True, stall),) if stall else ()
        return *planned, *self.sent(site), *self.persisted(site)

    def load_near(self, site: SaveSite, tier: Tier) -> Load:
        """The replacement fetches the unique part from the neighbour and the rest from a healthy replica."""
        each = site.per_node / site.cluster.node.network_bandwidth
        return Load(each + site.per_node / (site.cluster.node.gpus * site.cluster.node.device_to_host))

    def host_memory(self, site: SaveSite) -> float:
        """The neighbour's part, and one that is being received."""
        return 2 * self.size(site) / site.cluster.nodes
