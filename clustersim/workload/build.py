"""Costs and parameters of every kind of block that a stage may hold, on one GPU type."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from clustersim.workload.cost import ZERO, LayerCost, Pricer
from clustersim.workload.ends import embedding_ops, head_ops, mtp_ops
from clustersim.workload.layers import LayerOp, Slice, layer_ops
from clustersim.workload.mixer import attention_shape
from clustersim.workload.model import TransformerModel
from clustersim.workload.parameters import local_parameters
from clustersim.workload.stages import LocalParameters, StageContent
from clustersim.workload.training import FullRecompute, Lora, Recompute, SelectiveRecompute


@dataclass(frozen=True, eq=False)
class Blocks:
    """Costs of a layer, the embedding, the head: built once a GPU type, shared by all stages."""

    pricer: Pricer
    cut: Slice
    recompute: Recompute
    lora: Lora | None = None

    def stage(self, content: StageContent) -> tuple[LayerCost, LocalParameters]:
        """Seconds of one microbatch on a stage, by pass, and the parameters that a GPU holds of it."""
        cost, parameters = LayerCost(), LocalParameters()
        for moe, count, frozen in (
            (False, content.dense, content.frozen_dense),
            (True, content.moe, content.frozen_moe),
        ):
            if count:
                cost = cost.plus(self._layers(moe, count, frozen))
                parameters = parameters.plus(self.parameters[moe], count)
        if content.embedding:
            cost = cost.plus(self.embedding)
            parameters = parameters.plus(self.embedding_parameters)
        if content.head:
            heads = 1 + content.mtp
            cost = cost.plus(self.head.times(heads))
            if not (self.model.tied_embeddings and content.embedding):
                parameters = parameters.plus(self.head_parameters)
            if content.mtp:
                cost = cost.plus(self.mtp.times(content.mtp))
                parameters = parameters.plus(self.mtp_parameters, content.mtp)
        if content.no_backward:
            cost = LayerCost(cost.forward)
        return cost, parameters

    @property
    def model(self) -> TransformerModel:
        """The model."""
        return self.pricer.model

    def _layers(self, moe: bool, count: int, frozen: int) -> LayerCost:
        layer = self.moe_layer if moe else self.dense_layer
        full = self.recompute.layers if isinstance(self.recompute, FullRecompute) else None
        again = count if full is None else min(count, full)
        cost = layer.times(count)
        if again != count or frozen:
            cost = cost._replace(recompute=layer.recompute.times(max(0, again - frozen)))
        if frozen:  # the model's first layers: no backward reaches them
            inward, weight = (passed.times(count - frozen) for passed in (layer.input_gradient, layer.weight_gradient))
            cost = cost._replace(input_gradient=inward, weight_gradient=weight)
        return cost

    @cached_property
    def dense_layer(self) -> LayerCost:
        """A layer with a dense MLP."""
        return self._layer(False)

    @cached_property
    def moe_layer(self) -> LayerCost:
        """A layer with experts."""
        return self._layer(True)

    def _layer(self, moe: bool) -> LayerCost:
        ops = self._with_lora(self.ops(moe))
        parts = frozenset(self.recompute.ops) if isinstance(self.recompute, SelectiveRecompute) else frozenset()
        shape = attention_shape(self.model, self.cut)
        return self.pricer.layer(ops, shape, parts, isinstance(self.recompute, FullRecompute))

    def ops(self, moe: bool) -> list[LayerOp]:
        """The op list of a layer."""
        return layer_ops(self.model, self.cut, self.pricer.stack, moe)

    def _with_lora(self, ops: list[LayerOp]) -> list[LayerOp]:
        """With adapters: no weight gradients of the frozen matrices, two thin products a matrix that has an adapter."""
        if self.lora is None:
            return ops
        kept = [op for op in ops if op.when != "W"]
        for op in ops:
            if op.when == "F" and op.work == "gemm" and op.part in self.lora.targets and op.shape is not None:
                kept += lora_ops(op, self.lora.rank)
        return kept

    @cached_property
    def embedding(self) -> LayerCost:
        """The embedding."""
        return self._plain(embedding_ops(self.model, self.cut, self.pricer.stack))

    @cached_property
    def head(self) -> LayerCost:
        """Final norm, head and loss."""
        return self._plain(head_ops(self.model, self.cut, self.pricer.stack))

    @cached_property
    def mtp(self) -> LayerCost:
        """One multi-token-prediction layer without its head."""
        layer = self.moe_layer if self.model.moe is not None else self.dense_layer
        return layer.plus(self._plain(mtp_ops(self.model, self.cut)))

    def _plain(self, ops: list[LayerOp]) -> LayerCost:
        shape = attention_shape(self.model, self.cut)
        passes = [self.pricer.pass_cost([op for op in ops if op.when == when], shape) for when in ("F", "I", "W")]
        if self.lora is not None:
            passes[2] = ZERO
        return LayerCost(*passes)

    def _local(self, stage: StageContent) -> LocalParameters:
        cut = self.cut
        return local_parameters(self.model, stage, tp=cut.tp, ep=cut.ep, expert_tp=cut.expert_tp)

    @cached_property
    def parameters(self) -> dict[bool, LocalParameters]:
        """Parameters of a layer on one GPU: dense (False) and with experts (True)."""
        return {
            False: self._local(StageContent(dense=1)),
            **({True: self._local(StageContent(moe=1))} if self.model.moe else {}),
        }

    @cached_property
    def embedding_parameters(self) -> LocalParameters:
        """The embedding on one GPU."""
        return self._local(StageContent(embedding=True))

    @cached_property
    def head_parameters(self) -> LocalParameters:
        """Final norm and head on one GPU."""
        return self._local(StageContent(head=True))

    @cached_property
    def mtp_parameters(self) -> LocalParameters:
        """One multi-token-prediction module on one GPU."""
        return self._local(StageContent(mtp=1))


def lora_ops(op: LayerOp, rank: int) -> list[LayerOp]:
    """The adapter A (k × rank) and B (rank × n) of a frozen product, in all passes."""
    from clustersim.workload.layers import gemm

    assert op.shape is not None
    m, n, k, batch = op.shape
    return [*gemm("lora a", op.part, m, rank, k, batch=batch), *gemm("lora b", op.part, m, n, rank, batch=batch)]
