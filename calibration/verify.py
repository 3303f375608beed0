"""``python -m calibration.verify -o proof/``: train a real small GPT on this machine, and predict it first.

Parts: ``single`` (one device), ``data-parallel`` (DDP and FSDP2 on 2 processes), ``pipeline`` (GPipe, 1F1B, interleaved,
zero bubble on 2 processes), ``checkpoint`` (sync and async saves), ``kills`` (SIGKILL at seeded times, torchrun restarts).
Writes ``verify.json`` and ``verify.png``; prints measured, predicted (with interval) and error, row by row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calibration.device import Device
from calibration.launch import torchrun
from clustersim.units import DURATION

PARTS = ("single", "data-parallel", "pipeline", "checkpoint", "kills")


def single(seconds: float, quick: bool, device: Device) -> dict[str, Any]:
    """One device."""
    from calibration.single_proof import proof

    return proof(4 if quick else 30, seconds, device)


def data_parallel(seconds: float, quick: bool, device: Device) -> dict[str, Any]:
    """Two processes, DDP and FSDP2."""
    from calibration.data_parallel_proof import report

    rounds = 4 if quick else 30
    with tempfile.TemporaryDirectory() as name:
        out = f"{name}/dp.json"
        torchrun("calibration.data_parallel_worker", 2, ["--out", out, "--rounds", str(rounds), "--seconds", str(seconds)],
                 limit_s=4 * seconds + 180)  # fmt: skip
        return report(out)


def pipeline(seconds: float, quick: bool, device: Device) -> dict[str, Any]:
    """Two processes, pipeline schedules of torch.distributed.pipelining."""
    from calibration.pipeline_proof import report

    rounds, counts = (3, "4") if quick else (40, "4,8,12")
    with tempfile.TemporaryDirectory() as name:
        out = f"{name}/pp.json"
        arguments = ["--out", out, "--rounds", str(rounds), "--seconds", str(seconds), "--microbatches", counts]
        torchrun("calibration.pipeline_worker", 2, arguments, limit_s=4 * seconds + 180)
        return report(out)


def checkpoint(seconds: float, quick: bool, device: Device) -> dict[str, Any]:
    """Saves at an interval."""
    from calibration.checkpoint_proof import proof

    return proof(2 if quick else 10, seconds)


def kills(seconds: float, quick: bool, device: Device) -> dict[str, Any]:
    """SIGKILL and restarts."""
    from calibration.kill_proof import STEPS, proof

    return proof(2 if quick else 20, steps=60 if quick else STEPS, limit_s=seconds)


RUN: dict[str, Callable[[float, bool, Device], dict[str, Any]]] = {
    "single": single,
    "data-parallel": data_parallel,
    "pipeline": pipeline,
    "checkpoint": checkpoint,
    "kills": kills,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the parts; 0 done, 2 wrong input."""
    parser = argparse.ArgumentParser(prog="python -m calibration.verify", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("-o", "--out", default="proof")
    parser.add_argument("--device", default="cpu", choices=["auto", "cuda", "cpu"], help="of the part single")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--budget", default="5min", help="time for the rounds of all parts")
    options = parser.parse_args(arguments)
    chosen = options.parts or list(PARTS)
    unknown = [part for part in chosen if part not in RUN]
    try:
        budget = DURATION.parse(options.budget)
    except ValueError as error:
        print(f"--budget: {error}", file=sys.stderr)
        return 2
    if unknown:
        print(f"there is no part '{unknown[0]}'; known: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    device, out = Device.choose(options.device), Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "verify.json"
    try:
        results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        print(f"{path}: is damaged: {error}; move it away, or choose another folder", file=sys.stderr)
        return 2
    for part in chosen:
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        print(f"{part} …", file=sys.stderr, flush=True)
        found = {"date": started, "device": device.header(), **RUN[part](budget / len(chosen), options.quick, device)}
        results[part] = found
        write(path, results)
        print("\n".join(table(part, found)), flush=True)
    figure(results, out / "verify.png")
    return 0


def write(path: Path, results: dict[str, Any]) -> None:
    """Results by part, those of earlier runs among them; whole or not at all."""
    fresh = path.with_suffix(".part")
    fresh.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    fresh.replace(path)


def table(part: str, found: dict[str, Any]) -> list[str]:
    """Rows and summary of one part, as text."""
    lines = [f"{part:<48}{'measured':>11}{'predicted':>11}{'from':>10}{'to':>10}{'error':>9}"]
    for row in found["rows"]:
        numbers = "".join(f"{1e3 * row[key]:>{width}.1f}" for key, width in
                          (("measured_s", 11), ("predicted_s", 11), ("low_s", 10), ("high_s", 10)))  # fmt: skip
        lines.append(f"{row['name']:<48}{numbers}{row['error_pct']:>+8.1f} %")
    summary = {key: value for key, value in found.items() if key not in ("rows", "device", "size")}
    return [*lines, "(ms) " + ", ".join(f"{key} {_short(value)}" for key, value in summary.items()), ""]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "–".join(f"{item:.1f}" for item in value) if isinstance(value, list) else str(value)


def figure(results: dict[str, Any], path: Path) -> None:
    """Predicted against measured, a panel a part, with the lines of equality and ±10 %."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    drawing = Figure(figsize=(4.0 * len(results), 4.2), layout="constrained")
    for index, (part, found) in enumerate(sorted(results.items(), key=lambda item: PARTS.index(item[0]))):
        axes = drawing.add_subplot(1, len(results), index + 1)
        x = [row["measured_s"] for row in found["rows"]]
        y = [row["predicted_s"] for row in found["rows"]]
        below = [max(0.0, row["predicted_s"] - row["low_s"]) for row in found["rows"]]
        above = [max(0.0, row["high_s"] - row["predicted_s"]) for row in found["rows"]]
        axes.errorbar(x, y, yerr=[below, above], fmt="o", markersize=4, color="#0072b2", ecolor="#9ab8cc", elinewidth=1)
        line = [0.8 * min(x + y), 1.25 * max(x + y)]
        axes.plot(line, line, color="#444444", linewidth=1)
        axes.fill_between(line, [0.9 * v for v in line], [1.1 * v for v in line], color="#bbbbbb", alpha=0.4, linewidth=0)
        axes.set(xscale="log", yscale="log", xlim=line, ylim=line, xlabel="measured (s)", ylabel="predicted (s)")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())
        error = statistics.median(abs(row["error_pct"]) for row in found["rows"])
        axes.set_title(f"{part}: {len(x)} rows, median error {error:.1f} %", fontsize=9)
    drawing.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
