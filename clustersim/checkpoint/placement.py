"""Where copies in the memory of other nodes lie, and whether a set of lost nodes takes the state with it.

``group``: nodes in groups of m, each holds the part of every member (GEMINI, SOSP 2023). ``ring``: the part of node i
lies on i, i + stride, …, m of them (TRANSOM, FFTrainer; with a stride that leaves the owner's rack, NVLink domain or
parallel group: ByteRobust). ``replicas``: the state lies in the memory of data-parallel replicas, ``nodes`` of one
replica each (just-in-time checkpoints).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Set
from dataclasses import dataclass


class Placement(ABC):
    """Holders of each node's part of the state."""

    @abstractmethod
    def holders(self, node: int, nodes: int) -> list[int]:
        """Nodes that hold the part of ``node``, of a job of ``nodes``."""

    def recoverable(self, lost: Set[int], nodes: int) -> bool:
        """Whether every lost node's part is left on some node that is not lost."""
        return all(any(holder not in lost for holder in self.holders(node, nodes)) for node in lost)


@dataclass(frozen=True)
class Group(Placement):
    """Groups of ``size`` nodes in order; the last one takes the rest, so that it is never smaller than the others."""

    size: int = 2

    def holders(self, node: int, nodes: int) -> list[int]:
        """All members of the node's group."""
        groups = max(1, nodes // self.size)
        first = min(node // self.size, groups - 1) * self.size
        return list(range(first, nodes if first == (groups - 1) * self.size else first + self.size))


@dataclass(frozen=True)
class Ring(Placement):
    """The node itself and the next ``size`` − 1 ones, ``stride`` apart."""

    size: int = 2
    stride: int = 1

    def holders(self, node: int, nodes: int) -> list[int]:
        """The node and those that back it up."""
        return [(node + turn * self.stride) % nodes for turn in range(self.size)]


@dataclass(frozen=True)
class Replicas(Placement):
    """The same part lies on the nodes of the same place in each data-parallel replica of ``span`` nodes."""

    span: int
    replicas: int

    def holders(self, node: int, nodes: int) -> list[int]:
        """Nodes of the same place in all replicas; of several replicas in one node, that node alone."""
        place = node % self.span
        return [place + turn * self.span for turn in range(self.replicas) if place + turn * self.span < nodes] or [node]


def group_probability(nodes: int, copies: int, lost: int) -> float:
    """Probability that ``lost`` nodes, each set alike, leave the state whole under group placement.

    Σ_j (−1)^j C(N/m, j) C(N − jm, k − jm) ÷ C(N, k): inclusion and exclusion over groups that are lost whole. N is a
    multiple of m.
    """
    total = math.comb(nodes, lost)
    terms = (
        (-1) ** j * math.comb(nodes // copies, j) * math.comb(nodes - j * copies, lost - j * copies)
        for j in range(lost // copies + 1)
    )
    return float(sum(terms) / total)


def group_bound(nodes: int, copies: int, lost: int) -> float:
    """The union bound max(0, 1 − (N/m) C(N − m, k − m) ÷ C(N, k)); exact for k < 2m."""
    if lost < copies:
        return 1.0
    bad = nodes // copies * math.comb(nodes - copies, lost - copies)
    return max(0.0, 1 - bad / math.comb(nodes, lost))


def ring_probability(nodes: int, copies: int, lost: int) -> float:
    """Probability that ``lost`` nodes, each set alike, leave the state whole under ring placement.

    Sets of k nodes of a cycle of N without m in a row: choose how many lost nodes follow each of the N − k that are left
    (0 … m − 1 each, k in all): N ÷ (N − k) × the coefficient of x^k in (1 + x + … + x^{m−1})^{N−k}.
    """
    left = nodes - lost
    if left <= 0:
        return 0.0
    coefficient = sum(
        (-1) ** j * math.comb(left, j) * math.comb(lost - j * copies + left - 1, left - 1)
        for j in range(min(left, lost // copies) + 1)
    )
    return float(nodes * coefficient / (left * math.comb(nodes, lost)))


__all__ = ["Group", "Placement", "Replicas", "Ring", "group_bound", "group_probability", "ring_probability"]
