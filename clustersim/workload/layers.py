"""The op list of one transformer layer on one GPU: FLOP, bytes and messages of each op, by pass.

Passes: ``F`` forward, ``I`` gradient of the input, ``W`` gradient of the weights. Linear layers are cut over
tensor-parallel ranks by columns, then rows (Shoeybi et al. 2019); what lies between them is replicated, or cut along
the sequence with sequence parallelism (Korthikanti et al. 2022). ``mixer.py`` holds the attention half, ``mlp.py``
the other.

Bytes of memory-bound ops are counted read + written at 2 bytes an element, h the hidden size and f the MLP's:
norm 4·T·h forward, 8 backward · bias-dropout-add 7 and 5 (without dropout 6 and 4) · residual gradient add 4 ·
GELU 4·T·f and 8 · SwiGLU 6 and 10 · rotary 4·T·(q + k) each way.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from clustersim.workload.model import TransformerModel
from clustersim.workload.precision import OpClass
from clustersim.workload.stack import Stack

Pass = Literal["F", "I", "W"]
Work = Literal["gemm", "attention", "memory", "message"]
Axis = Literal["tp", "cp", "ep"]
Collective = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ring"]


class LayerOp(NamedTuple):
    """One op of a layer in one pass, on one GPU, for one microbatch."""

    name: str
    when: Pass
    work: Work
    part: str
    """What recomputes it: ``norm``, ``activation``, ``attention``, ``attention-core``, ``mlp``, ``moe`` or nothing."""
    flop: float = 0.0
    bytes: float = 0.0
    """Memory traffic, or the bytes of a message (the whole tensor for gathers and reductions)."""
    shape: tuple[int, int, int, int] | None = None
    """m, n, k, batch of a matrix product."""
    op_class: OpClass = "linear"
    out_bytes: float = 2.0
    axis: Axis | None = None
    collective: Collective | None = None
    cast: float = 0.0
    """Elements that a product casts to a narrow format first."""


class Slice(NamedTuple):
    """What one GPU sees of a microbatch: the arguments of every op list."""

    sequences: float
    length: int
    """Tokens of the whole sequence."""
    tokens: int
    """Tokens on this GPU between tensor-parallel regions: sequences × length ÷ cp."""
    tp: int
    cp: int
    ep: int
    expert_tp: int
    sequence_parallel: bool
    mask_share: float = 1.0
    width: float = 2.0
    """Bytes of an activation element."""

    @property
    def outside(self) -> float:
        """Tokens on this GPU outside tensor-parallel regions."""
        return self.tokens / self.tp if self.sequence_parallel and self.tp > 1 else float(self.tokens)


def gemm(
    name: str,
    part: str,
    m: int,
    n: int,
    k: int,
    op_class: OpClass = "linear",
    batch: int = 1,
    weights: bool = True,
    input_gradient: bool = True,
) -> list[LayerOp]:
    """The products of one linear layer: forward, input gradient, weight gradient (accumulated in fp32)."""
    flop = 2.0 * m * n * k * batch
    ops = [LayerOp(name, "F", "gemm", part, flop, shape=(m, n, k, batch), op_class=op_class, cast=float(m) * k * batch)]
    if input_gradient:
        ops.append(
            LayerOp(name, "I", "gemm", part, flop, shape=(m, k, n, batch), op_class=op_class, cast=float(m) * n * batch)
        )
    if weights:
        ops.append(LayerOp(name, "W", "gemm", part, flop, shape=(k, n, m, batch), op_class=op_class, out_bytes=8.0))
    return ops


def memory(name: str, part: str, forward: float, backward: float) -> list[LayerOp]:
    """A memory-bound op: bytes forward and backward; an op of 0 bytes does not exist."""
    both: list[tuple[Pass, float]] = [("F", forward), ("I", backward)]
    return [LayerOp(name, when, "memory", part, bytes=size) for when, size in both if size > 0]


def message(
    name: str,
    part: str,
    axis: Axis,
    forward: Collective | None,
    backward: Collective | None,
    size: float,
    backward_size: float | None = None,
) -> list[LayerOp]:
    """A collective in the forward pass and its transpose in the backward pass."""
    both: list[tuple[Pass, Collective | None, float]] = [
        ("F", forward, size),
        ("I", backward, size if backward_size is None else backward_size),
    ]
    return [
        LayerOp(name, when, "message", part, bytes=count, axis=axis, collective=kind)
        for when, kind, count in both
        if kind is not None and count > 0
    ]


def enter_tp(cut: Slice, hidden: int, part: str) -> list[LayerOp]:
    """Into a tensor-parallel region: gather the sequence; backward: scatter (or all-reduce) the input's gradient."""
    if cut.tp == 1:
        return []
    size = cut.tokens * hidden * cut.width
    if cut.sequence_parallel:
        again = LayerOp("regather", "W", "message", part, bytes=size, axis="tp", collective="all-gather")
        return [*message("enter", part, "tp", "all-gather", "reduce-scatter", size), again]
    return message("enter", part, "tp", None, "all-reduce", size)


