"""Data-parallel steps against local steps plus the messages that DDP and FSDP2 exchange.

On a CPU the threads of gloo take the core that computes, so nothing hides: DDP's buckets and FSDP2's gathers and
scatters count in full. (On a GPU the step model of clustersim hides them; this proof is for CPU processes.) What DDP and
FSDP2 do around their messages (hooks, copies into flat buffers) costs a time a unit and a time a byte, both fitted to
two sizes that are not predicted.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from calibration.data_parallel_worker import CALIBRATING, OPS, SIZES
from calibration.gpt import Block, GptSize, whole
from calibration.pipeline_proof import Prediction
from clustersim.calibrate.linear import nonnegative
from clustersim.calibrate.ranges import fit_curve
from clustersim.workload.fitted import MeasuredCurve

FIRST_BUCKET, BUCKET = 2**20, 25 * 2**20
"""DDP's defaults: the first bucket holds 1 MiB of gradients, the others 25 MiB."""


def buckets(parameters: list[float]) -> list[float]:
    """Bytes of DDP's buckets: parameters from last to first, a bucket closed when it reaches its limit."""
    found, now, limit = [], 0.0, FIRST_BUCKET
    for size in reversed(parameters):
        now += size
        if now >= limit:
            found.append(now)
            now, limit = 0.0, BUCKET
    return [*found, now] if now else found


def exchange(kind: str, size: GptSize, curves: dict[str, MeasuredCurve]) -> float:
    """Seconds of messages of one step."""
    model = whole(size)
    sizes = [4.0 * p.numel() for p in model.parameters()]
    if kind == "ddp":
        return sum(curves["all-reduce"].seconds(bucket) for bucket in buckets(sizes))
    layers = [sum(4.0 * p.numel() for p in layer.parameters()) for layer in model.modules() if isinstance(layer, Block)]
    root = sum(sizes) - sum(layers)
    gathers = [root, *layers, *layers]  # the root stays gathered between forward and backward
    return sum(map(curves["all-gather"].seconds, gathers)) + sum(map(curves["reduce-scatter"].seconds, [root, *layers]))


def overhead_terms(kind: str, size: GptSize) -> tuple[float, float]:
    """(units, bytes): what the work around the messages grows with."""
    model = whole(size)
    total = sum(4.0 * p.numel() for p in model.parameters())
    tensors = len(list(model.parameters()))
    return (float(tensors) if kind == "ddp" else float(size.layers + 1), total)


def overheads(kind: str, rounds: list[dict[str, Any]], curves: dict[str, MeasuredCurve]) -> np.ndarray:
    """Seconds a unit and a byte, from the calibrating sizes: what their steps take beyond local step and messages."""
    terms, rest = [], []
    for index, size in enumerate(SIZES[:CALIBRATING]):
        gap = [item["steps"][f"{kind} {index}"][0] - item["steps"][f"local {index}"][0] for item in rounds]
        terms.append(overhead_terms(kind, size))
        rest.append(max(1e-6, float(np.median(gap)) - exchange(kind, size, curves)))
    return nonnegative(np.array(terms), np.array(rest), rounds=1)


def report(path: Path | str) -> dict[str, Any]:
    """Predictions of a worker's file."""
    rounds = json.loads(Path(path).read_text(encoding="utf-8"))
    curves = {op: _curve(op, rounds) for op in OPS}
    around = {kind: overheads(kind, rounds, curves) for kind in ("ddp", "fsdp2")}
    rows = []
    for index, size in list(enumerate(SIZES))[CALIBRATING:]:
        local = np.array([item["steps"][f"local {index}"] for item in rounds])
        for kind in ("ddp", "fsdp2"):
            seen = np.array([item["steps"][f"{kind} {index}"] for item in rounds])
            predicted = float(np.median(local[:, 0])) + exchange(kind, size, curves)
            predicted += float(np.dot(around[kind], overhead_terms(kind, size)))
            off = 1.96 * max(0.02, float(np.std(np.log(local[:, 0]))) / math.sqrt(len(local)))
            quartiles = np.quantile(seen[:, 0], [0.25, 0.75])
            name = f"{kind} hidden {size.hidden} layers {size.layers} batch {size.batch}"
            low, high = predicted * math.exp(-off), predicted * math.exp(off)
            spread = float(quartiles[1] - quartiles[0]) / 2
            rows.append(Prediction(name, float(np.median(seen[:, 0])), predicted, low, high, spread, len(rounds)))
    loads = [item["load"] for item in rounds]
    return {"rows": [row.row() for row in rows], "load_average": [min(loads), max(loads)],
            "median_abs_error_pct": 100 * float(np.median([abs(row.error) for row in rows])),
            "inside_interval": sum(row.inside for row in rows)}  # fmt: skip


def _curve(op: str, rounds: list[dict[str, Any]]) -> MeasuredCurve:
    points = [(float(name.split()[1]), seconds) for item in rounds for name, seconds in item["messages"].items()
              if name.split()[0] == op]  # fmt: skip
    sizes, seconds = zip(*points, strict=True)
    return fit_curve(op, sizes, seconds, group=2, place="inside")
