"""The compiled replay: the reference table, closed forms, engines, costs."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

from clustersim.errors import Deadlock, InputError
from clustersim.pipeline import kernel
from clustersim.pipeline.evaluate import evaluate
from clustersim.pipeline.graph import compile
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.replay import Costs, replay, replay_many, replay_speeds
from clustersim.pipeline.text import load_program
from tests.pipeline.replays import built, makespan, timed

FOLDER = Path(__file__).parent.parent / "data" / "schedules"
TABLE = list(csv.DictReader((FOLDER / "makespans.csv").read_text().splitlines()))
ENGINES = ["python", "numpy", *(["numba"] if kernel.has_numba() else [])]


@pytest.mark.parametrize("file", sorted({row["file"] for row in TABLE}))
def test_the_reference_table_comes_out(file: str) -> None:
    """Makespans to 1e-9, bubbles to the table's six digits, messages and peaks exactly."""
    for row in (row for row in TABLE if row["file"] == file):
        size = {
            "microbatches": int(row["microbatches"]),
            "slices": int(row["seq_splits"]),
            "chains": int(row["chains"]),
        }
        program = load_program(FOLDER / file, **size)
        if row["note"].startswith("Deadlock"):
            with pytest.raises(Deadlock, match="rank 0 waits at"):
                compile(program)
            continue
        graph = compile(program, fused="serial" if row["overlap_mode"] == "serial" else "atomic")
        costs = Costs.of(latency=float(row["tComm"]), fused=0.8 if row["overlap_mode"] == "atomic x0.8" else 1.0)
        result = evaluate(replay(graph, graph.durations(costs), graph.delays(costs)))
        assert result["makespan"] == pytest.approx(float(row["makespan"]), abs=1e-9)
        assert max(result["rank_span"]) == pytest.approx(float(row["rank_span"]), abs=1e-9)
        assert result["bubble"]["step"] == pytest.approx(float(row["bubble_fraction"]), abs=1e-6)
        assert result["bubble"]["span"] == pytest.approx(float(row["bubble_span"]), abs=1e-6)
        assert result["messages"] == int(row["messages"])
        assert result["peak_in_flight"] == [int(n) for n in row["peak_inflight_chunks_per_rank"].split(";")]
        shares = [float(n) for n in row["peak_inflight_norm_per_rank"].split(";")]
        assert result["peak_in_flight_microbatches"] == pytest.approx(shares, abs=1e-4)


SIZES = [(p, m) for p in (2, 3, 4, 8) for m in (p, 2 * p, 4 * p)]


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_closed_forms_without_latency(p: int, m: int) -> None:
    F, I, W = 1.0, 1.25, 0.75  # noqa: E741
    full = F + I + W
    costs = {"F": F, "I": I, "W": W}
    for kind in ("gpipe", "1f1b", "eager-1f1b"):
        assert makespan(kind, p, m, **costs) == pytest.approx((m + p - 1) * full)
    assert makespan("interleaved-1f1b", p, m, 2, **costs) == pytest.approx(m * full + (p - 1) * full / 2)
    assert makespan("terapipe", p, m, 1, 4, **costs) == pytest.approx(m * full + (p - 1) * full / 4)
    # W ≤ F and W ≤ I, as the form asks
    assert makespan("zb-h1", p, m, **costs) == pytest.approx(m * full + (p - 1) * (F + I - W))
    assert makespan("seq1f1b", p, m, 1, 2, **costs) == pytest.approx(m * full + (p - 1) * full / 2)
    if m >= 2 * p - 1:
        for kind in ("zb-h2", "zb-v"):
            assert timed(built(kind, p, m)).rank_span.max() == pytest.approx(3 * m)
        assert makespan("zb-h2", p, m) == pytest.approx(3 * m + p - 1)
        assert makespan("zb-v", p, m) == pytest.approx(3 * m + (p - 1) / 2)
    if p % 2 == 0:
        assert makespan("chimera", p, m, F=1, I=0.5, W=0.5) == pytest.approx(2 * m + p - 2)


