"""Ops, fused pairs, batches and what a program reads off its lists."""

from __future__ import annotations

import pickle

from clustersim.pipeline.ops import Batch, Fused, Kind, Op, parts_of, program


def test_ops_print_as_in_torch() -> None:
    assert str(Op(2, Kind.F, 3)) == "2F3"
    assert str(Op(1, Kind.UNSHARD, None)) == "1UNSHARD"
    assert str(Op(0, Kind.SEND_F, 12)) == "0SEND_F12"
    assert str(Fused(Op(0, Kind.F, 4), Op(7, Kind.B, 1))) == "(0F4;7B1)OVERLAP_F_B"
    assert str(Batch((Op(0, Kind.SEND_F, 5), Op(0, Kind.RECV_B, 2)))) == "[0SEND_F5+0RECV_B2]"


def test_parts_of_every_action() -> None:
    one, two = Op(0, Kind.F, 4), Op(7, Kind.B, 1)
    assert list(parts_of(one)) == [one]
    assert list(parts_of(Fused(one, two))) == [one, two]
    assert list(parts_of(Batch((two, one)))) == [two, one]


def test_stages_are_read_off_the_lists() -> None:
    made = program(
        [[Op(0, Kind.F, 0), Fused(Op(3, Kind.F, 0), Op(0, Kind.B, 0))], [Op(1, Kind.F, 0), Op(2, Kind.F, 0)]], 1
    )
    assert made.stages == 4
    assert made.stage_rank == {0: 0, 3: 0, 1: 1, 2: 1}
    assert list(made.stage_rank) == [0, 3, 1, 2]


def test_units_and_chains() -> None:
    made = program([[Op(0, Kind.F, 0), Op(3, Kind.F, 0)], [Op(1, Kind.F, 0), Op(2, Kind.F, 0)]], 8, slices=3, chains=2)
    assert (made.units, made.units_per_chain, made.stages_per_chain) == (24, 12, 2)


def test_a_rank_without_ops_and_an_empty_program() -> None:
    assert program([[Op(0, Kind.F, 0)], []], 1).stages == 1
    assert program([[]], 1).stages == 0


def test_programs_survive_pickling_with_their_cached_values() -> None:
    made = program([[Op(0, Kind.F, 0)]], 1)
    assert made.stages == 1
    assert pickle.loads(pickle.dumps(made)) == made
