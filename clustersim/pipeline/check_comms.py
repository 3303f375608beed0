"""Do the sends and receives of a program hang?

Three models of what a send does (a message of at most ``eager_bytes`` never blocks in any of them):

* ``buffered``: a send leaves at once; only compute waits, for the messages that it needs.
* ``stream``: sends and receives are queued in list order, one queue a pair of ranks (or one a rank), and run head by
head; a
  head completes when its other end is at the head of the peer's queue (NCCL without batching: one stream a
  communicator). Compute waits for its receives only.
* ``rendezvous``: a rank stands at each send and receive until the other end stands there too; a batch counts as one.

Order alone decides: no times are involved, so a program that passes may still be slow.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from clustersim.pipeline.check import check, find_cycle
from clustersim.pipeline.comms import Links, has_communication, with_communication
from clustersim.pipeline.finding import Finding, draw_stuck
from clustersim.pipeline.ops import COMMUNICATION, Action, Kind, Op, Program, parts_of
from clustersim.pipeline.waits import Waits

Model = Literal["buffered", "stream", "rendezvous"]
Streams = Literal["pair", "rank"]

_SENDS = (Kind.SEND_F, Kind.SEND_B)
_RECEIVE = {Kind.F: Kind.RECV_F, Kind.B: Kind.RECV_B, Kind.I: Kind.RECV_B}


def check_comms(
    program: Program,
    model: Model = "stream",
    *,
    eager_bytes: float = 0.0,
    message_bytes: float = float("inf"),
    streams: Streams = "pair",
) -> Finding | None:
    """The state in which the program hangs, or None when it runs to its end.

    Args:
        program: with sends and receives; one without is lowered first (receives early).
        model: what a send does; see the module's text.
        eager_bytes: messages up to this size (bytes) never block their sender.
        message_bytes: size of a message (bytes).
        streams: whether the queues of the stream model are one a pair of ranks or one a rank.
    """
    if not has_communication(program):
        stuck = find_cycle(program)
        if stuck is not None:
            return stuck
        program = with_communication(program)
    return _Wires(program, model, message_bytes <= eager_bytes, streams).run()


class _Wires:
    """Ranks with their places, queues of message groups, and what is complete."""

    def __init__(self, program: Program, model: Model, eager: bool, streams: Streams) -> None:
        self.program, self.model, self.eager, self.streams = program, model, eager, streams
        self.links, self.waits = Links(program), Waits(program)
        self.at = [0] * len(program.ranks)
        self.done: set[Op] = set()
        self.blocking: dict[int, Op] = {}
        self.queues: dict[tuple[int, int], deque[list[Op]]] = {}
        self.queue_of: dict[Op, tuple[int, int]] = {}
        ops = [op for rank in program.ranks for action in rank for op in parts_of(action)]
        self.listed = {op for op in ops if op.kind in COMMUNICATION}

    def run(self) -> Finding | None:
        """Go round the ranks and the queues until nothing moves."""
        moved = True
        while moved:
            advanced = [self._advance(rank) for rank in range(len(self.at))]
            moved = any(advanced) or self._match()
        left = [rank for rank, order in enumerate(self.program.ranks) if self.at[rank] < len(order)]
        return self._finding(left) if left else None

    # --- ranks ----------------------------------------------------------------------------------------------------

    def _advance(self, rank: int) -> bool:
        order, start = self.program.ranks[rank], self.at[rank]
        while self.at[rank] < len(order) and self._passes(order[self.at[rank]], rank):
            self.at[rank] += 1
        return self.at[rank] > start

    def _passes(self, action: Action, rank: int) -> bool:
        """Whether the rank is through with the action; posts its messages the first time."""
        ops = list(parts_of(action))
        if not all(op.kind in COMMUNICATION for op in ops):
            missing = self._missing(action, rank)
            if missing is None:
                self.done.update(ops)
            return missing is None
        if ops[0] not in self.queue_of:
            if self._missing(action, rank) is not None:
                return False
            self._post(ops, rank)
        return self.model != "rendezvous" or all(op in self.done for op in ops)

    def _missing(self, action: Action, rank: int) -> Op | None:
        """What the action still waits for; a message that the lists carry stands for the work on the other rank."""
        own = set(parts_of(action))
        for op in own:
            receive = Op(op.stage, _RECEIVE[op.kind], op.microbatch) if op.kind in _RECEIVE else None
            if receive in self.listed and receive not in self.done:
                return receive
        for need in self.waits.of(action):
            if self.done.isdisjoint(need) and not self._carried(need[0], own):
                return need[0]
        return None

    def _carried(self, need: Op, own: set[Op]) -> bool:
        """Whether the need comes as a message that is in the lists (and was received, else ``_missing`` said so)."""
        forward = need.kind is Kind.F
        stage = need.stage + 1 if forward else need.stage - 1
        receive = Op(stage, Kind.RECV_F if forward else Kind.RECV_B, need.microbatch)
        kinds = (Kind.F,) if forward else (Kind.B, Kind.I)
        return receive in self.done and any(Op(stage, kind, need.microbatch) in own for kind in kinds)

    def _post(self, ops: list[Op], rank: int) -> None:
        if self.model == "buffered":
            for op in ops:
                self.queue_of[op] = (rank, rank)
                self.queues.setdefault((rank, -1 - len(self.queues)), deque()).append([op])
            return
        groups: dict[tuple[int, int], list[Op]] = {}
        for op in ops:
            peer = self.links.peer(op)
            key = (rank, rank if peer is None or self.streams == "rank" or self.model == "rendezvous" else peer)
            groups.setdefault(key, []).append(op)
            self.queue_of[op] = key
        for key, group in groups.items():
            self.queues.setdefault(key, deque()).append(group)

    # --- messages -------------------------------------------------------------------------------------------------

    def _match(self) -> bool:
        """Complete what stands at the heads of queues; whether anything did."""
        heads = {op for queue in self.queues.values() for op in queue[0]}
        complete = {op for op in heads if self._completes(op, heads)}
        self.done |= complete
        for key in list(self.queues):
            queue = self.queues[key]
            queue[0] = [op for op in queue[0] if op not in complete]
            if not queue[0]:
                queue.popleft()
            if not queue:
                del self.queues[key]
        return bool(complete)

    def _completes(self, op: Op, heads: set[Op]) -> bool:
        other = self.links.matching(op)
        if op.kind in _SENDS and (self.eager or self.model == "buffered"):
            return True
        return other is not None and (other in heads or other in self.done)

    # --- the stuck state ------------------------------------------------------------------------------------------

    def _finding(self, left: list[int]) -> Finding:
        texts = {rank: self._wait_text(rank) for rank in left}
        rank = left[0]
        op = str(self.program.ranks[rank][self.at[rank]])
        stands = ", ".join(f"rank {r} at {self.program.ranks[r][self.at[r]]}" for r in left)
        message = f"communication hangs ({self.model}): {stands}; rank {rank} waits for {texts[rank]}"
        drawing = draw_stuck(self.program, self.at, texts)
        return Finding("communication", message, rank, op, self.at[rank], texts[rank], drawing)

    def _wait_text(self, rank: int) -> str:
        action = self.program.ranks[rank][self.at[rank]]
        posted = [op for op in parts_of(action) if op in self.queue_of and op not in self.done]
        wanted = posted[0] if posted else self._missing(action, rank)
        if wanted is None:
            return "its turn"
        text = str(wanted)
        if wanted in self.queue_of:
            text += self._behind(wanted)
        other = self.links.matching(wanted) if wanted.kind in COMMUNICATION else None
        if other is None:
            return text
        peer = self.links.rank[other.stage]
        if other not in self.queue_of:
            return f"{text}; its other end {other} is not posted by rank {peer}"
        return f"{text}; its other end {other} stands{self._behind(other)} on rank {peer}"

    def _behind(self, op: Op) -> str:
        queue = self.queues.get(self.queue_of[op])
        if not queue or op in queue[0]:
            return " at the head of its queue"
        return f" behind {queue[0][0]}"


def check_all(
    program: Program,
    models: tuple[Model, ...] = ("buffered", "stream", "rendezvous"),
    *,
    eager_bytes: float = 0.0,
    message_bytes: float = float("inf"),
    streams: Streams = "pair",
) -> list[Finding]:
    """Every fault of work and order; where there is none and the program lists messages, the models under which it
    hangs."""
    findings = check(program)
    if findings or not has_communication(program):
        return findings
    stuck = (
        check_comms(program, model, eager_bytes=eager_bytes, message_bytes=message_bytes, streams=streams)
        for model in models
    )
    return [finding for finding in stuck if finding is not None]
