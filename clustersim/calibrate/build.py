"""Measurement files into a profile: which records become which surface, curve or number."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from clustersim.calibrate.linear import Fit, fitted
from clustersim.calibrate.ranges import fit_curve
from clustersim.calibrate.records import Measurements
from clustersim.errors import InputError, Problem
from clustersim.hardware.gpu import Efficiency, Gpu
from clustersim.workload.fitted import TERMS, MeasuredCurve, Quality, Surface
from clustersim.workload.profile import Profile, Provenance, RawFile

SURFACES = {"gemm", "attention", "layer"}
CURVES = {"collective", "copy", "memory", "checkpoint", "storage"}
NUMBERS = {"startup", "compile", "launch"}
LEFT = {"model", "trace"}
"""Kept in the measurement files for reading; no part of a profile."""

Record = dict[str, Any]


@dataclass
class Draft:
    """A profile in the making; ``notes``: what could not be fitted, and why."""

    surfaces: list[Surface] = field(default_factory=list)
    curves: list[MeasuredCurve] = field(default_factory=list)
    startup: dict[str, float] = field(default_factory=dict)
    launch: float | None = None
    notes: list[str] = field(default_factory=list)


def build_profile(
    files: Sequence[Measurements], name: str, gpu: Gpu | None = None, files_on: Literal["local", "shared"] | None = None
) -> Profile:
    """The profile of all measurement files together.

    Args:
        files: as read; they must come from one device.
        name: of the profile.
        gpu: datasheet of the device; with it the profile also states shares of the peak.
        files_on: where files and saves were measured; None: not said.

    Raises:
        InputError: nothing can be fitted, a record lacks a value, or the files come from different devices.
    """
    if not files:
        raise InputError("needs at least one measurement file")
    _one_device(files)
    draft = Draft()
    by_kind: dict[str, list[Record]] = defaultdict(list)
    for item in files:
        by_kind[item.kind] += [_checked(record, item, index) for index, record in enumerate(item.records)]
        draft.notes += skipped_notes(item)
    for kind in sorted(by_kind):
        _add(draft, kind, by_kind[kind])
    efficiency = efficiency_of(draft, gpu, by_kind.get("gemm", [])) if gpu is not None else None
    shares = efficiency is not None and gpu is not None and efficiency != gpu.efficiency
    if not (draft.surfaces or draft.curves or draft.startup or shares):
        raise InputError("; ".join(["these files hold nothing that a profile can be fitted to", *draft.notes]))
    return Profile(
        name=name,
        efficiency=efficiency,
        provenance=provenance_of(files, draft.notes),
        surfaces=tuple(draft.surfaces),
        curves=tuple(draft.curves),
        files_on=files_on,
        startup=draft.startup,
        uncertainty=_uncertainty(
            [item.quality for item in draft.surfaces if not item.op.startswith("layer-")]
            + [item.quality for item in draft.curves if item.op == "memory-stream"]
        ),
        message_uncertainty=_uncertainty([item.quality for item in draft.curves if item.place != "device" and not item.beside]),
    )


def skipped_notes(item: Measurements) -> list[str]:
    """What a file lacks: each reason once, with its count and one example."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for text in item.skipped:
        point, _, reason = text.partition(": ")
        reasons[reason or point].append(point)
    return [f"{item.name}: {points[0] if len(points) == 1 else f'{len(points)} points, such as {points[0]}'}: {reason}"
            if reason != points[0] else f"{item.name}: {reason}" for reason, points in reasons.items()]  # fmt: skip


def _one_device(files: Sequence[Measurements]) -> None:
    devices = {str(item.header.get("device", {}).get("name", "")): item.name for item in files}
    devices.pop("", None)
    if len(devices) > 1:
        listed = "; ".join(f"{file}: {device}" for device, file in sorted(devices.items()))
        raise InputError(f"measurements of different devices do not make one profile ({listed})")


