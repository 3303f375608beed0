"""Properties of every schedule at sizes that hypothesis picks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clustersim.pipeline.check import check
from clustersim.pipeline.check_comms import check_comms
from clustersim.pipeline.comms import with_communication, with_fsdp
from clustersim.pipeline.costs import Costs
from clustersim.pipeline.evaluate import evaluate
from clustersim.pipeline.graph import compile
from clustersim.pipeline.ops import Kind, Program, parts_of
from clustersim.pipeline.replay import replay
from clustersim.pipeline.schedule import Pipeline, Schedule, get_schedule, schedule_names

KINDS = [name for name in schedule_names() if name != "csv"]
sizes = st.builds(
    Pipeline, st.integers(1, 9), st.integers(1, 16), st.integers(1, 4), st.sampled_from([1, 2, 3, 4, 6, 8])
)
times = st.floats(0.1, 3.0)
EXAMPLES = settings(max_examples=12)


def defined(kind: str, pipe: Pipeline) -> tuple[Schedule, Pipeline]:
    """The schedule at a size near ``pipe`` where it is defined: chunks and slices that it takes, else the nearest
    valid."""
    chosen = get_schedule(kind)
    chunks = chosen.traits.chunks or max(
        pipe.chunks, 2 if kind in ("seq1f1b-i", "pipeoffload", "interleaved-1f1b-ep") else 1
    )
    pipe = pipe._replace(
        chunks=2 * chunks if kind == "hanayo" else chunks, slices=pipe.slices if chosen.traits.sliced else 1
    )
    if kind in ("dualpipe", "chimera", "bpipe"):
        pipe = pipe._replace(ranks=2 * (1 + pipe.ranks // 3))
    if kind in ("seq1f1b-i", "slimpipe"):
        pipe = pipe._replace(slices=pipe.ranks)
    for microbatches in range(pipe.microbatches, pipe.microbatches + 4 * pipe.ranks + 2):
        if not chosen.refusals(pipe._replace(microbatches=microbatches)):
            return chosen, pipe._replace(microbatches=microbatches)
    assume(False)
    raise AssertionError


@pytest.mark.parametrize("kind", KINDS)
@EXAMPLES
@given(pipe=sizes)
def test_complete_and_deadlock_free(kind: str, pipe: Pipeline) -> None:
    chosen, pipe = defined(kind, pipe)
    assert check(chosen.program(pipe)) == []


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(pipe=sizes, model=st.sampled_from(["buffered", "stream", "rendezvous"]))
def test_lowered_lists_run(kind: str, pipe: Pipeline, model: str) -> None:
    chosen, pipe = defined(kind, pipe._replace(microbatches=min(pipe.microbatches, 8)))
    lowered = with_communication(with_fsdp(chosen.program(pipe)))
    assert check(lowered) == []
    assert check_comms(lowered, model) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@EXAMPLES
@given(pipe=sizes, forward=times, inputs=times, weights=times, latency=st.floats(0, 0.5))
def test_makespan_above_every_bound_and_peak_below_the_formula(
    kind: str, pipe: Pipeline, forward: float, inputs: float, weights: float, latency: float
) -> None:
    chosen, pipe = defined(kind, pipe)
    program = chosen.program(pipe)
    graph = compile(program)
    costs = Costs.of(F=forward, I=inputs, W=weights, latency=latency)
    durations = graph.durations(costs)
    result = evaluate(replay(graph, durations, graph.delays(costs)))
    work = np.bincount(graph.rank, weights=durations[: graph.ops], minlength=pipe.ranks)
    span = one_microbatch(program, forward, inputs, latency)
    assert result["makespan"] >= max(work.max(), span) * (1 - 1e-12)
    assert result["messages"] == chosen.messages(pipe)
    for rank, peak in enumerate(result["peak_in_flight_microbatches"]):
        assert peak <= chosen.in_flight(pipe, rank) + 1e-9
    for bubble in result["bubble"].values():
        assert bubble is None or bubble >= 0


def one_microbatch(program: Program, forward: float, inputs: float, latency: float) -> float:
    """One unit down all stages of a chain and its input gradients back up, nothing in the way."""
    chain = program.stages_per_chain
    hops = sum(program.stage_rank[s] != program.stage_rank[s + 1] for s in range(chain - 1))
    share = chain / len(program.ranks) * program.slices
    return chain * (forward + inputs) / share + 2 * hops * latency


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(pipe=sizes, factor=st.sampled_from([0.5, 2.0, 3.0]))
def test_all_times_scaled_scale_the_makespan(kind: str, pipe: Pipeline, factor: float) -> None:
    chosen, pipe = defined(kind, pipe)
    graph = compile(chosen.program(pipe))
    one, other = Costs.of(latency=0.25), Costs.of(F=factor, I=factor, W=factor, latency=0.25 * factor)
    steps = [replay(graph, graph.durations(c), graph.delays(c)).makespan for c in (one, other)]
    assert steps[1] == pytest.approx(factor * steps[0])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(pipe=sizes)
def test_recompute_and_fsdp_keep_the_work(kind: str, pipe: Pipeline) -> None:
    _, pipe = defined(kind, pipe)
    plain = get_schedule(kind).program(pipe)
    flushes = get_schedule(kind).traits.synchronous  # without a flush there is no end of a step to gather for
    more = get_schedule(kind, recompute_in_bubbles=True, fsdp=flushes).program(pipe)
    assert check(more) == []
    extra = (Kind.R, Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD)
    for before, after in zip(plain.ranks, more.ranks, strict=True):
        assert [action for action in after if next(parts_of(action)).kind not in extra] == list(before)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("chimera", "dualpipe")])
@pytest.mark.parametrize("algorithm", ["algorithm-1", "algorithm-2"])
@settings(max_examples=5)
@given(pipe=sizes)
def test_vocabulary_parallel_runs_on_any_base_of_one_chain(kind: str, algorithm: str, pipe: Pipeline) -> None:
    _, pipe = defined(kind, pipe._replace(microbatches=min(pipe.microbatches, 6)))
    assert check(get_schedule(kind, vocabulary_parallel=algorithm).program(pipe)) == []