@pytest.mark.parametrize(("p", "m"), [(p, m) for p, m in SIZES if p % 2 == 0 and m >= 2 * p])
@pytest.mark.parametrize(("I", "W"), [(1.0, 1.0), (1.0, 0.5), (1.0, 0.8)])
def test_dualpipe_where_its_formula_is_exact(p: int, m: int, I: float, W: float) -> None:  # noqa: E741
    """Facts of the construction: bubble (p/2 − 1)(F&B + B − 3W), exact for T_I = T_F ≥ T_W only."""
    full, backward = 1 + I + W, I + W
    bubble = full + backward - 3 * W
    assert makespan("dualpipe", p, m, I=I, W=W) == pytest.approx(m * full + (p / 2 - 1) * bubble)
    assert makespan("dualpipe-v", p, m, I=I, W=W) == pytest.approx(m * full + (p - 1) * bubble / 2)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_closed_forms_of_latency(p: int, m: int) -> None:
    c = 0.01
    base = (m + p - 1) * 3
    assert makespan("1f1b", p, m, latency=c) == pytest.approx(base + c * (2 * (p - 1) * m / p + 2 * (p - 2)))
    for kind in ("eager-1f1b", "gpipe"):
        assert makespan(kind, p, m, latency=c) == pytest.approx(base + 2 * (p - 1) * c)
    for v in (2, 3, 4):
        ideal = 3 * m + (p - 1) * 3 / v
        assert makespan("interleaved-1f1b", p, m, v, latency=c) == pytest.approx(ideal + 2 * (p * v - 1) * c)
    if m >= 2 * p:
        assert makespan("zb-h1", p, m, latency=c) == pytest.approx(3 * m + (p - 1) + 4 * (p - 1) * c)
        assert timed(built("zb-h2", p, m), latency=c).rank_span.max() == pytest.approx(3 * m + 2 * (p - 1) * c)


UNEVEN = {4: 16.5, 5: 24.0, 6: 27.5, 7: 26.5, 8: 28.5, 9: 37.0, 10: 39.5, 11: 38.5, 12: 40.5}


@pytest.mark.parametrize(("m", "step"), UNEVEN.items())
def test_interleaved_where_microbatches_do_not_fit(m: int, step: float) -> None:
    program = built("interleaved-1f1b", 4, m, 2, group=4)
    assert timed(program).makespan == pytest.approx(step)


# p8 m16: unit costs, latency 0.1, I 1.2 W 0.8, both
COMPARED = {
    ("gpipe", 1, 1): (69, 70.4, 69, 70.4),
    ("1f1b", 1, 1): (69, 73.0, 69, 73.0),
    ("eager-1f1b", 1, 1): (69, 70.4, 69, 70.4),
    ("interleaved-1f1b", 2, 1): (58.5, 61.5, 58.5, 61.5),
    ("looped-bfs", 2, 1): (58.5, 59.9, 58.5, 59.9),
    ("chimera", 1, 1): (66, 69.1, None, None),
    ("zb-h1", 1, 1): (55, 57.8, 57.8, 60.6),
    ("zb-h2", 1, 1): (55, 55.7, 55, 55.7),
    ("interleaved-zb", 2, 1): (51.5, 55.1, 52.9, 56.5),
    ("zb-v", 1, 1): (51.5, 54.8, 52.2, 55.5),
    ("v-half", 1, 1): (56.5, 61.3, 59.5, 63.9),
    ("v-min", 1, 1): (61.5, 72.1, 71.7, 81.9),
    ("dualpipe", 1, 1): (54, 56.3, 55.2, 57.5),
    ("dualpipe-v", 1, 1): (55, 59.9, 56.6, 62.0),
    ("seq1f1b", 1, 2): (58.5, 65.1, 58.5, 65.1),
    ("seq1f1b", 1, 4): (53.25, 65.05, 53.25, 65.05),
    ("seq1f1b-i", 2, 4): (50.625, 53.6, 50.625, 53.6),
    ("seq1f1b-zb", 1, 4): (49.75, 52.55, 50.45, 53.25),
}


@pytest.mark.parametrize("key", COMPARED, ids=str)
def test_eight_ranks_sixteen_microbatches(key: tuple[str, int, int]) -> None:
    kind, chunks, slices = key
    costs = ({}, {"latency": 0.1}, {"I": 1.2, "W": 0.8}, {"I": 1.2, "W": 0.8, "latency": 0.1})
    for expected, given in zip(COMPARED[key], costs, strict=True):
        if expected is not None:  # a printed digit is 0.05 at most
            assert makespan(kind, 8, 16, chunks, slices, **given) == pytest.approx(expected, abs=0.051)


