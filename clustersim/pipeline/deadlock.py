"""What a deadlock looks like: each stuck rank, the op that it stands at, and what that op waits for."""

from __future__ import annotations

import numpy as np

from clustersim.pipeline.dependencies import KINDS, NO_UNIT, Edges, Ints, Parts
from clustersim.pipeline.ops import Op
from clustersim.pipeline.streams import compute_mask


def label(parts: Parts, node: int) -> str:
    """A node's text."""
    if node >= parts.ops:
        return "transfer or barrier"
    halves = [node, *(np.flatnonzero(parts.node[parts.ops :] == node) + parts.ops).tolist()]
    texts = [str(op_of(parts, half)) for half in halves]
    return texts[0] if len(texts) == 1 else f"({texts[0]};{texts[1]})OVERLAP_F_B"


def op_of(parts: Parts, part: int) -> Op:
    """One part as an ``Op``."""
    unit = int(parts.unit[part])
    return Op(int(parts.stage[part]), KINDS[int(parts.kind[part])], None if unit == NO_UNIT else unit)


def stuck(parts: Parts, source: Ints, target: Ints, order: Ints, edges: Edges) -> str:
    """Which rank waits at which op for what."""
    done = np.zeros(max(parts.ops, int(max(source.max(initial=0), target.max(initial=0))) + 1), dtype=np.bool_)
    done[order] = True
    absent: dict[int, list[Op]] = {}
    for op, wanted in edges.missing:
        absent.setdefault(op, []).append(wanted)
    lines = []
    open_ops = np.flatnonzero(compute_mask(parts) & ~done[: parts.ops])
    ranks, first = np.unique(parts.rank[open_ops], return_index=True)
    for rank, op in zip(ranks.tolist(), open_ops[first].tolist(), strict=True):
        waits = [f"{wanted} (which no rank runs)" for wanted in absent.get(op, [])]
        for other in sorted(set(source[(target == op) & ~done[source]].tolist())):
            where = f" (rank {parts.rank[other]})" if other < parts.ops else ""
            waits.append(f"{label(parts, other)}{where}")
        lines.append(f"rank {rank} waits at {label(parts, op)} for {', '.join(waits)}")
    return "deadlock: " + "; ".join(lines or [f"{label(parts, op)} waits for {wanted}" for op, wanted in edges.missing])
