"""Where copies of the training state lie, which losses they survive, and which is the newest that is left."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from clustersim.faults.failure import Severity


class Tier(StrEnum):
    """A kind of place for copies."""

    SHARED = "shared"  # shared storage: survives every loss of nodes
    DISK = "disk"  # local disk of the owner: gone with its node
    HOST = "host"  # host memory of the owner: gone with its node, or when the cluster goes down
    PEER = "peer"  # host memory of other nodes: survives the loss of one node, not of a domain, a rack or the cluster


_LOST: dict[Tier, frozenset[Severity]] = {
    Tier.SHARED: frozenset(),
    Tier.DISK: frozenset({Severity.GPU, Severity.NODE, Severity.NVLINK_DOMAIN, Severity.RACK}),
    Tier.HOST: frozenset({Severity.GPU, Severity.NODE, Severity.NVLINK_DOMAIN, Severity.RACK, Severity.CLUSTER}),
    Tier.PEER: frozenset({Severity.NVLINK_DOMAIN, Severity.RACK, Severity.CLUSTER}),
}


def survives(tier: Tier, severity: Severity) -> bool:
    """Whether a copy of the whole state on a tier is still complete after a failure."""
    return severity not in _LOST[tier]


@dataclass(frozen=True)
class Copy:
    """A durable copy of the state after ``step`` steps."""

    step: int
    tier: Tier
    durable_s: float


class Copies:
    """The newest durable copy on each tier."""

    def __init__(self, initial: Copy | None) -> None:
        self._newest: dict[Tier, Copy] = {initial.tier: initial} if initial else {}

    def add(self, copy: Copy) -> None:
        """A copy has become durable; it replaces an older one on its tier."""
        held = self._newest.get(copy.tier)
        if held is None or copy.step >= held.step:
            self._newest[copy.tier] = copy

    def lose(self, severity: Severity) -> None:
        """A failure takes the copies that do not survive it."""
        for tier in [tier for tier in self._newest if not survives(tier, severity)]:
            del self._newest[tier]

    def newest(self) -> Copy | None:
        """The copy of the latest step (of equal ones the first that became durable); None: nothing is left."""
        if len(self._newest) == 1:
            return next(iter(self._newest.values()))
        return max(self._newest.values(), key=lambda copy: (copy.step, -copy.durable_s), default=None)
