"""Compiling programs: edges, numbering, streams, deadlocks."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.errors import Deadlock, InputError
from clustersim.pipeline.comms import with_communication
from clustersim.pipeline.dependencies import KINDS
from clustersim.pipeline.graph import Graph, compile
from clustersim.pipeline.ops import Fused, Kind, Op, program
from clustersim.pipeline.replay import Costs, replay
from clustersim.pipeline.text import parse_program
from tests.pipeline.replays import built, timed


def ends(graph: Graph, **costs: object) -> dict[str, float]:
    """End of each op by its text."""
    every = Costs.of(**costs)  # type: ignore[arg-type]
    timeline = replay(graph, graph.durations(every), graph.delays(every))
    return {graph.label(op): float(timeline.end[op]) for op in range(graph.ops)}


def test_ops_keep_their_list_order_and_text() -> None:
    given = built("dualpipe", 4, 8)
    graph = compile(given)
    for rank, ops in enumerate(graph.rank_ops):
        assert [graph.label(op) for op in ops.tolist()] == [str(action) for action in given.ranks[rank]]


def test_numbering_is_topological() -> None:
    graph = compile(built("interleaved-1f1b", 4, 8, 2))
    assert graph.nodes == graph.ops
    assert (graph.order == np.arange(graph.ops)).all()
    target = np.repeat(np.arange(graph.ops), np.diff(graph.edges.start))
    assert (graph.edges.other < target).all()


def test_messages_are_tensors_between_ranks() -> None:
    graph = compile(built("zb-v", 4, 8))
    assert len(graph.messages) == 2 * 8 * (2 * 4 - 2)  # the turn of the V stays on its rank
    assert (graph.messages.source_rank != graph.messages.target_rank).all()


def test_memory_is_linear_in_ops() -> None:
    sizes = []
    for microbatches in (64, 128, 256):
        graph = compile(built("1f1b", 8, microbatches))
        arrays = [*vars(graph.parts).values(), graph.edges.start, graph.edges.other, graph.edge_message, graph.order]
        sizes.append(sum(array.nbytes for array in arrays) / graph.ops)
    assert max(sizes) == pytest.approx(min(sizes), rel=0.02)


def test_missing_work_is_named() -> None:
    given = program([[Op(0, Kind.F, 0), Op(0, Kind.B, 0)], [Op(1, Kind.B, 0)]], 1)
    with pytest.raises(Deadlock, match=r"rank 1 waits at 1B0 for 1F0 \(which no rank runs\)"):
        compile(given)


def test_cyclic_wait_names_rank_op_and_what_it_waits_for() -> None:
    given = program([[Op(0, Kind.F, 0), Op(0, Kind.B, 1), Op(0, Kind.F, 1), Op(0, Kind.B, 0)],
                     [Op(1, Kind.F, 0), Op(1, Kind.B, 0), Op(1, Kind.F, 1), Op(1, Kind.B, 1)]], 2)  # fmt: skip
    with pytest.raises(Deadlock, match=r"rank 0 waits at 0B1 for 0F1 \(rank 0\), 1B1 \(rank 1\); rank 1 waits at 1F1"):
        compile(given)


def test_slices_out_of_order_deadlock() -> None:
    given = program([[Op(0, Kind.F, 1), Op(0, Kind.F, 0), Op(0, Kind.B, 1), Op(0, Kind.B, 0)]], 1, slices=2)
    with pytest.raises(Deadlock, match="0F1"):
        compile(given)


def test_odd_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="out of range"):
        compile(program([[Op(0, Kind.F, 10**9)]], 1))
    with pytest.raises(InputError, match="chains"):
        compile(program([[Op(stage, Kind.F, 0) for stage in range(3)]], 1, chains=2))


def test_a_fused_pair_is_atomic_or_serial() -> None:
    pair = Fused(Op(0, Kind.F, 1), Op(0, Kind.B, 0))
    given = program([[Op(0, Kind.F, 0), pair, Op(0, Kind.B, 1)]], 2)
    assert ends(compile(given))["(0F1;0B0)OVERLAP_F_B"] == 4.0
    serial = ends(compile(given, fused="serial"))
    assert (serial["0F1"], serial["0B0"]) == (2.0, 4.0)


SENDS = """0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1
1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1
"""


def test_dependencies_run_over_listed_sends_and_receives() -> None:
    explicit = compile(parse_program(SENDS))
    implicit = compile(built("1f1b", 2, 2))
    assert explicit.messages.counted.sum() == implicit.messages.counted.sum() == 4
    one, other = ends(explicit, latency=0.25), ends(implicit, latency=0.25)
    assert {op: one[op] for op in other} == other


def test_a_receive_holds_up_sends_behind_it_only_on_a_shared_stream() -> None:
    """pytorch#188833: on one stream a receive in front of the next send blocks it until the first wave is back."""
    late = SENDS.replace("0F1,0SEND_F1,0RECV_B0,0B0", "0F1,0RECV_B0,0SEND_F1,0B0")
    apart = ends(compile(parse_program(late)), latency=0.25)
    shared = ends(compile(parse_program(late), streams="rank"), latency=0.25)
    assert apart["1F1"] == 5.25  # rank 1: F0 from 1.25, B0 to 4.25, F1 straight after
    assert shared["0SEND_F1"] == shared["0RECV_B0"] == 4.5
    assert shared["1F1"] == 4.5 + 0.25 + 1
    assert max(shared.values()) > max(apart.values())


