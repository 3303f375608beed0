"""Training with checkpoints, sync and async, against what clustersim says from the cost of one save alone.

What an asynchronous save takes from training beside its stall is a fixed amount: DCP's thread plans the save and packs
every tensor in Python, under the lock that training's thread needs (some 10 ms and 0.2 ms a tensor, hardly any by the
byte), mostly within the first step of its flight; where cores are short, it takes its work from them. The write that
follows, however long the disk makes it, costs training nothing. So it is measured as seconds a save (``lost``) and added
to the stall; a factor on all steps of the flight, as long as it may be, would charge training for the disk.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibration.pipeline_proof import Prediction
from calibration.scenario import predicted_wall
from calibration.trainer import SIZE, Trainer, run
from calibration.transfer import single_group

INTERVALS = {"sync": (4, 8, 16), "async": (6, 9, 12, 20, 30)}
STEPS = 60
CALIBRATION_STEPS = 10
SAVES = 3


def calibrate(trainer: Trainer) -> dict[str, float]:
    """Costs in isolation, seconds: a step, a synchronous save, and of an asynchronous one its stall, the training time
    that it takes beside, and the time until it is durable."""
    flights: list[list[float]] = []
    steps: list[float] = []
    syncs: list[float] = []
    stalls: list[float] = []
    persists: list[float] = []
    for _ in range(SAVES):
        steps += [trainer.step() for _ in range(CALIBRATION_STEPS)]
        syncs.append(trainer.save())
        steps += [trainer.step() for _ in range(CALIBRATION_STEPS)]
        start = time.perf_counter()
        stalls.append(trainer.save_async())
        flights.append([])
        while trainer.saving:
            flights[-1].append(trainer.step())
        trainer.settle()
        persists.append(max(0.0, trainer.durable_s - start - stalls[-1]))
    step = statistics.fmean(steps)
    lost = statistics.fmean(math.fsum(seconds - step for seconds in flight) for flight in flights)
    return {"step": step, "sync": statistics.fmean(syncs), "stall": statistics.fmean(stalls), "lost": max(0.0, lost),
            "persist": statistics.fmean(persists)}  # fmt: skip


def engine_of(kind: str, interval: int, seen: dict[str, float]) -> dict[str, Any]:
    """The scenario's ``checkpoint`` block."""
    if kind == "sync":
        return {"engine": "sync", "interval": {"steps": interval}, "stall": seen["sync"]}
    return {"engine": "async", "interval": {"steps": interval}, "stall": seen["stall"] + seen["lost"],
            "persist": max(0.0, seen["persist"] - seen["lost"])}  # fmt: skip


def proof(rounds: int, limit_s: float) -> dict[str, Any]:
    """Rounds of calibration and runs in turns; predictions against medians."""
    torch.set_num_threads(1)
    begun = time.monotonic()
    loads: list[float] = []
    measured: dict[tuple[str, int], list[float]] = {}
    predicted: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, single_group():
        trainer = Trainer(SIZE, Path(folder))
        _warm(trainer)
        while len(loads) < rounds and not (len(loads) >= 2 and time.monotonic() - begun > limit_s):
            loads.append(os.getloadavg()[0])
            _round(trainer, measured, predicted)
    rows = [_row(key, measured[key], predicted[key]) for key in measured]
    return {"rows": [row.row() for row in rows], "load_average": [min(loads), max(loads)],
            "median_abs_error_pct": 100 * statistics.median(abs(row.error) for row in rows),
            "worst_abs_error_pct": 100 * max(abs(row.error) for row in rows),
            "inside_interval": sum(row.inside for row in rows)}  # fmt: skip


def _warm(trainer: Trainer) -> None:
    for _ in range(5):
        trainer.step()
    trainer.save()
    trainer.save_async()
    trainer.settle()


Walls = dict[tuple[str, int], list[float]]


def _round(trainer: Trainer, measured: Walls, predicted: Walls) -> None:
    """Each run stands between two calibrations, whose mean predicts it."""
    before = calibrate(trainer)
    for kind in INTERVALS:
        for interval in INTERVALS[kind]:
            wall = run(trainer, STEPS, interval, trainer.save if kind == "sync" else trainer.save_async)
            trainer.settle()
            after = calibrate(trainer)
            seen = {name: (before[name] + after[name]) / 2 for name in before}
            measured.setdefault((kind, interval), []).append(wall)
            predicted.setdefault((kind, interval), []).append(
                predicted_wall(STEPS, seen["step"], engine_of(kind, interval, seen))
            )
            before = after


def _row(key: tuple[str, int], measured: list[float], predicted: list[float]) -> Prediction:
    """The interval comes from how far single rounds' predictions lie from their own measurements' median ratio."""
    ratios = np.log(np.array(measured) / np.array(predicted))
    spread = float(np.std(np.log(predicted), ddof=1)) if len(predicted) > 1 else 0.0
    middle = float(np.median(predicted))
    width = 1.96 * max(spread, float(np.std(ratios, ddof=1)) if len(ratios) > 1 else 0.0)
    quartiles = np.quantile(measured, [0.25, 0.75])
    return Prediction(f"{key[0]} every {key[1]} steps", float(np.median(measured)), middle, middle * float(np.exp(-width)),
                      middle * float(np.exp(width)), float(quartiles[1] - quartiles[0]) / 2, len(measured))  # fmt: skip
