"""Bytes of a training state: what a checkpoint holds, and what all ranks together read to restore it."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.training import Training

WEIGHT_BYTES = 2.0
"""16-bit weights in a checkpoint; with Adam's 12 bytes this is the 14 B a parameter of MLPerf Storage (8B: 15 + 90 GiB)."""


@dataclass(frozen=True)
class StateBytes:
    """Bytes of a model's training state.

    Attributes:
        weights: each weight once.
        optimizer: the optimizer's state, each byte once.
        read_by_all: what all ranks read when each reads its own weights and its own part of the optimizer's state.
        replicas: how many copies of the model the job holds (dp · cp).
    """

    weights: float
    optimizer: float
    read_by_all: float
    replicas: int = 1

    @property
    def total(self) -> float:
        """Bytes of a checkpoint: every byte once."""
        return self.weights + self.optimizer


def parameters(model: TransformerModel) -> tuple[float, float]:
    """Trainable parameters of a transformer: (all but routed experts, routed experts)."""
    h, heads, kv, size = model.hidden, model.heads, model.kv, model.head_size
    attention = 2 * h * heads * size + 2 * h * kv * size
    if model.latent is not None:
        latent = model.latent
        inner = heads * (latent.nope_head_dim + latent.rope_head_dim)
        queries = latent.q_rank * (h + inner + 1) if latent.q_rank else h * inner
        keys = h * (latent.kv_rank + latent.rope_head_dim) + latent.kv_rank
        keys += latent.kv_rank * heads * (latent.nope_head_dim + latent.v_head_dim)
        attention = queries + keys + heads * latent.v_head_dim * h
    matrices, layers = (3 if model.gated_mlp else 2), model.layers + model.mtp_layers
    norms = 2 * h * (2 if model.norm == "layernorm" else 1)
    mlp = matrices * h * model.ffn_hidden
    biases = (heads + 2 * kv) * size + h + (matrices - 1) * model.ffn_hidden + h if model.biases else 0
    ends = model.vocab * h * (1 if model.tied_embeddings else 2) + h + model.positions * h
    if model.moe is None:
        return float(layers * (attention + norms + mlp + biases) + ends), 0.0
    moe = model.moe
    expert, sparse = matrices * h * moe.expert_ffn_hidden, layers - moe.dense_layers
    dense = layers * (attention + norms) + moe.dense_layers * mlp + sparse * (moe.shared_experts * expert + h * moe.experts)
    return float(dense + ends), float(sparse * moe.experts * expert)


def state_bytes(model: TransformerModel, training: Training, layout: Layout, gpus: int) -> StateBytes:
    """Bytes of the state of ``model`` under ``layout``.

    Weights are held dp · cp times (those of experts dp · cp ÷ ep times), once with ZeRO 3; the optimizer's state once with
    any ZeRO, as often as the weights without.
    """
    width = 4.0 if training.precision in ("fp32", "tf32") else WEIGHT_BYTES
    state = training.optimizer.state_bytes_per_param
    dense, experts = parameters(model)
    replicas = max(1, gpus // (layout.tp * layout.pp))
    copies = dense * replicas + experts * max(1.0, replicas / layout.ep)
    once = dense + experts
    return StateBytes(width * once, state * once,
                      width * (once if layout.zero == 3 else copies) + state * (once if layout.zero else copies),
                      replicas)  # fmt: skip
