"""A measured profile: what replaces the published efficiencies and the op costs of the model."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from clustersim.block import Block
from clustersim.hardware.gpu import Efficiency, Gpu
from clustersim.units import Seconds
from clustersim.workload.fitted import MeasuredCurve, Surface


class PassTimes(Block):
    """Measured seconds of one layer for one microbatch, all its messages included, and of one stage-to-stage send."""

    forward: Seconds
    input_gradient: Seconds
    """Recomputation included."""
    weight_gradient: Seconds
    send: Seconds | None = None


class RawFile(Block):
    """A measurement file that a profile comes from."""

    name: str
    sha256: str
    records: int = Field(ge=0)


class Provenance(Block):
    """Where a profile comes from."""

    device: str
    driver: str = ""
    date: str = ""
    """Day of the measurement, ISO 8601."""
    versions: dict[str, str] = Field(default_factory=dict)
    state: dict[str, str] = Field(default_factory=dict)
    """Clocks, power, temperature, load of the machine, as logged."""
    files: tuple[RawFile, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out, and why."""


class Use(Block):
    """Where the value of a scenario's key comes from."""

    measurement: str
    """What was measured."""
    instead_of: str | None = None
    """The value of the preset that it replaces."""


class Profile(Block):
    """Measurements of real hardware; what is null or absent keeps the model's own value."""

    name: str = "profile"
    efficiency: Efficiency | None = None
    """Matrix product, attention and memory shares that replace the GPU preset's."""
    layer: PassTimes | None = None
    """Pass times that replace the cost of every transformer layer; embedding, head and optimizer stay modelled."""
    clock: float = Field(default=1.0, gt=0, le=1.5)
    provenance: Provenance | None = None
    surfaces: tuple[Surface, ...] = ()
    """Seconds of matrix products and attention by size; they replace the models of these ops."""
    curves: tuple[MeasuredCurve, ...] = ()
    """Seconds by bytes of collectives, copies, memory-bound ops and files."""
    files_on: Literal["local", "shared"] | None = None
    """Where files and saves were measured: on a node's own disk, or on storage that all nodes share; null: not said, and then
    they are for reading only."""
    used_for: dict[str, Use] = Field(default_factory=dict)
    """Keys of the scenario that took their value from this profile (filled in when a scenario is read; what the scenario
    states itself wins)."""
    startup: dict[str, Seconds] = Field(default_factory=dict)
    """Seconds to start: ``process``, ``import``, ``init_process_group``, ``first_step`` …"""
    uncertainty: float = Field(default=0.0, ge=0, le=1)
    """One standard deviation of predicted computation, relative: pooled held-out error of surfaces and memory-bound ops."""
    message_uncertainty: float = Field(default=0.0, ge=0, le=1)
    """The same of messages between devices."""

    def applied(self, gpu: Gpu) -> Gpu:
        """The GPU with the measured efficiencies."""
        return gpu if self.efficiency is None else gpu.model_copy(update={"efficiency": self.efficiency})

    def surface(self, op: str, precision: str) -> Surface | None:
        """The fitted surface of an op, or None."""
        return next((item for item in self.surfaces if item.op == op and item.precision == precision), None)

    def curve(self, op: str, group: int = 1, place: str | None = None, beside: str = "") -> MeasuredCurve | None:
        """The fitted curve of an op over ``group`` ranks, or None. ``place`` None: wherever it was measured."""
        return next((item for item in self.curves if item.op == op and item.group == group and item.beside == beside
                     and place in (None, item.place)), None)  # fmt: skip

    def interval(self, seconds: float, messages: float = 0.0) -> tuple[float, float] | None:
        """Where 95 % of predictions of ``seconds`` lie, or None where the error of a part of more than 5 % is not known.

        ``messages``: share of the seconds that are exposed messages; the rest counts as computation. Errors of one kind
        go together (the cautious side), those of both kinds are independent.
        """
        parts = ((1 - messages, self.uncertainty), (messages, self.message_uncertainty))
        if any(share > 0.05 and error == 0 for share, error in parts):
            return None
        spread = math.hypot(*(share * error for share, error in parts))
        factor = math.exp(1.96 * spread)
        return seconds / factor, seconds * factor
