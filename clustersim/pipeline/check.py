"""Checks of an op list: is every piece of work there once, in an order that can be executed, with nothing left over?

``check`` looks at the work and its order; ``check_comms`` (in ``clustersim.pipeline.check_comms``) at whether sends and
receives hang.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from clustersim.pipeline.comms import has_communication
from clustersim.pipeline.finding import Finding, draw_stuck, some
from clustersim.pipeline.lists import Places, check_copies, check_gathers, check_messages
from clustersim.pipeline.ops import Kind, Op, Program, parts_of
from clustersim.pipeline.waits import Need, Waits

_WORK = (Kind.F, Kind.B, Kind.I, Kind.W)


def check(program: Program) -> list[Finding]:
    """Every fault of the program, work first, then order; empty when it can be executed.

    Finds work that is missing or done twice, stages on no rank or on two, units out of range, ops before what they
    need on the same rank, cyclic waits between ranks, activations left over at the end, sends without receives,
    compute on parameters that are not gathered, backwards on activations that are away.
    """
    places = Places(program)
    findings = [*_numbers(program, places), *_work(program, places), *_order(program, places)]
    findings += [*_left_over(program), *check_copies(program), *check_gathers(program)]
    if has_communication(program):
        findings += check_messages(program, places)
    stuck = find_cycle(program, places)
    return findings if stuck is None else [*findings, stuck]


def _numbers(program: Program, places: Places) -> Iterator[Finding]:
    """Stages and units that the program's size does not know."""
    held = program.stage_rank
    for stage in range(program.stages):
        if stage not in held:
            yield Finding("stage", f"stage {stage} is on no rank: stages are numbered 0 … {program.stages - 1}")
    if program.stages % program.chains:
        yield Finding("stage", f"{program.stages} stages do not divide into {program.chains} chains")
    for stage, ranks in sorted(places.ranks_of_stage.items()):
        if len(ranks) > 1:
            rank, second = ranks[0], ranks[1]
            yield Finding(
                "stage", f"stage {stage} is on two ranks, {rank} and {second}: give a copy a name of its own", second
            )
    units = program.units_per_chain
    for op, at in places.at.items():
        if op.microbatch is not None and op.microbatch >= units:
            rank, place = at[0]
            yield Finding("unit", f"rank {rank}: {op} is of no unit, units are 0 … {units - 1}", rank, str(op), place)


def _work(program: Program, places: Places) -> Iterator[Finding]:
    """Each (stage, unit): F once, then B once or I and W once."""
    units = range(program.units_per_chain)
    for op, at in places.at.items():
        if len(at) > 1 and op.kind in (*_WORK, Kind.R, Kind.S, Kind.T):
            rank, place = at[1]
            yield Finding("double", f"rank {rank}: {op} is done {len(at)} times", rank, str(op), place)
    for stage, rank in sorted(program.stage_rank.items()):
        done = {kind: {unit for unit in units if Op(stage, kind, unit) in places.at} for kind in _WORK}
        for unit in sorted(done[Kind.B] & (done[Kind.I] | done[Kind.W])):
            message = f"rank {rank}: stage {stage} has a full backward and a split one of unit {unit}"
            yield Finding("double", message, rank, str(Op(stage, Kind.B, unit)))
        lacking = {
            "F": [unit for unit in units if unit not in done[Kind.F]],
            "B or I": [unit for unit in units if unit not in done[Kind.B] | done[Kind.I]],
            "W": sorted(done[Kind.I] - done[Kind.W]),
        }
        for name, missing in lacking.items():
            if missing:
                first = str(Op(stage, Kind(name[0]), missing[0]))
                yield Finding(
                    "missing", f"rank {rank}: stage {stage} lacks {name} of unit {some(missing)}", rank, first
                )