def test_published_pass_times_of_zero_bubble() -> None:
    """Pass times of the zero-bubble paper's 1.5B model (p8 m24), recalled; its estimated bubble rates, four digits."""
    costs = {"F": 18.522, "I": 18.086, "W": 9.337, "latency": 0.601}

    def idle(kind: str, **options: object) -> float:
        """Idle share of the longest rank's span, as the paper's estimate counts."""
        program = built(kind, 8, 24, **options)
        return float(evaluate(timed(program, **costs))["bubble"]["span"])

    assert round(idle("1f1b"), 4) == 0.2431
    assert round(idle("zb-h1"), 4) == 0.1585
    assert round(idle("zb-h2"), 4) == 0.1083
    times = {"forward": 18.522, "input_grad": 18.086, "weight_grad": 9.337, "latency": 0.601}
    assert round(idle("zb-auto", memory=1.0, **times), 4) == 0.1585
    assert round(idle("zb-auto", memory=2.0, **times), 4) == 0.0433


# --- engines -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("p2p", ["overlapped", "blocking", "deferred"])
@pytest.mark.parametrize("late", [2.0, 0.0])
def test_engines_agree_to_the_last_bit(engine: str, p2p: str, late: float) -> None:
    graph = compile(built("interleaved-1f1b", 4, 8, 2), p2p=p2p)  # type: ignore[arg-type]
    rng = np.random.default_rng(1)
    durations, delays = rng.uniform(0.5, 1.5, (5, graph.ops)), rng.uniform(0, 0.3, (5, len(graph.messages)))
    release = rng.uniform(0, late, graph.ranks)
    many = replay_many(graph, durations, delays, release=release, engine=engine, per_rank=True)  # type: ignore[arg-type]
    for replica in range(5):
        one = replay(graph, durations[replica], delays[replica], release=release, engine="python")
        same = replay(graph, durations[replica], delays[replica], release=release, engine=engine)  # type: ignore[arg-type]
        assert np.array_equal(one.node_start, same.node_start)
        assert np.array_equal(one.node_end, same.node_end)
        last = np.array([one.end[ops].max() for ops in graph.rank_ops])
        assert np.array_equal(many[replica], last)


@pytest.mark.parametrize("kind, chunks", [("1f1b", 1), ("interleaved-1f1b", 2), ("zb-v", 2), ("zb-h1", 1)])
def test_the_short_walk_of_nodes_with_two_edges_is_the_long_one(kind: str, chunks: int) -> None:
    graph = compile(built(kind, 4, 8, chunks))
    assert graph.at_most_two is not None
    rng = np.random.default_rng(3)
    durations, delays = rng.uniform(0.5, 1.5, graph.ops), rng.uniform(0, 0.3, len(graph.messages))
    short = replay(graph, durations, delays, engine="python")
    wide = compile(built(kind, 4, 8, chunks))
    vars(wide)["at_most_two"] = None  # as in a graph whose nodes wait for more
    long = replay(wide, durations, delays, engine="python")
    assert np.array_equal(short.node_start, long.node_start)
    assert np.array_equal(short.node_end, long.node_end)


