"""What a GPU says of itself: inventory for the head of a file, clocks and power for each point. Not run on a GPU yet."""

from __future__ import annotations

import os
from typing import Any

import torch


def gpu_device(device: torch.device) -> dict[str, Any]:
    """Name, memory, SMs, driver, limits."""
    properties = torch.cuda.get_device_properties(device)
    found: dict[str, Any] = {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "sms": properties.multi_processor_count,
        "capability": f"{properties.major}.{properties.minor}",
    }
    handle = _handle()
    if handle is not None:
        import pynvml

        found["driver"] = _text(pynvml.nvmlSystemGetDriverVersion())
        found["power_limit_w"] = pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3
        found["ecc"] = _quiet(lambda: bool(pynvml.nvmlDeviceGetEccMode(handle)[0]))
        found["nvlinks"] = sum(bool(_quiet(lambda i=i: pynvml.nvmlDeviceGetNvLinkState(handle, i))) for i in range(18))
    return found


def gpu_state() -> dict[str, Any]:
    """Clocks (MHz), power (W) and temperature (°C) now; empty without nvidia-ml-py."""
    handle = _handle()
    if handle is None:
        return {}
    import pynvml

    return {
        "sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        "power_w": pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
    }


def _handle() -> Any:
    """The NVML handle of the current device, found by its UUID or PCI order; None without nvidia-ml-py."""
    try:
        import pynvml

        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        index = torch.cuda.current_device()
        names = [item for item in visible.split(",") if item]
        if index < len(names) and not names[index].isdigit():
            return pynvml.nvmlDeviceGetHandleByUUID(names[index])
        return pynvml.nvmlDeviceGetHandleByIndex(int(names[index]) if index < len(names) else index)
    except Exception:
        return None  # no NVML: the file then says nothing about clocks


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _quiet(call: Any) -> Any:
    try:
        return call()
    except Exception:
        return None
