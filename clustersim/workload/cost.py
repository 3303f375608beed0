"""Seconds of op lists: roofline × shape-dependent efficiency, launch, host, messages, and what overlaps with what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from clustersim.workload.attention import (
    BACKWARD_FLOP,
    AttentionShape,
    flash_rate,
    is_windowed,
    unfused_backward_seconds,
    unfused_forward_seconds,
)
from clustersim.workload.device import Device
from clustersim.workload.experts import MoeStage, pipelined_seconds
from clustersim.workload.gemm import gemm_seconds
from clustersim.workload.layers import LayerOp, Slice
from clustersim.workload.mixer import ContextWork, context_work
from clustersim.workload.model import Linear, TransformerModel
from clustersim.workload.order_statistics import expected_maximum
from clustersim.workload.precision import NARROW, OpPrecision, element_bytes, precision_of
from clustersim.workload.stack import Stack

STEADY_LAYERS = 8
"""Layers over which the filling of a microbatch's parts is spread."""
MessageSeconds = Callable[[str, str, float], float]
"""Seconds of a collective: (axis, collective, bytes)."""
ContextSeconds = Callable[[float, ContextWork], float]
"""Seconds that context parallelism adds to a pass: (seconds of its core attention, what is exchanged)."""


class PassCost(NamedTuple):
    """Seconds of one pass on one GPU, by what they go to."""

    gemm: float = 0.0
    attention: float = 0.0
    memory: float = 0.0
    host: float = 0.0
    """Waiting for the host to issue kernels."""
    tp: float = 0.0
    cp: float = 0.0
    ep: float = 0.0

    @property
    def compute(self) -> float:
        """Seconds on the compute units and on the host."""
        return self.gemm + self.attention + self.memory + self.host

    @property
    def total(self) -> float:
        """All seconds that the pass holds its GPU."""
        return self.gemm + self.attention + self.memory + self.host + self.tp + self.cp + self.ep

    def plus(self, other: PassCost) -> PassCost:
        """Both, one after the other."""
        return PassCost(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, count: float) -> PassCost:
        """``count`` of them."""
        return PassCost(*(count * a for a in self))


ZERO = PassCost()


class LayerCost(NamedTuple):
    """Seconds of one layer (or of the embedding, or of the head) for one microbatch."""

    forward: PassCost = ZERO
    input_gradient: PassCost = ZERO
    weight_gradient: PassCost = ZERO
    recompute: PassCost = ZERO
    """Forward work done again ahead of the backward."""

    def plus(self, other: LayerCost) -> LayerCost:
        """Both, one after the other."""
        return LayerCost(*(a.plus(b) for a, b in zip(self, other, strict=True)))

    def times(self, count: float) -> LayerCost:
        """``count`` such layers."""
        return LayerCost(*(a.times(count) for a in self))


@dataclass(frozen=True)
class Exposure:
    """How traffic runs beside computation."""

    tp: float = 1.0
    """Share of tensor-parallel traffic that stays exposed."""
    expert_parts: int = 1
    """Parts in which a microbatch flows through attention, dispatch, experts and combine; 1: one after the other."""