@pytest.mark.parametrize("engine", ENGINES)
def test_slowest_replica_decides_and_blocks_do_not_matter(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = compile(built("1f1b", 4, 8))
    factors = np.random.default_rng(2).uniform(1, 1.5, (7, 4))
    whole = replay_speeds(graph, np.ones(graph.ops), factors, 0.1, engine=engine)  # type: ignore[arg-type]
    monkeypatch.setattr("clustersim.pipeline.replay._BLOCK", 3 * graph.ops)
    assert np.array_equal(replay_speeds(graph, np.ones(graph.ops), factors, 0.1, engine=engine), whole)  # type: ignore[arg-type]
    for replica, factor in enumerate(factors):
        assert replay(graph, factor[graph.rank], 0.1).makespan == whole[replica]
    assert whole.shape == (7,)


def test_no_replicas_are_no_error() -> None:
    graph = compile(built("1f1b", 2, 2))
    assert replay_many(graph, np.zeros((0, graph.ops))).shape == (0,)
    assert replay_speeds(graph, np.ones(graph.ops), np.zeros((0, 2)), per_rank=True).shape == (0, 2)


def test_auto_chooses_by_size_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    small, wide = compile(built("1f1b", 2, 4)), compile(built("1f1b", 64, 64))
    monkeypatch.delitem(sys.modules, "clustersim.pipeline.machine", raising=False)
    monkeypatch.setattr(kernel, "has_numba", lambda: True)
    assert kernel.choose(small, 1, "auto") == "python"
    assert kernel.choose(wide, 64, "auto") == "numpy"
    assert kernel.choose(wide, 100_000, "auto") == "numba"
    monkeypatch.setattr(kernel, "has_numba", lambda: False)
    assert kernel.choose(wide, 100_000, "auto") == "numpy"
    with pytest.raises(ValueError, match="not installed"):
        kernel.choose(small, 1, "numba")
    with pytest.raises(ValueError, match="auto, python, numpy or numba"):
        kernel.choose(small, 1, "fortran")  # type: ignore[arg-type]


def test_what_is_no_duration_is_refused() -> None:
    graph = compile(built("1f1b", 2, 2))
    with pytest.raises(ValueError, match="finite"):
        replay(graph, np.full(graph.ops, np.nan))
    with pytest.raises(ValueError, match="at least 0"):
        replay(graph, np.full(graph.ops, -1.0))
    with pytest.raises(ValueError, match="shape"):
        replay(graph, np.ones(3))


# --- costs ---------------------------------------------------------------------------------------------------


def test_slow_stage_slow_link_slow_rank_and_mixed_gpus() -> None:
    """Each is an input of its own; on two ranks the answers can be read off the list."""
    program = built("1f1b", 2, 2)
    assert timed(program).makespan == 9.0
    assert timed(program, F=[1.0, 2.0]).makespan == 9.0 + 2  # rank 1 runs F0 B0 F1 B1 without a gap
    assert timed(program, rank_factors=[1.0, 1.5]).makespan == 12.0  # F0, then 1.5 × 6 on rank 1, then B1
    assert timed(program, latency=[[0, 0.5], [0, 0]]).makespan == 9.5  # only the way there is slow: once in the fill
    assert timed(program, latency=[[0, 0], [0.5, 0]]).makespan == 9.5
    both = timed(program, message_bytes=[2e9, 1e9], bandwidth=[[1, 4e9], [2e9, 1]])
    assert both.makespan == 9.0 + 0.5 + 0.5
    types = {"F": [1.0, 0.5], "I": [1.0, 0.5], "W": [1.0, 0.5]}
    assert timed(program, **types).makespan == timed(program, rank_factors=[1.0, 0.5]).makespan


def test_slices_and_microbatches_may_differ() -> None:
    program = built("seq1f1b", 2, 2, 1, 2)
    even = timed(program)
    uneven = timed(program, slice_factors=[1.2, 0.8])
    assert uneven.end.sum() != even.end.sum()
    varied = timed(built("gpipe", 1, 2), microbatch_factors=[1.0, 3.0])
    assert varied.makespan == 3 + 9


def test_kinds_without_a_cost_take_what_they_are() -> None:
    graph = compile(built("1f1b", 2, 2))
    costs = Costs({Kind.F: 1.0, Kind.I: 0.5, Kind.W: 0.25})
    assert set(graph.durations(costs).tolist()) == {1.0, 0.75}
    with pytest.raises(InputError, match="duration of F needs one number or 2"):
        graph.durations(Costs({Kind.F: [1.0, 2.0, 3.0]}))
    with pytest.raises(InputError, match="latency needs one number or 2 × 2"):
        graph.delays(Costs({}, latency=[1.0]))
    with pytest.raises(InputError, match="bandwidth must be above 0"):
        graph.delays(Costs({}, bandwidth=0.0))


def test_doubling_every_time_doubles_the_step() -> None:
    program = built("zb-h1", 4, 8)
    assert timed(program, F=2, I=2, W=2, latency=0.5).makespan == 2 * timed(program, latency=0.25).makespan


def test_blocking_p2p_pays_what_overlap_hides() -> None:
    """Every blocking transfer stands in both ranks' way, so a step is never shorter than with overlap."""
    program = built("1f1b", 4, 16)
    overlapped, blocking = timed(program, latency=0.2), timed(program, p2p="blocking", latency=0.2)
    assert blocking.makespan > overlapped.makespan
    assert timed(program, p2p="blocking").makespan == timed(program).makespan  # nothing to wait for at zero latency


def test_deferred_sends_leave_with_the_next_communication() -> None:
    """zero-bubble#73: F0 on rank 1 starts only after F1 on rank 0."""
    timeline = timed(built("1f1b", 4, 8), p2p="deferred", latency=0.1)
    graph = timeline.graph
    at = {graph.label(op): op for op in range(graph.ops)}
    assert timeline.start[at["1F0"]] == timeline.end[at["0F1"]] + 0.1
    assert timed(built("1f1b", 4, 8), latency=0.1).makespan < timeline.makespan