def test_gathers_run_beside_compute_and_hold_up_their_stage() -> None:
    text = "0UNSHARD,0F0,1UNSHARD,0F1,1F0,1F1,1B0,1B1,0B0,0B1,0RESHARD,0REDUCE_GRAD"
    graph = compile(parse_program(text))
    costs = Costs({Kind.F: 1.0, Kind.B: 2.0, Kind.UNSHARD: 1.5, Kind.REDUCE_GRAD: 3.0})
    timeline = replay(graph, graph.durations(costs))
    start = {graph.label(op): float(timeline.start[op]) for op in range(graph.ops)}
    assert start["0F0"] == 1.5  # exposed: nothing to hide behind
    assert (start["1UNSHARD"], start["1F0"]) == (2.5, 4.0)  # beside 0F1, half a second late
    assert start["0REDUCE_GRAD"] == 14.0
    assert timeline.makespan == 17.0


def test_offload_and_reload_bound_what_stays() -> None:
    text = "0F0,0OFFLOAD0,0F1,0F2,0B2,0RELOAD0,0B1,0B0"
    costs = Costs({Kind.F: 1.0, Kind.B: 2.0, Kind.OFFLOAD: 5.0, Kind.RELOAD: 1.0})
    free = compile(parse_program(text))
    tight = compile(parse_program(text), resident_limit=2)
    assert replay(free, free.durations(costs)).makespan == 9.0
    # F2 needs the room that the copy of unit 0 (1..6) makes: 6, B2 to 9, B1 to 11 beside the reload, B0 to 13
    assert replay(tight, tight.durations(costs)).makespan == 13.0


def test_vocabulary_layer_meets_at_barriers() -> None:
    given = built("1f1b", 2, 2, vocabulary_parallel="algorithm-1")
    graph = compile(given)
    assert graph.nodes > graph.ops
    timeline = timed(given, latency=0.5)
    at = {graph.label(op): op for op in range(graph.ops)}
    start, end = timeline.start, timeline.end
    for unit in range(2):
        local = [op for text, op in at.items() if text.endswith(f"S{unit}")]
        final = [op for text, op in at.items() if text.endswith(f"T{unit}")]
        assert len(local) == len(final) == 2
        assert min(start[op] for op in final) >= max(end[op] for op in local)
        assert start[at[f"1B{unit}"]] >= max(end[op] for op in final)
        assert min(start[op] for op in local) >= end[at[f"1F{unit}"]]


def test_units_that_are_a_whole_stage_have_no_microbatch() -> None:
    graph = compile(parse_program("0UNSHARD,0F0,0B0"))
    assert [KINDS[kind] for kind in graph.kind[graph.unit < 0]] == [Kind.UNSHARD]


def test_batches_of_messages_are_opened_and_meet_under_blocking_p2p() -> None:
    """torch's 1F1B sends and receives in one batch; unbatched the same order still runs, as one batch a boundary."""
    program = built("1f1b", 2, 4)
    batched = with_communication(program, batched=True)
    assert timed(batched, latency=0.25).makespan == timed(program, latency=0.25).makespan
    blocking = timed(batched, p2p="blocking", latency=0.25)
    assert blocking.makespan >= timed(program, latency=0.25).makespan
    assert len(blocking.graph.transfer) == 8


def test_a_deadlock_of_transfers_names_both_ends() -> None:
    """Under rendezvous a receive that stands behind the op that its sender waits for never comes."""
    text = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F1,1F1,1RECV_F0,1F0,1B0,1SEND_B0,1B1,1SEND_B1\n"
    with pytest.raises(Deadlock, match=r"the transfer from 0SEND_F0 to 1RECV_F0 \(rank 0 to 1\)"):
        compile(parse_program(text), p2p="blocking")
