"""A measured profile: what replaces the published efficiencies and the op costs of the model."""

from __future__ import annotations

from pydantic import Field

from clustersim.hardware.gpu import Efficiency, Gpu
from clustersim.part import Block
from clustersim.units import Seconds


class PassTimes(Block):
    """Measured seconds of one layer for one microbatch, all its messages included, and of one stage-to-stage send."""

    forward: Seconds
    input_gradient: Seconds
    """Recomputation included."""
    weight_gradient: Seconds
    send: Seconds | None = None


class Profile(Block):
    """Measurements of real hardware; what is null keeps the model's own value."""

    name: str = "profile"
    efficiency: Efficiency | None = None
    """Matrix product, attention and memory shares that replace the GPU preset's."""
    layer: PassTimes | None = None
    """Pass times that replace the cost of every transformer layer; embedding, head and optimizer stay modelled."""
    clock: float = Field(default=1.0, gt=0, le=1.5)

    def applied(self, gpu: Gpu) -> Gpu:
        """The GPU with the measured efficiencies."""
        return gpu if self.efficiency is None else gpu.model_copy(update={"efficiency": self.efficiency})
