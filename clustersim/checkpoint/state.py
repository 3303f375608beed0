"""Bytes of a training state: what a checkpoint holds, and what all ranks together read to restore it."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.parameters import layer_counts, layer_parameters, model_parameters
from clustersim.workload.training import Training

WEIGHT_BYTES = 2.0
"""16-bit weights in a checkpoint; with Adam's 12 bytes this is the 14 B a parameter of MLPerf Storage (8B: 15 + 90
GiB)."""


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
    """Parameters that a checkpoint holds: (all but routed experts, routed experts), prediction modules included."""
    counts = model_parameters(model)
    sparse = layer_counts(model)[1] + (model.mtp_layers if model.moe else 0)
    experts = float(sparse * layer_parameters(model, True).experts) if model.moe else 0.0
    return float(counts.total + counts.mtp) - experts, experts


def state_bytes(model: TransformerModel, training: Training, layout: Layout, gpus: int) -> StateBytes:
    """Bytes of the state of ``model`` under ``layout``.

    Weights are held dp · cp times (those of experts dp · cp ÷ ep times), once with ZeRO 3; the optimizer's state once
    with any ZeRO, as often as the weights without.
    """
    width = 4.0 if training.precision in ("fp32", "tf32") else WEIGHT_BYTES
    state = training.optimizer.state_bytes_per_param
    dense, experts = parameters(model)
    replicas = max(1, gpus // (layout.tp * layout.pp))
    copies = dense * replicas + experts * max(1.0, replicas / layout.ep)
    once, cuts = dense + experts, layout.cuts
    return StateBytes(width * once, state * once,
                      width * (once if cuts.parameters else copies) + state * (once if cuts.optimizer else copies),
                      replicas)  # fmt: skip
