"""What may differ from the nominal step: slow nodes and GPUs, weak links, lost replicas, a save in flight."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple


@dataclass(frozen=True)
class Conditions:
    """Conditions under which a step runs; hashable, so that a step under the same conditions is computed once.

    Attributes:
        slow: (node, factor) of nodes that compute ``factor`` times as long (1.25: a quarter longer). Nodes count from
        0 in
            the placement order of the layout; a node that is named twice takes the larger factor.
        slow_gpus: (GPU rank, factor), likewise.
        slow_links: (node, share) of nodes whose NICs reach only ``share`` of their bandwidth (0.875: one NIC of eight
        lost). lost_replicas: data-parallel replicas that are gone. The others keep their microbatches: the step lasts
        as long
            (its gradient ring is shorter) and trains fewer tokens.
        keep_batch: with lost replicas, spread the whole global batch over those that are left instead: as many tokens,
            more microbatches a replica.
        saving: share of the nodes' network bandwidth that a checkpoint in flight takes from the training traffic.
    """

    slow: tuple[tuple[int, float], ...] = ()
    slow_gpus: tuple[tuple[int, float], ...] = ()
    slow_links: tuple[tuple[int, float], ...] = ()
    lost_replicas: int = 0
    keep_batch: bool = False
    saving: float = 0.0

    def __post_init__(self) -> None:
        if any(factor <= 0 for _, factor in (*self.slow, *self.slow_gpus)):
            raise ValueError("a slow node's factor must be above 0 (1.25 takes a quarter longer)")
        if any(not 0 < share <= 1 for _, share in self.slow_links):
            raise ValueError("a slow link's share of its bandwidth must be above 0 and at most 1")
        if self.lost_replicas < 0 or not 0 <= self.saving < 1:
            raise ValueError("lost_replicas must be at least 0, and saving at least 0 and below 1")

    @property
    def nominal(self) -> bool:
        """Whether nothing is out of order."""
        return self == NORMAL


NORMAL = Conditions()


class StepTime(NamedTuple):
    """How long a step is under some conditions.

    ``breakdown`` is read along the critical rank and sums to ``seconds``; ``tokens`` are those that the step trains.
    """

    seconds: float
    breakdown: MappingProxyType[str, float]
    tokens: float
    critical_rank: int = 0