def _checked(record: Record, item: Measurements, index: int) -> Record:
    seconds = record.get("median_s")
    if not isinstance(record.get("key"), dict) or (
        item.kind not in LEFT and not (isinstance(seconds, (int, float)) and math.isfinite(seconds) and seconds > 0)
    ):
        sentence = "a record needs a key and a median_s above 0"
        raise InputError(Problem("", sentence, item.name, index + 2))
    return record


def _add(draft: Draft, kind: str, records: list[Record]) -> None:
    if kind in SURFACES:
        _add_surfaces(draft, kind, records)
    elif kind in CURVES:
        _add_curves(draft, kind, records)
    elif kind in NUMBERS:
        for record in records:
            if kind == "launch":
                draft.launch = record["median_s"]
            name = "-".join(str(value) for _, value in sorted(record["key"].items(), key=lambda item: item[0] != "what"))
            draft.startup[name] = record["median_s"]
    elif kind not in LEFT:
        draft.notes.append(f"{kind}: no kind of measurement that this version knows")


def _sizes(kind: str, key: Record) -> tuple[str, str, dict[str, float]]:
    """(op, precision, sizes) of a record."""
    precision = str(key.get("precision", "fp32"))
    if kind == "gemm":
        return "gemm", precision, {name: float(key.get(name, 1)) for name in ("m", "n", "k", "batch")}
    if kind == "attention":
        names = ("sequences", "heads", "length", "head_dim")
        sizes = {name: float(key[name]) for name in names}
        op = f"attention-{key['pass']}{'-windowed' if key.get('window') else ''}"
        return op, precision, {**sizes, "pairs": attention_pairs(key)}
    return f"layer-{key['pass']}", precision, {name: float(key[name]) for name in ("tokens", "length", "hidden")}


def attention_pairs(key: Record) -> float:
    """Query-key pairs of one sequence: s², causal s²/2, with a window of w keys s·w − w²/2."""
    length, window = float(key["length"]), float(key.get("window") or key["length"])
    if not key.get("causal", True):
        return length * length
    window = min(window, length)
    return length * window - window * window / 2


def _add_surfaces(draft: Draft, kind: str, records: list[Record]) -> None:
    groups: dict[tuple[str, str], list[tuple[dict[str, float], float]]] = defaultdict(list)
    for record in records:
        try:
            op, precision, sizes = _sizes(kind, record["key"])
        except KeyError as missing:
            raise InputError(f"a record of {kind} lacks {missing} in its key: {record['key']}") from None
        if op in TERMS:
            groups[op, precision].append((sizes, record["median_s"]))
    for (op, precision), points in sorted(groups.items()):
        try:
            draft.surfaces.append(fit_surface(op, precision, points))
        except ValueError as error:
            draft.notes.append(f"{op} {precision}: {error}")


def fit_surface(op: str, precision: str, points: Iterable[tuple[dict[str, float], float]]) -> Surface:
    """The surface of one op from (sizes, seconds) points.

    Raises:
        ValueError: too few points.
    """
    points = list(points)
    if op.endswith("-windowed") and len({round(x["pairs"] / x["length"] ** 2, 3) for x, _ in points}) == 1:
        raise ValueError("needs windows of two shares of the length at least: one does not tell pairs from the square")
    if not points:
        raise ValueError("no points")
    points.sort(key=lambda item: (sum(TERMS[op](item[0]).values()), sorted(item[0].items())))
    fits = [(_fit_terms(op, points, block), block) for block in (BLOCKS if op.startswith("attention") else (0.0,))]
    (names, fit), block = min(fits, key=lambda item: item[0][1].quality.residual)  # the smallest block of equals
    measured = {size: (min(x[size] for x, _ in points), max(x[size] for x, _ in points)) for size in points[0][0]}
    return Surface(
        op=op,
        precision=precision,
        block=block,
        terms={name: float(value) for name, value in zip(names, fit.coefficients, strict=True)},
        ci95={name: (float(a), float(b)) for name, a, b in zip(names, fit.low, fit.high, strict=True)},
        measured=measured,
        quality=fit.quality,
    )


