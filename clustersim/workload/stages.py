"""What a virtual pipeline stage holds, and the parameters that one GPU holds of it."""

from __future__ import annotations

from typing import NamedTuple


class LocalParameters(NamedTuple):
    """Parameters that one GPU holds; both kinds are replicated over different groups of GPUs."""

    dense: float = 0.0
    """Everything but routed experts: the same on all data-parallel (and context-parallel) ranks."""
    expert: float = 0.0
    """Routed experts: the same on every ``ep``-th of them."""

    def plus(self, other: LocalParameters, count: float = 1.0) -> LocalParameters:
        """This and ``count`` of the other."""
        return LocalParameters(self.dense + count * other.dense, self.expert + count * other.expert)

    @property
    def total(self) -> float:
        """Both."""
        return self.dense + self.expert


class StageContent(NamedTuple):
    """What a virtual stage (one chunk of a rank) holds."""

    dense: int = 0
    """Layers with a dense MLP."""
    moe: int = 0
    """Layers with experts."""
    embedding: bool = False
    head: bool = False
    """The final norm and the output head."""
    mtp: int = 0
    """Multi-token-prediction modules."""
    frozen_dense: int = 0
    """Of the dense layers, those that are not trained."""
    frozen_moe: int = 0
    no_backward: bool = False
    """Nothing in or below this stage is trained: it has no backward at all."""

    @property
    def layers(self) -> int:
        """Transformer layers, prediction modules apart."""
        return self.dense + self.moe
