"""Sharded weights and gradients behind a pipeline: memory and time tell one story, stage by stage of ZeRO."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from clustersim.checkpoint.state import state_bytes
from clustersim.errors import InputError
from clustersim.pipeline.conditions import Conditions
from clustersim.pipeline.schedule import Pipeline, get_schedule
from clustersim.pipeline.step import StepModel
from clustersim.pipeline.step_graph import shape_of
from clustersim.pipeline.step_memory import memory_report
from clustersim.workload.data_parallel import update_gather_seconds
from clustersim.workload.model import TransformerModel
from tests.workload.jobs import step

MODEL = TransformerModel.preset("llama3-8b")


def job(zero: int, schedule: str | dict[str, Any] = "1f1b", *, pp: int = 4, batch: int = 64, **more: Any) -> StepModel:
    layout = {"tp": 2, "pp": pp, "dp": 2, "zero": zero, **more.pop("layout", {})}
    return step(MODEL, nodes=2, layout=layout, schedule=schedule, seq_len=4096, global_batch=batch, **more)


@pytest.mark.parametrize(
    ("schedule", "pp"),
    [("1f1b", 1), ("1f1b", 4), ("gpipe", 4), ("interleaved-1f1b", 4), ("zb-v", 4), ("chimera", 4)],
)
def test_a_higher_zero_stage_never_holds_more(schedule: str, pp: int) -> None:
    peaks = [memory_report(job(zero, schedule, pp=pp)).peak_bytes for zero in range(4)]
    assert all(more <= less for less, more in pairwise(peaks))


@pytest.mark.parametrize("pp", [1, 4])
@pytest.mark.parametrize(
    ("zero", "shard", "same"),
    [
        (0, {"optimizer": 2}, 1),
        (3, {"parameters": 1, "gradients": 1}, 1),
        (1, {"gradients": 2}, 2),
        (3, {"parameters": 1}, 2),
        (0, {"parameters": 2, "gradients": 2, "optimizer": 2}, 3),
        (1, {"parameters": 2, "gradients": 2}, 3),
        (3, {"parameters": 1, "gradients": 1, "optimizer": 1}, 0),
    ],
)
def test_degrees_say_all_and_the_stage_only_their_defaults(
    zero: int, shard: dict[str, int], same: int, pp: int
) -> None:
    """Two replicas: a stage with degrees of its own is the stage that has them, in bytes and in seconds."""
    given, stage = job(zero, pp=pp, layout={"shard": shard}), job(same, pp=pp)
    assert memory_report(given) == memory_report(stage)
    assert given.step_time().breakdown == stage.step_time().breakdown
    states = [state_bytes(MODEL, built.plan.training, built.plan.layout, 4 * pp) for built in (given, stage)]
    assert states[0] == states[1]


@pytest.mark.parametrize(("zero", "pp"), [(1, 1), (1, 4), (3, 1)])
def test_weights_held_in_fp8_alone_are_gathered_in_fp8(zero: int, pp: int) -> None:
    """The gather's seconds are those of its bytes: one a layer's parameter, two of embedding and head."""
    wide, narrow = (
        job(zero, pp=pp, precision="fp8", narrow_weights=narrow, layout={"overlap": {"dp": False}})
        for narrow in (False, True)
    )
    assert narrow.step_time().breakdown["dp"] < wide.step_time().breakdown["dp"]
    for rank, held in enumerate(narrow.costs.rank_parameters):
        ends = narrow.costs.rank_ends[rank]
        assert (ends > 0) == (rank in (0, pp - 1))
        if zero == 1:
            sizes = (2.0 * held.dense, held.dense + ends)
            seconds = [update_gather_seconds(size, wide.groups.data, wide.groups.shards) for size in sizes]
            saved = wide.ends[rank].tail + wide.ends[rank].head - narrow.ends[rank].tail - narrow.ends[rank].head
            assert saved == pytest.approx(seconds[0] - seconds[1], rel=1e-9)


def test_weights_with_a_scale_per_block_travel_in_16_bits() -> None:
    """Rows and columns are scaled apart, so that what is gathered is not yet narrow; in memory it is."""
    wide, narrow = (
        job(1, precision="mxfp8", narrow_weights=narrow, layout={"overlap": {"dp": False}}) for narrow in (False, True)
    )
    assert narrow.step_time().breakdown["dp"] == wide.step_time().breakdown["dp"]
    assert memory_report(narrow).stages[0].weights < memory_report(wide).stages[0].weights


def test_weights_cut_by_less_than_their_optimizer_keep_a_shard_of_their_own() -> None:
    """Eight replicas, weights cut over two, optimizer state over all: half of the weights stay, and what is gathered."""
    model = TransformerModel.preset("llama3-8b")
    reports = {
        degree: memory_report(
            step(model, layout={"dp": 8, "zero": 1, "shard": {"parameters": degree}}, seq_len=4096, global_batch=8)
        ).stages[0]
        for degree in (1, 2, 4)
    }
    whole = reports[1].weights
    assert reports[2].weights - reports[4].weights == pytest.approx(whole / 4, rel=1e-9)
    assert whole / 2 < reports[2].weights < whole
    assert reports[2].optimizer == reports[1].optimizer


def test_weights_that_stay_gathered_are_gathered_once_a_step() -> None:
    """ZeRO 3 behind a pipeline keeps weights from the first microbatch to the last: its traffic does not grow with
    them."""
    few, many = (job(3, batch=batch).step_time().breakdown["dp"] for batch in (32, 128))
    assert few == pytest.approx(many, rel=1e-9)
    alone = [job(3, pp=1, batch=batch).step_time().breakdown["dp"] for batch in (32, 128)]
    assert alone[1] == pytest.approx(4 * alone[0], rel=1e-6)


def test_one_chunk_keeps_its_gradients_and_reduces_once() -> None:
    """A rank with one chunk turns to no other: ZeRO 2 is ZeRO 1 there, in bytes and in seconds."""
    one, two = job(1), job(2)
    assert memory_report(two).stages[0].gradients == memory_report(one).stages[0].gradients
    assert two.step_time().seconds == one.step_time().seconds


def test_gradients_that_are_sharded_cost_a_reduction_a_round() -> None:
    """Interleaved, p = 4, m = 32 in groups of 4: each chunk's run of backwards comes 8 times."""
    one, two = (job(zero, "interleaved-1f1b", layout={"chunks": 4}) for zero in (1, 2))
    assert two.plan.shape.gradient_rounds.tolist() == [8.0] * 4
    assert memory_report(two).stages[0].gradients < memory_report(one).stages[0].gradients
    assert two.step_time().breakdown["dp"] > one.step_time().breakdown["dp"]


