"""Profiles from published component measurements: nccl-tests curves and the best matrix product.

``python -m calibration.published -o profiles/`` writes one profile a GPU type from the tables that clustersim ships with
their sources (``clustersim/validation/data``). Nobody on the project measured these devices.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections import defaultdict
from importlib import resources
from pathlib import Path
from typing import Any

from clustersim.calibrate.build import build_profile
from clustersim.calibrate.records import Measurements
from clustersim.cli.fit_profile import profile_yaml
from clustersim.errors import InputError
from clustersim.hardware.gpu import Gpu
from clustersim.validation.names import precision_of_words
from clustersim.validation.rows import Row, packaged
from clustersim.workload.profile import Profile

GPUS = {
    "h100-sxm": ("NVIDIA H100 SXM", "H100"),
    "a100-80g": ("NVIDIA A100 SXM", "A100"),
}
"""Preset: (name in the table of best products, first word of the name in the table of collectives)."""
OPS = {"all_reduce": "all-reduce", "all_gather": "all-gather", "reduce_scatter": "reduce-scatter", "alltoall": "all-to-all"}


def table(name: str, kind: str, records: list[dict[str, Any]]) -> Measurements:
    """Rows of a shipped table as measurements, with the hash of the table."""
    data = resources.files("clustersim").joinpath("validation", "data", f"{name}.csv.gz").read_bytes()
    return Measurements(f"{name}.csv.gz", kind, {}, records, [], hashlib.sha256(data).hexdigest())


def seconds_of(row: Row, op: str, ranks: int) -> float | None:
    """The time that a row prints, or that follows from its bandwidth (bus bandwidth by nccl-tests' factors)."""
    size, micro, bus, algorithm = (row.number(key) for key in ("size_bytes", "time_us", "busbw_gbytes_s", "algbw_gbytes_s"))
    if micro:
        return micro * 1e-6
    if algorithm and size:
        return size / (algorithm * 1e9)
    if bus and size:
        return size * (2 if op == "all-reduce" else 1) * (ranks - 1) / ranks / (bus * 1e9)
    return None


def collectives(word: str) -> tuple[list[dict[str, Any]], list[str]]:
    """(records, sources) of timed collectives of groups that were measured at two sizes or more."""
    groups: dict[tuple[str, int, str], list[tuple[Row, dict[str, Any]]]] = defaultdict(list)
    for row in packaged("collectives"):
        size, ranks, op = row.number("size_bytes"), row.whole("n_gpus"), OPS.get(row.text("collective") or "")
        chosen = (row.text("gpu") or "").startswith(word) and "off" not in (row.text("algo") or "")
        if op is None or not size or not ranks or not chosen:
            continue
        seconds = seconds_of(row, op, ranks)
        if seconds is None:
            continue
        place = "inside" if (row.whole("n_nodes") or 1) == 1 else "across"
        key = {"op": op, "group": ranks, "place": place, "bytes": int(size)}
        groups[op, ranks, place].append((row, {"key": key, "median_s": seconds}))
    kept = [pair for pairs in groups.values() if len({record["key"]["bytes"] for _, record in pairs}) >= 2 for pair in pairs]
    sources = sorted({f"{row.text('source')}: {(row.text('source_address') or '').split('#')[0]}" for row, _ in kept})
    return [record for _, record in kept], sources


def products(name: str) -> tuple[list[dict[str, Any]], list[str]]:
    """(records, sources) of the best products of a device, by precision."""
    records, sources = [], []
    for row in packaged("mamf"):
        rate, precision = row.number("measured_tflops"), precision_of_words(row.text("dtype") or "")
        if row.text("accelerator") != name or not rate or precision is None:
            continue
        m, n, k = (row.whole(key) or 1 for key in ("m", "n", "k"))
        records.append({"key": {"m": m, "n": n, "k": k, "precision": precision}, "median_s": 2.0 * m * n * k / (rate * 1e12)})
        sources.append(f"{row.text('source')}: {row.text('source_address')}")
    return records, sources


def published(preset: str) -> Profile:
    """The profile of one GPU type.

    Raises:
        InputError: no component of it is in the tables.
    """
    name, word = GPUS[preset]
    messages, message_sources = collectives(word)
    best, product_sources = products(name)
    files = [table("collectives", "collective", messages)] if messages else []
    files += [table("mamf", "gemm", best)] if best else []
    profile = build_profile(files, f"{preset}-published", Gpu.preset(preset))
    assert profile.provenance is not None
    notes = [f"source: {source}" for source in [*message_sources, *product_sources]]
    notes.append("published component measurements; nobody on the project measured this device")
    notes.append("gemm: the best product of a short run; under a power cap long runs sustain less (see the GPU preset)")
    provenance = profile.provenance.model_copy(update={"device": Gpu.preset(preset).name, "notes": tuple(notes)})
    return profile.model_copy(update={"provenance": provenance})


def main(arguments: list[str] | None = None) -> int:
    """Write all profiles."""
    parser = argparse.ArgumentParser(prog="python -m calibration.published", description=__doc__)
    parser.add_argument("-o", "--out", default="profiles")
    options = parser.parse_args(arguments)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    for preset in GPUS:
        try:
            profile = published(preset)
        except InputError as error:
            print(f"{preset}: {error}", file=sys.stderr)
            continue
        path = folder / f"{preset}-published.yaml"
        path.write_text(profile_yaml(profile), encoding="utf-8")
        print(f"{path}: {len(profile.curves)} curves, gemm {dict(profile.efficiency.gemm) if profile.efficiency else {}}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
