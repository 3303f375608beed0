"""What a deadlock looks like: each stuck rank, the op that it stands at, and what that op waits for."""

from __future__ import annotations

import numpy as np

from clustersim.pipeline.dependencies import KINDS, NO_UNIT, Ints, Parts
from clustersim.pipeline.ops import Op
from clustersim.pipeline.p2p import Draft
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


def stuck(draft: Draft, order: Ints, sender: Ints, receiver: Ints, missing: list[tuple[int, Op]]) -> str:
    """Which rank waits at which op for what.

    Args:
        draft: the graph's edges.
        order: the nodes that could start.
        sender, receiver: (messages,) ops at both ends, to name transfers by.
        missing: ops that wait for work that no rank does.
    """
    parts, source = draft.parts, draft.source
    done = np.zeros(draft.nodes, dtype=np.bool_)
    done[order] = True
    ends = {
        node: (a, b) for node, a, b in zip(draft.transfer.tolist(), sender.tolist(), receiver.tolist(), strict=False)
    }
    open_ops = np.flatnonzero(compute_mask(parts) & ~done[: parts.ops])
    ranks, first = np.unique(parts.rank[open_ops], return_index=True)
    lines = []
    for rank, op in zip(ranks.tolist(), open_ops[first].tolist(), strict=True):
        waits = [f"{wanted} (which no rank runs)" for waiting, wanted in missing if waiting == op]
        unmet = sorted(set(source[(draft.target == op) & ~done[source]].tolist()))
        waits += [_described(parts, node, ends.get(node)) for node in unmet]
        lines.append(f"rank {rank} waits at {label(parts, op)} for {', '.join(waits)}")
    return "deadlock: " + "; ".join(lines or [f"{label(parts, op)} waits for {wanted}" for op, wanted in missing])


def _described(parts: Parts, node: int, ends: tuple[int, int] | None) -> str:
    if ends is not None:
        sender, receiver = ends
        way = f"rank {parts.rank[sender]} to {parts.rank[receiver]}"
        return f"the transfer from {label(parts, sender)} to {label(parts, receiver)} ({way})"
    return (
        f"{label(parts, node)} (rank {parts.rank[node]})"
        if node < parts.ops
        else "every rank's part of the vocabulary layer"
    )
