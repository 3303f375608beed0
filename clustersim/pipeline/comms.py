"""Lowering: from a compute program to one with sends, receives and FSDP ops, in the order that runs.

Where a receive stands decides whether a program can hang; four placements are offered:

* ``early`` (torch's default): the sender puts the receive into the other rank's list the moment that it sends. Ranks
  take turns in rank order, so a first microbatch runs through all ranks in one turn and its receives stand very early.
* ``timed``: as early, with ranks in step: all look before any moves. No receive stands ahead of work that comes before
  it when every op takes equally long, so none blocks a send behind it in the same queue.
* ``late``: right before the op that needs it.
* ``deferred`` (torch's ``defer_pp_recv``): as late as possible, but before a send to the same peer where the own rank
  is the lower one of the two.

``batched`` merges, around each compute op, its send and the next compute op's receive into one batch (torch's and
Megatron's fused 1F1B exchanges).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from clustersim.errors import Deadlock, InputError, Problem
from clustersim.pipeline.ops import COMMUNICATION, COMPUTE, Action, Batch, Kind, Op, Program, parts_of

Receives = Literal["early", "timed", "late", "deferred"]

_SENDS = {
    Kind.F: (Kind.SEND_F, Kind.RECV_F, 1),
    Kind.B: (Kind.SEND_B, Kind.RECV_B, -1),
    Kind.I: (Kind.SEND_B, Kind.RECV_B, -1),
}
_RECEIVE = {Kind.F: Kind.RECV_F, Kind.B: Kind.RECV_B, Kind.I: Kind.RECV_B}


def has_communication(program: Program) -> bool:
    """Whether the program lists any send or receive."""
    return any(op.kind in COMMUNICATION for rank in program.ranks for action in rank for op in parts_of(action))


class Links:
    """Who sends what to whom in a program."""

    def __init__(self, program: Program) -> None:
        self.rank, self.per_chain = program.stage_rank, max(1, program.stages_per_chain)

    def neighbour(self, stage: int, step: int) -> int | None:
        """The stage before (−1) or behind (+1) in the same chain, None at its ends."""
        other = stage + step
        return other if other // self.per_chain == stage // self.per_chain and other in self.rank else None

    def message(self, op: Op) -> tuple[Op, Op] | None:
        """(send, receive) that a compute op's result needs, None where it stays on the rank."""
        if op.kind not in _SENDS:
            return None
        send, receive, step = _SENDS[op.kind]
        other = self.neighbour(op.stage, step)
        if other is None or self.rank[other] == self.rank[op.stage]:
            return None
        return Op(op.stage, send, op.microbatch), Op(other, receive, op.microbatch)

    def matching(self, op: Op) -> Op | None:
        """The receive that belongs to a send and the other way round; None when there is no such stage."""
        step, other_kind = {
            Kind.SEND_F: (1, Kind.RECV_F), Kind.RECV_F: (-1, Kind.SEND_F),
            Kind.SEND_B: (-1, Kind.RECV_B), Kind.RECV_B: (1, Kind.SEND_B),
        }[op.kind]  # fmt: skip
        other = self.neighbour(op.stage, step)
        return None if other is None else Op(other, other_kind, op.microbatch)

    def peer(self, op: Op) -> int | None:
        """The rank at the other end of a send or receive."""
        other = self.matching(op)
        return None if other is None else self.rank[other.stage]


def with_communication(program: Program, *, receives: Receives = "early", batched: bool = False) -> Program:
    """The program with SEND and RECV ops.

    Args:
        program: without communication.
        receives: where receives stand; see the module's text.
        batched: merge sends and receives around a compute op into batches (receives are late then).

    Raises:
        InputError: when the program has communication already.
        Deadlock: when the compute order waits for itself.
    """
    if has_communication(program):
        raise InputError(Problem("", "the op list has sends and receives already"))
    lowered = _Lowering(program, in_step=receives == "timed").run()
    links = Links(program)
    if receives == "late" or batched:
        lowered = [list(_late(order)) for order in lowered]
    elif receives == "deferred":
        lowered = [list(_deferred(order, rank, links)) for rank, order in enumerate(lowered)]
    if batched:
        lowered = [list(_batched(order)) for order in lowered]
    return replace(program, ranks=tuple(tuple(order) for order in lowered))


