"""Memory of a rank: the paper's figures, arithmetic by hand, and what can only help."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.errors import DoesNotFit
from clustersim.pipeline.activations import in_flight_at_peak
from clustersim.pipeline.graph import Graph
from clustersim.pipeline.schedule import Pipeline, Schedule
from clustersim.pipeline.step_graph import shape_of
from clustersim.workload.fit import check, remedies, verdict
from clustersim.workload.kept import (
    attention_kept,
    kept_bytes,
    layer_kept,
    pending_bytes,
    routed_tokens,
    stage_kept_bytes,
    unit_of,
    workspace_bytes,
)
from clustersim.workload.layers import Slice
from clustersim.workload.layout import Layout
from clustersim.workload.memory import CONTEXT, NCCL_GROUP, PARTS, Memory
from clustersim.workload.model import TransformerModel
from clustersim.workload.parameters import layer_counts, local_parameters
from clustersim.workload.stack import Stack
from clustersim.workload.stages import StageContent
from clustersim.workload.training import FullRecompute, NoRecompute, SelectiveRecompute, Training

GIB = 2**30
UNFUSED, FLASH = Stack.preset("megatron-2021"), Stack.preset("nemo-2024")
NONE, SELECTIVE, FULL = NoRecompute(), SelectiveRecompute(), FullRecompute()


def cut(tokens: int = 2048, length: int = 2048, tp: int = 1, sp: bool = False, **more: object) -> Slice:
    base = Slice(tokens / length, length, tokens, tp, 1, 1, 1, sp)
    return base._replace(**more)  # type: ignore[arg-type]


def job(name: str, stack: Stack = FLASH, *, dp: int = 1, slice_: Slice | None = None, limit: float = 80e9,
        layout: dict[str, object] | None = None, **training: object) -> Memory:  # fmt: skip
    """A one-rank job of a preset with one unit in flight."""
    model = TransformerModel.preset(name)
    chosen = Training.model_validate({"seq_len": 2048, "global_batch": 64, "steps": 1, **training})
    stage = StageContent(*layer_counts(model), embedding=True, head=True)
    shape = Layout.model_validate(layout or {"zero": 0})
    where = slice_ or cut(tp=shape.tp, sp=shape.sequence_parallel, expert_tp=shape.expert_tp or 1, ep=shape.ep)
    return Memory(model, chosen, shape, unit_of(where, stack, chosen.precision), dp, ((stage,),), ((1.0,),), (limit,))


# Korthikanti et al. 2022 (arXiv 2205.05198), figures 1 and 7, first stage: model, microbatch, pipeline ranks, chunks.
CASES = {"megatron-22b": (4, 1, 1), "megatron-175b": (1, 8, 3), "megatron-530b": (1, 35, 3), "megatron-1t": (1, 64, 1)}
ACTIVATIONS = {
    "megatron-22b": (59.25, 9.5625),
    "megatron-175b": (66.84375, 12.351562),
    "megatron-530b": (114.023438, 23.076172),
    "megatron-1t": (131.25, 26.5625),
}
STATES = {"megatron-22b": 45.5625, "megatron-175b": 45.5625, "megatron-530b": 31.640625, "megatron-1t": 32.958984}


def first_rank_units(pp: int, chunks: int) -> int:
    """Stage-microbatches that rank 0 holds in (interleaved) 1F1B: pp, or chunks·pp + pp − 1."""
    return pp if chunks == 1 else chunks * pp + pp - 1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("sp", "recompute", "column"), [(False, NONE, 0), (True, SELECTIVE, 1)])
def test_korthikanti_activations(name: str, sp: bool, recompute: SelectiveRecompute, column: int) -> None:
    model, (batch, pp, chunks) = TransformerModel.preset(name), CASES[name]
    unit = unit_of(cut(tokens=2048 * batch, tp=8, sp=sp), UNFUSED, "bf16")
    layers = model.layers // (pp * chunks)
    held = first_rank_units(pp, chunks) * stage_kept_bytes(model, unit, recompute, StageContent(layers))
    assert held / GIB == pytest.approx(ACTIVATIONS[name][column], rel=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_korthikanti_states(name: str) -> None:
    """18 bytes a parameter of the first rank's layers; the paper leaves out norms and biases (below 0.2 %)."""
    model, (_, pp, _) = TransformerModel.preset(name), CASES[name]
    held = local_parameters(model, StageContent(model.layers // pp), tp=8).total
    assert 18 * held / GIB == pytest.approx(STATES[name], rel=3e-3)


@pytest.mark.parametrize(("sp", "recompute", "percent"), [
    (False, NONE, {"megatron-22b": 100.0, "megatron-175b": 100.0, "megatron-530b": 100.0, "megatron-1t": 100.0}),
    (True, NONE, {"megatron-22b": 66.84, "megatron-175b": 62.04, "megatron-530b": 58.31, "megatron-1t": 58.31}),
    (False, SELECTIVE, {"megatron-22b": 49.42, "megatron-175b": 56.53, "megatron-530b": 62.04, "megatron-1t": 62.04}),
    (True, SELECTIVE, {"megatron-22b": 16.18, "megatron-175b": 18.49, "megatron-530b": 20.27, "megatron-1t": 20.27}),
    (False, FULL, {"megatron-22b": 7.64, "megatron-175b": 8.71, "megatron-530b": 9.42, "megatron-1t": 9.42}),
])  # fmt: skip
def test_korthikanti_percent_of_the_baseline(sp: bool, recompute: FullRecompute, percent: dict[str, float]) -> None:
    for name, printed in percent.items():
        model = TransformerModel.preset(name)
        units = [unit_of(cut(tp=8, sp=on), UNFUSED, "bf16") for on in (False, sp)]
        base = stage_kept_bytes(model, units[0], NONE, StageContent(1))
        assert 100 * stage_kept_bytes(model, units[1], recompute, StageContent(1)) / base == pytest.approx(
            printed, rel=0.03
        )


def test_gpt_layer_by_hand() -> None:
    """34·s·b·h + 5·a·s²·b bytes (arXiv 2205.05198, equation 1)."""
    model = TransformerModel.preset("megatron-22b")
    size = 2048 * model.hidden
    kept = kept_bytes(layer_kept(model, unit_of(cut(), UNFUSED, "fp16"), False), NONE)
    assert kept == pytest.approx(34 * size + 5 * model.heads * 2048**2)


def test_llama_layer_by_hand() -> None:
    """Norms 2 × 4·h, Q 2·h, K and V 2·2·h/4, output 2·h, log-sum-exp 4·a, gate, up and product 3 × 2·f bytes a token."""
    model = TransformerModel.preset("llama3-8b")
    kept = kept_bytes(layer_kept(model, unit_of(cut(), FLASH, "bf16"), False), NONE)
    h, f = model.hidden, model.ffn_hidden
    assert kept == pytest.approx(2048 * (8 * h + 2 * h + h + 2 * h + 4 * model.heads + 6 * f))


def test_weights_held_in_fp8_alone_save_the_16_bit_copy_of_the_layers() -> None:
    """A layer's weight takes the cast matrix and its transpose, 2 bytes, instead of 4; embedding and head stay at 2."""
    model = TransformerModel.preset("llama3-8b")
    ends = local_parameters(model, StageContent(embedding=True, head=True)).total
    layers = local_parameters(model, StageContent(model.layers)).total
    for zero, dp in ((0, 1), (1, 8)):
        wide, narrow = (
            job("llama3-8b", layout={"zero": zero}, dp=dp, precision="fp8", narrow_weights=narrow).report().stages[0]
            for narrow in (False, True)
        )
        assert wide.weights == pytest.approx(2 * ends + 4 * layers)
        assert narrow.weights == pytest.approx(2 * ends + 2 * layers)
        assert narrow.optimizer == wide.optimizer
    with pytest.raises(ValueError, match="narrow_weights needs a precision of 8 bits or fewer, not bf16"):
        job("llama3-8b", precision="bf16", narrow_weights=True)


def test_fp8_keeps_inputs_of_products_in_one_byte() -> None:
    model = TransformerModel.preset("llama3-8b")
    wide, narrow = (kept_bytes(layer_kept(model, unit_of(cut(), FLASH, p), False), NONE) for p in ("bf16", "fp8"))
    h, f = model.hidden, model.ffn_hidden
    assert wide - narrow == pytest.approx(2048 * (h + h + f - h))  # the attention output is kept in both precisions


def test_expert_layer_by_hand() -> None:
    model = TransformerModel.preset("mixtral-8x7b")
    dense = kept_bytes(layer_kept(model, unit_of(cut(), FLASH, "bf16"), False), NONE)
    moe = kept_bytes(layer_kept(model, unit_of(cut(), FLASH, "bf16"), True), NONE)
    h, f = model.hidden, model.ffn_hidden
    assert moe - dense == pytest.approx(2048 * (8 * 8 + 2 * 4 * h + 6 * f))


def test_capacity_and_imbalance_scale_the_routed_tokens() -> None:
    model = TransformerModel.preset("mixtral-8x7b")
    assert model.moe is not None
    busy = model.replace(moe={**model.moe.model_dump(), "imbalance": 1.3})
    capped = model.replace(moe={**model.moe.model_dump(), "imbalance": 1.3, "capacity_factor": 1.0})
    assert [routed_tokens(m, cut()) for m in (model, busy, capped)] == pytest.approx([4096, 4096 * 1.3, 4096])


def test_latent_attention_keeps_its_low_ranks() -> None:
    model = TransformerModel.preset("deepseek-v3")
    kept = sum(tensor.bytes for tensor in attention_kept(model, unit_of(cut(), FLASH, "bf16")))
    assert kept == pytest.approx(2048 * (2 * (128 * (192 + 192 + 128) + 1536 + 512 + 64) + 2 * 128 * 128 + 4 * 128))


def test_up_projections_of_latent_attention_go_alone() -> None:
    """Of DeepSeek-V3's attention its low ranks, output and statistics stay: 2 bytes of 2,112 and 16,384, 4 of 128 a token."""
    model = TransformerModel.preset("deepseek-v3")
    kept = attention_kept(model, unit_of(cut(), FLASH, "bf16"))
    left = kept_bytes(kept, SelectiveRecompute(ops=("latent-up",)))
    assert left == pytest.approx(2048 * (2 * (1536 + 512 + 64) + 2 * 128 * 128 + 4 * 128))
    dense = attention_kept(TransformerModel.preset("llama3-8b"), unit_of(cut(), FLASH, "bf16"))
    assert kept_bytes(dense, SelectiveRecompute(ops=("latent-up",))) == kept_bytes(dense, NoRecompute())


@pytest.mark.parametrize(("zero", "bytes_a_parameter"), [(0, 18.0), (1, 6 + 12 / 8)])
def test_states_by_hand(zero: int, bytes_a_parameter: float) -> None:
    memory = job("llama3-8b", dp=8, layout={"zero": zero})
    rank = memory.report().stages[0]
    states = rank.weights + rank.gradients + rank.optimizer
    assert states == pytest.approx(bytes_a_parameter * memory.parameters(memory.stages[0]).total, rel=1e-9)


def test_zero_3_gathers_two_layers_and_the_vocabulary() -> None:
    memory = job("llama3-8b", dp=8, layout={"zero": 3})
    rank, total = memory.report().stages[0], memory.parameters(memory.stages[0]).total
    layer = local_parameters(memory.model, StageContent(1)).total
    ends = local_parameters(memory.model, StageContent(embedding=True, head=True)).total
    assert rank.weights == pytest.approx(2 * (ends + 2 * layer))
    assert rank.gradients == pytest.approx(4 * (total / 8 + 2 * layer))
    assert rank.optimizer == pytest.approx(12 * total / 8)


def test_experts_shard_over_fewer_ranks() -> None:
    memory = job("mixtral-8x7b", dp=8, layout={"zero": 1, "ep": 8})
    held = memory.parameters(memory.stages[0])
    assert memory.report().stages[0].optimizer == pytest.approx(12 * (held.dense / 8 + held.expert))


def test_parts_add_up_and_overhead_is_what_it_says() -> None:
    rank = job("llama3-8b", dp=2).report().stages[0]
    assert rank.total == pytest.approx(sum(getattr(rank, part) for part in PARTS))
    assert rank.overhead == pytest.approx(CONTEXT + NCCL_GROUP + rank.fragmentation)
    assert rank.reserved == pytest.approx(rank.total - CONTEXT - NCCL_GROUP)
    assert rank.fragmentation == pytest.approx(0.05 * rank.reserved)
    assert rank.allocated == pytest.approx(rank.total - rank.overhead)


def test_logits_sit_on_the_last_rank_only() -> None:
    model = TransformerModel.preset("llama3-8b")
    memory = job("llama3-8b", layout={"pp": 2, "zero": 0})
    ends = ((StageContent(16, embedding=True),), (StageContent(16, head=True),))
    two = Memory(model, memory.training, memory.layout, memory.unit, 1, ends, ((2.0,), (1.0,)), (80e9, 80e9))
    first, last = two.report().stages
    assert first.logits == 0
    assert last.logits == pytest.approx(10 * 2048 * model.vocab)
    assert first.activations > 1.9 * (last.activations - 2048 * 4 * model.hidden)


def test_lora_trains_adapters_only() -> None:
    rank = job("llama3-8b", lora={"rank": 16}).report().stages[0]
    h, f, kv = 4096, 14336, 1024
    adapters = 32 * 16 * (2 * (h + h) + 2 * (h + kv) + 3 * (h + f))
    assert (rank.gradients, rank.optimizer) == pytest.approx((4 * adapters, 12 * adapters))


def test_offload_empties_the_gpu() -> None:
    rank = job("llama3-8b", offload={"optimizer": "cpu", "activations": 0.5}).report().stages[0]
    whole = job("llama3-8b").report().stages[0]
    assert (rank.optimizer, rank.activations) == pytest.approx((0.0, whole.activations / 2))


def test_verdict_names_rank_bytes_and_remedies_that_work() -> None:
    memory = job("llama3-8b", dp=8, limit=80e9)
    report = memory.report()
    assert not report.fits
    text = verdict(memory, report)
    assert "pipeline rank 0 of 1" in text
    assert f"{report.peak_bytes - 80e9:,.0f} bytes" in text
    assert "parallelism.zero: 1" in text
    working = {label for label, changed in remedies(memory) if changed.report().roomy}
    assert all((label in text) == (label in working) for label, _ in remedies(memory))
    with pytest.raises(DoesNotFit, match="does not fit") as caught:
        check(memory)
    assert caught.value.exit_code == 3
    fitting = memory.changed(layout={"zero": 1})
    assert check(fitting).fits
    assert verdict(fitting, fitting.report()).startswith("fits: ")


@pytest.mark.parametrize("limit, begins", [
    ("total", "fits: "), ("below total", "fits tightly: "), ("needed", "fits tightly: "), ("below needed", "does not fit: "),
])  # fmt: skip
def test_a_job_that_is_over_by_fragmentation_alone_fits_tightly(limit: str, begins: str) -> None:
    """The allocator gives cached blocks back before it fails: only what tensors, context and communicators need is hard."""
    memory = job("llama3-8b", dp=8, limit=80e9)
    rank = memory.report().stages[0]
    small = replace(memory, limits=(getattr(rank, limit.split()[-1]) - (1.0 if "below" in limit else 0.0),))
    report = small.report()
    assert verdict(small, report).startswith(begins)
    assert (report.fits, report.tight) == (begins != "does not fit: ", begins == "fits tightly: ")
    assert report.roomy == (report.fits and not report.tight)
    if report.fits:
        assert check(small) == report
    else:
        with pytest.raises(DoesNotFit):
            check(small)


def test_what_gives_a_tight_job_room_is_said() -> None:
    memory = job("llama3-8b", dp=8, limit=80e9)
    small = replace(memory, limits=(memory.report().stages[0].needed,))
    text = verdict(small, small.report())
    roomy = {label for label, changed in remedies(small) if changed.report().roomy}
    assert roomy
    assert all((label in text) == (label in roomy) for label, _ in remedies(small))


def test_verdict_where_no_single_change_helps() -> None:
    memory = job("llama3-70b", dp=2, limit=80e9)
    assert "No single change is enough" in verdict(memory, memory.report())


@given(zero=st.integers(0, 2), dp=st.sampled_from([2, 8, 64]), name=st.sampled_from(["llama3-8b", "mixtral-8x7b"]))
def test_more_sharding_never_holds_more_state(zero: int, dp: int, name: str) -> None:
    less, more = (job(name, dp=dp, layout={"zero": z}).report().stages[0] for z in (zero, zero + 1))
    layer = 2 * local_parameters(TransformerModel.preset(name), StageContent(1, 1)).total
    assert more.optimizer <= less.optimizer
    assert more.weights <= less.weights
    assert more.gradients <= less.gradients + 4 * layer  # the buckets that are being reduced


@given(tp=st.sampled_from([2, 4, 8]), name=st.sampled_from(["llama3-70b", "megatron-22b", "mixtral-8x7b"]),
       recompute=st.sampled_from([NONE, SELECTIVE, FULL]))  # fmt: skip
def test_sequence_parallelism_and_recomputation_only_help(tp: int, name: str, recompute: NoRecompute) -> None:
    model = TransformerModel.preset(name)
    stage = StageContent(*layer_counts(model))
    plain, parallel = (unit_of(cut(tp=tp, sp=sp, expert_tp=tp), UNFUSED, "bf16") for sp in (False, True))
    assert stage_kept_bytes(model, parallel, recompute, stage) < stage_kept_bytes(model, plain, recompute, stage)
    assert stage_kept_bytes(model, plain, recompute, stage) <= stage_kept_bytes(model, plain, NONE, stage)


@given(recomputed=st.integers(0, 80))
def test_full_recompute_of_some_layers_lies_between(recomputed: int) -> None:
    model = TransformerModel.preset("llama3-70b")
    unit, stage = unit_of(cut(), FLASH, "bf16"), StageContent(80)
    some = stage_kept_bytes(model, unit, FullRecompute(layers=recomputed), stage)
    every, none = (stage_kept_bytes(model, unit, kind, stage) for kind in (FULL, NONE))
    assert some == pytest.approx(none + (every - none) * recomputed / 80)


def test_weight_gradients_keep_32_sbh_a_gpt_layer() -> None:
    """Inputs of the four products 14·s·b·h, their output gradients 18·s·b·h (arXiv 2401.10241, table 1)."""
    model = TransformerModel.preset("megatron-22b")
    unit = unit_of(cut(), UNFUSED, "fp16")
    assert pending_bytes(model, unit, StageContent(3)) == pytest.approx(3 * 32 * 2048 * model.hidden)
    assert pending_bytes(model, unit, StageContent(3, no_backward=True)) == 0.0


def test_alternate_products_keep_what_torchtitan_saves() -> None:
    """Layer input 2·h, Q, K and V less a tenth, attention output 2·h and statistics, one of the two wide products 2·f."""
    model = TransformerModel.preset("llama3-8b")
    kept = kept_bytes(
        layer_kept(model, unit_of(cut(), FLASH, "bf16"), False), SelectiveRecompute(ops=("alternate-products",))
    )
    h, f = model.hidden, model.ffn_hidden
    by_hand = 2 * h + 0.9 * 2 * (h + h // 2) + 2 * h + 4 * model.heads + 2 * f
    assert kept == pytest.approx(2048 * by_hand)


def graph_of(kind: str, pp: int, microbatches: int, chunks: int = 1, **options: object) -> Graph:
    schedule = Schedule.build({"kind": kind, **options})
    return shape_of(schedule, Pipeline(pp, microbatches, chunks)).graph


@given(pp=st.integers(2, 8), extra=st.integers(0, 8))
def test_1f1b_holds_what_is_ahead_of_it(pp: int, extra: int) -> None:
    held = in_flight_at_peak(graph_of("1f1b", pp, pp + extra), [1.0] * pp)
    assert [counts[rank] for rank, counts in enumerate(held)] == [pp - rank for rank in range(pp)]


def test_interleaved_holds_chunks_by_their_bytes() -> None:
    graph = graph_of("interleaved-1f1b", 4, 8, 2)
    even = in_flight_at_peak(graph, [1.0] * 8)[0]
    assert sum(even.values()) == first_rank_units(4, 2)
    heavy = in_flight_at_peak(graph, [1.0, 0, 0, 0, 100.0, 0, 0, 0])[0]
    assert heavy[4] >= even[4]


def test_units_that_wait_for_their_weight_gradient_count_by_their_bytes() -> None:
    graph = graph_of("zb-h2", 4, 12)
    full = in_flight_at_peak(graph, [2.0] * 4)
    half = in_flight_at_peak(graph, [2.0] * 4, [1.0] * 4)
    none = in_flight_at_peak(graph, [2.0] * 4, [0.0] * 4)
    for rank in range(4):
        assert sum(none[rank].values()) <= sum(half[rank].values()) <= sum(full[rank].values())
    assert any(sum(half[rank].values()) < sum(full[rank].values()) for rank in range(4))


def test_zero_3_behind_a_pipeline_holds_weights_and_gradients_whole() -> None:
    alone, piped = (job("llama3-8b", dp=8, layout={"zero": 3, "pp": pp}).report().stages[0] for pp in (1, 2))
    total = local_parameters(TransformerModel.preset("llama3-8b"), StageContent(32, embedding=True, head=True)).total
    assert (piped.weights, piped.gradients) == pytest.approx((2 * total, 4 * total))
    assert piped.optimizer == pytest.approx(alone.optimizer)


def test_shard_degrees_override_the_zero_stage() -> None:
    inside = job("llama3-8b", dp=64, layout={"zero": 1, "shard": {"optimizer": 8}}).report().stages[0]
    assert inside.optimizer == pytest.approx(job("llama3-8b", dp=8, layout={"zero": 1}).report().stages[0].optimizer)


def test_vocabulary_parallelism_spreads_head_and_logits() -> None:
    memory = job("llama3-8b", layout={"pp": 2, "zero": 0})
    ends = ((StageContent(16, embedding=True),), (StageContent(16, head=True),))
    shared = replace(memory, stages=ends, in_flight=((2.0,), (1.0,)), limits=(80e9, 80e9), vocabulary_ranks=2)
    first, last = shared.report().stages
    assert first.logits == last.logits == pytest.approx(10 * 2048 * memory.model.vocab / 2)
    whole = replace(shared, vocabulary_ranks=1).report().stages
    assert first.weights + last.weights == pytest.approx(sum(rank.weights for rank in whole))


@pytest.mark.parametrize(("length", "phase"), [(512, "mlp"), (8192, "attention")])
def test_the_workspace_of_a_recomputed_layer_is_that_of_its_fuller_half(length: int, phase: str) -> None:
    """All 34 sbh + 5 as² b less the input are back when the MLP's turn comes, and 12 sbh of gradients; when attention's
    comes, 21 sbh of the MLP are gone and a gradient of the scores, 2 as² b, has come with 4 sbh of others."""
    model = TransformerModel.preset("megatron-22b")
    unit = unit_of(cut(length, length), UNFUSED, "fp16")
    plain = length * model.hidden, model.heads * length**2
    found = workspace_bytes(model, unit, FULL, False)
    halves = {"mlp": 44 * plain[0] + 5 * plain[1], "attention": 15 * plain[0] + 7 * plain[1]}
    assert found == pytest.approx(halves[phase])
    assert halves[phase] == max(halves.values())


def test_deepspeed_keeps_copies_of_gradients() -> None:
    parameters = 8_030_261_248
    plain = job("llama3-8b", replace_stack(FLASH), dp=8, layout={"zero": 1}).report().stages[0]
    copies = replace_stack(FLASH, extra_gradient_bytes=2.0, step_gradient_bytes=4.0)
    copied = job("llama3-8b", copies, dp=8, layout={"zero": 1}).report().stages[0]
    assert copied.gradients - plain.gradients == pytest.approx(2 * parameters)
    assert copied.optimizer - plain.optimizer == pytest.approx(4 * parameters / 8)


def replace_stack(stack: Stack, **changes: float) -> Stack:
    return stack.model_copy(update=changes)
