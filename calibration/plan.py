"""What a measurement is: points with a key, and the loop that measures them within a budget of time and memory."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from calibration.device import Device, Timing
from clustersim.calibrate.records import Writer


class Point(NamedTuple):
    """One thing to measure.

    ``prepare`` allocates inputs and returns what is timed: a callable, or a finished ``Timing`` or mapping of values for
    what must time itself. ``memory``: bytes that it needs.
    """

    key: dict[str, Any]
    prepare: Callable[[], Callable[[], Any] | Timing | dict[str, Any]]
    memory: float = 0.0
    flop: float = 0.0
    moved: float = 0.0
    """Bytes read and written."""


@dataclass
class Context:
    """What every measurement gets."""

    device: Device
    quick: bool
    out: Path
    deadline: float = math.inf
    """``time.monotonic()`` at which the whole run must be over."""
    point_s: float = 1.0
    lines: list[str] = field(default_factory=list)
    """Rows of the table at the end."""

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()


def rotating(context: Context, make: Callable[[], Any], size: float) -> Callable[[], Any]:
    """Inputs in turn from a ring of buffers that together exceed twice the cache, so that none is found there.

    ``make`` builds one input of ``size`` bytes; at most 16 of them, and at most a quarter of the memory.
    """
    wanted = math.ceil(2 * context.device.cache_bytes / max(1.0, size)) + 1
    count = int(max(1, min(wanted, 16, context.device.memory_bytes / 4 / max(1.0, size))))
    ring = [make() for _ in range(count)]
    turn = iter(range(1 << 62))
    return lambda: ring[next(turn) % count]


def measure(context: Context, kind: str, points: Iterable[Point], share_s: float = math.inf) -> None:
    """Measure what is not in the file of ``kind`` yet; stop at the budget, and say what was left out."""
    writer = Writer(context.out / f"{kind}.jsonl", kind, context.device.header())
    end = min(context.deadline, time.monotonic() + share_s)
    skipped: list[str] = []
    for point in spread(points):
        if writer.has(point.key):
            continue
        why = _reason(context, point, end)
        if why is None:
            try:
                writer.add(point.key, _values(context, point))
                continue
            except (RuntimeError, NotImplementedError, AssertionError, ValueError, OSError, ImportError) as error:
                why = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
                gc.collect()
                if context.device.is_gpu:
                    torch.cuda.empty_cache()
        skipped.append(f"{_shown(point.key)}: {why}")
    writer.end(skipped)
    rows = [_row(kind, line) for line in writer.done.values()]
    context.lines += [*rows, *(f"{kind:<12} skipped {text}" for text in skipped)]


def spread(points: Iterable[Point]) -> list[Point]:
    """The points in an order (always the same) that covers all sizes early, so that a short budget narrows no range."""
    listed = list(points)
    order = np.random.default_rng(0).permutation(len(listed))
    return [listed[index] for index in order]


def _reason(context: Context, point: Point, end: float) -> str | None:
    if time.monotonic() >= end:
        return "out of time (give more --budget and run again)"
    if point.memory > context.device.memory_bytes:
        return f"needs {point.memory / 2**30:.1f} GiB, half of the free memory is less"
    return None


def _values(context: Context, point: Point) -> dict[str, Any]:
    made = point.prepare()
    if isinstance(made, dict):
        return made
    timing = made if isinstance(made, Timing) else context.device.time(made, context.point_s)
    values: dict[str, Any] = {**timing._asdict(), "state": context.device.state()}
    if point.flop:
        values["flop_per_s"] = point.flop / timing.median_s
    if point.moved:
        values["bytes_per_s"] = point.moved / timing.median_s
    return values


def _shown(key: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in key.items())


def _row(kind: str, line: dict[str, Any]) -> str:
    rate = ""
    if "flop_per_s" in line:
        rate = f"{line['flop_per_s'] / 1e12:9.3f} TFLOP/s"
    elif "bytes_per_s" in line:
        rate = f"{line['bytes_per_s'] / 1e9:9.3f} GB/s"
    seconds = line.get("median_s", math.nan)
    spread = (line["p75_s"] - line["p25_s"]) / seconds if "p75_s" in line and seconds else 0.0
    return f"{kind:<12}{1e3 * seconds:12.4f} ms ±{50 * spread:5.1f} % {rate:<18} {_shown(line['key'])}"