def _order(program: Program, places: Places) -> Iterator[Finding]:
    """Ops that stand before what they need on the same rank."""
    waits = Waits(program)
    for rank, order in enumerate(program.ranks):
        for place, action in enumerate(order):
            for need in waits.of(action):
                late = _later(need, rank, place, places)
                if late is not None:
                    message = f"rank {rank}: {action} comes before {late}, which it needs"
                    yield Finding("order", message, rank, str(action), place)


def _later(need: Need, rank: int, place: int, places: Places) -> Op | None:
    """The op that stands later on the same rank, unless another that meets the need is in time or elsewhere."""
    found = [(op, at) for op in need for at in places.at.get(op, ())]
    if not found or any(r != rank or p < place for _, (r, p) in found):
        return None
    return found[0][0]


def _left_over(program: Program) -> Iterator[Finding]:
    """Activations that no backward frees."""
    for rank, order in enumerate(program.ranks):
        held: dict[int, set[int]] = {}
        freed: dict[int, set[int]] = {}
        split = {(op.stage, op.microbatch) for action in order for op in parts_of(action) if op.kind is Kind.I}
        for op in (op for action in order for op in parts_of(action) if op.microbatch is not None):
            unit = op.microbatch or 0
            if op.kind is Kind.F:
                held.setdefault(op.stage, set()).add(unit)
            elif op.kind is Kind.W or (op.kind is Kind.B and (op.stage, unit) not in split):
                freed.setdefault(op.stage, set()).add(unit)
        for stage in sorted(held):
            left = sorted(held[stage] - freed.get(stage, set()))
            if left:
                kept = f"the activations of stage {stage} for unit {some(left)}"
                message = f"rank {rank} ends with {kept}: no backward frees them"
                yield Finding("left-over", message, rank, str(Op(stage, Kind.F, left[0])))


def find_cycle(program: Program, places: Places | None = None) -> Finding | None:
    """Play the lists in order, without time; the state in which no rank can go on, or None."""
    at, blocked = _play(program, Waits(program))
    if not blocked:
        return None
    places = places or Places(program)
    texts = {rank: _wait_text(need, places) for rank, need in blocked.items()}
    rank = _start_of_cycle(blocked, places)
    op = str(program.ranks[rank][at[rank]])
    message = f"rank {rank} waits for ever at {op} (op {at[rank]}) for {texts[rank]}"
    drawing = draw_stuck(program, at, texts)
    return Finding("cycle", message, rank, op, at[rank], texts[rank], drawing)


def _play(program: Program, waits: Waits) -> tuple[list[int], dict[int, Need]]:
    """(place of each rank, what each unfinished rank waits for)."""
    at = [0] * len(program.ranks)
    done: set[Op] = set()
    blocked: dict[int, Need] = {}
    waiting: dict[Op, list[int]] = {}
    queue = deque(range(len(at)))
    while queue:
        rank = queue.popleft()
        order = program.ranks[rank]
        blocked.pop(rank, None)
        while at[rank] < len(order):
            action = order[at[rank]]
            need = next((need for need in waits.of(action) if done.isdisjoint(need)), None)
            if need is not None:
                blocked[rank] = need
                for op in need:
                    waiting.setdefault(op, []).append(rank)
                break
            at[rank] += 1
            for op in parts_of(action):
                done.add(op)
                queue.extend(waiting.pop(op, ()))
    return at, blocked


def _wait_text(need: Need, places: Places) -> str:
    for op in need:
        if op in places.at:
            return f"{op} of rank {places.at[op][0][0]}"
    return f"{' or '.join(str(op) for op in need)}, which no rank does"


def _start_of_cycle(blocked: dict[int, Need], places: Places) -> int:
    """The lowest rank of the cycle that the first stuck rank's waits lead into (or a rank that waits for missing
    work)."""
    rank, seen = min(blocked), []  # type: int, list[int]
    while rank not in seen:
        seen.append(rank)
        after = next((places.at[op][0][0] for op in blocked[rank] if op in places.at), None)
        if after is None or after not in blocked:
            return rank
        rank = after
    return min(seen[seen.index(rank) :])