@dataclass(frozen=True, eq=False)
class Pricer:
    """Puts seconds to ops of one GPU type under one stack."""

    model: TransformerModel
    device: Device
    stack: Stack
    precision: str
    messages: MessageSeconds
    context: ContextSeconds
    cut: Slice
    exposure: Exposure = Exposure()
    chosen: OpPrecision | None = None

    def op_seconds(self, op: LayerOp, shape: AttentionShape) -> float:
        """Seconds of one op alone, all messages exposed."""
        if op.work == "gemm":
            return self._gemm(op)
        if op.work == "memory":
            measured = self.device.measured.memory(op.bytes) if self.device.measured else None
            return op.bytes / self.device.memory_rate + self.device.launch if measured is None else measured
        if op.work == "attention":
            return self._attention(op, shape)
        assert op.axis is not None
        assert op.collective is not None
        return self.messages(op.axis, op.collective, op.bytes)

    def _gemm(self, op: LayerOp) -> float:
        assert op.shape is not None
        precision = precision_of(op.op_class, self.precision, self.chosen)  # type: ignore[arg-type]
        m, n, k, batch = op.shape
        width = element_bytes(precision)
        out = op.out_bytes if precision in NARROW or op.when == "W" else max(op.out_bytes, width)
        measured = self.device.measured.gemm(precision, m, n, k, batch) if self.device.measured else None
        if measured is not None:
            seconds = measured / self.device.clock
        else:
            seconds = gemm_seconds(m, n, k, batch, self.device.unit(precision), width, out)
        launches = batch if op.op_class == "expert" and not self.stack.grouped_experts else 1
        seconds += (launches - 1) * self.device.launch
        if precision in NARROW and op.cast:
            each = self.stack.cast_bytes_forward if op.when == "F" else self.stack.cast_bytes_backward
            seconds += op.cast * each / self.device.memory_rate + launches * self.device.launch
        return seconds

    def _attention(self, op: LayerOp, shape: AttentionShape) -> float:
        precision = precision_of("attention", self.precision, self.chosen)  # type: ignore[arg-type]
        forward = op.when == "F"
        measured = self._measured_attention(op, shape, precision)
        if measured is not None:
            return measured
        if self.stack.attention == "unfused" and not isinstance(self.model.attention, Linear):
            function = unfused_forward_seconds if forward else unfused_backward_seconds
            unit = self.device.unit(precision)
            whole = function(
                shape.sequences,
                shape.heads,
                shape.length,
                shape.head_dim,
                shape.value_dim,
                self.model.dropout,
                unit,
                self.stack.fused_softmax,
            )
            return whole * shape.share
        kernel = "flash-2" if self.stack.attention == "unfused" else self.stack.attention
        shares = self.device.flash_shares(kernel)
        size = min(shape.head_dim, shape.value_dim)
        rate = flash_rate(shares[0] if forward else shares[1], self.device.peak(precision), size, shape.length)
        return op.flop / rate + self.device.launch

    def _measured_attention(self, op: LayerOp, shape: AttentionShape, precision: str) -> float | None:
        """Seconds by the profile's surface; the op's FLOP say how many pairs the mask leaves."""
        if self.device.measured is None or isinstance(self.model.attention, Linear):
            return None
        forward, heads = op.when == "F", shape.sequences * shape.heads
        flop = op.flop / shape.share / (1.0 if forward else BACKWARD_FLOP)
        pairs = flop / (2.0 * (shape.head_dim + shape.value_dim) * heads) if heads else 0.0
        size = (shape.head_dim + shape.value_dim) / 2
        seconds = self.device.measured.attention(
            precision, forward, is_windowed(self.model.attention, shape.length), sequences=shape.sequences,
            heads=shape.heads, length=float(shape.length),
            head_dim=size, pairs=pairs,
        )  # fmt: skip
        return None if seconds is None else seconds * shape.share / self.device.clock

    def pass_cost(self, ops: Iterable[LayerOp], shape: AttentionShape, host: float = 0.0) -> PassCost:
        """Seconds of a pass: ops in order, exposed messages, and the host where it is slower than the GPU.

        Context-parallel messages hide behind the core attention of the blocks already there.
        """
        gemm = attention = memory = tp = cp = experts = 0.0
        exchange = {"dispatch": 0.0, "combine": 0.0}
        syncs = 0
        ring = 0.0
        for op in ops:
            if op.axis == "cp":
                ring += op.bytes
                continue
            seconds = self.op_seconds(op, shape)
            if op.part == "moe" and op.work != "message":
                experts += seconds
            if op.work == "gemm":
                gemm += seconds
            elif op.work == "attention":
                attention += seconds
            elif op.work == "memory":
                memory += seconds
            elif op.axis == "tp":
                tp += seconds * self.exposure.tp * (self.stack.regather_exposed if op.name == "regather" else 1.0)
                syncs += 1
            else:
                exchange[op.name] += seconds
        if ring:
            cp = self.context(attention, context_work(self.model, self.cut, shape, ring))
        ep = self._exchanged(gemm + attention + memory - experts, experts, exchange["dispatch"], exchange["combine"])
        busy = gemm + attention + memory + tp + cp + ep
        late = self.stack.host_jitter * expected_maximum(self.cut.tp)
        return PassCost(gemm, attention, memory, max(0.0, host + syncs * late - busy), tp, cp, ep)

    def _exchanged(self, before: float, experts: float, dispatch: float, combine: float) -> float:
        """Seconds that expert traffic adds to a pass: all of it, or what the parts of a microbatch leave over.

        Layers follow one another, so that the next one's attention hides the combine of this one's last part.
        """
        parts = self.exposure.expert_parts
        if parts == 1 or dispatch + combine == 0:
            return dispatch + combine
        startup = self.messages("ep", "all-to-all", 1.0)
        stages = [MoeStage(before, experts, dispatch, combine)] * STEADY_LAYERS
        exposed = pipelined_seconds(stages, parts, startup) / STEADY_LAYERS - before - experts
        return min(max(0.0, exposed), dispatch + combine)

    def layer(self, ops: list[LayerOp], shape: AttentionShape, recompute: frozenset[str], full: bool) -> LayerCost:
        """Cost of a layer's op list; ``recompute`` names the parts done again, ``full`` all of them."""
        forward = [op for op in ops if op.when == "F"]
        inward = [op for op in ops if op.when == "I"]
        weights = [op for op in ops if op.when == "W"]
        stack = self.stack
        ahead = self.pass_cost(forward, shape, stack.host_forward)
        gradient, weight = self.pass_cost(inward, shape), self.pass_cost(weights, shape)
        late = max(0.0, stack.host_backward - gradient.total - weight.total)
        return LayerCost(
            ahead, gradient._replace(host=late), weight, self._again(forward, shape, ahead, recompute, full)
        )

    def _again(
        self, forward: list[LayerOp], shape: AttentionShape, ahead: PassCost, parts: frozenset[str], full: bool
    ) -> PassCost:
        if full:
            return ahead
        if not parts:
            return ZERO
        again = [op for op in forward if _recomputed(op, parts)]
        if "alternate-products" in parts:
            again += alternate_products(forward, parts)
        return self.pass_cost(again, shape)


def alternate_products(forward: list[LayerOp], parts: frozenset[str]) -> list[LayerOp]:
    """What torchtitan's op-wise selective checkpointing does again: every second matrix product, and all cheap ops.

    Of the seven products of a gated block (Q, K, V, O, gate, up, down) the outputs of the first, third, fifth and
    seventh are kept: O, one of the two wide products and K run again; K is left out here, it is 2 % of a layer with
    few KV heads.
    """
    again = []
    for op in forward:
        if op.name == "attention out" and op.work == "gemm":
            again.append(op)
        elif op.name == "up" and op.shape is not None:
            m, n, k, batch = op.shape
            again.append(op._replace(shape=(m, n // 2, k, batch), flop=op.flop / 2, cast=op.cast / 2))
        elif op.part in ("norm", "activation") and op.part not in parts:
            again.append(op)
    return again


def _recomputed(op: LayerOp, parts: frozenset[str]) -> bool:
    """Whether an op is done again; the last product of a recomputed half is not: its output is not needed."""
    if "latent-up" in parts and op.name in ("q up", "kv up", "assemble keys"):
        return True
    if op.part in parts:
        return op.name not in ("attention out", "down", "leave", "combine", "unpermute")
    return op.part == "attention-core" and "attention" in parts
