"""Training steps on one device against sums of fitted surfaces: layers, head with loss, embedding, optimizer.

The parts are measured on a grid of sizes, in turns with whole steps of sizes that are not on the grid.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from calibration.device import Device
from calibration.gpt import Block, Embed, GptSize, Head, batch_of, loss_of, whole
from calibration.pipeline_proof import Prediction
from clustersim.calibrate.linear import Fit, fitted
from clustersim.workload.fitted import TERMS

GRID = [(h, s, b) for h in (64, 128, 192) for s in (32, 64) for b in (1, 4)]
"""(hidden, length, sequences) of the parts measured."""
TESTS = [(h, s, b, layers) for h in (96, 160) for s in (48, 64) for b in (2, 3) for layers in (2, 5)][:14]
"""(hidden, length, sequences, layers) of the steps predicted: none is on the grid."""
GPU_GRID = [(h, s, b) for h in (1024, 2048, 4096) for s in (1024, 4096) for b in (1, 4)]
GPU_TESTS = [(h, s, b, layers) for h in (1536, 3072) for s in (2048, 3072) for b in (1, 2) for layers in (4, 8)]
VOCABULARY = 256

Point = tuple[str, tuple[float, ...], Callable[[], float]]


def _size(hidden: int, length: int, batch: int, layers: int = 1) -> GptSize:
    return GptSize(hidden=hidden, heads=max(1, hidden // 32), layers=layers, length=length, vocabulary=VOCABULARY, batch=batch)


def _clock(device: Device, call: Callable[[], Any]) -> float:
    """Seconds of a call: wall time on a GPU, time on the CPU of this process otherwise.

    One process on one thread never waits, so its CPU time is what the step takes on a machine of its own; other jobs
    that share the cores do not show in it (but for the caches and clocks that they take).
    """
    now = time.perf_counter if device.is_gpu else time.process_time
    device.sync()
    start = now()
    call()
    device.sync()
    return now() - start


def parts_of(size: GptSize, device: Device) -> list[Point]:
    """(part, terms, call that takes its seconds) of all parts of one size."""
    layer, twin, head, embed = (made(size).to(device.torch) for made in (Block, Block, Head, Embed))
    x = torch.randn(size.batch, size.length, size.hidden, device=device.torch, requires_grad=True)
    tokens, targets = (item.to(device.torch) for item in batch_of(size, size.batch))
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    count = sum(p.numel() for p in layer.parameters())
    wide = (1.0, size.tokens * size.hidden * size.vocabulary, size.tokens * size.vocabulary, size.tokens * size.hidden)
    rows = tuple(TERMS["layer-forward"]({"tokens": size.tokens, "length": size.length, "hidden": size.hidden}).values())

    def step() -> float:
        for parameter in layer.parameters():
            parameter.grad = torch.ones_like(parameter)
        return _clock(device, lambda: (optimizer.step(), optimizer.zero_grad()))

    def in_stack(backward: bool) -> float:
        """A layer as it runs in a stack: just behind another one of other weights (code warm, weights cold)."""
        below = twin(x).detach().requires_grad_()
        if backward:
            twin(x).sum().backward()
        return pass_of(lambda: layer(below), backward)

    def pass_of(run: Callable[[], torch.Tensor], backward: bool) -> float:
        if not backward:
            return _clock(device, run)
        result = run()
        ones = torch.ones_like(result)
        return _clock(device, lambda: torch.autograd.backward(result, ones))

    return [
        ("layer-forward", rows, lambda: in_stack(False)),
        ("layer-backward", rows, lambda: in_stack(True)),
        ("head-forward", wide, lambda: pass_of(lambda: loss_of(head(x), targets), False)),
        ("head-backward", wide, lambda: pass_of(lambda: loss_of(head(x), targets), True)),
        ("embed-forward", (1.0, size.tokens * size.hidden), lambda: pass_of(lambda: embed(tokens), False)),
        ("embed-backward", (1.0, size.tokens * size.hidden), lambda: pass_of(lambda: embed(tokens), True)),
        ("optimizer", (16.0, float(count)), step),
    ]


def whole_step(size: GptSize, device: Device) -> Callable[[], float]:
    """A call that takes the seconds of one training step of the whole model."""
    model = whole(size).to(device.torch)
    tokens, targets = (item.to(device.torch) for item in batch_of(size, size.batch))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def run() -> None:
        loss_of(model(tokens), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    return lambda: _clock(device, run)


def step_seconds(size: GptSize, fits: dict[str, Fit]) -> float:
    """Predicted seconds of one step: the sum of its parts."""
    made = {name: terms for name, terms, _ in parts_of(size, Device("cpu"))}
    each = {name: float(np.dot(fits[name].coefficients, made[name])) for name in fits}
    parameters = sum(p.numel() for p in whole(size).parameters())
    tensors = len(list(whole(size).parameters()))
    update = float(np.dot(fits["optimizer"].coefficients, (float(tensors), float(parameters))))
    ends = sum(each[name] for name in ("head-forward", "head-backward", "embed-forward", "embed-backward"))
    return size.layers * (each["layer-forward"] + each["layer-backward"]) + ends + update


def proof(rounds: int, limit_s: float, device: Device) -> dict[str, Any]:
    """Rounds of parts and whole steps in turns; predictions against medians, memory beside on a GPU."""
    torch.set_num_threads(1)
    grid, tests = (GPU_GRID, GPU_TESTS) if device.is_gpu else (GRID, TESTS)
    parts = [part for item in grid for part in parts_of(_size(*item), device)]
    sizes = [_size(*item) for item in tests]
    steps = [whole_step(size, device) for size in sizes]
    part_times: list[list[float]] = [[] for _ in parts]
    step_times: list[list[float]] = [[] for _ in steps]
    begun = time.monotonic()
    loads: list[float] = []
    while len(loads) < rounds and not (len(loads) >= 3 and time.monotonic() - begun > limit_s):
        loads.append(os.getloadavg()[0])
        for times, (_, _, call) in zip(part_times, parts, strict=True):
            times.append(call())
        for times, call in zip(step_times, steps, strict=True):
            times.append(call())
    fits = _fits(parts, part_times)
    rows = [_row(size, times[1:], fits) for size, times in zip(sizes, step_times, strict=True)]
    return {"rows": [row.row() for row in rows], "rounds": len(loads), "load_average": [min(loads), max(loads)],
            "median_abs_error_pct": 100 * float(np.median([abs(row.error) for row in rows])),
            "inside_interval": sum(row.inside for row in rows)}  # fmt: skip


def _fits(parts: list[Point], times: list[list[float]]) -> dict[str, Fit]:
    by_name: dict[str, list[tuple[tuple[float, ...], float]]] = {}
    for (name, terms, _), seen in zip(parts, times, strict=True):
        by_name.setdefault(name, []).append((terms, float(np.median(seen[1:]))))
    return {name: fitted(*zip(*sorted(points), strict=True)) for name, points in by_name.items()}  # type: ignore[arg-type]


def _row(size: GptSize, times: list[float], fits: dict[str, Fit]) -> Prediction:
    predicted = step_seconds(size, fits)
    off = max(fits["layer-forward"].quality.uncertainty, fits["layer-backward"].quality.uncertainty)
    name = f"hidden {size.hidden} length {size.length} batch {size.batch} layers {size.layers}"
    quartiles = np.quantile(times, [0.25, 0.75])
    low, high = predicted * math.exp(-1.96 * off), predicted * math.exp(1.96 * off)
    return Prediction(name, float(np.median(times)), predicted, low, high, float(quartiles[1] - quartiles[0]) / 2, len(times))
