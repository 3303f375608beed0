"""Where copies of the training state lie, which losses they survive, and which is the newest that is left."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from clustersim.checkpoint.placement import Placement
from clustersim.faults.failure import TAKES_NODES, Severity


class Tier(StrEnum):
    """A kind of place for copies."""

    SHARED = "shared"  # shared storage: survives every loss of nodes
    DISK = "disk"  # local disk of the owner: gone with its node
    HOST = "host"  # host memory of the owner: gone with its node, or when the cluster goes down
    PEER = "peer"  # host memory of other nodes: survives as long as one holder of every part does
    REPLICA = "replica"  # GPU memory of data-parallel replicas: likewise, gone when the cluster goes down


_NODES = frozenset({Severity.GPU, Severity.NODE, Severity.NVLINK_DOMAIN, Severity.RACK})
_DOMAINS = frozenset({Severity.NVLINK_DOMAIN, Severity.RACK})
_ROOMY = frozenset({Tier.SHARED, Tier.DISK})
_PLACED = frozenset({Tier.PEER, Tier.REPLICA})
_LOST: dict[Tier, frozenset[Severity]] = {
    Tier.SHARED: frozenset(),
    Tier.DISK: _NODES,
    Tier.HOST: _NODES | {Severity.CLUSTER},
    Tier.PEER: _DOMAINS | {Severity.CLUSTER},
    Tier.REPLICA: _DOMAINS | {Severity.CLUSTER},
}


def survives(tier: Tier, severity: Severity) -> bool:
    """Whether a copy of the whole state on a tier is still complete after a failure, wherever it strikes."""
    return severity not in _LOST[tier]


class Copy(NamedTuple):
    """A durable copy of the state after ``step`` steps."""

    step: int
    tier: Tier
    durable_s: float
    number: int = 0
    """Number of the save that made it, counted along the states that led to this one."""
    corrupt: bool = False
    """Unreadable, which nobody knows before it is loaded."""


class Copies:
    """The newest durable copies on each tier.

    Args:
        initial: what is durable at the start.
        keep: copies that are kept on storage and disks; one is kept in memory.
        placement: where copies in other nodes' memory lie; None: they survive the loss of one node and no more.
        nodes: places of the job.
    """

    def __init__(self, initial: Copy | None, keep: int = 1, placement: Placement | None = None, nodes: int = 0) -> None:
        self._held: dict[Tier, list[Copy]] = {initial.tier: [initial]} if initial else {}
        self._initial, self._keep, self._placement, self._nodes = initial, keep, placement, nodes
        self._lost: set[int] = set()

    def add(self, copy: Copy) -> None:
        """A copy has become durable; the oldest on its tier makes room for it."""
        held = self._held.get(copy.tier)
        if held is None:
            self._held[copy.tier] = [copy]
            return
        if copy.step < held[-1].step:
            return
        while held and held[-1].step == copy.step:
            held.pop()
        held.append(copy)
        room = self._keep if copy.tier in _ROOMY else 1
        if len(held) > room:
            del held[: len(held) - room]

    def lose(self, severity: Severity, places: Collection[int] | None = None) -> None:
        """A failure takes the copies that do not survive it; ``places``: those whose nodes are gone."""
        if self._placement is not None and places is not None and severity in TAKES_NODES:
            self._lost.update(places)
        gone = [tier for tier in self._held if tier is not Tier.SHARED and not self._left(tier, severity, places)]
        for tier in gone:
            del self._held[tier]

    def _left(self, tier: Tier, severity: Severity, places: Collection[int] | None) -> bool:
        placed = tier in _PLACED and self._placement is not None and places is not None
        if placed and severity in TAKES_NODES:
            assert self._placement is not None
            return self._placement.recoverable(self._lost, self._nodes)
        return survives(tier, severity)

    def healed(self) -> None:
        """The job is up again: what lost nodes held has been copied anew."""
        self._lost.clear()

    def drop(self, copy: Copy) -> None:
        """A copy turned out to be unreadable."""
        self._held[copy.tier].remove(copy)
        if not self._held[copy.tier]:
            del self._held[copy.tier]

    def on(self, tier: Tier) -> Copy | None:
        """The newest copy on a tier; None: there is none."""
        held = self._held.get(tier)
        return held[-1] if held else None

    def before(self, step: int, back: int = 0) -> Copy | None:
        """On shared storage the newest copy of at most ``step`` steps, or one that is ``back`` copies older; the oldest that is
        kept where none is as old; None: there is none at all."""
        held = self._held.get(Tier.SHARED)
        if not held:
            return None
        early = sum(copy.step <= step for copy in held)
        return held[max(early - 1 - back, 0)]

    def spoil(self, clean: Copy) -> None:
        """All copies of later steps than ``clean`` are wrong; it is left, and what is older."""
        for tier in list(self._held):
            self._held[tier] = [copy for copy in self._held[tier] if copy.step <= clean.step]
            if not self._held[tier]:
                del self._held[tier]
        if clean not in self._held.setdefault(clean.tier, []):
            self._held[clean.tier].append(clean)

    def newest(self) -> Copy | None:
        """The copy of the latest step (of equal ones the first that became durable); the initial one where nothing else
        is left; None: there was none."""
        if len(self._held) == 1:
            held = next(iter(self._held.values()))
            if len(held) == 1:
                return held[0]
        copies = (copy for held in self._held.values() for copy in held)
        return max(copies, key=lambda copy: (copy.step, -copy.durable_s), default=self._initial)
