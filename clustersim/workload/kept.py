"""What the backward pass needs: bytes of activations that a GPU keeps of one unit, by tensor.

A unit is a microbatch, or one slice of its sequence. T tokens of it lie on the GPU, O of them outside tensor-parallel
regions (T ÷ t with sequence parallelism, else T). The list follows Korthikanti et al. 2022 (arXiv 2205.05198,
section 4), whose s·b·h·(34 + 5·a·s/h) bytes a layer it reproduces for their GPT, tensor by tensor:

* a half (attention, MLP) keeps its norm's input and output, 2·O·h each, and a dropout mask of 1 byte;
* attention keeps Q, K, V and its output; unfused kernels also the softmax (2 bytes a score) and, with dropout, a
  mask and the dropped-out copy (3 more); flash kernels 4 bytes a token and head (Dao et al. 2022) instead of all scores;
* the MLP keeps the output of its first product (both halves where it is gated) and the activation behind it;
* a mixture of experts keeps the routed copies of its input, of each inner tensor, and of its output for the weighted
  sum.

In fp8 and narrower the input of a product is kept as cast (1 byte); all else stays in 16 bits. An op that is
recomputed keeps only its input. Fused kernels keep no inner tensors; an unfused norm keeps two fp32 ones, an unfused
gate its silu.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from clustersim.workload.layers import Slice
from clustersim.workload.model import Linear, TransformerModel
from clustersim.workload.precision import NARROW
from clustersim.workload.stack import Stack
from clustersim.workload.stages import StageContent
from clustersim.workload.training import FullRecompute, NoRecompute, Recompute, SelectiveRecompute


class Kept(NamedTuple):
    """One tensor that is kept for the backward pass."""

    name: str
    bytes: float
    parts: tuple[str, ...] = ()
    """Recomputing any of these drops it."""


class Unit(NamedTuple):
    """What decides how much of a unit is kept: the cut, the kernels, the width of a product's saved input."""

    cut: Slice
    stack: Stack
    narrow: bool
    """Products run in fp8 or narrower."""

    @property
    def input_width(self) -> float:
        """Bytes of an element of a product's saved input."""
        return 1.0 if self.narrow else self.cut.width

    @property
    def outside(self) -> float:
        """Tokens outside tensor-parallel regions."""
        return self.cut.outside


def unit_of(cut: Slice, stack: Stack, precision: str) -> Unit:
    """The unit of a job in ``precision``."""
    return Unit(cut, stack, precision in NARROW)


def half_ends(model: TransformerModel, unit: Unit, name: str, inner: str) -> list[Kept]:
    """Around one half of a layer: the norm's input and output, and the dropout mask behind the half."""
    size = unit.outside * model.hidden
    norms = [Kept(f"{name} norm input", size * unit.cut.width)]
    if not unit.stack.fused_norm:
        norms.append(Kept(f"{name} norm in fp32", 8.0 * size, ("norm",)))
    norms.append(Kept(f"{inner} input", size * unit.input_width, ("norm",)))
    return [*norms, Kept(f"{name} dropout mask", size)] if model.dropout else norms


def attention_kept(model: TransformerModel, unit: Unit) -> list[Kept]:
    """Inside attention: queries, keys and values, scores or their statistics, and the output."""
    cut = unit.cut
    heads, kept = model.heads / cut.tp, ("attention",)
    latent = model.latent
    if latent is None:
        keys = max(model.kv / cut.tp, 1.0)
        widths, value = (heads + 2 * keys) * model.head_size, model.head_size
        tensors = [Kept("queries, keys, values", cut.tokens * widths * cut.width, kept)]
    else:
        value, query = latent.v_head_dim, latent.nope_head_dim + latent.rope_head_dim
        widths, ranks = heads * (2 * query + value), (latent.q_rank or 0) + latent.kv_rank + latent.rope_head_dim
        tensors = [
            Kept("queries, keys, values", cut.tokens * widths * cut.width, (*kept, "latent-up")),
            Kept("low ranks", cut.tokens * ranks * cut.width, kept),
        ]
    output = cut.tokens * heads * value
    tensors.append(Kept("attention output", output * cut.width + (output if unit.narrow else 0.0), kept))
    return [*tensors, Kept("scores", _score_bytes(model, unit), ("attention", "attention-core"))]


