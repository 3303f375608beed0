"""One GPU type as the numbers that op costs need: sustained rates by precision, attention rates, memory, launch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from clustersim.errors import InputError, Problem
from clustersim.hardware.gpu import Gpu
from clustersim.workload.gemm import MatrixUnit
from clustersim.workload.measured import Measured

DEFAULT_GEMM = 0.75
"""Share of the peak for a GPU whose preset has no matrix-product measurement (the middle of the MAMF table, 0.51 to
0.87)."""
DEFAULT_ATTENTION = {"fa1": (0.25, 0.20), "fa2": (0.45, 0.38), "cudnn": (0.50, 0.42), "fa3": (0.60, 0.50)}
"""Forward and backward shares of the peak where a preset has none: between the A100's and the H100's."""
DEPTH_OVERHEAD = 128.0
"""K0 of a bf16 tile: prologue and epilogue in depth. Narrower elements: the same prologue time is more depth (peak ÷
bf16 peak), and a pipeline stage of as many bytes holds more of it (as much again): K0 grows with the square, 512 for
fp8."""
KERNEL_KEY = {"flash-1": "fa1", "triton": "fa1", "flash-2": "fa2", "cudnn": "cudnn", "flash-3": "fa3"}
"""Kernel generation of a stack → key of the preset's attention shares."""


@dataclass(frozen=True, eq=False)
class Device:
    """A GPU with a clock factor (power cap, thermal throttling): 0.9 makes matrix products 1/0.9 slower."""

    gpu: Gpu
    clock: float = 1.0
    measured: Measured | None = None
    """What a profile knows of the device; its surfaces replace the models below."""

    def peak(self, precision: str) -> float:
        """Dense datasheet peak, FLOP/s; a GPU without the precision computes in the next wider one.

        Raises:
            InputError: when no wider precision exists either.
        """
        native = self.native(precision)
        if native in self.gpu.peak:
            return self.gpu.peak[native]
        known = ", ".join(self.gpu.peak)
        raise InputError(
            Problem("training.precision", f"GPU {self.gpu.name} has no peak for {precision} or wider; it has: {known}")
        )

    def native(self, precision: str) -> str:
        """What the GPU computes in where ``precision`` is asked for: the same, or the next wider one that it has."""
        return next((name for name in _wider(precision) if name in self.gpu.peak), precision)

    def unit(self, precision: str) -> MatrixUnit:
        """What matrix products in ``precision`` run on."""
        cached = self._units.get(precision)
        if cached is None:
            cached = self._units[precision] = self._unit(precision)
        return cached

    def _unit(self, precision: str) -> MatrixUnit:
        native = self.native(precision)
        share = self.gpu.efficiency.gemm.get(native, DEFAULT_GEMM)  # type: ignore[call-overload]
        peak = self.peak(precision)
        base = self.gpu.peak.get("bf16", self.gpu.peak.get("fp16", peak))
        depth = DEPTH_OVERHEAD * max(1.0, peak / base) ** 2
        return MatrixUnit(peak * share * self.clock, self.gpu.sms, self.memory_rate, self.launch, depth)

    @cached_property
    def _units(self) -> dict[str, MatrixUnit]:
        return {}

    @cached_property
    def memory_rate(self) -> float:
        """Bytes/s that elementwise kernels reach."""
        return self.gpu.memory_bandwidth * self.gpu.efficiency.memory

    @property
    def launch(self) -> float:
        """Seconds between the starts of two empty kernels."""
        return self.gpu.efficiency.launch

    def flash_shares(self, kernel: str) -> tuple[float, float]:
        """Shares of the 16-bit peak of a flash kernel forward and backward, clock included; a GPU without the
        generation named runs the newest older one."""
        order = ("fa3", "cudnn", "fa2", "fa1")
        wanted = KERNEL_KEY[kernel]
        have = self.gpu.efficiency
        for name in order[order.index(wanted) :]:
            if name in have.attention_forward and name in have.attention_backward:
                return have.attention_forward[name] * self.clock, have.attention_backward[name] * self.clock
        forward, backward = DEFAULT_ATTENTION[wanted]
        return forward * self.clock, backward * self.clock


def capped_clock(gpu: Gpu, cap: float | None) -> float:
    """Clock under a power cap of ``cap`` watts ÷ clock at the nominal power: (cap ÷ nominal)^¼, at most 1.

    An H100 PCIe at half of the SXM card's power sustains 0.84 of its matrix-product rate: 0.5^¼.
    """
    if cap is None or cap >= gpu.power:
        return 1.0
    factor: float = (cap / gpu.power) ** 0.25
    return factor


def _wider(precision: str) -> tuple[str, ...]:
    chains = {
        "nvfp4": ("nvfp4", "mxfp8", "fp8", "bf16", "fp16"),
        "mxfp8": ("mxfp8", "fp8", "bf16", "fp16"),
        "fp8": ("fp8", "bf16", "fp16"),
        "bf16": ("bf16", "fp16", "tf32", "fp32"),
        "fp16": ("fp16", "bf16", "tf32", "fp32"),
        "tf32": ("tf32", "fp32"),
        "fp32": ("fp32",),
    }
    return chains[precision]
