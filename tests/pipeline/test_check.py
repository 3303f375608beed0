"""Faults in op lists: each is found, named by rank and op, and a list without fault passes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from clustersim.pipeline.check import check, find_cycle
from clustersim.pipeline.comms import with_communication, with_fsdp
from clustersim.pipeline.finding import Finding
from clustersim.pipeline.ops import Action, Fused, Kind, Op, Program, parts_of
from clustersim.pipeline.schedule import Pipeline, get_schedule, schedule_names
from clustersim.pipeline.text import parse_program


def kinds(program: Program) -> set[str]:
    return {finding.kind for finding in check(program)}


def one(program: Program, kind: str) -> Finding:
    return next(finding for finding in check(program) if finding.kind == kind)


def changed(program: Program, rank: int, order: list[Action]) -> Program:
    ranks = list(program.ranks)
    ranks[rank] = tuple(order)
    return replace(program, ranks=tuple(ranks))


BASE = get_schedule("1f1b").program(Pipeline(3, 4))


def test_a_good_list_has_no_findings() -> None:
    assert check(BASE) == []
    assert check(with_communication(BASE)) == []
    assert check(with_communication(with_fsdp(BASE))) == []


def test_missing_forward() -> None:
    found = one(changed(BASE, 1, [op for op in BASE.ranks[1] if op != Op(1, Kind.F, 2)]), "missing")
    assert (found.rank, found.op) == (1, "1F2")
    assert "stage 1 lacks F of unit 2" in found.message


def test_missing_backward_leaves_activations_over() -> None:
    broken = changed(BASE, 2, [op for op in BASE.ranks[2] if op != Op(2, Kind.B, 3)])
    assert {"missing", "left-over"} <= kinds(broken)
    found = one(broken, "left-over")
    assert found.rank == 2
    assert "activations of stage 2 for unit 3" in found.message


def test_missing_weight_gradient() -> None:
    split = get_schedule("zb-h1").program(Pipeline(3, 4))
    broken = changed(split, 0, [op for op in split.ranks[0] if op != Op(0, Kind.W, 1)])
    assert one(broken, "missing").message == "rank 0: stage 0 lacks W of unit 1"
    assert one(broken, "left-over").rank == 0


def test_double_work() -> None:
    found = one(changed(BASE, 0, [*BASE.ranks[0], Op(0, Kind.F, 1)]), "double")
    assert found.message == "rank 0: 0F1 is done 2 times"
    both = changed(BASE, 0, [*BASE.ranks[0], Op(0, Kind.I, 1), Op(0, Kind.W, 1)])
    assert "a full backward and a split one of unit 1" in one(both, "double").message


def test_wrong_order_on_one_rank() -> None:
    order = list(BASE.ranks[0])
    order.remove(Op(0, Kind.B, 3))
    order.insert(3, Op(0, Kind.B, 3))
    found = one(changed(BASE, 0, order), "order")
    assert (found.rank, found.op, found.place) == (0, "0B3", 3)
    assert found.message == "rank 0: 0B3 comes before 0F3, which it needs"
    split = get_schedule("zb-h1").program(Pipeline(2, 2))
    early = [Op(0, Kind.W, 0), *(op for op in split.ranks[0] if op != Op(0, Kind.W, 0))]
    assert "0W0 comes before 0I0" in one(changed(split, 0, early), "order").message


def test_slices_backward_in_the_wrong_order() -> None:
    """Causal attention: the gradient of a slice's keys and values needs the later slices first."""
    made = get_schedule("seq1f1b").program(Pipeline(2, 2, 1, 2))
    order = list(made.ranks[1])
    a, b = order.index(Op(1, Kind.B, 0)), order.index(Op(1, Kind.B, 1))
    order[a], order[b] = order[b], order[a]
    assert "1B0 comes before 1B1" in one(changed(made, 1, order), "order").message


def test_unknown_stages_and_units() -> None:
    program = parse_program("0F0,0B0\n2F0,2B0\n")
    assert "stage 1 is on no rank" in one(program, "stage").message
    two = parse_program("0F0,0F1,0B0,0B1\n1F0,0F1,1F1,1B0,1B1\n")
    assert "stage 0 is on two ranks, 0 and 1" in one(two, "stage").message
    unit = parse_program("0F0,0F7,0B0,0B7\n", microbatches=2)
    assert one(unit, "unit").message == "rank 0: 0F7 is of no unit, units are 0 … 1"
    assert "do not divide into 2 chains" in one(parse_program("0F0,1F0,2F0\n", chains=2), "stage").message


def test_cyclic_wait_is_drawn() -> None:
    stuck = find_cycle(parse_program("0F0,0B1,0F1,0B0\n1F0,1F1,1B0,1B1\n"))
    assert stuck is not None
    assert (stuck.rank, stuck.op, stuck.place) == (0, "0B1", 1)
    assert stuck.waits_for == "0F1 of rank 0"
    lines = stuck.drawing.splitlines()
    assert lines[0] == "rank 0  0F0 >0B1< 0F1 0B0   waits for 0F1 of rank 0"
    assert lines[1].startswith("rank 1  1F0 >1F1< 1B0 1B1   waits for 0F1 of rank 0")