@pytest.mark.parametrize(("name", "rounds"), [("gpipe", 1.0), ("1f1b", 1.0), ("looped-bfs", 1.0), ("v-half", 8.0)])
def test_rounds_are_read_off_the_list(name: str, rounds: float) -> None:
    schedule = get_schedule(name)
    shape = shape_of(schedule, schedule.resolve(Pipeline(4, 8, schedule.default_chunks())))
    assert shape.gradient_rounds.max() <= rounds
    assert shape.gradient_rounds.min() >= 1.0


def test_listed_gathers_hold_few_stages_and_show_what_they_cost() -> None:
    """``fsdp: true``: of four chunks a rank, one gathered at a time; exposed gathers are data-parallel time, not
    bubble."""
    listed = {"kind": "interleaved-1f1b", "fsdp": True, "gathered_stages": 1}
    kept, dropped = job(3, "interleaved-1f1b", layout={"chunks": 4}), job(3, listed, layout={"chunks": 4})
    assert memory_report(dropped).stages[1].weights < 0.5 * memory_report(kept).stages[1].weights
    time = dropped.step_time()
    assert time.breakdown["dp"] > kept.step_time().breakdown["dp"]
    assert time.seconds > kept.step_time().seconds
    assert sum(time.breakdown.values()) == pytest.approx(time.seconds, abs=1e-9)


def test_listed_gathers_need_an_end_of_the_step() -> None:
    with pytest.raises(InputError, match="never flushes"):
        job(3, {"kind": "pipedream-2bw", "fsdp": True}).step_time()


