"""The step: closed forms, limits, and the published one that must come out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersim.errors import DoesNotFit, InputError
from clustersim.hardware.gpu import Gpu
from clustersim.pipeline.dependencies import CODE
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.schedule import Pipeline, get_schedule, schedule_names
from clustersim.pipeline.step import StepModel, data_stall
from clustersim.pipeline.step_memory import step_memory
from clustersim.pipeline.text import to_csv
from clustersim.scenario.load import load
from clustersim.workload.model import TransformerModel
from clustersim.workload.order_statistics import expected_maximum
from clustersim.workload.parameters import model_parameters
from clustersim.workload.profile import PassTimes, Profile
from clustersim.workload.stack import Stack
from tests.workload.jobs import cluster, gpt, llama, step, training

QUIET = Stack.preset("megatron-2021").model_copy(update={"rank_spread": 0.0, "pass_jitter": 0.0})
PLAIN = {"overlap": {"pp": False, "dp": False}}


def one(built: StepModel, kind: Kind) -> np.ndarray:
    """(stages,) seconds of one op of a kind."""
    return np.asarray(built.costs.table[CODE[kind]].sum(axis=1))


def test_without_pipeline_the_step_is_the_sum_of_its_microbatches() -> None:
    built = step(layout={"tp": 8}, global_batch=16, stack=QUIET)
    time = built.step_time()
    passes = 16 * float(one(built, Kind.F)[0] + one(built, Kind.B)[0])
    assert time.breakdown["bubble"] == pytest.approx(0.0, abs=1e-9)
    assert time.seconds == pytest.approx(passes + built.ends[0].update, rel=1e-12)


def even(pp: int, microbatches: int, chunks: int = 1, **more: Any) -> StepModel:
    """A pipeline of equal stages: pass times given, a head of one word."""
    profile = Profile(layer=PassTimes(forward=1e-2, input_gradient=1e-2, weight_gradient=1e-2, send=1e-3))
    layout = {"pp": pp, "dp": 1, "chunks": chunks, **PLAIN, **more.pop("layout", {})}
    schedule = more.pop("schedule", "interleaved-1f1b" if chunks > 1 else "1f1b")
    return step(
        llama(pp * chunks, 256, 2, vocab=1),
        layout=layout,
        schedule=schedule,
        seq_len=256,
        global_batch=microbatches,
        profile=profile,
        stack=QUIET,
        **more,
    )


@pytest.mark.parametrize(("pp", "m"), [(2, 2), (4, 8), (8, 8), (8, 64)])
def test_1f1b_with_exposed_sends(pp: int, m: int) -> None:
    """T = (m + p − 1)·(F + B + 2c), less the sends that the two ends do not make (3c): Narayanan et al. 2021."""
    built = even(pp, m)
    ends = built.ends[0]
    pipeline = built.step_time().seconds - ends.update - ends.tail
    formula = (m + pp - 1) * (30e-3 + 2e-3)
    assert formula - 3.1e-3 <= pipeline <= formula * 1.01


@pytest.mark.parametrize(("pp", "m", "v"), [(4, 8, 2), (4, 8, 4), (8, 16, 2)])
def test_interleaving_divides_the_bubble(pp: int, m: int, v: int) -> None:
    """Bubble ÷ work = (p − 1) ÷ (v·m): Narayanan et al. 2021, section 2.2 (sends of 1 ms an op on top)."""
    built = even(pp, m, v)
    bubble = built.report().bubbles["work"]
    assert bubble == pytest.approx((pp - 1) / (v * m), rel=0.06)  # the ends send less
    # the first rank sends after each of its 2v ops but the last backward
    assert built.step_time().breakdown["pp"] == pytest.approx((2 * v - 1) * m * 1e-3)


def test_overlapped_sends_hold_up_their_stated_share() -> None:
    shown = even(4, 8).step_time().breakdown["pp"]
    stack = QUIET.model_copy(update={"pp_exposed": 0.25})
    hidden = step(
        llama(4, 256, 2, vocab=1),
        layout={"pp": 4, "dp": 1},
        seq_len=256,
        global_batch=8,
        stack=stack,
        profile=Profile(layer=PassTimes(forward=1e-2, input_gradient=1e-2, weight_gradient=1e-2, send=1e-3)),
    )
    assert hidden.step_time().breakdown["pp"] == pytest.approx(0.25 * shown)
    assert hidden.step_time().seconds < even(4, 8).step_time().seconds


KINDS = [name for name in schedule_names() if name != "csv"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_schedule_gives_a_step_that_adds_up(kind: str) -> None:
    built = step(llama(16), layout={"pp": 4, "dp": 2}, schedule=kind, global_batch=32)
    time, report = built.step_time(), built.report()
    assert math.fsum(time.breakdown.values()) == time.seconds > 0
    assert min(time.breakdown.values()) >= 0
    # no schedule is faster than its busiest rank, nor slower than one rank doing all the work
    work = built.replayers[-1].spent.sum(axis=1)
    if len(built.replayers) == 1:
        assert time.seconds >= work.max()
        assert time.seconds <= work.sum() * 1.5
    assert 0 <= report.bubble_fraction < 1


def test_better_schedules_are_faster_on_equal_stages() -> None:
    """gpipe = 1f1b > interleaved > zb-h2, on stages of equal F, I and W and without sends (Qi et al. 2024)."""
    free = Profile(layer=PassTimes(forward=1e-2, input_gradient=1e-2, weight_gradient=1e-2, send=0.0))

    def seconds(kind: str, chunks: int) -> float:
        return (
            step(
                llama(8, 256, 2, vocab=1),
                layout={"pp": 4, "dp": 1, "chunks": chunks, **PLAIN},
                schedule=kind,
                seq_len=256,
                global_batch=16,
                profile=free,
                stack=QUIET,
            )
            .step_time()
            .seconds
        )

    assert seconds("gpipe", 1) == pytest.approx(seconds("1f1b", 1), rel=1e-3)
    assert seconds("1f1b", 1) > seconds("interleaved-1f1b", 2) > seconds("zb-h2", 1)


def test_uneven_stages_of_llama3() -> None:
    """126 layers on 128 stages: embedding and head stand alone on the first and the last."""
    built = llama3_405b()
    contents = built.costs.stage_contents
    assert [content.layers for content in contents] == [0] + [1] * 126 + [0]
    assert contents[0].embedding
    assert contents[-1].head
    ranks = built.costs.rank_parameters
    assert sum(held.total for held in ranks) * 8 == pytest.approx(405_853_388_800, rel=1e-4)


def llama3_405b() -> StepModel:
    network = {"kind": "fat-tree", "pod_gpus": 3072, "oversubscription": 7}
    return StepModel(
        model=TransformerModel.preset("llama3-405b"),
        cluster=cluster(2048, network=network),
        training=training(
            seq_len=8192, global_batch=2048, recompute={"kind": "selective", "ops": ["norm", "activation"]}
        ),
        layout=step().plan.layout.model_validate(
            {"tp": 8, "pp": 16, "dp": 128, "chunks": 8, "zero": 2, "sequence_parallel": True}
        ),
        schedule="interleaved-1f1b",
    )


def test_llama3_405b_on_16384_h100() -> None:
    """Published: 400 TFLOP/s a GPU (arXiv 2407.21783, Table 4); an untuned model may say 380 to 480."""
    report = llama3_405b().report()
    assert 380 < report.tflops_per_gpu < 480
    assert report.microbatches == 16
    assert report.mfu == pytest.approx(report.tflops_per_gpu / 989)
    # the schedule's own bubble, (p − 1) ÷ (v·m) = 11.7 % of the work, and the lighter end ranks
    assert 0.10 < report.bubbles["work"] < 0.16
    assert report.memory["fits"]


def test_report_is_the_contracts_json() -> None:
    report = step(layout={"tp": 2, "pp": 2}).report()
    data = report.to_dict()
    required = (
        "step_time_s tokens_per_s tokens_per_s_per_gpu tflops_per_gpu mfu hfu bubble_fraction model_flops_per_step "
        "microbatches breakdown_s memory bubbles convention warnings"
    )
    assert set(required.split()) <= set(data)
    assert set(data["bubbles"]) == {"step", "span", "work"}
    assert {"compute", "bubble", "tp", "pp", "dp", "cp", "ep", "optimizer"} <= set(data["breakdown_s"])
    assert math.fsum(data["breakdown_s"].values()) == data["step_time_s"]
    assert {"peak_bytes", "limit_bytes", "stages"} <= set(data["memory"])
    assert len(data["memory"]["stages"]) == 2
    assert data["tokens_per_s"] == pytest.approx(64 * 2048 / data["step_time_s"])
    assert data["tflops_per_gpu"] * 8e12 * data["step_time_s"] == pytest.approx(data["model_flops_per_step"])


def test_hfu_adds_recompute() -> None:
    none, full = step().report(), step(recompute="full").report()
    assert none.hfu == none.mfu
    assert full.hfu / full.mfu > 1.25
    assert full.mfu < none.mfu


def test_mfu_conventions_differ_by_half_the_attention() -> None:
    half, whole = step().report(), step(mfu="full-attention").report()
    assert half.step_time_s == whole.step_time_s
    assert whole.mfu > half.mfu
    assert half.convention != whole.convention


@pytest.mark.parametrize(
    ("layout", "more", "path"),
    [({"tp": 16}, {}, "parallelism"), ({}, {"global_batch": 12}, "global_batch"), ({"cp": 8}, {"seq_len": 2050}, "cp")],
)
def test_impossible_layouts_are_named(layout: dict[str, Any], more: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError, match=path):
        step(layout=layout, **more)


def test_a_job_that_does_not_fit_says_so() -> None:
    with pytest.raises(DoesNotFit, match="does not fit"):
        step(TransformerModel.preset("llama3-70b"), layout={"zero": 0}).check_memory()
    assert step(layout={"tp": 8}).check_memory().fits


def test_slow_gpus_on_half_the_stages() -> None:
    fast = step(gpt(8), node="dgx-a100", layout={"pp": 8})
    mixed = step(gpt(8), node="dgx-a100", layout={"pp": 8, "stage_gpus": ["a100-80g", "v100-32g"]})
    slow = step(gpt(8), node="dgx-a100", layout={"pp": 8, "stage_gpus": ["v100-32g"]})
    assert fast.step_time().seconds < mixed.step_time().seconds < slow.step_time().seconds * 1.001
    ranks = [device.gpu.name for device in mixed.costs.devices]
    assert ranks == [Gpu.preset("a100-80g").name] * 4 + [Gpu.preset("v100-32g").name] * 4


def test_the_slowest_replica_sets_the_pace() -> None:
    mixed = step(gpt(8), node="dgx-a100", layout={"replica_gpus": ["a100-80g", "v100-32g"]}, micro_batch=8)
    slow = step(gpt(8), node="dgx-a100", layout={"replica_gpus": ["v100-32g"]}, micro_batch=8)
    assert mixed.step_time().seconds == slow.step_time().seconds


def test_stage_layout_string() -> None:
    even_, packed = step(llama(8), layout={"pp": 4}), step(llama(8), layout={"pp": 4, "stage_layout": "Et|tt|t|ttttL"})
    assert [content.layers for content in packed.costs.stage_contents] == [1, 2, 1, 4]
    assert packed.step_time().seconds > even_.step_time().seconds


def test_vocabulary_parallelism_moves_the_head_to_all_ranks() -> None:
    model = llama(16, vocab=256_000)
    plain = step(model, layout={"pp": 8, "dp": 1}, global_batch=32)
    spread = step(
        model,
        layout={"pp": 8, "dp": 1},
        global_batch=32,
        schedule={"kind": "1f1b", "vocabulary_parallel": "algorithm-2"},
    )
    assert spread.step_time().seconds < plain.step_time().seconds
    assert spread.replayers[0].spent.sum() == pytest.approx(plain.replayers[0].spent.sum(), rel=0.02)


@pytest.mark.parametrize(
    ("schedule", "chunks", "copies"),
    [("1f1b", 1, 2), ("interleaved-1f1b", 2, 2), ("zb-v", 2, 1), ("v-half", 2, 1), ("dualpipe", 1, 2)],
)
def test_a_tied_embedding_is_held_once_a_rank(schedule: str, chunks: int, copies: int) -> None:
    """All ranks together hold the model, and one more copy of the vocabulary where its ends lie on different ranks (with
    two chains, of which each rank holds a stage, everything twice but the vocabulary, which both ends share)."""
    model = gpt(8, tied_embeddings=True)
    built = step(model, layout={"pp": 4, "chunks": chunks, "dp": 1}, schedule=schedule, global_batch=16)
    words, whole = model.vocab * model.hidden, model_parameters(model).total
    chains = built.plan.shape.program.chains
    assert sum(held.total for held in built.costs.rank_parameters) == pytest.approx(
        chains * (whole - words) + copies * words, rel=1e-12
    )
    memory = step_memory(built)
    assert [memory.parameters(stages).total for stages in memory.stages] == pytest.approx(
        [held.total for held in built.costs.rank_parameters], rel=1e-12
    )


@pytest.mark.parametrize(("schedule", "message"), [("interleaved-1f1b", True), ("zb-v", False)])
def test_the_ends_of_a_tied_embedding_exchange_gradients_only_between_ranks(schedule: str, message: bool) -> None:
    tails = [
        step(gpt(8, tied_embeddings=tied), layout={"pp": 4, "chunks": 2, "dp": 1}, schedule=schedule, global_batch=16)
        .ends[0].tail for tied in (True, False)
    ]  # fmt: skip
    assert (tails[0] > tails[1]) is message
    assert tails[1] == 0.0


def test_slices_of_a_causal_sequence_cost_more_towards_the_end() -> None:
    built = step(llama(8), layout={"pp": 4, "dp": 1}, schedule={"kind": "seq1f1b", "slices": 4}, seq_len=32768)
    ops, parts = built.replayers[0].ops, built.plan.shape.graph.parts
    first = ops.compute[(parts.kind == CODE[Kind.F]) & (parts.stage == 1) & (parts.unit < 4)]
    assert np.all(np.diff(np.sort(first)) > 0)
    whole = step(llama(8), layout={"pp": 4, "dp": 1}, seq_len=32768)
    assert built.replayers[0].spent[:, :2].sum() == pytest.approx(whole.replayers[0].spent[:, :2].sum(), rel=0.06)


def test_no_flush_has_no_bubble() -> None:
    """PipeDream-2BW's steady state: a step is the busiest rank's work."""
    flushed = step(llama(8), layout={"pp": 4, "dp": 1}, global_batch=8)
    steady = step(llama(8), layout={"pp": 4, "dp": 1}, global_batch=8, schedule="pipedream-2bw")
    assert steady.step_time().seconds < flushed.step_time().seconds
    assert any("never flushes" in text for text in steady.report().warnings)


def test_straggler_term_by_order_statistics() -> None:
    assert expected_maximum(1) == 0.0
    # E[max] of 8, 100 and 1,000 standard normal values (Harter 1961): 1.4236, 2.5076, 3.2414; Blom is within 1 %
    for count, value in ((8, 1.4236), (100, 2.5076), (1000, 3.2414)):
        assert expected_maximum(count) == pytest.approx(value, rel=0.01)
    spread = QUIET.model_copy(update={"rank_spread": 0.01})
    quiet, noisy = step(stack=QUIET), step(stack=spread)
    compute = quiet.step_time().breakdown["compute"]
    assert noisy.step_time().breakdown["straggler"] == pytest.approx(0.01 * expected_maximum(8) * compute)


@pytest.mark.parametrize(
    ("data", "step_s", "expected"),
    [
        ({"time": "1 s"}, 2.0, 0.0),  # hidden
        ({"time": "3 s"}, 2.0, 1.0),  # the loader is the slower
        ({"time": "1 s", "prefetch": 0}, 2.0, 1.0),  # alternating
        ({"time": "1 s", "stall": "12 s", "stall_every": 10, "prefetch": 2}, 2.0, 1.0),  # two steps ready, 10 s shown
        ({"time": "1 s", "stall": "2 s", "stall_every": 10, "prefetch": 2}, 2.0, 0.0),
    ],
)
def test_data_loading(data: dict[str, Any], step_s: float, expected: float) -> None:
    assert data_stall(training(data=data), step_s) == pytest.approx(expected)


def test_data_loading_shows_in_the_breakdown() -> None:
    built = step(data={"time": "100 s"})
    assert built.step_time().seconds == pytest.approx(100.0)
    assert built.step_time().breakdown["data"] > 90


def test_offloaded_optimizer_takes_the_hosts_time() -> None:
    gpu = step(TransformerModel.preset("llama3-8b"), layout={"zero": 1}, seq_len=4096)
    cpu = step(TransformerModel.preset("llama3-8b"), layout={"zero": 1}, seq_len=4096, offload={"optimizer": "cpu"})
    nvme = step(TransformerModel.preset("llama3-8b"), layout={"zero": 1}, seq_len=4096, offload={"optimizer": "nvme"})
    times = [built.step_time().breakdown["optimizer"] for built in (gpu, cpu, nvme)]
    assert times[0] < times[1] < times[2]
    # 30 bytes a parameter through one node's host memory, all eight ranks together
    assert times[1] == pytest.approx(8.03e9 * 30 / 140e9, rel=0.1)


def test_offloaded_activations_and_weights_show_where_they_do_not_hide() -> None:
    base = step(layout={"tp": 8}, micro_batch=8)
    kept = step(layout={"tp": 8}, micro_batch=8, offload={"activations": 1.0, "overlap": False})
    streamed = step(layout={"tp": 8}, micro_batch=8, offload={"parameters": "cpu", "overlap": False})
    for built in (kept, streamed):
        assert built.step_time().breakdown["offload"] > 0
        assert built.step_time().seconds > base.step_time().seconds
    assert base.step_time().breakdown["offload"] == 0


def test_copied_activations_take_the_links_time() -> None:
    """PipeOffload copies to the host; a host that copies at a crawl stands in the way, a fast one does not."""
    free = {"preset": "dgx-h100", "pinned_bandwidth_per_gpu": 1e15}
    slow = {"preset": "dgx-h100", "pinned_bandwidth_per_gpu": 1e6}
    schedule = {"kind": "pipeoffload", "offload_chunks": 1}
    times = [
        step(llama(16), node=node, layout={"pp": 4, "dp": 2}, schedule=schedule, global_batch=32).step_time().seconds
        for node in (free, "dgx-h100", slow)
    ]
    assert times[0] <= times[1] < times[2]


def test_a_list_of_ones_own_times_as_the_schedule_it_was_written_from(tmp_path: Path) -> None:
    """A CSV needs no ``slices`` where its units are whole sequences."""
    made = get_schedule("1f1b").program(Pipeline(4, 16))
    file = tmp_path / "own.csv"
    file.write_text(to_csv(made), encoding="utf-8")
    layout = {"tp": 2, "pp": 4, "dp": 1}
    own = step(layout=layout, schedule={"kind": "csv", "file": str(file)}, global_batch=16)
    assert own.step_time() == step(layout=layout, schedule="1f1b", global_batch=16).step_time()


@pytest.mark.parametrize("name", schedule_names())
def test_a_scenario_takes_what_the_step_takes(name: str) -> None:
    """Sizes that a schedule is given by default are the same where a scenario is checked and where its step is timed."""
    if name == "csv":
        return
    data = {
        "model": "llama3-8b",
        "cluster": {"nodes": 1, "node": "dgx-h100", "storage": "tectonic"},
        "training": {"seq_len": 4096, "global_batch": 16, "steps": 1},
        "parallelism": {"tp": 2, "pp": 4, "schedule": name},
    }
    assert StepModel.of(load(data)).step_time().seconds > 0


def test_recomputing_what_the_model_has_not_is_told() -> None:
    ops = {"kind": "selective", "ops": ["latent-up", "moe", "norm"]}
    told = [problem for problem in step(recompute=ops).report().cautions if problem.path == "training.recompute.ops"]
    assert len(told) == 1
    assert "'latent-up' needs multi-head latent attention" in told[0].message
    assert "'moe' needs a mixture of experts" in told[0].message
    assert not step(recompute="selective").report().cautions
