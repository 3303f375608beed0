"""Questions that users asked in public, answered by replaying: the ones about time and what is held.

Each names where it was asked. Answers are those of maintainers, or follow from the definition.
"""

from __future__ import annotations

import pytest

from clustersim.errors import Deadlock
from clustersim.pipeline.comms import with_communication
from clustersim.pipeline.critical import critical_rank
from clustersim.pipeline.evaluate import evaluate
from clustersim.pipeline.graph import compile
from clustersim.pipeline.idle import idle_by_cause
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.replay import Costs, replay
from clustersim.pipeline.text import parse_program
from tests.pipeline.replays import built, makespan, timed


def step_bubble(kind: str, ranks: int, microbatches: int, chunks: int = 1, **costs: object) -> float:
    """Idle share of the step."""
    return float(evaluate(timed(built(kind, ranks, microbatches, chunks), **costs))["bubble"]["step"])


def test_2_a_receive_queued_before_a_send_blocks_the_first_wave() -> None:
    """pytorch#188833: `0SEND_F0, 8RECV_F0, 0F1, 0SEND_F1` on one stream for all peers of a rank."""
    program = built("interleaved-1f1b", 8, 8, 2)
    eager = with_communication(program, receives="early")
    late = with_communication(program, receives="late")
    costs = {"latency": 0.05}
    apart = timed(eager, **costs).makespan
    assert timed(late, **costs).makespan == pytest.approx(apart)
    assert apart == pytest.approx(timed(program, **costs).makespan)
    assert timed(eager, streams="rank", **costs).makespan > 1.2 * apart


def test_4_one_microbatch_on_eight_ranks_runs_at_an_eighth() -> None:
    """torchtitan#775."""
    timeline = timed(built("1f1b", 8, 1))
    assert timeline.makespan == 8 * 3
    assert evaluate(timeline)["bubble"]["step"] == pytest.approx(0.875)


def test_8_zero_bubble_does_not_help_imbalance() -> None:
    """DeepSpeed#1378, #4477; torchtitan#2093: first or last stage heavier, p4 m8."""
    last, twice, first = ([1, 1, 1, 1.5], [1, 1, 1, 2], [1.2, 1, 1, 1])
    assert makespan("1f1b", 4, 8) == 33
    assert makespan("1f1b", 4, 8, rank_factors=last) == 45
    assert makespan("zb-h1", 4, 8) == 27
    assert makespan("zb-h1", 4, 8, rank_factors=last) == 39
    assert makespan("1f1b", 4, 8, rank_factors=twice) == 57
    assert makespan("1f1b", 4, 8, rank_factors=first) == pytest.approx(36)
    timeline = timed(built("1f1b", 4, 8), rank_factors=last)
    assert evaluate(timeline)["bubble"]["step"] == pytest.approx(0.4)
    assert idle_by_cause(timeline)["imbalance"] > 0


def test_11_zb_v_on_a_loop_placement_deadlocks_and_says_where() -> None:
    """torchtitan#774: the V's order with stage r + p on rank r."""
    text = "\n".join(",".join(str(op) for op in rank) for rank in built("zb-v", 4, 8).ranks)
    swapped = {str(7 - rank): str(4 + rank) for rank in range(4)}  # the V's upper stages renamed as on a loop
    lines = [[swapped.get(cell[0], cell[0]) + cell[1:] for cell in line.split(",")] for line in text.splitlines()]
    with pytest.raises(Deadlock, match="rank 0 waits at 4I0"):
        compile(parse_program("\n".join(",".join(line) for line in lines)))


def test_12_splitting_the_backward_under_full_recompute_makes_zero_bubble_slower() -> None:
    """torchtitan#773, zero-bubble#24: I and W each recompute the forward, a full backward does so once."""
    for microbatches, slower_than in ((16, "interleaved-1f1b"), (32, "1f1b")):
        split = makespan("zb-h1", 8, microbatches, I=2, W=2)
        chunks = 2 if slower_than == "interleaved-1f1b" else 1
        assert split > makespan(slower_than, 8, microbatches, chunks, B=3)
        assert makespan("zb-h1", 8, microbatches) < makespan(slower_than, 8, microbatches, chunks)  # without recompute


def test_13_dualpipe_against_interleaving() -> None:
    """DeepSeek-V3#211, DualPipe#15, #17: p8 m16; p + 1 because a pair takes before it frees."""
    assert makespan("interleaved-1f1b", 8, 16, 2) == 58.5
    assert makespan("interleaved-1f1b", 8, 16, 4) == 53.25
    assert makespan("dualpipe", 8, 16) == 54
    assert makespan("dualpipe-v", 8, 16) == 55
    assert evaluate(timed(built("dualpipe", 8, 16)))["peak_in_flight_microbatches"] == [9.0] * 8
    serial = compile(built("dualpipe", 8, 16), fused="serial")
    assert replay(serial, serial.durations(Costs.of())).makespan == 51  # F then B, not atomic: halves the bubble


