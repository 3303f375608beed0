"""Edges grouped by node, and a topological order in rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clustersim.pipeline.dependencies import Ints


@dataclass(frozen=True, eq=False)
class Csr:
    """Edges grouped by one end: those of node i are ``other[start[i]:start[i + 1]]``."""

    start: Ints
    other: Ints

    @classmethod
    def group(cls, by: Ints, other: Ints, nodes: int) -> tuple[Csr, Ints]:
        """Group edges by the node ``by``; also returns the permutation that sorted them (stable)."""
        narrow = (
            by.astype(np.uint16) if nodes <= 65_536 else by.astype(np.uint32)
        )  # 16 bits sort by radix, in linear time
        permutation = np.argsort(narrow, kind="stable")
        start = np.zeros(nodes + 1, dtype=np.int64)
        np.cumsum(np.bincount(by, minlength=nodes), out=start[1:])
        return cls(start, other[permutation]), permutation


def rounds(nodes: int, source: Ints, target: Ints, blocked: Sequence[int] = ()) -> tuple[Ints, Ints]:
    """Topological order in rounds: a round's nodes wait only for nodes of earlier rounds.

    Within a round nodes stand in the order in which the round before set them free, so the result is determined.

    Args:
        nodes: number of nodes.
        source, target: (edges,) target waits for source.
        blocked: nodes that can never start.

    Returns:
        (reached,) the order, shorter than ``nodes`` if some can never start; (rounds + 1,) where rounds begin in it.
    """
    csr, _ = Csr.group(source, target, nodes)
    start, heads = csr.start.tolist(), csr.other.tolist()
    count = np.bincount(target, minlength=nodes)
    for node in blocked:
        count[node] += 1
    waits = count.tolist()
    frontier = np.flatnonzero(count == 0).tolist()
    order: list[int] = []
    bounds = [0]
    while frontier:
        order += frontier
        bounds.append(len(order))
        ready = []
        for node in frontier:
            for head in heads[start[node] : start[node + 1]]:
                left = waits[head] - 1
                waits[head] = left
                if not left:
                    ready.append(head)
        frontier = ready
    return np.array(order, dtype=np.int64), np.array(bounds, dtype=np.int64)
