"""The step search: rules, bounds that never exceed the model, best-first equal to trying everything, explanations."""

from __future__ import annotations

import random
import resource
import time

import pytest

from clustersim.errors import ImpossibleError, InputError
from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.schedule import get_schedule, schedule_names
from clustersim.pipeline.search import search, search_steps
from clustersim.pipeline.search_bound import layout_of
from clustersim.pipeline.search_evaluate import SURE, Evaluator
from clustersim.pipeline.search_explain import explain
from clustersim.pipeline.search_space import Choice, Enumeration, Space, divisors, powers_of_two
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.stack import Stack
from clustersim.workload.training import Training

STACK = Stack.preset("nemo-2024")
LLAMA = TransformerModel.preset("llama3-8b")
MOE = TransformerModel.preset("qwen3-30b-a3b")


def cluster(nodes: int = 8, node: str = "hgx-h100") -> Cluster:
    return Cluster.model_validate({"nodes": nodes, "node": node, "network": "infiniband", "storage": "tectonic"})


def training(**more: object) -> Training:
    return Training.model_validate({"seq_len": 8192, "global_batch": 128, "steps": 1, **more})


SMALL = Space(tp=(1, 2, 4), pp=(1, 2, 4), cp=(1, 2), chunks=(2, 4), micro_batch=(1, 2), zero=(1, 3))


def test_helpers() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert powers_of_two(5) == [1, 2, 4]
    assert powers_of_two(1) == [1]


@pytest.mark.parametrize("model", [LLAMA, MOE])
def test_every_choice_fills_the_cluster_and_passes_the_rules(model: TransformerModel) -> None:
    job, walk = training(), Enumeration(model, cluster(), training(), Space(), Layout())
    choices = list(walk)
    assert len(choices) == len(set(choices)) > 1000
    for choice in choices:
        assert choice.gpus == 64
        assert choice.dp * choice.micro_batch * choice.microbatches == job.global_batch
        assert model.heads % choice.tp == 0
        assert choice.pp * choice.chunks <= model.layers + 2
        if model.moe is not None:
            assert model.moe.experts % choice.ep == 0
    assert sum(walk.refused.values()) > 0


@pytest.mark.parametrize(
    ("model", "nodes", "space", "base"),
    [
        (LLAMA, 8, Space(), Layout(overlap={"tp": True})),
        (LLAMA, 8, Space(schedules=("1f1b", "chimera", "seq1f1b", "dualpipe-v")), Layout(order="tp-cp-pp-dp")),
        (LLAMA, 8, Space(zero=(0, 2)), Layout(overlap={"dp": False, "pp": False})),
        (MOE, 8, Space(chunks=(2, 3)), Layout()),
    ],
)
def test_bounds_never_exceed_the_model(model: TransformerModel, nodes: int, space: Space, base: Layout) -> None:
    place, job = cluster(nodes), training()
    evaluator = Evaluator(model, place, job, space, base, STACK)
    choices = [c for c in Enumeration(model, place, job, space, base) if c.microbatches * c.chunks * c.pp < 600]
    tight = 0.0
    for choice in random.Random(1).sample(choices, 120):
        bound, exact = evaluator.bounds.bound(choice), evaluator.whole(choice).seconds
        assert bound <= exact * (1 + 1e-9), choice
        tight = max(tight, bound / exact)
    assert tight > 0.9


def test_best_first_finds_what_trying_everything_finds() -> None:
    place, job = cluster(), training()
    result = search_steps(LLAMA, place, job, SMALL, stack=STACK, top=5)
    evaluator = Evaluator(LLAMA, place, job, SMALL, Layout(), STACK)
    fitting = [choice for choice in result.choices if evaluator.fit(choice, certain=True).fits]
    everything = [evaluator.time(choice).seconds for choice in fitting]
    best = sorted(set(everything))[:5]
    found = [candidate.seconds for candidate in result.candidates]
    assert found == sorted(found)
    assert found[0] == pytest.approx(best[0], rel=1e-12)
    assert found[-1] <= best[-1] * (1 + 1e-12) or len(set(found)) < 5
    assert result.pruned > 0
    assert result.evaluated + result.unfit <= result.considered - result.pruned


def test_a_long_step_is_the_straight_line_through_two_short_ones() -> None:
    job = training(global_batch=1024)
    evaluator = Evaluator(LLAMA, cluster(), job, Space(), Layout(), STACK)
    for schedule, chunks in (("1f1b", 1), ("interleaved-1f1b", 2), ("zb-h1", 1), ("zb-v", 2)):
        choice = Choice(2, 4, 1, 1, 8, chunks, 1, 1, 128, 0, schedule, 1)
        assert evaluator.time(choice).seconds == pytest.approx(evaluator.whole(choice).seconds, rel=1e-6)


