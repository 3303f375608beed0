"""Where ops stand in a program's lists, and checks of what is not compute: messages, copies, gathered parameters."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.comms import Links
from clustersim.pipeline.finding import Finding
from clustersim.pipeline.ops import COMMUNICATION, COMPUTE, Kind, Op, Program, parts_of


class Places:
    """``at[op]``: (rank, place) of every time that an op is listed; ``ranks_of_stage``: ranks that name a stage."""

    def __init__(self, program: Program) -> None:
        self.at: dict[Op, list[tuple[int, int]]] = {}
        self.ranks_of_stage: dict[int, list[int]] = {}
        for rank, order in enumerate(program.ranks):
            for place, action in enumerate(order):
                for op in parts_of(action):
                    self.at.setdefault(op, []).append((rank, place))
                    ranks = self.ranks_of_stage.setdefault(op.stage, [])
                    if rank not in ranks:
                        ranks.append(rank)


def check_messages(program: Program, places: Places) -> Iterator[Finding]:
    """Sends and receives: each has its other end, each boundary between ranks has its message, none twice."""
    links = Links(program)
    for op, at in places.at.items():
        rank, place = at[0]
        if op.kind in COMMUNICATION:
            other = links.matching(op)
            if len(at) > 1:
                yield Finding("double", f"rank {rank}: {op} is listed {len(at)} times", rank, str(op), at[1][1])
            if other is None or other not in places.at:
                what = f"{other}, which no rank lists" if other else "a stage that there is not"
                yield Finding(
                    "communication", f"rank {rank}: {op} has its other end at {what}", rank, str(op), place, what
                )
            elif places.at[other][0][0] == rank:
                yield Finding("communication", f"rank {rank}: {op} and {other} are on one rank", rank, str(op), place)
        elif op.kind in COMPUTE and len(at) == 1:
            for message in links.message(op) or ():
                if message not in places.at:
                    sentence = f"rank {rank}: the result of {op} crosses ranks without {message}"
                    yield Finding("communication", sentence, rank, str(op), place, str(message))


def check_copies(program: Program) -> Iterator[Finding]:
    """OFFLOAD and RELOAD: a backward runs on activations that are there."""
    for rank, order in enumerate(program.ranks):
        away: set[tuple[int, int | None]] = set()
        for place, action in enumerate(order):
            for op in parts_of(action):
                key = (op.stage, op.microbatch)
                if op.kind is Kind.OFFLOAD:
                    away.add(key)
                elif op.kind is Kind.RELOAD:
                    away.discard(key)
                elif op.kind in (Kind.B, Kind.I, Kind.R, Kind.W) and key in away:
                    sentence = f"rank {rank}: {op} needs activations that were offloaded and not reloaded"
                    yield Finding("copy", sentence, rank, str(op), place, str(Op(op.stage, Kind.RELOAD, op.microbatch)))


def check_gathers(program: Program) -> Iterator[Finding]:
    """UNSHARD and RESHARD: where a program gathers at all, compute runs on gathered stages, and none stays gathered."""
    for rank, order in enumerate(program.ranks):
        ops = [(place, op) for place, action in enumerate(order) for op in parts_of(action)]
        if not any(op.kind is Kind.UNSHARD for _, op in ops):
            continue
        gathered: set[int] = set()
        for place, op in ops:
            if op.kind is Kind.UNSHARD:
                gathered.add(op.stage)
            elif op.kind is Kind.RESHARD:
                gathered.discard(op.stage)
            elif op.kind in COMPUTE and op.stage not in gathered:
                sentence = f"rank {rank}: {op} runs while stage {op.stage} is not gathered"
                yield Finding("gather", sentence, rank, str(op), place, str(Op(op.stage, Kind.UNSHARD, None)))
        for stage in sorted(gathered):
            yield Finding("gather", f"rank {rank} ends with stage {stage} gathered: no RESHARD", rank)