def test_wait_for_work_that_no_rank_does() -> None:
    stuck = find_cycle(parse_program("0F0,0B0\n1F0\n"))
    assert stuck is not None
    assert stuck.message == "rank 0 waits for ever at 0B0 (op 1) for 1B0 or 1I0, which no rank does"


def test_a_fused_pair_that_needs_itself() -> None:
    made = parse_program("0F0,(0F1;0B1)OVERLAP_F_B,0B0\n1F0,1B0,1F1,1B1\n")
    stuck = find_cycle(made)
    assert stuck is not None
    assert stuck.op == "(0F1;0B1)OVERLAP_F_B"
    assert isinstance(made.ranks[0][1], Fused)


def test_copies_and_gathers() -> None:
    away = parse_program("0F0,0OFFLOAD0,0B0\n")
    assert "0B0 needs activations that were offloaded" in one(away, "copy").message
    assert kinds(parse_program("0F0,0OFFLOAD0,0RELOAD0,0B0\n")) == set()
    assert (
        "0F0 runs while stage 0 is not gathered" in one(parse_program("0F0,0UNSHARD,0B0,0RESHARD\n"), "gather").message
    )
    assert "ends with stage 0 gathered" in one(parse_program("0UNSHARD,0F0,0B0\n"), "gather").message


def test_messages_without_their_other_end() -> None:
    lowered = with_communication(BASE)
    no_receive = changed(lowered, 1, [op for op in lowered.ranks[1] if op != Op(1, Kind.RECV_F, 2)])
    found = [f for f in check(no_receive) if f.kind == "communication"]
    assert any(f.op == "0SEND_F2" and f.waits_for == "1RECV_F2, which no rank lists" for f in found)
    no_send = changed(lowered, 0, [op for op in lowered.ranks[0] if op != Op(0, Kind.SEND_F, 2)])
    assert any("the result of 0F2 crosses ranks without 0SEND_F2" in f.message for f in check(no_send))
    end = changed(lowered, 2, [*lowered.ranks[2], Op(2, Kind.SEND_F, 0)])
    assert any("a stage that there is not" in f.message for f in check(end))
    twice = changed(lowered, 0, [*lowered.ranks[0], Op(0, Kind.SEND_F, 2)])
    assert any(f.kind == "double" and f.op == "0SEND_F2" for f in check(twice))


@pytest.mark.parametrize("kind", [name for name in schedule_names() if name != "csv"])
def test_any_op_taken_out_is_noticed(kind: str) -> None:
    """Mutation: no op of a valid list is dispensable, and none may be repeated."""
    chosen = get_schedule(kind)
    slices = 4 if chosen.traits.sliced else 1
    made = chosen.program(Pipeline(4, 8, chosen.default_chunks(), slices))
    pick = random.Random(kind)
    for _ in range(12):
        rank = pick.randrange(4)
        place = pick.randrange(len(made.ranks[rank]))
        action = made.ranks[rank][place]
        order = list(made.ranks[rank])
        if next(parts_of(action)).kind is Kind.OFFLOAD:
            continue  # activations that stay are no fault
        assert check(changed(made, rank, order[:place] + order[place + 1 :])), f"{action} of rank {rank} is not missed"
        if next(parts_of(action)).kind is not Kind.RELOAD:
            assert check(changed(made, rank, [*order, action])), f"{action} twice on rank {rank} is not noticed"


@pytest.mark.parametrize("seed", range(40))
def test_two_ops_exchanged_are_noticed_or_harmless(seed: int) -> None:
    """Exchanging two ops of a rank is a fault exactly when the lists can no longer be executed in order."""
    pick = random.Random(seed)
    made = get_schedule("interleaved-1f1b").program(Pipeline(3, 6, 2))
    rank = pick.randrange(3)
    order = list(made.ranks[rank])
    a, b = sorted(pick.sample(range(len(order)), 2))
    order[a], order[b] = order[b], order[a]
    other = changed(made, rank, order)
    assert bool(check(other)) == (not _executable(other))


def _executable(program: Program) -> bool:
    """An independent play of a loop-placed list: every op as soon as its inputs were made, in list order."""
    done: set[Op] = set()
    at = [0] * len(program.ranks)
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(program.ranks):
            while at[rank] < len(order):
                op = order[at[rank]]
                assert isinstance(op, Op)
                before = [Op(op.stage, Kind.F, op.microbatch)] if op.kind is Kind.B else []
                if op.kind is Kind.F and op.stage:
                    before.append(Op(op.stage - 1, Kind.F, op.microbatch))
                if op.kind is Kind.B and op.stage < program.stages - 1:
                    before.append(Op(op.stage + 1, Kind.B, op.microbatch))
                if not done.issuperset(before):
                    break
                done.add(op)
                at[rank] += 1
                moved = True
    return all(place == len(order) for place, order in zip(at, program.ranks, strict=True))