def test_declared_activations_are_near_the_op_lists() -> None:
    """The share of a schedule's declared activations below which nothing is built is below what any list holds."""
    from clustersim.pipeline.activations import peak_in_flight
    from clustersim.pipeline.graph import compile as compiled
    from clustersim.pipeline.schedule import Pipeline

    for name in ("1f1b", "interleaved-1f1b", "zb-h1", "zb-v"):
        part = get_schedule(name)
        for pp in (2, 4, 8):
            for chunks in (part.traits.chunks,) if part.traits.chunks is not None else (2, 4):
                pipe = part.resolve(Pipeline(pp, 4 * pp, chunks))
                held = peak_in_flight(compiled(part.program(pipe)))
                for rank in (0, pp // 2, pp - 1):
                    declared = part.in_flight(pipe, rank) * chunks
                    assert SURE * declared <= held[rank] <= declared + 1e-9, (name, pp, chunks, rank)


def test_nothing_fits_and_nothing_passes() -> None:
    with pytest.raises(ImpossibleError, match=r"none of \d+ layouts fits.*GiB over"):
        search(TransformerModel.preset("llama3-405b"), cluster(1), training(), Space(zero=(1,)), stack=STACK)
    with pytest.raises(ImpossibleError, match="no layout of 64 GPUs passes the rules"):
        search(LLAMA, cluster(), training(), Space(tp=(3,)), stack=STACK)


def test_more_memory_never_hurts_and_fewer_options_never_help() -> None:
    job, tight, roomy = training(micro_batch=2), cluster(), cluster(node="hgx-h200")
    whole = search(LLAMA, tight, job, SMALL, stack=STACK, top=1)[0].seconds
    fewer = search(LLAMA, tight, job, SMALL.model_copy(update={"tp": (4,)}), stack=STACK, top=1)[0].seconds
    assert whole <= fewer
    h200 = search(LLAMA, roomy, job, SMALL, stack=STACK, top=1)[0].seconds
    assert h200 <= whole


def test_the_explanation_adds_up_and_names_what_does_not_fit() -> None:
    result = search_steps(LLAMA, cluster(), training(global_batch=512), Space(micro_batch=(1, 8)), stack=STACK)
    told = explain(result)
    assert told.runner_up is not None
    assert sum(told.difference_s.values()) == pytest.approx(told.runner_up.seconds - result.best.seconds, abs=1e-9)
    lines = told.lines()
    assert lines[0].startswith("Best: tp ")
    assert lines[1].startswith("Runner-up: ")
    assert any(change.loss is None and "GiB over" in change.reason for change in told.changes)
    assert all(change.loss is None or change.loss >= -1e-9 for change in told.changes)
    assert {"tp", "pp", "recompute"} <= {change.field for change in told.changes}


def test_a_candidate_is_the_scenario_it_describes() -> None:
    from clustersim.pipeline.step import StepModel

    best = search(LLAMA, cluster(), training(), SMALL, base=Layout(overlap={"tp": True}), stack=STACK, top=1)[0]
    step = StepModel(model=LLAMA, cluster=cluster(), training=best.training, layout=best.layout, schedule=best.schedule,
                     stack=STACK).step_time()  # fmt: skip
    assert step.seconds == pytest.approx(best.seconds, rel=1e-6)
    assert best.layout == layout_of(best.choice, Layout(overlap={"tp": True}))
    assert best.describe()["schedule"] in schedule_names()
    assert best.tokens_per_s_per_gpu == pytest.approx(training().tokens_per_step / best.seconds / 64)


def test_an_unknown_schedule_is_an_input_error() -> None:
    with pytest.raises(InputError, match="there is no schedule"):
        search(LLAMA, cluster(), training(), Space(schedules=("1f1c",)), stack=STACK)


@pytest.mark.prove
def test_llama_405b_on_16384_gpus_in_30_s() -> None:
    """At least 20,000 candidates in 30 s and 1 GiB (the test process included)."""
    place = Cluster.model_validate({"nodes": 2048, "node": "hgx-h100", "network": "llama3-roce", "storage": "tectonic"})
    started = time.perf_counter()
    result = search_steps(TransformerModel.preset("llama3-405b"), place, training(global_batch=2048),
                          base=Layout(order="tp-cp-pp-dp", overlap={"tp": True}), stack=STACK)  # fmt: skip
    assert result.considered >= 20_000
    assert time.perf_counter() - started < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2**20