def _score_bytes(model: TransformerModel, unit: Unit) -> float:
    cut, heads = unit.cut, model.heads / unit.cut.tp
    if isinstance(model.attention, Linear):
        return 0.0
    if unit.stack.attention != "unfused":
        return 4.0 * cut.tokens * heads
    return _score_width(model, unit) * cut.sequences * heads * float(cut.length) * cut.length / cut.cp


def _score_width(model: TransformerModel, unit: Unit) -> float:
    """Bytes that unfused attention keeps of a score: the softmax, and with dropout a mask and the dropped-out copy."""
    return 2.0 * unit.cut.width + 1.0 if model.dropout else unit.cut.width


def gradient_bytes(model: TransformerModel, unit: Unit, tensors: Iterable[Kept]) -> float:
    """Bytes of the largest gradient of these tensors.

    Scores take one matrix more than is kept: a fused softmax is differentiated in place; behind dropout its copy is gone
    by then. An unfused softmax without dropout takes two, its output's gradient and its input's.
    """
    scores = unit.cut.width / _score_width(model, unit)
    if not (unit.stack.fused_softmax or model.dropout):
        scores *= 2.0
    shares = {"scores": scores if unit.stack.attention == "unfused" else 1.0}
    return max((tensor.bytes * shares.get(tensor.name, 1.0) for tensor in tensors), default=0.0)


def mlp_kept(model: TransformerModel, unit: Unit, width: float, tokens: float, cut_over: int, part: str) -> list[Kept]:
    """Inside an MLP of inner ``width`` over ``tokens``: the first product's output and the activation behind it."""
    size = tokens * width / cut_over
    inner = size * unit.cut.width * (2.0 if model.gated_mlp else 1.0)
    if model.gated_mlp and not unit.stack.fused_activation:
        inner += size * unit.cut.width
    parts = ("mlp",) if part == "mlp" else ("mlp", part)
    return [
        Kept(f"{part} first product", inner, parts),
        Kept(f"{part} activation", size * unit.input_width, (*parts, "activation")),
    ]


def routed_tokens(model: TransformerModel, cut: Slice) -> float:
    """Token copies that a GPU's experts take of one unit: top-k, times the capacity or the load of the busiest rank."""
    assert model.moe is not None
    factor = model.moe.capacity_factor if model.moe.capacity_factor is not None else model.moe.imbalance
    return cut.tokens * model.moe.top_k * factor * cut.expert_tp / cut.tp


def moe_kept(model: TransformerModel, unit: Unit) -> list[Kept]:
    """Inside a mixture of experts: router, routed copies through the experts, shared experts."""
    assert model.moe is not None
    moe, cut = model.moe, unit.cut
    routed = routed_tokens(model, cut)
    tensors = [
        Kept("router logits and probabilities", 8.0 * unit.outside * moe.experts, ("moe",)),
        Kept("routed input", routed * model.hidden * unit.input_width, ("moe",)),
        *mlp_kept(model, unit, moe.expert_ffn_hidden, routed, cut.expert_tp, "moe"),
        Kept("routed output", routed * model.hidden * cut.width, ("moe",)),
    ]
    if moe.shared_experts:
        shared = moe.shared_experts * moe.expert_ffn_hidden
        tensors += mlp_kept(model, unit, shared, cut.tokens, cut.tp, "mlp")
    return tensors


def layer_halves(model: TransformerModel, unit: Unit, moe: bool) -> tuple[list[Kept], list[Kept]]:
    """All tensors that one layer keeps of one unit when nothing is recomputed: those of attention, those of the MLP."""
    inner = (
        moe_kept(model, unit) if moe else mlp_kept(model, unit, model.ffn_hidden, unit.cut.tokens, unit.cut.tp, "mlp")
    )
    second = [] if model.parallel_block else half_ends(model, unit, "mlp", "mlp")
    return [*half_ends(model, unit, "attention", "attention"), *attention_kept(model, unit)], [*second, *inner]


def layer_kept(model: TransformerModel, unit: Unit, moe: bool) -> list[Kept]:
    """All tensors that one layer keeps of one unit when nothing is recomputed."""
    first, second = layer_halves(model, unit, moe)
    return [*first, *second]


def input_bytes(model: TransformerModel, unit: Unit) -> float:
    """A layer's input, all that full recomputation keeps of it."""
    return unit.outside * model.hidden * unit.cut.width