def leave_tp(cut: Slice, hidden: int, part: str) -> list[LayerOp]:
    """Out of a tensor-parallel region: scatter (or all-reduce) the partial sums; backward: gather the gradient."""
    if cut.tp == 1:
        return []
    size = cut.tokens * hidden * cut.width
    if cut.sequence_parallel:
        return message("leave", part, "tp", "reduce-scatter", "all-gather", size)
    return message("leave", part, "tp", "all-reduce", None, size)


def norm_ops(model: TransformerModel, cut: Slice, stack: Stack, name: str, part: str = "norm") -> list[LayerOp]:
    """One norm over the hidden size; unfused, its fp32 chain (cast, square, mean, scale, cast) moves 24 bytes more
    each way."""
    extra = 0.0 if stack.fused_norm else 24.0
    size, scale = cut.outside * model.hidden, cut.width / 2
    return memory(name, part, (4.0 * scale + extra) * size, (8.0 * scale + extra) * size)


def residual_ops(model: TransformerModel, cut: Slice, stack: Stack, name: str) -> list[LayerOp]:
    """Bias, dropout and residual add after a half, and the add of both gradients where the residual forked."""
    size, scale = cut.outside * model.hidden, cut.width / 2
    forward, backward = (7.0, 5.0) if model.dropout else (6.0, 4.0)
    if not stack.fused_dropout_add:
        forward, backward = forward + 4.0 * (1 + model.dropout), backward + 4.0 * model.dropout
    if model.biases and not stack.fused_bias_gradient:
        backward += 2.0
    ops = memory(name, "", forward * scale * size, backward * scale * size)
    return ops + memory(f"{name} gradient", "", 0.0, 4.0 * scale * size)


def layer_ops(model: TransformerModel, cut: Slice, stack: Stack, moe: bool) -> list[LayerOp]:
    """All ops of one layer; ``moe`` says whether its MLP is a mixture of experts."""
    from clustersim.workload.mixer import attention_ops
    from clustersim.workload.mlp import mlp_ops, moe_ops

    half = moe_ops(model, cut, stack) if moe else mlp_ops(model, cut, stack)
    each = stack.extra_bytes * cut.width / 2 * cut.tokens * model.hidden
    half += memory("copies", "", each, each)
    if model.parallel_block:
        return _parallel_block(model, cut, stack, half)
    return [
        *norm_ops(model, cut, stack, "attention norm"),
        *attention_ops(model, cut, stack),
        *residual_ops(model, cut, stack, "attention residual"),
        *norm_ops(model, cut, stack, "mlp norm"),
        *half,
        *residual_ops(model, cut, stack, "mlp residual"),
    ]


def _parallel_block(model: TransformerModel, cut: Slice, stack: Stack, half: list[LayerOp]) -> list[LayerOp]:
    """Attention and MLP read one normalised input and are summed: one norm, one residual, one pair of TP messages."""
    from clustersim.workload.mixer import attention_ops

    without_tp = [op for op in half if op.axis != "tp"]
    return [
        *norm_ops(model, cut, stack, "norm"),
        *attention_ops(model, cut, stack),
        *without_tp,
        *residual_ops(model, cut, stack, "residual"),
    ]
