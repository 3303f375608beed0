"""A GPU type: datasheet values and the efficiencies that component measurements show."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from clustersim.part import Block, PresetModel
from clustersim.units import Bytes, PositiveBytesPerSecond, PositiveFlopPerSecond, Seconds, Watts

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
Share = Annotated[float, Field(gt=0, le=1)]


class Efficiency(Block):
    """What a GPU type reaches of its datasheet, from component measurements (each value's source stands in the preset)."""

    gemm: dict[Precision, Share] = Field(default_factory=dict)
    """Share of the dense peak that a large, tile-aligned matrix product reaches at sustained clocks, by precision."""
    memory: Share = 0.85
    """Share of the datasheet memory bandwidth that elementwise kernels reach."""
    attention_forward: dict[str, Share] = Field(default_factory=dict)
    """Share of the bf16 peak of a forward attention kernel at head size 128, long sequence, by kernel generation."""
    attention_backward: dict[str, Share] = Field(default_factory=dict)
    """The same of the backward kernel."""
    launch: Seconds = 3e-6
    """Time between the starts of two empty kernels on a busy stream."""


class Gpu(PresetModel, folder="gpus"):
    """A GPU type: dense peaks by precision, memory, links, power."""

    name: str
    vendor: str = ""
    memory: Bytes
    memory_bandwidth: PositiveBytesPerSecond
    peak: dict[Precision, PositiveFlopPerSecond]
    """Dense peak (no sparsity) by precision."""
    sms: int = Field(gt=0)
    """Streaming multiprocessors (compute units for AMD), for wave quantisation."""
    link_bandwidth_per_direction: PositiveBytesPerSecond
    """NVLink, Infinity Fabric or, without either, PCIe: one GPU, one direction."""
    pcie_bandwidth_per_direction: PositiveBytesPerSecond
    power: Watts
    efficiency: Efficiency = Efficiency()