class _Lowering:
    """Ranks take turns; an action goes out once what it needs was sent, and puts its receive into the peer's list."""

    def __init__(self, program: Program, in_step: bool) -> None:
        self.program, self.links, self.in_step = program, Links(program), in_step
        self.orders: list[list[Action]] = [[] for _ in program.ranks]
        self.made: list[set[Op]] = [set() for _ in program.ranks]

    def run(self) -> list[list[Action]]:
        """Lower every rank."""
        orders, at = self.program.ranks, [0] * len(self.program.ranks)
        left = [rank for rank, order in enumerate(orders) if order]
        while left:
            before = list(at)
            ready = [rank for rank in left if self._goes(rank, at)] if self.in_step else left
            for rank in ready:
                if self.in_step or self._goes(rank, at):
                    self._emit(orders[rank][at[rank]], rank)
                    at[rank] += 1
            if at == before:
                raise Deadlock(self._stuck(at))
            left = [rank for rank in left if at[rank] < len(orders[rank])]
        return self.orders

    def _goes(self, rank: int, at: Sequence[int]) -> bool:
        return all(self._ready(op, rank) for op in parts_of(self.program.ranks[rank][at[rank]]))

    def _ready(self, op: Op, rank: int) -> bool:
        if op.kind not in _RECEIVE:
            return True
        source = self.links.neighbour(op.stage, -1 if op.kind is Kind.F else 1)
        if source is None:
            return True
        kinds = (Kind.F,) if op.kind is Kind.F else (Kind.B, Kind.I)
        made = self.made[rank]
        return Op(op.stage, _RECEIVE[op.kind], op.microbatch) in made or any(
            Op(source, k, op.microbatch) in made for k in kinds
        )

    def _emit(self, action: Action, rank: int) -> None:
        self.orders[rank].append(action)
        for op in parts_of(action):
            self.made[rank].add(op)
            message = self.links.message(op)
            if message is not None:
                send, receive = message
                self.orders[rank].append(send)
                peer = self.links.rank[receive.stage]
                self.orders[peer].append(receive)
                self.made[peer].add(receive)

    def _stuck(self, next_up: Sequence[int]) -> str:
        places = enumerate(zip(self.program.ranks, next_up, strict=True))
        waits = [f"rank {rank} at {order[at]}" for rank, (order, at) in places if at < len(order)]
        return f"the compute order waits for itself: {', '.join(waits)}"


def _consumed(action: Action) -> Iterator[Op]:
    """Receives that an action's ops would take."""
    for op in parts_of(action):
        if op.kind in _RECEIVE:
            yield Op(op.stage, _RECEIVE[op.kind], op.microbatch)


def _late(order: Sequence[Action]) -> Iterator[Action]:
    waiting = {op for action in order for op in parts_of(action) if op.kind in (Kind.RECV_F, Kind.RECV_B)}
    for action in order:
        if isinstance(action, Op) and action in waiting:
            continue
        yield from (op for op in _consumed(action) if op in waiting)
        yield action


def _deferred(order: Sequence[Action], rank: int, links: Links) -> Iterator[Action]:
    held: dict[Op, int | None] = {}
    for action in order:
        if isinstance(action, Op) and action.kind in (Kind.RECV_F, Kind.RECV_B):
            held[action] = links.peer(action)
            continue
        if isinstance(action, Op) and action.kind in (Kind.SEND_F, Kind.SEND_B):
            peer = links.peer(action)
            if peer is not None and rank < peer:
                for receive in [op for op, other in held.items() if other == peer]:
                    del held[receive]
                    yield receive
        for receive in _consumed(action):
            if receive in held:
                del held[receive]
                yield receive
        yield action


def _batched(order: Sequence[Action]) -> Iterator[Action]:
    """Runs of sends and receives between compute ops become one batch each."""
    run: list[Op] = []
    for action in (*order, None):
        if isinstance(action, Op) and action.kind in COMMUNICATION:
            run.append(action)
            continue
        if run:
            yield run[0] if len(run) == 1 else Batch(tuple(run))
            run = []
        if action is not None:
            yield action


def with_fsdp(program: Program, most_gathered: int = 3, *, reduce: bool = True) -> Program:
    """UNSHARD before and RESHARD after use, REDUCE_GRAD behind a stage's last weight gradient.

    At most ``most_gathered`` stages are gathered at once: those that the next compute ops use, in order (torch's rule).
    A fused pair may bring one more.
    """
    units = program.units_per_chain
    ranks = (_gathered(rank, most_gathered) for rank in program.ranks)
    return replace(program, ranks=tuple(tuple(_reduced(rank, units) if reduce else rank) for rank in ranks))


def _upcoming(order: Sequence[Action], most: int) -> list[list[int]]:
    """For every place of a list: the stages that compute from there on, in order of first use, at least ``most`` if
    there are.

    Walks the list backwards; a group holds the stages of one action, so that a fused pair counts as a whole.
    """
    groups: list[list[int]] = []
    result: list[list[int]] = []
    for action in reversed(order):
        mine = list(dict.fromkeys(op.stage for op in parts_of(action) if op.kind in COMPUTE))
        if mine:
            rest = ([stage for stage in group if stage not in mine] for group in groups)
            groups = [mine, *(group for group in rest if group)]
        chosen: list[int] = []
        for group in groups:
            if len(chosen) >= most:
                break
            chosen += group
        result.append(chosen)
    return result[::-1]


def _gathered(order: Sequence[Action], most: int) -> Iterator[Action]:
    active: list[int] = []
    for action, upcoming in zip(order, _upcoming(order, most), strict=True):
        for stage in sorted(set(active) - set(upcoming)):
            active.remove(stage)
            yield Op(stage, Kind.RESHARD, None)
        for stage in [s for s in upcoming if s not in active]:
            active.append(stage)
            yield Op(stage, Kind.UNSHARD, None)
        yield action
    yield from (Op(stage, Kind.RESHARD, None) for stage in sorted(active))


def _reduced(order: Iterator[Action], units: int) -> Iterator[Action]:
    count: dict[int, int] = {}
    for action in order:
        yield action
        for op in parts_of(action):
            if op.kind in (Kind.B, Kind.W):
                count[op.stage] = count.get(op.stage, 0) + 1
                if count[op.stage] == units:
                    yield Op(op.stage, Kind.REDUCE_GRAD, None)
