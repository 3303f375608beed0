"""The device at hand: how to time on it, what it can do, what state it is in.

CUDA paths use events on the current stream. They have not been run on a GPU yet (none was at hand when they were written).
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch

LEAST_SAMPLES = 5
MOST_SAMPLES = 200


class Timing(NamedTuple):
    """Seconds of one call: median and quartiles of ``samples`` calls."""

    median_s: float
    p25_s: float
    p75_s: float
    samples: int

    @classmethod
    def of(cls, seconds: list[float]) -> Timing:
        """Statistics of single calls."""
        if len(seconds) == 1:
            return cls(seconds[0], seconds[0], seconds[0], 1)
        low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(middle, low, high, len(seconds))


Dtype = torch.dtype
"""By another name, as ``Device.torch`` is a device."""


@dataclass(frozen=True)
class Device:
    """One device: ``cuda`` or ``cpu``."""

    kind: str

    @classmethod
    def choose(cls, name: str) -> Device:
        """``auto``: the GPU if there is one.

        Raises:
            SystemExit: a GPU is asked for and there is none.
        """
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cuda" and not torch.cuda.is_available():
            raise SystemExit("calibration: there is no CUDA device here; use --device cpu")
        if name == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        return cls(name)

    @property
    def torch(self) -> torch.device:
        """As torch names it."""
        return torch.device(self.kind, torch.cuda.current_device()) if self.kind == "cuda" else torch.device("cpu")

    @property
    def is_gpu(self) -> bool:
        """Whether work is asynchronous and timed by events."""
        return self.kind == "cuda"

    def sync(self) -> None:
        """Wait until all work is done."""
        if self.is_gpu:
            torch.cuda.synchronize()

    @cached_property
    def cache_bytes(self) -> int:
        """Size of the last cache that rotating buffers must exceed: the GPU's L2; on a CPU 2 MiB (a core's L2)."""
        if self.is_gpu:
            return int(getattr(torch.cuda.get_device_properties(self.torch), "L2_cache_size", 64 * 2**20))
        return 2 * 2**20

    @cached_property
    def memory_bytes(self) -> int:
        """Memory that measurements may use: half of what is free."""
        if self.is_gpu:
            return torch.cuda.mem_get_info()[0] // 2
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2

    def precisions(self, quick: bool) -> dict[str, Dtype]:
        """Precisions to measure; fp8 where the device has it (through ``torch._scaled_mm``)."""
        if not self.is_gpu:
            return {"fp32": torch.float32} if quick else {"fp32": torch.float32, "bf16": torch.bfloat16}
        found = {"bf16": torch.bfloat16, "fp16": torch.float16}
        if torch.cuda.get_device_capability() >= (8, 9):
            found["fp8"] = torch.float8_e4m3fn
        return found

    def time(self, call: Callable[[], Any], limit_s: float = 1.0, warm: int = 2) -> Timing:
        """Seconds of ``call``: warmed up, then as many calls as fit into ``limit_s`` (5 to 200).

        On a GPU each call is bracketed by events; short calls are queued behind one another so that the host's launch
        time does not show unless it is the bottleneck.
        """
        for _ in range(warm):
            call()
        self.sync()
        return self._cuda_times(call, limit_s) if self.is_gpu else self._cpu_times(call, limit_s)

    def _cpu_times(self, call: Callable[[], Any], limit_s: float) -> Timing:
        now = cpu_clock()
        seconds: list[float] = []
        end = time.perf_counter() + limit_s
        while len(seconds) < LEAST_SAMPLES or (time.perf_counter() < end and len(seconds) < MOST_SAMPLES):
            start = now()
            call()
            seconds.append(now() - start)
        return Timing.of(seconds)

    def _cuda_times(self, call: Callable[[], Any], limit_s: float) -> Timing:
        start = time.perf_counter()
        call()
        self.sync()
        one = max(1e-6, time.perf_counter() - start)
        count = int(min(MOST_SAMPLES, max(LEAST_SAMPLES, limit_s / one)))
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            call()
            mark.record()
        self.sync()
        return Timing.of([a.elapsed_time(b) * 1e-3 for a, b in pairwise(marks)])

    def header(self) -> dict[str, Any]:
        """Device, versions and state for the head of a measurement file."""
        clock = "CUDA events" if self.is_gpu else ("CPU time of the thread" if torch.get_num_threads() == 1 else "wall time")
        versions = {"python": platform.python_version(), "torch": str(torch.__version__), "os": platform.release()}
        device: dict[str, Any] = {"name": cpu_name(), "cores": os.cpu_count() or 0, "threads": torch.get_num_threads()}
        if self.is_gpu:
            from calibration.gpu_state import gpu_device

            device = gpu_device(self.torch)
            versions["cuda"] = str(torch.version.cuda)
            versions["cudnn"] = str(torch.backends.cudnn.version())
            if torch.distributed.is_nccl_available():
                versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return {"device": device, "versions": versions, "date": date, "state": {**self.state(), "clock": clock}}

    def state(self) -> dict[str, Any]:
        """Load of the machine; of a GPU also clocks, power, temperature (where nvidia-ml-py is installed)."""
        found: dict[str, Any] = {"load_average": round(os.getloadavg()[0], 2)}
        if self.is_gpu:
            from calibration.gpu_state import gpu_state

            found.update(gpu_state())
        return found


def cpu_clock() -> Callable[[], float]:
    """The clock of ops on a CPU: on one thread its CPU time, which other jobs on the cores do not lengthen; else wall time."""
    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


def cpu_name() -> str:
    """Model of the CPU and its cores."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"
