"""Metrics: bubbles, idle by cause, memory, the critical path."""

from __future__ import annotations

import json

import numpy as np
import pytest

from clustersim.pipeline.activations import held_bytes, peak_in_flight
from clustersim.pipeline.critical import critical_path, critical_rank
from clustersim.pipeline.evaluate import bubbles, evaluate
from clustersim.pipeline.graph import compile
from clustersim.pipeline.idle import CAUSES, busy, idle_by_cause, idle_gaps
from clustersim.pipeline.ops import Kind, program
from clustersim.pipeline.replay import Costs, replay
from clustersim.pipeline.text import parse_program
from tests.pipeline.replays import built, timed


def test_the_contract_of_evaluate() -> None:
    result = evaluate(timed(built("zb-h2", 4, 8)))
    assert set(result) >= {"makespan", "bubble", "rank_span", "peak_in_flight", "messages", "idle_by_cause"}
    assert set(result["bubble"]) == {"step", "span", "work"}
    assert set(result["idle_by_cause"]) == set(CAUSES)
    json.dumps(result, allow_nan=False)


def test_bytes_of_messages_are_added_up() -> None:
    timeline = timed(built("1f1b", 4, 8))
    assert "message_bytes" not in evaluate(timeline)
    assert evaluate(timeline, 2.5)["message_bytes"] == 48 * 2.5
    costs = Costs.of(message_bytes=[1.0, 2.0, 3.0, 4.0])
    # forwards leave stages 0, 1, 2; gradients stages 1, 2, 3
    assert evaluate(timeline, costs.bytes(timeline.graph))["message_bytes"] == 8 * (1 + 2 + 3 + 2 + 3 + 4)


def test_three_bubbles_of_the_zero_bubble_schedules() -> None:
    """ZB-H2 at p4 m8: 11.1 %, 0 %, 12.5 %; ZB-V: 5.9 %, 0 %, 6.25 %."""
    for kind, step, work in (("zb-h2", 1 / 9, 0.125), ("zb-v", 1.5 / 25.5, 0.0625)):
        found = bubbles(timed(built(kind, 4, 8)))
        assert found["step"] == pytest.approx(step)
        assert found["span"] == pytest.approx(0, abs=1e-12)
        assert found["work"] == pytest.approx(work)


def test_nothing_to_divide_by_is_null() -> None:
    timeline = timed(built("1f1b", 2, 2), F=0, I=0, W=0)
    assert bubbles(timeline) == {"step": None, "span": None, "work": None}
    empty = evaluate(replay(compile(program([[], []], 1)), []))
    assert empty["makespan"] == 0
    assert empty["messages"] == 0
    assert empty["peak_in_flight"] == [0, 0]


def test_fill_drain_and_dependency_of_gpipe() -> None:
    """p2 m2, F1 B2: rank 0 F0 F1 . . B0 B1 waits one F and one B; rank 1 fills one F and drains one B."""
    causes = idle_by_cause(timed(built("gpipe", 2, 2)))
    assert {cause: value for cause, value in causes.items() if value} == {"fill": 1, "drain": 2, "dependency": 3}


def test_latency_is_what_a_finished_tensor_takes() -> None:
    timeline = timed(built("gpipe", 2, 2), latency=0.25)
    causes = idle_by_cause(timeline)
    assert causes["latency"] == pytest.approx(0.25)  # B0's way back; the way there is in the fill
    assert causes["fill"] == pytest.approx(1.25)
    gaps = [(gap.start, gap.end, gap.cause) for gap in idle_gaps(timeline) if gap.rank == 0]
    assert gaps == [(2.0, 5.25, "dependency"), (5.25, 5.5, "latency")]


def test_a_slow_stage_shows_as_imbalance_and_equal_stages_do_not() -> None:
    even, uneven = timed(built("1f1b", 4, 16)), timed(built("1f1b", 4, 16), F=[1, 1, 1.5, 1])
    assert idle_by_cause(even)["imbalance"] == 0
    slow = idle_by_cause(uneven)
    # ranks 0, 1 and 3 wait 0.5 for each of the 16 forwards of rank 2, less what fill and drain already hold
    assert slow["imbalance"] > 10
    assert sum(slow.values()) == pytest.approx(4 * uneven.makespan - busy(uneven).sum())


def test_blocked_sends_appear_only_with_blocking_p2p() -> None:
    blocked = idle_by_cause(timed(built("gpipe", 4, 8), p2p="blocking", latency=0.5))
    assert blocked["blocked_send"] > 0
    assert idle_by_cause(timed(built("gpipe", 4, 8), latency=0.5))["blocked_send"] == 0