BLOCKS = (0.0, 64.0, 128.0, 256.0, 512.0)
"""Queries, or keys where these are more, that attention kernels take at a time: 64 and 128 on GPUs (FlashAttention-2,
arXiv 2307.08691, section 3.3); 32 to 256 queries and 512 keys in PyTorch's CPU kernel (FlashAttentionKernel.cpp)."""


def _fit_terms(op: str, points: Sequence[tuple[dict[str, float], float]], block: float) -> tuple[list[str], Fit]:
    made = [TERMS[op]({**sizes, "block": block}) for sizes, _ in points]
    names = list(made[0])
    return names, fitted([[terms[name] for name in names] for terms in made], [seconds for _, seconds in points])


_NOT_IN_NAME = ("bytes", "group", "place", "beside", "precision")


def _add_curves(draft: Draft, kind: str, records: list[Record]) -> None:
    groups: dict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
    for record in records:
        key = record["key"]
        if "bytes" not in key or "op" not in key:
            raise InputError(f"a record of {kind} lacks op or bytes in its key: {key}")
        rest = [f"{name}={value}" for name, value in sorted(key.items()) if name not in (*_NOT_IN_NAME, "op")]
        name = " ".join([str(key["op"]), *rest])
        groups[name, int(key.get("group", 1)), key.get("place", "device"), key.get("beside", "")].append(
            (float(key["bytes"]), record["median_s"])
        )
    for (name, group, place, beside), points in sorted(groups.items()):
        sizes, seconds = zip(*points, strict=True)
        try:
            draft.curves.append(fit_curve(name, sizes, seconds, group=group, place=place, beside=beside))
        except ValueError as error:
            draft.notes.append(str(error))


def efficiency_of(draft: Draft, gpu: Gpu, gemms: list[Record]) -> Efficiency:
    """Shares of the datasheet: the best product measured, the largest memory-bound op, the launch."""
    shares: dict[str, float] = {}
    for record in gemms:
        key, precision = record["key"], str(record["key"].get("precision", "fp32"))
        if precision in gpu.peak:
            flop = 2.0 * key["m"] * key["n"] * key["k"] * key.get("batch", 1)
            share = flop / record["median_s"] / gpu.peak[precision]
            shares[precision] = max(shares.get(precision, 0.0), share)
    memory = [curve.ranges[-1].rate or 0.0 for curve in draft.curves if curve.op.startswith("memory-")]
    update: dict[str, Any] = {"gemm": {**gpu.efficiency.gemm, **shares}}
    if memory:
        update["memory"] = min(1.0, max(memory) / gpu.memory_bandwidth)
    if draft.launch is not None:
        update["launch"] = draft.launch
    return gpu.efficiency.model_copy(update=update)


def provenance_of(files: Sequence[Measurements], notes: Sequence[str]) -> Provenance:
    """Device, versions and state as the headers say, and the hash of each file."""
    header = next((item.header for item in files if item.header.get("device")), files[0].header)
    device = header.get("device", {})
    return Provenance(
        device=str(device.get("name", "unknown")),
        driver=str(device.get("driver", "")),
        date=str(header.get("date", ""))[:10],
        versions={str(key): str(value) for key, value in header.get("versions", {}).items()},
        state={str(key): str(value) for key, value in header.get("state", {}).items()},
        files=tuple(RawFile(name=item.name, sha256=item.sha256, records=len(item.records)) for item in files),
        notes=tuple(notes),
    )


def _uncertainty(parts: list[Quality]) -> float:
    """Root mean square of the errors of what the step model takes from a profile; 0 for nothing."""
    return min(1.0, math.sqrt(math.fsum(item.uncertainty**2 for item in parts) / len(parts))) if parts else 0.0
