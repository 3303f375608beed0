"""Schedules: published numbers, sizes that are refused and told why, options, what users asked about order and
memory."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from clustersim.errors import InputError
from clustersim.pipeline.check import check, find_cycle
from clustersim.pipeline.comms import with_fsdp
from clustersim.pipeline.costs import Costs
from clustersim.pipeline.evaluate import evaluate
from clustersim.pipeline.ops import COMPUTE, Kind, Op, Program, parts_of
from clustersim.pipeline.orders import alternate, by_slot, interleaved_rows
from clustersim.pipeline.replay import compile, replay
from clustersim.pipeline.schedule import Pipeline, Schedule, get_schedule, schedule_names
from clustersim.pipeline.text import to_csv


def play(
    program: Program,
    F: float = 1.0,
    I: float = 1.0,  # noqa: E741 - the field's name
    W: float = 1.0,
    latency: float = 0.0,
    **more: Any,
) -> dict[str, Any]:
    graph, costs = compile(program), Costs.of(F=F, I=I, W=W, latency=latency, **more)
    return evaluate(replay(graph, graph.durations(costs), graph.delays(costs)))


def made(kind: str, *size: int, **options: Any) -> Program:
    return get_schedule(kind, **options).program(Pipeline(*size))


# (schedule, size, options): step at F = I = W = 1; with latency 0.1 a hop; with I 1.2, W 0.8; both; peak on the first
# rank. From an independent evaluator's table at p 8, m 16.
TABLE = [
    ("gpipe", (8, 16), {}, (69, 70.4, 69, 70.4), 16),
    ("1f1b", (8, 16), {}, (69, 73.0, 69, 73.0), 8),
    ("eager-1f1b", (8, 16), {}, (69, 70.4, 69, 70.4), 15),
    ("interleaved-1f1b", (8, 16, 2), {}, (58.5, 61.5, 58.5, 61.5), 11.5),
    ("looped-bfs", (8, 16, 2), {}, (58.5, 59.9, 58.5, 59.9), 16),
    ("chimera", (8, 16), {}, (66, 69.1, 66, 69.1), 5),
    ("zb-h1", (8, 16), {}, (55, 57.8, 57.8, 60.6), 8),
    ("zb-h2", (8, 16), {}, (55, 55.7, 55, 55.7), 15),
    ("interleaved-zb", (8, 16, 2), {}, (51.5, 55.1, 52.9, 56.5), 8),
    ("zb-v", (8, 16), {}, (51.5, 54.8, 52.2, 55.5), 8),
    ("v-half", (8, 16), {}, (56.5, 61.3, 59.5, 63.9), 5),
    ("v-min", (8, 16), {}, (61.5, 72.1, 71.7, 81.9), 3.5),
    ("dualpipe", (8, 16), {}, (54, 56.3, 55.2, 57.5), 9),
    ("dualpipe-v", (8, 16), {}, (55, 59.9, 56.6, 62.0), 8.5),
    ("seq1f1b", (8, 16, 1, 2), {}, (58.5, 65.1, 58.5, 65.1), 4.5),
    ("seq1f1b", (8, 16, 1, 4), {}, (53.25, 65.05, 53.25, 65.05), 2.75),
    ("seq1f1b-i", (8, 16, 2, 4), {}, (50.625, 53.625, 50.625, 53.625), 3.25),
    ("seq1f1b-zb", (8, 16, 1, 4), {}, (49.75, 52.55, 50.45, 53.25), 2.75),
]


@pytest.mark.parametrize(("kind", "size", "options", "steps", "peak"), TABLE)
def test_steps_and_peaks_at_p8_m16(
    kind: str, size: tuple[int, ...], options: dict[str, Any], steps: tuple[float, ...], peak: float
) -> None:
    program = made(kind, *size, **options)
    unit = play(program)
    got = (unit, play(program, latency=0.1), play(program, I=1.2, W=0.8), play(program, I=1.2, W=0.8, latency=0.1))
    assert [result["makespan"] for result in got] == pytest.approx(steps, abs=1e-9)
    assert unit["peak_in_flight_microbatches"][0] == peak


@pytest.mark.parametrize(
    ("kind", "options", "step"),
    [("1f1b-v", {}, 64.5), ("pipeoffload", {"group": 4}, 57), ("pipeoffload", {"group": 8}, 55)],
)
def test_more_steps_at_p8_m16(kind: str, options: dict[str, Any], step: float) -> None:
    assert play(made(kind, 8, 16, 2, **options))["makespan"] == step


@pytest.mark.parametrize(
    ("ranks", "waves", "percent"), [(4, 1, 33), (4, 2, 21), (4, 4, 12), (8, 1, 37), (8, 2, 24), (8, 4, 14)]
)
def test_hanayo_by_definition_not_verified(ranks: int, waves: int, percent: int) -> None:
    """Greedy list scheduling on the exact placement at m = p; the paper's formula (recalled) gives 40/22/12 and
    45/25/14."""
    program = made("hanayo", ranks, ranks, 2 * waves)
    assert round(100 * play(program)["bubble"]["step"]) == percent
    formula = (2 * ranks - 2) / (3 * ranks * waves + ranks - 1)
    if waves > 1:
        assert play(program)["bubble"]["step"] == pytest.approx(formula, rel=0.08)
    assert not get_schedule("hanayo").describe().verified


def test_published_pass_times_of_the_zero_bubble_paper() -> None:
    """1.5 B model: F 18.522, I 18.086, W 9.337, hop 0.601 ms at p 8, m 24; idle shares 0.2431, 0.1585, 0.0433 of its
    table."""
    times = {"F": 18.522, "I": 18.086, "W": 9.337, "latency": 0.601}
    search = {"forward": 18.522, "input_grad": 18.086, "weight_grad": 9.337, "latency": 0.601}
    wanted = {
        "1f1b": (made("1f1b", 8, 24), 0.2431),
        "zb-h1": (made("zb-h1", 8, 24), 0.1585),
        "zb-h2": (made("zb-h2", 8, 24), 0.1083),
        "zb-1p": (made("zb-auto", 8, 24, memory=1.0, **search), 0.1585),
    }
    for name, (program, idle) in wanted.items():
        assert play(program, **times)["bubble"]["step"] == pytest.approx(idle, abs=5e-5), name
    two = play(made("zb-auto", 8, 24, memory=2.0, **search), **times)
    assert two["bubble"]["span"] == pytest.approx(0.0433, abs=5e-5)


@pytest.mark.parametrize(
    ("m", "step"),
    [(4, 16.5), (5, 24.0), (6, 27.5), (7, 26.5), (8, 28.5), (9, 37.0), (10, 39.5), (11, 38.5), (12, 40.5)],
)
def test_microbatches_that_do_not_fit_the_group(m: int, step: float) -> None:
    """Interleaved, p 4, v 2, groups of 4: m 7 is faster than m 6, m 11 faster than m 10."""
    chosen = get_schedule("interleaved-1f1b", group=4)
    assert play(chosen.program(Pipeline(4, m, 2)))["makespan"] == pytest.approx(step)
    refused = 0 < m % 4 < 4
    assert any("Megatron-LM refuses" in note for note in chosen.notes(Pipeline(4, m, 2))) == refused


def test_group_sizes_of_interleaving() -> None:
    """g = 5 at m 8: 29.5; g = 8: 28.5 with a peak of 7.5 instead of 5.5."""
    assert play(made("interleaved-1f1b", 4, 8, 2, group=5))["makespan"] == 29.5
    eight = play(made("interleaved-1f1b", 4, 8, 2, group=8))
    assert (eight["makespan"], eight["peak_in_flight_microbatches"][0]) == (28.5, 7.5)
    assert play(made("interleaved-1f1b", 4, 8, 2, group=4))["peak_in_flight_microbatches"] == [5.5, 4.5, 3.5, 2.5]


@pytest.mark.parametrize("m", range(1, 41))
@pytest.mark.parametrize(("p", "v"), [(3, 3), (4, 4)])
def test_interleaving_runs_for_every_m(m: int, p: int, v: int) -> None:
    assert check(made("interleaved-1f1b", p, m, v)) == []


@pytest.mark.parametrize("group", [2, 3])
def test_groups_below_p_deadlock_in_order(group: int) -> None:
    """What-if 5 (Megatron#1829): g < p waits for itself, and so it is refused by its rule."""
    rows = [interleaved_rows((4, 8), rank, 2, group) for rank in range(4)]
    warm = [min(16, group + 2 * (3 - rank) + 1) for rank in range(4)]
    order = [tuple(alternate(*row, ahead)) for row, ahead in zip(rows, warm, strict=True)]
    assert find_cycle(Program(tuple(order), 8)) is not None
    with pytest.raises(InputError, match=r"deadlocks in order: group=. < pp=4; needs pp=4 <= group <= m=8"):
        made("interleaved-1f1b", 4, 8, 2, group=group)


def test_groups_below_p_that_run_are_run_with_a_note() -> None:
    chosen = get_schedule("interleaved-1f1b", group=3)
    assert check(chosen.program(Pipeline(4, 12, 2))) == []
    assert any("Megatron-LM refuses" in note for note in chosen.notes(Pipeline(4, 12, 2)))


def test_too_few_microbatches_are_told() -> None:
    """What-if 5 (NeMo "should range in [PP=6, M=3]"): say which is too small and what helps."""
    with pytest.raises(InputError, match="m=3 < pp=6: raise the global batch or lower pp"):
        made("interleaved-1f1b", 6, 3, 2, group=1)
    with pytest.raises(InputError, match="needs group <= m=3, got group=6"):
        made("interleaved-1f1b", 6, 3, 2, group=6)
    chosen = get_schedule("interleaved-1f1b")
    assert check(chosen.program(Pipeline(6, 3, 2))) == []
    assert "m=3 < pp=6: raise the global batch or lower pp" in chosen.notes(Pipeline(6, 3, 2))[0]


def test_a_small_last_group_that_closes_a_cycle_is_refused() -> None:
    assert "deadlocks in order" in get_schedule("interleaved-1f1b", group=4).refusals(Pipeline(4, 9, 3))[0]
    assert get_schedule("interleaved-1f1b", group=4).refusals(Pipeline(4, 9, 2)) == []


def test_one_microbatch_on_eight_ranks_is_run_with_a_note() -> None:
    """What-if 4 (torchtitan#775): PP 8 with one microbatch: step 8(F+B), bubble 87.5 %."""
    result = play(made("1f1b", 8, 1))
    assert result["makespan"] == 8 * 3
    assert result["bubble"]["step"] == pytest.approx(0.875)
    assert "raise the global batch or lower pp" in get_schedule("1f1b").notes(Pipeline(8, 1))[0]


def test_zero_bubble_v_on_loop_placement_deadlocks() -> None:
    """What-if 11 (torchtitan#774): ZB-V with the stages of the loop map; rank 0 stands at 4I0. The V map runs."""
    right = made("zb-v", 4, 8)
    ranks = tuple(
        tuple(replace_stage(op, 4 + rank if op.stage >= 4 else op.stage) for action in order for op in parts_of(action))
        for rank, order in enumerate(right.ranks)
    )
    stuck = find_cycle(replace(right, ranks=ranks))
    assert stuck is not None
    assert "rank 0" in stuck.drawing.splitlines()[0]
    assert ">4I0<" in stuck.drawing.splitlines()[0]
    assert find_cycle(right) is None
    assert [stage for stage, rank in right.stage_rank.items() if rank == 0] == [0, 7]


def replace_stage(op: Op, stage: int) -> Op:
    return Op(stage, op.kind, op.microbatch)


def test_interleaving_with_half_the_warm_up_waits() -> None:
    """What-if 22 (Megatron#169): why 2(p−1−r)? With half of it the steady pairs wait for messages."""

    def with_factor(factor: int) -> Program:
        rows = [interleaved_rows((4, 8), rank, 2, 4) for rank in range(4)]
        return Program(tuple(tuple(alternate(*rows[r], 4 + factor * (3 - r) + 1)) for r in range(4)), 8)

    assert with_factor(2).ranks == made("interleaved-1f1b", 4, 8, 2).ranks
    assert play(with_factor(2))["makespan"] == play(with_factor(1))["makespan"] == 28.5
    assert play(with_factor(2), latency=0.1)["makespan"] == pytest.approx(29.9)  # 28.5 + 2(pv-1)c
    assert play(with_factor(1), latency=0.1)["makespan"] == pytest.approx(31.5)  # every steady pair waits two hops


def test_gpipe_and_1f1b_have_the_same_bubble() -> None:
    """What-if 23: 27.3 % for both at p 4, m 8, where a tutorial prints 27 % and 19 %."""
    for kind in ("gpipe", "1f1b"):
        assert play(made(kind, 4, 8))["bubble"]["step"] == pytest.approx(float(Fraction(3, 11)))


def test_zero_bubble_is_zero_within_a_ranks_span_only() -> None:
    """What-if 14 (pytorch PR 130210): the step keeps (p−1)F; three definitions of one bubble at p 4, m 8."""
    for ranks in (4, 6, 8):
        result = play(made("zb-h2", ranks, 2 * ranks))
        assert result["bubble"]["span"] == pytest.approx(0.0, abs=1e-12)
        assert result["makespan"] == 3 * 2 * ranks + ranks - 1
    three = play(made("zb-h2", 4, 8))["bubble"]
    assert (three["step"], three["work"]) == pytest.approx((1 / 9, 1 / 8))
    v = play(made("zb-v", 4, 8))["bubble"]
    assert (v["step"], v["span"], v["work"]) == pytest.approx((1 / 17, 0, 1 / 16), abs=1e-12)


def test_bidirectional_pipelines_against_virtual_pipelines() -> None:
    """What-if 13 (DualPipe#15, #23): p 8, m 16: interleaved v 2 58.5, v 4 53.25, DualPipe 54 on two copies, DualPipeV
    55."""
    steps = [play(made("interleaved-1f1b", 8, 16, v))["makespan"] for v in (2, 4)]
    assert [*steps, play(made("dualpipe", 8, 16))["makespan"], play(made("dualpipe-v", 8, 16))["makespan"]] == [
        58.5,
        53.25,
        54,
        55,
    ]
    assert (get_schedule("dualpipe").weight_copies, get_schedule("dualpipe-v").weight_copies) == (2, 1)
    assert set(play(made("dualpipe", 8, 16))["peak_in_flight_microbatches"]) == {
        9.0
    }  # p + 1: a pair adds before it frees


@pytest.mark.parametrize(("kind", "gathers"), [("interleaved-1f1b", 15), ("interleaved-zb", 13), ("looped-bfs", 5)])
def test_fsdp_gathers_with_a_pipeline(kind: str, gathers: int) -> None:
    """What-if 17 (pytorch#164756): p 8, m 32, v 4, rank 0 a step; with v <= 3 each stage once; at most three
    resident."""
    program = made(kind, 8, 32, 4, fsdp=True)
    assert sum(op.kind is Kind.UNSHARD for action in program.ranks[0] for op in parts_of(action)) == gathers
    assert most_gathered(program) == 3
    few = made(kind, 8, 32, 3, fsdp=True)
    assert sum(op.kind is Kind.UNSHARD for action in few.ranks[0] for op in parts_of(action)) == 3
    assert sum(op.kind is Kind.REDUCE_GRAD for action in program.ranks[0] for op in parts_of(action)) == 4
    assert check(program) == []


def most_gathered(program: Program) -> int:
    peak = 0
    for rank in program.ranks:
        now = 0
        for action in rank:
            for op in parts_of(action):
                now += {Kind.UNSHARD: 1, Kind.RESHARD: -1}.get(op.kind, 0)
                peak = max(peak, now)
    return peak


def test_gathered_stages_is_an_option() -> None:
    program = with_fsdp(made("interleaved-1f1b", 4, 8, 4), 2)
    assert most_gathered(program) == 2
    assert most_gathered(made("interleaved-1f1b", 4, 8, 4, fsdp=True, gathered_stages=1)) == 1


def test_activations_from_heavy_to_light_ranks() -> None:
    """What-if 24 (torchtitan#4764): interleaved p 8, v 2 holds 11.5 … 4.5; balanced would be 8."""
    held = play(made("interleaved-1f1b", 8, 16, 2))["peak_in_flight_microbatches"]
    assert (held[0], held[-1], sum(held) / 8) == (11.5, 4.5, 8.0)


def test_bpipe_by_definition_not_verified() -> None:
    """Rank x parks on p − 1 − x; no rank holds more than ⌈(p+2)/2⌉, the partner's guests included."""
    for ranks in (2, 4, 6, 8, 12):
        program = made("bpipe", ranks, 3 * ranks)
        own = [peak_here(rank) for rank in program.ranks]
        parked = [peak_away(rank) for rank in program.ranks]
        most = -(-(ranks + 2) // 2)
        assert max(own) <= most
        assert all(own[r] + parked[ranks - 1 - r] <= most for r in range(ranks // 2, ranks))
        assert play(program)["makespan"] == play(made("1f1b", ranks, 3 * ranks))["makespan"]
    assert not get_schedule("bpipe").describe().verified


def peak_here(rank: tuple[Any, ...]) -> int:
    now = peak = 0
    for op in rank:
        now += {Kind.F: 1, Kind.RELOAD: 1}.get(op.kind, 0)
        peak = max(peak, now)
        now -= {Kind.B: 1, Kind.OFFLOAD: 1}.get(op.kind, 0)
    return peak


def peak_away(rank: tuple[Any, ...]) -> int:
    now = peak = 0
    for op in rank:
        now += {Kind.OFFLOAD: 1, Kind.RELOAD: -1}.get(op.kind, 0)
        peak = max(peak, now)
    return peak


def test_pipedream_2bw_by_definition_not_verified() -> None:
    """No flush: in the steady state a step takes m(F+B); the pipeline fills once."""
    chosen = get_schedule("pipedream-2bw")
    for ranks, microbatches in ((2, 2), (4, 4), (4, 9), (8, 16)):
        both = chosen.steady(Pipeline(ranks, microbatches))
        assert both is not None
        first, second = (play(program)["makespan"] for program in both)
        assert second - first == pytest.approx(3 * microbatches)
    assert chosen.weight_copies == 2
    assert not chosen.traits.synchronous
    assert get_schedule("1f1b").steady(Pipeline(4, 8)) is None


def test_slimpipe_by_definition_not_verified() -> None:
    """About one microbatch in flight whatever m; the bubble is that of n·m·v units."""
    for m in (4, 16, 64):
        program = made("slimpipe", 4, m, 2, 8)
        result = play(program)
        assert result["peak_in_flight_microbatches"] == pytest.approx(
            [1 + 2 * (3 - r) / 16 for r in range(4)], abs=1 / 16 + 1e-9
        )
        assert result["bubble"]["work"] == pytest.approx(3 / (8 * m * 2), rel=1e-9)
    assert not get_schedule("slimpipe").describe().verified


@pytest.mark.parametrize(("algorithm", "more"), [("algorithm-1", 2), ("algorithm-2", 1)])
def test_vocabulary_parallel_by_definition_not_verified(algorithm: str, more: int) -> None:
    """S and T on every rank once a microbatch; each barrier costs one microbatch in flight (p + 2, p + 1)."""
    program = made("1f1b", 4, 8, vocabulary_parallel=algorithm)
    assert check(program) == []
    for rank in program.ranks:
        for kind in (Kind.S, Kind.T):
            assert sorted(op.microbatch for op in rank if op.kind is kind) == list(range(8))  # type: ignore[type-var, union-attr]
    assert get_schedule("1f1b", vocabulary_parallel=algorithm).in_flight(Pipeline(4, 8), 0) == 4 + more
    surplus = play(made("1f1b", 4, 16), F=[1, 1, 1, 2.0], I=[1, 1, 1, 2.0])["makespan"]
    spread = compile(made("1f1b", 4, 16, vocabulary_parallel=algorithm))
    costs = Costs({Kind.F: 1.0, Kind.I: 1.0, Kind.W: 1.0, Kind.S: 0.25, Kind.T: 0.25})
    step = evaluate(replay(spread, spread.durations(costs), spread.delays(costs)))["makespan"]
    assert step < surplus  # the output layer of the last stage, 2 units of its own, spread over four ranks
    with pytest.raises(InputError, match="needs one chain"):
        made("chimera", 4, 8, vocabulary_parallel=algorithm)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 4), (4, 8), (8, 16)])
def test_recompute_in_bubbles_by_definition_not_verified(p: int, m: int) -> None:
    """R before B costs every hop of the drain; R as an op runs in the waits: m(F+R+B) + (p−1)(F+B) instead of
    (m+p−1)(F+R+B)."""
    hidden = play(made("1f1b", p, m, recompute_in_bubbles=True))["makespan"]
    in_backward = play(made("1f1b", p, m), I=2.0)["makespan"]
    assert in_backward == (m + p - 1) * 4
    assert hidden == m * 4 + (p - 1) * 3


def test_recompute_before_pairs_and_input_gradients() -> None:
    for kind in ("dualpipe-v", "zb-h1", "1f1b-overlap"):
        program = made(kind, 4, 8, recompute_in_bubbles=True)
        assert check(program) == []
        recomputed = [op for rank in program.ranks for a in rank for op in parts_of(a) if op.kind is Kind.R]
        assert len(recomputed) == len(set(recomputed)) == program.stages * 8


def test_more_pairs_of_chimera() -> None:
    """2f pipelines: fewer idle slots (D/f − 2 of them at B = F) for 2f weight copies; held as the paper's figure at f
    = 1."""
    idle = {}
    for pairs in (1, 2, 4):
        chosen = get_schedule("chimera", pairs=pairs)
        program = chosen.program(Pipeline(8, 8))
        assert (program.chains, chosen.weight_copies) == (2 * pairs, 2 * pairs)
        step = play(program, F=1, I=1, W=0)["makespan"]
        idle[pairs] = step - 16
    assert idle == {1: 6.0, 2: 2.0, 4: 0.0}
    assert play(made("chimera", 8, 8))["peak_in_flight_microbatches"] == [5, 6, 7, 8, 8, 7, 6, 5]


def test_chimera_concatenations() -> None:
    """At B = 2F direct concatenation leaves gaps between blocks; doubling and halving close them."""
    ideal = 3 * 16
    direct = play(made("chimera", 4, 16))["makespan"] - ideal
    doubled = play(made("chimera", 4, 16, concatenation="forward-doubling"))["makespan"] - ideal
    halved = play(made("chimera", 4, 16, concatenation="backward-halving"))["makespan"] - ideal
    assert halved < doubled < direct
    most = {name: max(play(made("chimera", 4, 16, concatenation=name))["peak_in_flight_microbatches"]) for name in
            ("direct", "forward-doubling", "backward-halving")}  # fmt: skip
    assert most["forward-doubling"] == 2 * most["direct"]
    assert most["backward-halving"] <= most["direct"]
    assert made("chimera", 4, 16, concatenation="backward-halving").slices == 2


def test_by_slot_refuses_a_slot_taken_twice() -> None:
    with pytest.raises(ValueError, match="slot 1 holds both"):
        by_slot([(1, Op(0, Kind.F, 0)), (1, Op(0, Kind.F, 1))])


def test_offloaded_chunks() -> None:
    program = made("pipeoffload", 4, 8, 2, offload_chunks=1)
    assert check(program) == []
    moved = [op for op in program.ranks[0] if op.kind in (Kind.OFFLOAD, Kind.RELOAD)]  # type: ignore[union-attr]
    assert {op.stage for op in moved} == {0}  # type: ignore[union-attr]
    assert len(moved) == 16
    bare = tuple(op for op in program.ranks[0] if op.kind in COMPUTE)  # type: ignore[union-attr]
    assert bare == made("pipeoffload", 4, 8, 2).ranks[0]


# --- refusals --------------------------------------------------------------------------------------------------------

REFUSED = [
    ("1f1b", (4, 8, 2), {}, ["runs one chunk a rank, got 2", "interleaved-1f1b"]),
    ("zb-h1", (4, 3), {}, ["needs microbatches >= p = 4, got 3", "nearest valid: microbatches 4, or pp 3"]),
    ("zb-h2", (4, 6), {}, [">= 2p - 1 = 7, got 6", "microbatches 7, or pp 3"]),
    ("1f1b-overlap", (4, 6), {}, [">= 2p - 1 = 7, got 6", "microbatches 7, or pp 3"]),
    ("dualpipe", (5, 11), {}, ["even number of pp, got 5", "even number of microbatches, got 11"]),
    ("dualpipe", (4, 6), {}, ["needs microbatches >= 2p = 8, got 6", "microbatches 8, or pp 2"]),
    ("dualpipe-v", (4, 7), {}, ["needs microbatches >= 2p = 8, got 7", "microbatches 8, or pp 3"]),
    ("chimera", (4, 6), {}, ["multiple of p = 4, got 6", "microbatches 4 or 8"]),
    ("chimera", (4, 8), {"pairs": 3}, ["multiple of 2 * pairs = 6, got 4"]),
    ("hanayo", (4, 6, 2), {}, ["multiple of p = 4, got 6", "microbatches 4 or 8"]),
    ("hanayo", (4, 8, 3), {}, ["multiple of 2 (w waves are v = 2w chunks), got 3"]),
    ("bpipe", (3, 8), {}, ["even number of pp, got 3", "pp 2 or 4"]),
    ("pipedream-2bw", (4, 3), {}, ["two weight versions suffice", "microbatches 4, or pp 3"]),
    ("seq1f1b-i", (4, 8, 2, 3), {}, ["needs slices to divide p = 4", "pp 3 or 6"]),
    ("seq1f1b-i", (4, 3, 2, 2), {}, ["needs m*k to be a multiple of p = 4, got 3*2 = 6", "microbatches 2 or 4"]),
    ("seq1f1b-zb", (4, 1, 1, 2), {}, ["needs m*k >= p + k - 1 = 5 units, got 2"]),
    ("slimpipe", (4, 8, 2, 6), {}, ["slices to be a multiple of p = 4, got 6", "pp 3 or 6"]),
    ("gpipe", (4, 8, 1, 2), {}, ["does not split the sequence", "seq1f1b"]),
    ("zb-v", (4, 8, 3), {}, ["needs exactly 2 chunks a rank, got 3"]),
    ("pipeoffload", (8, 16, 2), {"group": 3}, ["needs ceil(p/2) = 4 <= group <= p = 8, got 3"]),
    ("pipeoffload", (8, 16, 2), {"offload_chunks": 3}, ["needs offload_chunks <= chunks = 2, got 3"]),
    ("interleaved-1f1b-ep", (4, 8, 1), {}, ["needs chunks >= 2, got 1"]),
    ("zb-auto", (4, 8), {"memory": 0.2}, ["needs memory * p >= 1 microbatch"]),
    ("gpipe", (0, 8), {}, ["needs pp >= 1, got 0"]),
    ("gpipe", (2, 0), {}, ["needs microbatches >= 1, got 0"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "size", "options", "told"), REFUSED)
def test_refused_sizes_name_the_rule_and_the_nearest_valid(
    kind: str, size: tuple[int, ...], options: dict[str, Any], told: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        made(kind, *size, **options)
    for sentence in told:
        assert sentence in str(caught.value)
    assert str(caught.value).startswith(f"schedule: {kind} ")


def test_nearest_valid_sizes_are_valid() -> None:
    chosen = get_schedule("chimera")
    assert chosen.refusals(Pipeline(4, 6))
    assert not chosen.refusals(Pipeline(4, 4))
    assert not chosen.refusals(Pipeline(4, 8))


# --- options and YAML forms ------------------------------------------------------------------------------------------


def test_short_and_long_forms() -> None:
    assert Schedule.build("1f1b").kind == "1f1b"
    assert Schedule.build({"kind": "seq1f1b", "slices": 4}).program(Pipeline(2, 3)).slices == 4
    assert Schedule.build("pipedream-flush").kind == "1f1b"
    assert Schedule.build({"kind": "interleaved-1f1b", "group": 5}).dump()["group"] == 5


def test_slices_come_from_the_schedule_or_the_pipeline() -> None:
    assert made("seq1f1b", 2, 3, 1, 4).slices == 4
    assert made("seq1f1b", 2, 3).slices == 1
    assert made("seq1f1b", 2, 3, 1, 4, slices=4).slices == 4
    with pytest.raises(InputError, match="two slice counts, 2 by the schedule and 4 by the pipeline"):
        made("seq1f1b", 2, 3, 1, 4, slices=2)
    assert made("seq1f1b", 4, 8).ranks == made("1f1b", 4, 8).ranks


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("1f1b", {"warmup": 2}),
        ("chimera", {"pairs": 0}),
        ("chimera", {"concatenation": "direkt"}),
        ("zb-auto", {"memory": -1}),
        ("interleaved-1f1b", {"group": "four"}),
        ("gpipe", {"slices": 2}),
        ("csv", {}),
    ],
)
def test_wrong_options_are_refused(kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        get_schedule(kind, **options)


def test_unknown_names_are_told_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'zb-h2'"):
        get_schedule("zb-h3")


def test_csv_reads_the_users_list(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    program = made("interleaved-1f1b", 2, 4, 2)
    file.write_text(to_csv(program))
    mine = get_schedule("csv", file=str(file))
    assert mine.program(Pipeline(2, 4)).ranks == program.ranks
    assert mine.messages(Pipeline(2, 4)) == get_schedule("interleaved-1f1b").messages(Pipeline(2, 4, 2))
    assert mine.in_flight(Pipeline(2, 4), 0) == get_schedule("interleaved-1f1b").in_flight(Pipeline(2, 4, 2), 0)
    assert not mine.splits_backward
    with pytest.raises(InputError, match="is for pp=2, got pp=3"):
        mine.program(Pipeline(3, 4))
    with pytest.raises(InputError, match="is for 4 microbatches, got 8"):
        mine.program(Pipeline(2, 8))
    with pytest.raises(InputError, match="cannot read the op list"):
        get_schedule("csv", file=str(tmp_path / "none.csv")).program(Pipeline(2, 4))


def test_csv_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(to_csv(made("zb-h1", 2, 4)))
    mine = Schedule.build({"kind": "csv", "file": "mine.csv"}, context={"folder": tmp_path})
    assert mine.program(Pipeline(2, 4)).microbatches == 4
    assert mine.splits_backward


def test_two_chains_and_slices_in_a_csv(tmp_path: Path) -> None:
    (tmp_path / "dual.csv").write_text(to_csv(made("dualpipe", 4, 8)))
    dual = get_schedule("csv", file=str(tmp_path / "dual.csv"), independent_chains=2)
    assert dual.program(Pipeline(4, 8)).chains == 2
    assert dual.messages(Pipeline(4, 8)) == get_schedule("dualpipe").messages(Pipeline(4, 8))
    (tmp_path / "seq.csv").write_text(to_csv(made("seq1f1b", 4, 8, 1, 2)))
    assert get_schedule("csv", file=str(tmp_path / "seq.csv"), slices=2).program(Pipeline(4, 8)).slices == 2


def test_names_of_the_contract_are_all_there() -> None:
    contract = (
        "gpipe 1f1b eager-1f1b interleaved-1f1b looped-bfs chimera zb-h1 zb-h2 zb-auto interleaved-zb zb-v v-half "
        "v-min 1f1b-v dualpipe dualpipe-v hanayo seq1f1b seq1f1b-i seq1f1b-zb terapipe slimpipe bpipe pipedream-2bw "
        "pipeoffload 1f1b-overlap interleaved-1f1b-ep csv"
    )
    assert schedule_names() == sorted(contract.split())


def test_the_example_of_the_guide_is_a_schedule() -> None:
    """``docs/schedules.md`` holds a complete file; it works as it stands."""
    text = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    try:
        exec(compile_python(code), {"__name__": "tests.example_schedule"})
        chosen = get_schedule("gpipe-reversed", first=1)
        assert check(chosen.program(Pipeline(3, 4))) == []
        assert [str(op) for op in chosen.program(Pipeline(1, 3)).ranks[0]] == ["0F0", "0F1", "0F2", "0B0", "0B2", "0B1"]
        with pytest.raises(InputError, match="needs microbatches >= 2"):
            chosen.program(Pipeline(3, 1))
    finally:
        Schedule.kinds.pop("gpipe-reversed", None)


def compile_python(code: str) -> Any:
    import builtins

    return builtins.compile(code, "docs/schedules.md", "exec")