def test_two_weight_versions_take_twice_the_room() -> None:
    plain, twice = (memory_report(job(1, name)).stages[0].weights for name in ("1f1b", "pipedream-2bw"))
    assert twice == 2 * plain


def test_a_schedule_without_flush_has_no_fill_and_drain_in_its_bubble() -> None:
    report = job(1, "pipedream-2bw").report()
    assert report.bubbles["step"] == pytest.approx(report.bubbles["span"], rel=0.05)
    assert report.bubbles["step"] < job(1).report().bubbles["step"]


def test_frozen_layers_have_no_backward() -> None:
    """Half of the layers frozen: forward alone, wherever they lie in a stage, and only what is trained is reduced."""
    whole, half = (job(0, pp=1, frozen_layers=frozen).step_time() for frozen in (0, 16))
    layers = 0.5 + 0.5 / 3  # forward is a third of forward and backward
    assert half.seconds < (layers + 0.15) * whole.seconds
    piped = job(0, frozen_layers=16)
    assert piped.ends[0].tail == 0.0
    assert piped.ends[3].tail == pytest.approx(job(0).ends[3].tail)


def test_model_flop_are_those_that_are_done() -> None:
    """LoRA has no weight gradients of the frozen matrices, frozen layers no backward: MFU stays below HFU and 1."""
    from clustersim.workload.flops import step_flop

    plain, lora = job(1, pp=1), job(1, pp=1, lora={"rank": 8})
    flop = [step_flop(model.plan.model, model.plan.training) for model in (plain, lora)]
    assert flop[1].linear == pytest.approx(flop[0].linear * 2 / 3)
    assert flop[1].attention == flop[0].attention
    still = step_flop(plain.plan.model, job(1, pp=1, frozen_layers=32).plan.training)
    assert still.linear == pytest.approx(flop[0].linear / 3)
    assert still.head == flop[0].head


@pytest.mark.parametrize("precision", ["bf16", "fp8", "nvfp4"])
@pytest.mark.parametrize("schedule", ["1f1b", "v-half"])
def test_a_shared_head_leaves_no_rank_with_less_than_nothing(precision: str, schedule: str) -> None:
    shared = job(1, {"kind": schedule, "vocabulary_parallel": "algorithm-1"}, precision=precision)
    assert all(rank.weights > 0 for rank in memory_report(shared).stages)


@pytest.mark.parametrize("parameters", ["cpu", "nvme"])
@pytest.mark.parametrize("activations", [0.0, 0.5, 1.0])
def test_faster_memory_never_slows_a_step_that_offloads(parameters: str, activations: float) -> None:
    """Copies of weights and of activations hide behind one and the same computation, which must count once."""
    offload = {"parameters": parameters, "activations": activations}
    gpu = {"preset": "h100-sxm", "memory_bandwidth": "6.7 TB/s"}
    slow, fast = (
        step(MODEL, 1, node, {"tp": 2}, offload=offload, global_batch=16).step_time().seconds
        for node in ("dgx-h100", {"preset": "dgx-h100", "gpu": gpu})
    )
    assert fast <= slow


def test_copies_that_share_the_link_show_no_less_than_either_alone() -> None:
    def seconds(**offload: Any) -> float:
        return step(MODEL, 1, layout={"tp": 2}, offload=offload, global_batch=16).step_time().breakdown["offload"]

    both = seconds(parameters="cpu", activations=1.0)
    assert both >= seconds(parameters="cpu")
    assert both >= seconds(activations=1.0)


@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize("pp", [1, 4])
def test_a_slow_link_and_a_save_on_the_nics_slow_every_zero_stage(zero: int, pp: int) -> None:
    layout = {"tp": 1, "pp": pp, "dp": 16 // pp, "zero": zero, "order": "tp-cp-pp-dp"}
    built = step(MODEL, nodes=2, layout=layout, schedule="1f1b", seq_len=4096, global_batch=64)
    normal = built.step_time().seconds
    assert built.step_time(Conditions(slow_links=((0, 0.25),))).seconds > normal
    assert built.step_time(Conditions(saving=0.5)).seconds > normal
    assert built.step_time().seconds == normal
