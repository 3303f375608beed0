"""Properties of replays over many programs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.errors import InputError
from clustersim.pipeline.critical import critical_path
from clustersim.pipeline.des import simulate
from clustersim.pipeline.evaluate import evaluate
from clustersim.pipeline.graph import compile
from clustersim.pipeline.idle import busy
from clustersim.pipeline.replay import replay
from clustersim.pipeline.schedule import schedule_names
from tests.pipeline.replays import built

KINDS = [
    ("gpipe", 1, 1), ("1f1b", 1, 1), ("eager-1f1b", 1, 1), ("interleaved-1f1b", 2, 1), ("looped-bfs", 2, 1),
    ("zb-h1", 1, 1), ("zb-h2", 1, 1), ("zb-v", 1, 1), ("v-half", 1, 1), ("v-min", 1, 1), ("dualpipe", 1, 1),
    ("dualpipe-v", 1, 1), ("chimera", 1, 1), ("seq1f1b", 1, 2), ("terapipe", 1, 3), ("bpipe", 1, 1),
    ("pipeoffload", 2, 1), ("1f1b-overlap", 1, 1), ("hanayo", 2, 1), ("interleaved-zb", 2, 1),
]  # fmt: skip
shapes = st.tuples(st.sampled_from(KINDS), st.sampled_from([2, 4]), st.sampled_from([2, 3]))
p2p = st.sampled_from(["overlapped", "blocking", "deferred"])


@given(shapes, p2p, st.integers(0, 2**32 - 1))
@settings(max_examples=120)
def test_both_replays_are_equal_to_the_last_float(
    shape: tuple[tuple[str, int, int], int, int], p2p: str, seed: int
) -> None:
    (kind, chunks, slices), ranks, times = shape
    graph = compile(built(kind, ranks, ranks * times, chunks, slices), p2p=p2p)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    durations, delays = rng.exponential(1.0, graph.ops), rng.exponential(0.2, len(graph.messages))
    durations[rng.random(graph.ops) < 0.1] = 0.0
    compiled, simulated = replay(graph, durations, delays), simulate(graph, durations, delays)
    assert np.array_equal(compiled.node_start, simulated.node_start)
    assert np.array_equal(compiled.node_end, simulated.node_end)
    assert np.array_equal(compiled.arrival, simulated.arrival)


@given(shapes, st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_bounds_sums_and_the_critical_path(shape: tuple[tuple[str, int, int], int, int], seed: int) -> None:
    (kind, chunks, slices), ranks, times = shape
    graph = compile(built(kind, ranks, ranks * times, chunks, slices))
    rng = np.random.default_rng(seed)
    durations, delays = rng.uniform(0.5, 2.0, graph.ops), rng.uniform(0, 0.3, len(graph.messages))
    timeline = replay(graph, durations, delays)
    result = evaluate(timeline)
    work = busy(timeline)
    slack = 1e-9 * timeline.makespan
    # a rank cannot be faster than its own work, and one unit must pass every stage and come back
    assert timeline.makespan >= work.max() - slack
    assert sum(result["idle_by_cause"].values()) <= ranks * timeline.makespan - work.sum() + slack
    assert sum(result["idle_by_cause"].values()) >= ranks * timeline.makespan - work.sum() - slack
    assert all(value >= 0 for value in result["idle_by_cause"].values())
    # the critical path is a chain without a hole: lengths and delays add up to the step
    path = critical_path(timeline)
    length = sum(step.end - step.start for step in path) + sum(delays[s.message] for s in path if s.message >= 0)
    assert abs(length - timeline.makespan) < slack


@given(shapes, st.integers(0, 2**32 - 1), st.floats(1.0, 3.0))
@settings(max_examples=60)
def test_slower_is_never_faster(shape: tuple[tuple[str, int, int], int, int], seed: int, factor: float) -> None:
    """In a fixed order the step is a longest path: monotone in every duration."""
    (kind, chunks, slices), ranks, times = shape
    graph = compile(built(kind, ranks, ranks * times, chunks, slices))
    rng = np.random.default_rng(seed)
    durations = rng.uniform(0.5, 2.0, graph.ops)
    slower = durations.copy()
    slower[rng.integers(graph.ops)] *= factor
    before, after = replay(graph, durations, 0.1), replay(graph, slower, 0.1)
    assert (after.end >= before.end).all()


OPTIONS: list[dict[str, object]] = [
    {},
    {"fsdp": True},
    {"recompute_in_bubbles": True},
    {"vocabulary_parallel": "algorithm-1"},
    {"vocabulary_parallel": "algorithm-2"},
]


@pytest.mark.parametrize("kind", [name for name in schedule_names() if name != "csv"])
def test_every_registered_schedule_replays_alike_and_never_hangs(kind: str) -> None:
    """With every extension that it takes, and every way to run p2p: blocking transfers placed by us cannot hang."""
    tried = 0
    for options, chunks, slices in product(OPTIONS, (1, 2), (1, 4)):
        try:
            program = built(kind, 4, 8, chunks, slices, **options)
        except InputError:
            continue
        tried += 1
        for way in ("overlapped", "blocking", "deferred"):
            graph = compile(program, p2p=way)  # type: ignore[arg-type]
            rng = np.random.default_rng(tried)
            durations, delays = rng.uniform(0.5, 1.5, graph.ops), rng.uniform(0, 0.3, len(graph.messages))
            compiled, simulated = replay(graph, durations, delays), simulate(graph, durations, delays)
            assert np.array_equal(compiled.node_start, simulated.node_start)
            assert np.array_equal(compiled.node_end, simulated.node_end)
    assert tried >= 1
