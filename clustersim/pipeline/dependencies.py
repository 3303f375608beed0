"""Which op waits for which: the rules that turn op lists into edges, written over flat arrays.

An *op* here is one action of a rank's list: a single piece of work, or a fused pair that starts and ends as one. A
*part* is one piece of work of an op (a fused pair has two). The rules (s = stage, u = unit, a chain's last stage =
its loss):

=================  =====================================================================================
op                 waits for
=================  =====================================================================================
F(s,u)             F(s−1,u); the earlier slices of its microbatch on s (their keys and values)
B, I(s,u)          F(s,u); the B or I of (s+1,u), or after the loss its own F; the later slices of its microbatch
W(s,u)             I(s,u)
R(s,u)             F(s,u); its backward waits for it by list order
SEND_F, SEND_B     what it sends, and the compute op listed before it
RECV_F, RECV_B     the matching send (the message), and the compute op listed before it
UNSHARD            the compute op listed before it; compute of the stage listed after it waits for it
RESHARD, REDUCE_GRAD  the compute op listed before it
OFFLOAD, RELOAD    F(s,u), the offload; the backward waits for the reload
S(·,u), T(·,u)     F(last,u); every S(·,u). The loss stage's backward waits for every T(·,u) (or S if there is no T)
=================  =====================================================================================

Compute ops of one rank run in list order, so an edge is stored only where list order does not already hold it. Where
a list has RECV for a tensor the dependency runs over it; otherwise an edge between ranks is a message of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from clustersim.errors import InputError
from clustersim.pipeline.ops import COMPUTE, Action, Batch, Fused, Kind, Op, Program, parts_of

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

KINDS: tuple[Kind, ...] = tuple(Kind)
CODE: dict[Kind, int] = {kind: code for code, kind in enumerate(KINDS)}
IS_COMPUTE: Bools = np.array([kind in COMPUTE for kind in KINDS])
NO_UNIT = -1


@dataclass
class Parts:
    """A program as flat arrays: ops (rank-major until a graph renumbers them) and their parts, first parts first.

    ``rank``: (ops,) the rank of each op; ``place``: (ops,) its index in that rank's list; ``node, stage, kind, unit``:
    (parts,) with ``kind`` an index into ``KINDS`` and ``unit`` −1 for an op of a whole stage.
    """

    rank: Ints
    place: Ints
    node: Ints
    stage: Ints
    kind: Ints
    unit: Ints

    @property
    def ops(self) -> int:
        """Number of ops."""
        return len(self.rank)


def _opened(action: Action, kinds: tuple[type, ...]) -> Iterable[Action]:
    return parts_of(action) if type(action) in kinds else (action,)


def flatten(program: Program, *, serial: bool = False) -> Parts:
    """The flat arrays of a program; ``serial`` makes a fused pair two ops, one after the other.

    The messages of a batch become ops of their own (what a batch posts together waits for nothing of the same batch
    here).
    """
    ranks: Sequence[Sequence[Action]] = program.ranks
    kinds = set(map(type, chain.from_iterable(ranks)))
    if Batch in kinds or (serial and Fused in kinds):
        opened = (Batch, Fused) if serial else (Batch,)
        ranks = [[part for action in rank for part in _opened(action, opened)] for rank in ranks]
    actions: list[Any] = list(chain.from_iterable(ranks))
    pairs = [index for index, action in enumerate(actions) if type(action) is Fused] if Fused in kinds else []
    second = [actions[index].second for index in pairs]
    for index in pairs:
        actions[index] = actions[index].first
    stage, kind, unit = zip(*chain(actions, second), strict=True) if actions else ((), (), ())
    if None in unit:
        unit = tuple(NO_UNIT if value is None else value for value in unit)
    lengths = np.array([len(rank) for rank in ranks], dtype=np.int64)
    rank = np.repeat(np.arange(len(lengths)), lengths)
    return Parts(
        rank=rank,
        place=np.arange(len(actions)) - (np.cumsum(lengths) - lengths)[rank],
        node=np.concatenate([np.arange(len(actions)), np.array(pairs, dtype=np.int64)]),
        stage=np.array(stage, dtype=np.int64),
        kind=np.array([CODE[value] for value in kind], dtype=np.int64),
        unit=np.array(unit, dtype=np.int64),
    )


@dataclass
class Edges:
    """Edges found so far, as growing lists of arrays, and the ops that wait for work that no rank does."""

    sources: list[Ints] = field(default_factory=list)
    targets: list[Ints] = field(default_factory=list)
    messages: list[Bools] = field(default_factory=list)
    missing: list[tuple[int, Op]] = field(default_factory=list)
    barriers: int = 0

    def add(self, source: Ints, target: Ints, message: Bools | bool = False) -> None:
        """Targets wait for sources; ``message`` says which of these edges cross a link."""
        self.sources.append(source)
        self.targets.append(target)
        self.messages.append(np.broadcast_to(np.asarray(message), source.shape))


class Rules:
    """The rules of this module applied to one program."""

    def __init__(self, program: Program, parts: Parts) -> None:
        self.parts = parts
        self.stages = int(parts.stage.max(initial=0)) + 1
        self.units = int(parts.unit.max(initial=0)) + 1
        self._refuse_odd_numbers(program)
        self.per_chain = max(1, self.stages // program.chains)
        self.slices = program.slices
        self.waits_for_local_vocabulary = program.options.get("vocabulary_algorithm") == 2
        self.edges = Edges()
        self.present = set(np.unique(parts.kind).tolist())
        self._tables: dict[int, Ints] = {}
        self._gradient: Ints | None = None

    def _refuse_odd_numbers(self, program: Program) -> None:
        parts = self.parts
        if min(parts.stage.min(initial=0), parts.unit.min(initial=0)) < NO_UNIT or parts.stage.min(initial=0) < 0:
            raise InputError("stages and units are numbered from 0")
        if self.stages * self.units > 64 * parts.ops + 1_000_000:
            raise InputError(
                f"{self.stages} stages × {self.units} units in only {parts.ops} ops: a number is out of range"
            )
        if program.chains < 1 or self.stages % program.chains:
            raise InputError(f"{self.stages} stages do not divide into {program.chains} chains")

    # --- looking ops up -------------------------------------------------------------------------------------

    def table(self, kind: Kind) -> Ints:
        """(stages × units,) op that does this kind of work, −1 where none does."""
        code = CODE[kind]
        if code not in self._tables:
            table = np.full(self.stages * self.units, -1, dtype=np.int64)
            if code in self.present:
                mine = (self.parts.kind == code) & (self.parts.unit >= 0)
                table[self.parts.stage[mine] * self.units + self.parts.unit[mine]] = self.parts.node[mine]
            self._tables[code] = table
        return self._tables[code]

    def gradient(self) -> Ints:
        """(stages × units,) op that makes the input gradient: B or I."""
        if self._gradient is None:
            self._gradient = np.maximum(self.table(Kind.B), self.table(Kind.I))
        return self._gradient

    def select(self, *kinds: Kind) -> tuple[Ints, Ints, Ints]:
        """(node, stage, unit) of the parts of these kinds."""
        codes = [CODE[kind] for kind in kinds if CODE[kind] in self.present]
        if not codes:
            none = np.zeros(0, dtype=np.int64)
            return none, none, none
        mine = self.parts.kind == codes[0]
        for code in codes[1:]:
            mine |= self.parts.kind == code
        return self.parts.node[mine], self.parts.stage[mine], self.parts.unit[mine]

    # --- adding edges ---------------------------------------------------------------------------------------

    def wait(self, target: Ints, table: Ints, stage: Ints, unit: Ints, kind: Kind, *, message: bool = False) -> None:
        """Targets wait for ``table``'s op of (stage, unit); ``message`` makes edges between ranks messages.

        An edge between two compute ops of one rank that list order already holds is left out.
        """
        source = table[stage * self.units + unit]
        for index in np.flatnonzero(source < 0).tolist():
            self.edges.missing.append((int(target[index]), Op(int(stage[index]), kind, int(unit[index]))))
        apart = self.parts.rank[source] != self.parts.rank[target]
        keep = (source >= 0) & (source != target) & (apart | (source > target) | self._asynchronous(source, target))
        self.edges.add(source[keep], target[keep], apart[keep] & message)

    def _asynchronous(self, source: Ints, target: Ints) -> Bools:
        compute = IS_COMPUTE[self.parts.kind[: self.parts.ops]]
        beside: Bools = np.logical_not(compute[source] & compute[target])
        return beside

    def optional(self, target: Ints, stage: Ints, unit: Ints, kind: Kind) -> Bools:
        """Targets wait for ops of ``kind`` where there are any; returns where."""
        table = self.table(kind)
        there: Bools = table[stage * self.units + unit] >= 0
        self.wait(target[there], table, stage[there], unit[there], kind)
        return there

    # --- the rules ------------------------------------------------------------------------------------------

    def apply(self) -> Edges:
        """Every rule, one after the other."""
        self._forward()
        self._backward()
        self._weights_and_recompute()
        self._slices()
        if self.present & {CODE[Kind.SEND_F], CODE[Kind.SEND_B], CODE[Kind.RECV_F], CODE[Kind.RECV_B]}:
            self._sends_and_receives()
        if self.present & {CODE[Kind.OFFLOAD], CODE[Kind.RELOAD]}:
            self._copies()
        if self.present & {CODE[Kind.S], CODE[Kind.T]}:
            self._vocabulary()
        return self.edges

    def _forward(self) -> None:
        node, stage, unit = self.select(Kind.F)
        inner = stage % self.per_chain != 0
        node, stage, unit = node[inner], stage[inner], unit[inner]
        direct = ~self.optional(node, stage, unit, Kind.RECV_F)
        self.wait(node[direct], self.table(Kind.F), stage[direct] - 1, unit[direct], Kind.F, message=True)

    def _backward(self) -> None:
        node, stage, unit = self.select(Kind.B, Kind.I)
        self.wait(node, self.table(Kind.F), stage, unit, Kind.F)
        inner = (stage + 1) % self.per_chain != 0
        node, stage, unit = node[inner], stage[inner], unit[inner]
        direct = ~self.optional(node, stage, unit, Kind.RECV_B)
        self.wait(node[direct], self.gradient(), stage[direct] + 1, unit[direct], Kind.B, message=True)

    def _weights_and_recompute(self) -> None:
        node, stage, unit = self.select(Kind.W)
        self.wait(node, self.table(Kind.I), stage, unit, Kind.I)
        node, stage, unit = self.select(Kind.R)
        self.wait(node, self.table(Kind.F), stage, unit, Kind.F)

    def _slices(self) -> None:
        if self.slices == 1:
            return
        for kinds, table, step in (((Kind.F,), self.table(Kind.F), -1), ((Kind.B, Kind.I), self.gradient(), 1)):
            node, stage, unit = self.select(*kinds)
            edge = 0 if step < 0 else self.slices - 1
            inner = unit % self.slices != edge
            self.wait(node[inner], table, stage[inner], unit[inner] + step, kinds[0])

    def _sends_and_receives(self) -> None:
        for send, receive, table, kind, step in (
            (Kind.SEND_F, Kind.RECV_F, self.table(Kind.F), Kind.F, -1),
            (Kind.SEND_B, Kind.RECV_B, self.gradient(), Kind.B, 1),
        ):
            node, stage, unit = self.select(send)
            self.wait(node, table, stage, unit, kind)
            node, stage, unit = self.select(receive)
            inside = (stage + step >= 0) & (stage + step < self.stages)
            for index in np.flatnonzero(~inside).tolist():
                self.edges.missing.append((int(node[index]), Op(int(stage[index]) + step, send, int(unit[index]))))
            self.wait(node[inside], self.table(send), stage[inside] + step, unit[inside], send, message=True)

    def _copies(self) -> None:
        node, stage, unit = self.select(Kind.OFFLOAD)
        self.wait(node, self.table(Kind.F), stage, unit, Kind.F)
        node, stage, unit = self.select(Kind.RELOAD)
        self.wait(node, self.table(Kind.OFFLOAD), stage, unit, Kind.OFFLOAD)
        for kind in (Kind.B, Kind.I, Kind.R):
            self.optional(*self.select(kind), Kind.RELOAD)

    def _vocabulary(self) -> None:
        """F(loss) → every S → barrier → every T → barrier → backward of the loss; a barrier is a node without
        duration."""
        local, _, local_unit = self.select(Kind.S)
        final, _, final_unit = self.select(Kind.T)
        loss = self.stages - 1
        self.wait(local, self.table(Kind.F), np.full_like(local, loss), local_unit, Kind.F, message=True)
        after_local = self._barrier(local, local_unit)
        self._after(after_local, final, final_unit)
        after_final = self._barrier(final, final_unit)
        node, stage, unit = self.select(Kind.B, Kind.I)
        mine = stage == loss
        last = after_local if self.waits_for_local_vocabulary or not len(final) else after_final
        self._after(last, node[mine], unit[mine])

    def _barrier(self, node: Ints, unit: Ints) -> Callable[[Ints], Ints]:
        """One barrier a unit behind these ops; returns the lookup unit → barrier node (−1 where none)."""
        table = np.full(self.units, -1, dtype=np.int64)
        used = np.unique(unit)
        table[used] = self.parts.ops + self.edges.barriers + np.arange(len(used))
        self.edges.barriers += len(used)
        self.edges.add(node, table[unit])
        return lambda units: table[units]

    def _after(self, barrier: Callable[[Ints], Ints], node: Ints, unit: Ints) -> None:
        source = barrier(unit)
        self.edges.add(source[source >= 0], node[source >= 0])
