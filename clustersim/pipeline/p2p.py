"""When messages leave, and whom they hold up: three ways to run point-to-point communication.

``overlapped``
    A message leaves when its op ends and holds nobody up.
``blocking``
    Between two compute ops a rank runs one batch of sends and receives, and stands still until all of it is over
    (Megatron-LM without overlap; torch's 1F1B). A transfer starts when both ends have come to the batch that holds it.
    Where the list has sends and receives of its own, their places say which batch that is. Otherwise a send belongs to
    the batch behind its op, and a receive to the receiver's first batch that is due once the tensor exists, at equal
    costs (F = I = W, B = 2 F) and no latency: such an order cannot hang.
``deferred``
    A message is sent with its rank's next communication: it leaves when the sender's next compute op has ended, unless
    that op receives something itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from clustersim.pipeline.dependencies import CODE, Ints, Parts
from clustersim.pipeline.ops import COMPUTE, Kind
from clustersim.pipeline.streams import compute_mask, neighbours
from clustersim.pipeline.topology import Csr, rounds

Floats = npt.NDArray[np.float64]
P2P = Literal["overlapped", "blocking", "deferred"]
_COST = {kind: 2.0 if kind is Kind.B else 1.0 for kind in COMPUTE}


@dataclass
class Draft:
    """Edges of a graph in the making: ``source, target``: (edges,); ``message``: (edges,) the message that an edge
    carries, −1 for none; ``transfer``: (messages,) the node of each message, or empty; ``nodes``: how many there
    are."""

    parts: Parts
    source: Ints
    target: Ints
    message: Ints
    nodes: int
    transfer: Ints

    def ends(self) -> tuple[Ints, Ints]:
        """(messages,) the op that sends, and the op that receives, each message."""
        crossing = self.message >= 0
        return self.source[crossing], self.target[crossing]


def defer(draft: Draft) -> None:
    """Make messages leave behind the sender's next compute op, unless that op receives."""
    sender, receiver = draft.ends()
    receives = np.zeros(draft.parts.ops, dtype=np.bool_)
    receives[receiver] = True
    following = neighbours(draft.parts)[1][sender]
    draft.source[draft.message >= 0] = np.where((following >= 0) & ~receives[following], following, sender)


def block(draft: Draft) -> None:
    """Make each message a node between the batches of both ranks: it waits for both, and both wait for it."""
    sender, receiver = draft.ends()
    before, after = neighbours(draft.parts)
    listed = ~compute_mask(draft.parts)[receiver]
    came = before[receiver]
    if not listed.all():
        came = np.where(listed, came, _first_batch(draft, sender, receiver))
    first = np.full(int(draft.parts.rank.max(initial=0)) + 1, -1, dtype=np.int64)
    compute = np.flatnonzero(compute_mask(draft.parts))[::-1]
    first[draft.parts.rank[compute]] = compute
    resumes = np.where(came >= 0, after[came], first[draft.parts.rank[receiver]])
    transfer = draft.nodes + np.arange(len(sender))
    goes, plain = after[sender], draft.message < 0
    pairs = [(sender, transfer), (came, transfer), (transfer, receiver), (transfer, goes), (transfer, resumes)]
    kept = [(one >= 0) & (other >= 0) for one, other in pairs]
    draft.source = np.concatenate([draft.source[plain], *(one[k] for (one, _), k in zip(pairs, kept, strict=True))])
    draft.target = np.concatenate([draft.target[plain], *(other[k] for (_, other), k in zip(pairs, kept, strict=True))])
    draft.message = np.full(len(draft.source), -1, dtype=np.int64)
    draft.transfer = transfer
    draft.nodes += len(transfer)


def _first_batch(draft: Draft, sender: Ints, receiver: Ints) -> Ints:
    """(messages,) the receiver's compute op behind which it takes each message in: the last that starts, at equal
    costs, before the tensor exists; −1: before its first.

    Every wait for a transfer then leads to ops that start strictly earlier at equal costs than the op that waits: the
    sender of the transfer, and the op before the receiver's batch. So no wait leads back to itself.
    """
    start, end = _equal_cost_times(draft)
    parts = draft.parts
    mine = np.flatnonzero(compute_mask(parts))
    bounds = np.searchsorted(parts.rank[mine], np.arange(int(parts.rank.max(initial=0)) + 2))
    came = np.full(len(sender), -1, dtype=np.int64)
    rank = parts.rank[receiver]
    for owner in np.unique(rank).tolist():
        ops = mine[bounds[owner] : bounds[owner + 1]]
        some = np.flatnonzero(rank == owner)
        behind = np.searchsorted(start[ops], end[sender[some]], side="left") - 1
        came[some] = np.where(behind >= 0, ops[np.maximum(behind, 0)], -1)
    return came


def _equal_cost_times(draft: Draft) -> tuple[Floats, Floats]:
    """(nodes,) start and end of every node at equal costs without latency; 0 for nodes that never start."""
    parts = draft.parts
    table = np.array([_COST.get(kind, 0.0) for kind in CODE])
    cost = np.zeros(draft.nodes)
    np.add.at(cost, parts.node, table[parts.kind])
    start, end = [0.0] * draft.nodes, cost.tolist()
    csr, _ = Csr.group(draft.target, draft.source, draft.nodes)
    first, sources = csr.start.tolist(), csr.other.tolist()
    for node in rounds(draft.nodes, draft.source, draft.target)[0].tolist():
        start[node] = max((end[source] for source in sources[first[node] : first[node + 1]]), default=0.0)
        end[node] += start[node]
    return np.array(start), np.array(end)
