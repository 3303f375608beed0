"""A program compiled once into flat arrays: what both replays, the metrics and the drawings read.

``compile(program)`` checks nothing but what it needs: every op must be able to start. If one cannot, it raises
``Deadlock`` and names, for each rank that is stuck, the op it stands at and what that waits for.

Nodes are numbered: first the ops, in an order in which each comes after all that it waits for (so a replay walks
memory from front to back; rank-major order makes equal ranks collide in the cache and costs a factor of 5), then
transfers (with blocking p2p only) and barriers. ``graph.rank_ops[r]`` lists rank r's ops as its list does. Costs are
no part of a graph: durations and delays come with each replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from clustersim.errors import Deadlock
from clustersim.pipeline.deadlock import op_of, stuck
from clustersim.pipeline.dependencies import CODE, Bools, Edges, Ints, Parts, Rules, flatten
from clustersim.pipeline.ops import Kind, Program
from clustersim.pipeline.p2p import P2P, Draft, block, defer
from clustersim.pipeline.streams import (
    CommStreams,
    add_gathers,
    add_residency,
    assign,
    compute_mask,
    neighbours,
    previous_on_stream,
)
from clustersim.pipeline.topology import Csr, rounds

if TYPE_CHECKING:
    from clustersim.pipeline.costs import Costs
    from clustersim.pipeline.kernel import Layout, Tables
    from clustersim.pipeline.wiring import Wiring

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Messages:
    """Tensors that cross from one rank to another, (messages,) each.

    ``source, target``: the ops at both ends; ``source_rank, target_rank``; ``stage``: the stage that made the tensor;
    ``counted``: whether it is an activation or gradient between stages (not a broadcast inside the vocabulary layer).
    """

    source: Ints
    target: Ints
    source_rank: Ints
    target_rank: Ints
    stage: Ints
    counted: Bools

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class Graph:
    """A program's ops and their edges.

    ``rank, stage, kind, unit, fused``: (ops,), of the first part of a fused pair; ``parts`` has both. ``order``:
    (nodes,) a topological order, ``rounds``: where its rounds begin (a round's nodes wait only for earlier rounds).
    ``edges``: incoming edges in that order; ``edge_message``: (edges,) the message an edge carries, −1 for none.
    ``transfer``: (messages,) the node of each message with blocking p2p, else empty.
    """

    program: Program
    parts: Parts
    compute: Bools
    stream: Ints
    stream_names: tuple[str, ...]
    order: Ints
    rounds: Ints
    edges: Csr
    edge_message: Ints
    messages: Messages
    transfer: Ints
    nodes: int
    p2p: P2P

    @property
    def ops(self) -> int:
        """Number of ops."""
        return self.parts.ops

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.program.ranks)

    @cached_property
    def stages(self) -> int:
        """Number of stage names, over all chains."""
        return int(self.parts.stage.max(initial=0)) + 1

    @property
    def chunks(self) -> float:
        """Stages a rank of one chain: what a rank's share of a microbatch is divided into."""
        return self.stages / self.program.chains / self.ranks

    @property
    def rank(self) -> Ints:
        """(ops,) rank."""
        return self.parts.rank

    @property
    def stage(self) -> Ints:
        """(ops,) stage, of a fused pair's first part."""
        return self.parts.stage[: self.ops]

    @property
    def kind(self) -> Ints:
        """(ops,) index into ``KINDS``, of a fused pair's first part."""
        return self.parts.kind[: self.ops]

    @property
    def unit(self) -> Ints:
        """(ops,) unit, −1 for an op of a whole stage, of a fused pair's first part."""
        return self.parts.unit[: self.ops]

    @cached_property
    def second(self) -> Ints:
        """(ops,) the part that a fused pair's second half is, −1 for other ops."""
        second = np.full(self.ops, -1, dtype=np.int64)
        second[self.parts.node[self.ops :]] = np.arange(self.ops, len(self.parts.node))
        return second

    @property
    def fused(self) -> Bools:
        """(ops,) whether the op is a fused pair."""
        return self.second >= 0

    @cached_property
    def rank_ops(self) -> list[Ints]:
        """For each rank its ops, in list order."""
        by = np.lexsort((self.parts.place, self.rank))
        bounds = np.searchsorted(self.rank[by], np.arange(self.ranks + 1))
        return [by[bounds[r] : bounds[r + 1]] for r in range(self.ranks)]

    @cached_property
    def position(self) -> Ints:
        """(nodes,) where each node stands in ``order``."""
        position = np.empty(self.nodes, dtype=np.int64)
        position[self.order] = np.arange(self.nodes)
        return position

    @cached_property
    def layout(self) -> Layout:
        """The arrays of the numpy engine."""
        from clustersim.pipeline.kernel import Layout

        return Layout.of(self)

    @cached_property
    def tables(self) -> Tables:
        """The arrays of the numba engine."""
        from clustersim.pipeline.kernel import Tables

        return Tables.of(self)

    @cached_property
    def wiring(self) -> Wiring:
        """What the SimPy replay walks."""
        from clustersim.pipeline.wiring import Wiring

        return Wiring.of(self)

    @cached_property
    def edge_target(self) -> Ints:
        """(edges,) the node that each edge goes into."""
        return self.order[np.repeat(np.arange(self.nodes), np.diff(self.edges.start))]

    @cached_property
    def lists(self) -> tuple[list[int], list[int], list[int]]:
        """The lists of the Python engine: order, where each node's edges stop, their sources."""
        return self.order.tolist(), self.edges.start[1:].tolist(), self.edges.other.tolist()

    @cached_property
    def at_most_two(self) -> tuple[list[int], list[int], Ints, list[int], Ints] | None:
        """The same for graphs whose nodes wait for two others at most, as in nearly every schedule: order, then each node's
        first and second source and their messages. A missing one is the node after the last and no message."""
        degree = np.diff(self.edges.start)
        if degree.max(initial=0) > 2:
            return None
        found = []
        for k in range(2):
            source, message = np.full(self.nodes, self.nodes), np.full(self.nodes, -1)
            edge = self.edges.start[:-1][degree > k] + k
            source[degree > k], message[degree > k] = self.edges.other[edge], self.edge_message[edge]
            found.append((source.tolist(), message))
        (first, first_message), (second, second_message) = found
        return self.order.tolist(), first, first_message, second, second_message

    @cached_property
    def departure_node(self) -> Ints:
        """(messages,) the node at whose end each message leaves; none with blocking p2p."""
        node = np.zeros(len(self.messages), dtype=np.int64)
        carried = self.edge_message >= 0
        node[self.edge_message[carried]] = self.edges.other[carried]
        return node

    @cached_property
    def last_nodes(self) -> Ints:
        """The last op of every stream: among them is the op that ends last."""
        last = np.full(len(self.stream_names), -1, dtype=np.int64)
        last[self.stream] = np.arange(self.ops)  # of equal indices the last assignment stays
        return last[last >= 0]

    def incoming(self, node: int) -> list[tuple[int, int]]:
        """(source node, message or −1) of each edge into a node."""
        at = int(self.position[node])
        span = slice(int(self.edges.start[at]), int(self.edges.start[at + 1]))
        return list(zip(self.edges.other[span].tolist(), self.edge_message[span].tolist(), strict=True))

    def label(self, node: int) -> str:
        """A node's text: ``2F3``, ``(0F3;3B1)OVERLAP_F_B``, or what a transfer or barrier is."""
        if node < self.ops and self.second[node] >= 0:
            return f"({op_of(self.parts, node)};{op_of(self.parts, int(self.second[node]))})OVERLAP_F_B"
        return str(op_of(self.parts, node)) if node < self.ops else "transfer or barrier"

    def durations(self, costs: Costs) -> Floats:
        """(ops,) seconds of each op."""
        return costs.durations(self)

    def delays(self, costs: Costs) -> Floats:
        """(messages,) seconds of each message."""
        return costs.delays(self)


def compile(
    program: Program,
    *,
    p2p: P2P = "overlapped",
    streams: CommStreams = "direction",
    fused: Literal["atomic", "serial"] = "atomic",
    resident_limit: int | None = None,
) -> Graph:
    """Compile a program into a graph.

    Args:
        program: the op lists.
        p2p: when messages leave and whom they hold up: see ``clustersim.pipeline.p2p``.
        streams: see ``clustersim.pipeline.streams``; only for lists with explicit sends and receives.
        fused: ``atomic``: a fused pair starts and ends as one; ``serial``: its first op, then its second.
        resident_limit: units that may stay on a rank; an F waits for the offloads that make room. None: no limit.

    Raises:
        Deadlock: an op can never start.
        InputError: a stage or unit number is out of range.
    """
    parts = flatten(program, serial=fused == "serial")
    edges = Rules(program, parts).apply()
    add_gathers(parts, edges)
    if resident_limit is not None:
        add_residency(parts, edges, resident_limit)
    stream, names = assign(parts, edges, streams)
    draft = _drafted(parts, edges, stream)
    messages = _messages(parts, *draft.ends())
    if p2p == "deferred":
        defer(draft)
    if p2p == "blocking":
        block(draft)
    source, target, message, transfer, nodes = draft.source, draft.target, draft.message, draft.transfer, draft.nodes
    order, bounds = rounds(nodes, source, target, [op for op, _ in edges.missing])
    if len(order) < nodes:
        raise Deadlock(stuck(draft, order, messages.source, messages.target, edges.missing))
    number = np.arange(nodes)
    number[order[order < parts.ops]] = np.arange(parts.ops)
    parts, stream, messages, renumbered = _renumbered(parts, stream, messages, number)
    message = np.where(message >= 0, renumbered[message], -1) if len(renumbered) else message
    transfer = transfer[np.argsort(renumbered, kind="stable")] if len(transfer) else transfer
    order, source, target = number[order], number[source], number[target]
    position = np.empty(nodes, dtype=np.int64)
    position[order] = np.arange(nodes)
    csr, by = Csr.group(position[target], source, nodes)
    mask, joined_names = compute_mask(parts), tuple(names)
    return Graph(
        program, parts, mask, stream, joined_names, order, bounds, csr, message[by], messages, transfer, nodes, p2p
    )


def _renumbered(parts: Parts, stream: Ints, messages: Messages, number: Ints) -> tuple[Parts, Ints, Messages, Ints]:
    """Everything under the new numbers of ops; messages are numbered by the op that receives them."""
    old = np.empty(parts.ops, dtype=np.int64)
    old[number[: parts.ops]] = np.arange(parts.ops)
    both = np.concatenate([old, np.arange(parts.ops, len(parts.node))])
    node = np.concatenate([np.arange(parts.ops), number[parts.node[parts.ops :]]])
    moved = Parts(parts.rank[old], parts.place[old], node, parts.stage[both], parts.kind[both], parts.unit[both])
    by = np.argsort(number[messages.target], kind="stable")
    place = np.empty(len(by), dtype=np.int64)
    place[by] = np.arange(len(by))
    return moved, stream[old], _messages(moved, number[messages.source][by], number[messages.target][by]), place


def _drafted(parts: Parts, edges: Edges, stream: Ints) -> Draft:
    """All edges in one list: stream order, launch order of ops off the compute stream, and the rules' edges."""
    previous = previous_on_stream(stream)
    ordered = np.flatnonzero(previous >= 0)
    others = np.flatnonzero(~compute_mask(parts))
    before = neighbours(parts)[0][others] if len(others) else others
    launched = others[before >= 0]
    source = np.concatenate([previous[ordered], before[before >= 0], *edges.sources])
    target = np.concatenate([ordered, launched, *edges.targets])
    plain = np.zeros(len(ordered) + len(launched), dtype=np.bool_)
    crossing = np.concatenate([plain, *edges.messages])
    message = np.full(len(source), -1, dtype=np.int64)
    message[crossing] = np.arange(int(crossing.sum()))
    return Draft(parts, source, target, message, parts.ops + edges.barriers, np.zeros(0, dtype=np.int64))


def _messages(parts: Parts, source: Ints, target: Ints) -> Messages:
    kind = parts.kind[: parts.ops]
    counted = kind[target] != CODE[Kind.S]
    return Messages(source, target, parts.rank[source], parts.rank[target], parts.stage[: parts.ops][source], counted)
