"""Streams: in what order a rank runs its ops, and what ops off the compute stream wait for.

Compute ops of a rank run one after another in list order. Every other op runs on a stream of its own kind beside
them, in list order there, and not before the compute op listed in front of it has ended (as a CUDA stream that waits
for an event does):

* sends and receives: one stream for each peer and direction (``"direction"``), for each peer (``"pair"``), or one for
  the whole rank (``"rank"``: a receive that waits then holds up the sends behind it);
* UNSHARD, RESHARD, REDUCE_GRAD: the collective stream;
* OFFLOAD and RELOAD: one copy stream each.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from clustersim.pipeline.dependencies import CODE, IS_COMPUTE, Bools, Edges, Ints, Parts
from clustersim.pipeline.ops import Kind

CommStreams = Literal["direction", "pair", "rank"]
_SENDS = (CODE[Kind.SEND_F], CODE[Kind.SEND_B])
_RECEIVES = (CODE[Kind.RECV_F], CODE[Kind.RECV_B])


def compute_mask(parts: Parts) -> Bools:
    """(ops,) whether an op runs on the compute stream."""
    return IS_COMPUTE[parts.kind[: parts.ops]]


def neighbours(parts: Parts) -> tuple[Ints, Ints]:
    """(ops,) the nearest compute op listed before, and after, each op on its rank; −1 where there is none."""
    index = np.arange(parts.ops)
    compute = compute_mask(parts)
    before = np.concatenate([[-1], np.maximum.accumulate(np.where(compute, index, -1))[:-1]]).astype(np.int64)
    after = np.where(compute, index, parts.ops)[::-1]
    after = np.concatenate([[parts.ops], np.minimum.accumulate(after)[:-1]])[::-1].astype(np.int64)
    before = np.where((before >= 0) & (parts.rank[before] == parts.rank), before, -1)
    inside = after < parts.ops
    after = np.where(inside & (parts.rank[np.where(inside, after, 0)] == parts.rank), after, -1)
    return before, after


def assign(parts: Parts, edges: Edges, how: CommStreams) -> tuple[Ints, list[str]]:
    """(ops,) the stream of each op, and the streams' names; stream r < ranks is rank r's compute stream."""
    ranks = int(parts.rank.max(initial=-1)) + 1
    stream = parts.rank.copy()
    names = [f"rank {rank} compute" for rank in range(ranks)]
    others = np.flatnonzero(~compute_mask(parts))
    if not len(others):
        return stream, names
    peer = _peers(parts, edges)
    known: dict[str, int] = {}
    for op in others.tolist():
        name = _name(int(parts.rank[op]), int(parts.kind[op]), int(peer[op]), how)
        if name not in known:
            known[name] = len(names)
            names.append(name)
        stream[op] = known[name]
    return stream, names


def _peers(parts: Parts, edges: Edges) -> Ints:
    """(ops,) the rank at the other end of a send's or receive's message; −1 elsewhere."""
    peer = np.full(parts.ops, -1, dtype=np.int64)
    for source, target, message in zip(edges.sources, edges.targets, edges.messages, strict=True):
        peer[source[message]] = parts.rank[target[message]]
        peer[target[message]] = parts.rank[source[message]]
    return peer


def _name(rank: int, kind: int, peer: int, how: CommStreams) -> str:
    if kind in _SENDS or kind in _RECEIVES:
        if how == "rank":
            return f"rank {rank} p2p"
        if how == "pair":
            return f"rank {rank} p2p with {peer}"
        return f"rank {rank} send to {peer}" if kind in _SENDS else f"rank {rank} receive from {peer}"
    if kind == CODE[Kind.OFFLOAD]:
        return f"rank {rank} copy out"
    if kind == CODE[Kind.RELOAD]:
        return f"rank {rank} copy in"
    return f"rank {rank} collectives"


def previous_on_stream(stream: Ints) -> Ints:
    """(ops,) the op before each op on its stream, −1 for a stream's first."""
    by_stream = np.argsort(stream, kind="stable")
    previous = np.full(len(stream), -1, dtype=np.int64)
    same = stream[by_stream[1:]] == stream[by_stream[:-1]]
    previous[by_stream[1:][same]] = by_stream[:-1][same]
    return previous


def add_gathers(parts: Parts, edges: Edges) -> None:
    """Compute of a stage waits for the last UNSHARD of the stage that its rank lists before it."""
    if not (parts.kind == CODE[Kind.UNSHARD]).any():
        return
    compute = IS_COMPUTE[parts.kind]
    gathered: dict[tuple[int, int], int] = {}
    source: list[int] = []
    target: list[int] = []
    for part in np.argsort(parts.node, kind="stable").tolist():
        op = int(parts.node[part])
        key = (int(parts.rank[op]), int(parts.stage[part]))
        if parts.kind[part] == CODE[Kind.UNSHARD]:
            gathered[key] = op
        elif compute[part] and key in gathered:
            source.append(gathered.pop(key))
            target.append(op)
    edges.add(np.array(source, dtype=np.int64), np.array(target, dtype=np.int64))


def add_residency(parts: Parts, edges: Edges, limit: int) -> None:
    """At most ``limit`` units stay on a rank: an F or RELOAD without room waits for the offloads that make it.

    Backwards free their unit in list order; an offload frees it when the copy has ended. Where a list holds more than
    the limit even so, nothing is added for the surplus (memory, not this replay, says that it does not fit).
    """
    frees = (CODE[Kind.B], CODE[Kind.W])
    takes = (CODE[Kind.F], CODE[Kind.RELOAD])
    held: dict[int, int] = {}
    pending: dict[int, list[int]] = {}
    source: list[int] = []
    target: list[int] = []
    for part in np.lexsort((np.isin(parts.kind, frees), parts.node)).tolist():
        op, kind = int(parts.node[part]), int(parts.kind[part])
        rank = int(parts.rank[op])
        if kind in takes:
            while held.get(rank, 0) >= limit and pending.get(rank):
                source.append(pending[rank].pop(0))
                target.append(op)
                held[rank] -= 1
            held[rank] = held.get(rank, 0) + 1
        elif kind in frees:
            held[rank] = held.get(rank, 0) - 1
        elif kind == CODE[Kind.OFFLOAD]:
            pending.setdefault(rank, []).append(op)
    edges.add(np.array(source, dtype=np.int64), np.array(target, dtype=np.int64))