def test_waiting_for_room_is_memory() -> None:
    graph = compile(parse_program("0F0,0OFFLOAD0,0F1,0F2,0B2,0RELOAD0,0B1,0B0"), resident_limit=2)
    costs = Costs({Kind.F: 1.0, Kind.B: 2.0, Kind.OFFLOAD: 5.0, Kind.RELOAD: 1.0})
    causes = idle_by_cause(replay(graph, graph.durations(costs)))
    assert {cause: value for cause, value in causes.items() if value} == {"memory": 4.0}


def test_causes_add_up_for_every_rank() -> None:
    timeline = timed(built("interleaved-1f1b", 4, 8, 2), F=[1, 1.3, 1, 1, 1, 1, 0.7, 1], latency=0.1)
    total = np.zeros(4)
    for gap in idle_gaps(timeline):
        total[gap.rank] += gap.end - gap.start
    assert total == pytest.approx(timeline.makespan - busy(timeline))


# --- what is held --------------------------------------------------------------------------------------------

PEAKS = {
    ("gpipe", 1): lambda p, m, r: m,
    ("1f1b", 1): lambda p, m, r: min(m, p - r),
    ("eager-1f1b", 1): lambda p, m, r: min(m, 2 * (p - r) - 1),
    ("zb-h1", 1): lambda p, m, r: p,
    ("zb-h2", 1): lambda p, m, r: 2 * p - 1,
    ("looped-bfs", 2): lambda p, m, r: m,
    ("interleaved-1f1b", 2): lambda p, m, r: (p + 2 * (p - 1 - r) + 1) / 2,
    ("dualpipe", 1): lambda p, m, r: p + 1,
    ("dualpipe-v", 1): lambda p, m, r: p + 0.5,
}


@pytest.mark.parametrize("key", PEAKS, ids=str)
@pytest.mark.parametrize("p", [4, 8])
def test_peaks_in_flight(key: tuple[str, int], p: int) -> None:
    m = 2 * p
    result = evaluate(timed(built(key[0], p, m, key[1])))
    assert result["peak_in_flight_microbatches"] == [PEAKS[key](p, m, r) for r in range(p)]


def test_bytes_over_time_peak_where_units_do() -> None:
    timeline = timed(built("1f1b", 4, 8))
    held = held_bytes(timeline, 3.0)
    assert [h.peak for h in held] == (3.0 * peak_in_flight(timeline.graph)).tolist()
    assert all(h.bytes[-1] == 0 for h in held)
    assert timeline.graph.label(held[0].peak_op or 0) == "0F3"


def test_offloaded_and_recomputed_activations() -> None:
    text = "0F0,0OFFLOAD0,0F1,0R1,0B1,0RELOAD0,0R0,0B0"
    graph = compile(parse_program(text))
    costs = Costs({Kind.F: 1.0, Kind.R: 1.0, Kind.B: 2.0, Kind.OFFLOAD: 0.5, Kind.RELOAD: 0.5})
    held = held_bytes(replay(graph, graph.durations(costs)), 10.0, 2.0)[0]
    assert held.bytes.min() >= 0
    assert held.bytes[-1] == 0
    assert held.peak == pytest.approx(10.0)  # one unit recomputed at a time, the other offloaded


def test_bytes_differ_by_stage() -> None:
    held = held_bytes(timed(built("gpipe", 2, 3)), [1.0, 5.0])
    assert [h.peak for h in held] == [3.0, 15.0]


# --- the critical path ---------------------------------------------------------------------------------------


def test_critical_path_of_1f1b() -> None:
    timeline = timed(built("1f1b", 2, 2), latency=0.5)
    assert [step.label for step in critical_path(timeline)] == ["0F0", "1F0", "1B0", "1F1", "1B1", "0B1"]
    assert [step.message >= 0 for step in critical_path(timeline)] == [False, True, False, False, False, True]
    assert critical_rank(timeline) == 0


def test_critical_rank_takes_the_lowest_on_ties() -> None:
    assert critical_rank(timed(built("dualpipe", 2, 4))) == 0  # both ranks end together


def test_ops_off_the_path_may_shrink_for_nothing() -> None:
    graph = compile(built("1f1b", 4, 8))
    base = graph.durations(Costs.of())
    timeline = replay(graph, base)
    on_path = {step.node for step in critical_path(timeline)}
    shorter = np.where(np.isin(np.arange(graph.ops), list(on_path)), base, 0.5 * base)
    assert replay(graph, shorter).makespan == timeline.makespan


def test_a_release_time_begins_the_path() -> None:
    graph = compile(built("1f1b", 2, 1))
    path = critical_path(replay(graph, graph.durations(Costs.of()), release=[0.0, 5.0]))
    assert path[0].label == "1F0"