ALTERNATE = {"mlp norm input": 1.0, "queries, keys, values": 0.1, "mlp first product": 0.5, "moe first product": 0.5}
"""Shares of tensors that go when every second matrix product is recomputed (torchtitan): the residual behind attention,
keys, and one of the two wide products."""


def kept_bytes(tensors: Iterable[Kept], recompute: Recompute) -> float:
    """Bytes of a layer's tensors that are not recomputed op by op."""
    ops = set(recompute.ops) if isinstance(recompute, SelectiveRecompute) else set()
    if "alternate-products" not in ops:
        return sum(tensor.bytes for tensor in tensors if not ops.intersection(tensor.parts))
    ops |= {"norm", "activation"}
    return sum(tensor.bytes * (1.0 - ALTERNATE.get(tensor.name, 0.0)) for tensor in tensors
               if not ops.intersection(tensor.parts))  # fmt: skip


def workspace_bytes(model: TransformerModel, unit: Unit, recompute: Recompute, moe: bool) -> float:
    """Gradients of one layer's largest tensors, and what recomputation puts back for one layer.

    The backward takes the MLP first. Checkpointing that wraps a layer has put all of it back by then, and what it put back
    of the MLP is gone when attention's turn comes; single ops are recomputed in their half's turn.
    """
    attention, mlp = halves = layer_halves(model, unit, moe)
    taken, full = 2 * input_bytes(model, unit), isinstance(recompute, FullRecompute)
    back = [kept_bytes(half, NoRecompute()) - (0.0 if full else kept_bytes(half, recompute)) for half in halves]
    whole = sum(back) - (input_bytes(model, unit) if full else 0.0)
    if model.parallel_block:
        return whole + taken + gradient_bytes(model, unit, [*attention, *mlp])
    at_once = full or "alternate-products" in getattr(recompute, "ops", ())
    first = (whole if at_once else back[1]) + gradient_bytes(model, unit, mlp)
    return taken + max(first, whole - back[1] + gradient_bytes(model, unit, attention))


def pending_bytes(model: TransformerModel, unit: Unit, stage: StageContent) -> float:
    """Bytes that one unit keeps on a stage between its input gradient (I) and its weight gradient (W): the input and the
    output gradient of every product (32·s·b·h a layer for a GPT, arXiv 2401.10241, table 1)."""
    if stage.no_backward:
        return 0.0
    cut, size = unit.cut, unit.outside * model.hidden
    total = size * (unit.input_width + cut.width) if stage.head else 0.0
    for moe, count, _ in _trained_layers(model, stage):
        if count:
            tensors = {tensor.name: tensor.bytes for tensor in layer_kept(model, unit, moe)}
            total += count * (sum(tensors.get(name, 0.0) for name in PENDING) + 2 * size * cut.width)
    return total


PENDING = (
    *("attention input", "mlp input", "attention output", "mlp activation", "routed input", "moe activation"),
    *("queries, keys, values", "mlp first product", "moe first product", "routed output"),
)
"""Inputs of products, and tensors as large as the output gradients of products; the two of width h are added apart."""


def _trained_layers(model: TransformerModel, stage: StageContent) -> Iterator[tuple[bool, int, int]]:
    """(has experts, layers with a backward, frozen layers before them) of each kind of layer of a stage."""
    yield False, stage.dense - stage.frozen_dense, stage.frozen_dense
    yield True, stage.moe - stage.frozen_moe, stage.frozen_moe
    yield model.moe is not None, stage.mtp, 0


def stage_kept_bytes(model: TransformerModel, unit: Unit, recompute: Recompute, stage: StageContent) -> float:
    """Bytes that one unit in flight keeps on a stage, logits apart.

    Full recomputation of ``layers`` a stage takes the first ones of each stage. Layers without a backward keep nothing.
    """
    if stage.no_backward:
        return 0.0
    size = unit.outside * model.hidden
    total = (size if model.dropout else 0.0) if stage.embedding else 0.0
    if stage.head:
        total += size * (unit.cut.width + unit.input_width)
    full = (
        (stage.layers if recompute.layers is None else recompute.layers) if isinstance(recompute, FullRecompute) else 0
    )
    for moe, count, frozen in _trained_layers(model, stage):
        again = min(count, max(0, full - frozen))
        full -= min(full, frozen + again)
        if again:
            total += again * input_bytes(model, unit)
        if count > again:
            total += (count - again) * kept_bytes(layer_kept(model, unit, moe), recompute)
    return total