def test_14_zero_bubble_is_zero_in_the_span_only() -> None:
    """pytorch PR 130210, 130752: the step keeps (p − 1)·F."""
    for ranks in (4, 6, 8):
        found = evaluate(timed(built("zb-h2", ranks, 2 * ranks)))
        assert found["bubble"]["span"] == pytest.approx(0, abs=1e-12)
        assert found["makespan"] == 3 * 2 * ranks + ranks - 1


def test_16_what_overlapping_p2p_can_gain_in_1f1b() -> None:
    """Megatron#4385: p8 m64, c = 0.1: 1F1B 225.4, eager 214.4, none 213; bought with twice the activations."""
    assert makespan("1f1b", 8, 64, latency=0.1) == pytest.approx(225.4)
    assert makespan("eager-1f1b", 8, 64, latency=0.1) == pytest.approx(214.4)
    assert makespan("1f1b", 8, 64) == 213
    peaks = [max(evaluate(timed(built(kind, 8, 64)))["peak_in_flight"]) for kind in ("1f1b", "eager-1f1b")]
    assert peaks == [8, 15]


def test_18_where_the_bubble_goes() -> None:
    """Megatron#691, zero-bubble#18: no tool was named; idle by cause answers it."""
    timeline = timed(built("1f1b", 4, 8), latency=0.1, F=[1, 1, 1, 1.2])
    causes = idle_by_cause(timeline)
    assert {cause for cause, value in causes.items() if value > 0} == {
        "fill", "drain", "dependency", "latency", "imbalance",
    }  # fmt: skip


def test_20_a_fused_pair_of_f1_and_b2_takes_three() -> None:
    """Victarry#1."""
    graph = compile(built("dualpipe", 4, 8))
    assert set(graph.durations(Costs.of())[graph.fused].tolist()) == {3.0}


def test_21_a_send_that_waits_for_its_receive_costs_what_an_eager_one_does_not() -> None:
    """nccl#479, #784: a message within the buffer passes; a larger one holds its sender until the receive."""
    program = built("gpipe", 4, 8)
    uneven = {"F": [1, 1, 2, 1], "latency": 0.1}
    eager, held = timed(program, **uneven), timed(program, p2p="blocking", **uneven)
    assert held.makespan > eager.makespan
    assert idle_by_cause(held)["blocked_send"] > 0


def test_22_interleaving_warms_up_twice_per_rank_or_waits() -> None:
    """Megatron#169: with (p − 1 − r) instead of 2·(p − 1 − r) extra forwards the steady pairs wait for messages.

    At zero latency both take 28.5; with latency the full warm-up pays 2(pv − 1)c, the halved one for every pair.
    """
    program = built("interleaved-1f1b", 4, 8, 2)
    ranks = []
    for rank, order in enumerate(program.ranks):
        forward = [op for op in order if op.kind is Kind.F]
        backward = [op for op in order if op.kind is Kind.B]
        warm = 4 + (3 - rank)
        steady = [op for pair in zip(forward[warm:], backward, strict=False) for op in pair]
        ranks.append([*forward[:warm], *steady, *backward[len(forward) - warm :]])
    text = "\n".join(",".join(str(op) for op in rank) for rank in ranks)
    halved = parse_program(text)
    assert timed(halved).makespan == timed(program).makespan == 28.5
    assert timed(program, latency=0.1).makespan == pytest.approx(28.5 + 14 * 0.1)
    assert timed(halved, latency=0.1).makespan > 28.5 + 20 * 0.1


def test_23_gpipe_and_1f1b_have_the_same_bubble() -> None:
    """A public tutorial prints 27 % and 19 % at p4 m8: both are 3/11."""
    assert step_bubble("gpipe", 4, 8) == step_bubble("1f1b", 4, 8) == pytest.approx(3 / 11)


def test_24_what_balancing_activations_over_ranks_could_save() -> None:
    """DeepSpeed, torchtitan#4764: interleaved p8 v2 holds 11.5 … 4.5; balanced it would be 8."""
    peaks = evaluate(timed(built("interleaved-1f1b", 8, 16, 2)))["peak_in_flight_microbatches"]
    assert peaks == [11.5, 10.5, 9.5, 8.5, 7.5, 6.5, 5.5, 4.5]
    assert sum(peaks) / 8 == 8


def test_latency_changes_the_ranking() -> None:
    """p8 m16: Seq1F1B k4 wins at zero latency and loses to interleaving at c = 0.1; GPipe then beats 1F1B."""
    assert makespan("seq1f1b", 8, 16, 1, 4) < makespan("interleaved-1f1b", 8, 16, 2)
    assert makespan("seq1f1b", 8, 16, 1, 4, latency=0.1) > makespan("interleaved-1f1b", 8, 16, 2, latency=0.1)
    assert makespan("gpipe", 8, 16, latency=0.1) < makespan("1f1b", 8, 16, latency=0.1)


def test_the_rank_to_read_along_is_the_one_that_ends_last() -> None:
    assert critical_rank(timed(built("zb-h2", 4, 8))) == 3
