"""``python -m calibration all -o measurements/``: measure this machine. ``--help`` says what there is."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from calibration.compute import attention_points, gemm_points, launch_points, layer_points, memory_points, model_points
from calibration.device import Device
from calibration.launch import torchrun
from calibration.plan import Context, Point, measure
from calibration.startup import compile_points, startup_points
from calibration.transfer import checkpoint_points, copy_points, storage_points
from clustersim.errors import InputError
from clustersim.units import DURATION

KINDS: dict[str, tuple[Callable[[Context], Iterator[Point]], float]] = {
    # kind: (points, weight of its share of the budget)
    "gemm": (gemm_points, 3),
    "attention": (attention_points, 3),
    "memory": (memory_points, 2),
    "launch": (launch_points, 0.5),
    "layer": (layer_points, 3),
    "model": (model_points, 1),
    "copy": (copy_points, 1),
    "storage": (storage_points, 1),
    "checkpoint": (checkpoint_points, 2),
    "startup": (startup_points, 2),
    "compile": (compile_points, 2),
}
COLLECTIVE = "collective"
WEIGHT_COLLECTIVE = 3.0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m calibration", description=__doc__)
    made.add_argument("what", nargs="+", choices=["all", *KINDS, COLLECTIVE], help="kinds to measure")
    made.add_argument("-o", "--out", default="measurements", help="folder of the measurement files (taken up where it stopped)")
    made.add_argument("--device", default="auto", choices=["auto", "cuda", "cpu"])
    made.add_argument("--quick", action="store_true", help="few small points: a trial in a minute or two")
    made.add_argument("--budget", default="30min", help="time for everything, such as 10min")
    made.add_argument("--threads", type=int, default=1, help="threads of a CPU op")
    made.add_argument("--processes", type=int, default=0, help="processes of the collectives; default: GPUs, or 2")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Measure; 0 done, 2 wrong input."""
    options = parser().parse_args(arguments)
    try:
        budget = DURATION.parse(options.budget)
    except ValueError as error:
        print(f"--budget: {error}", file=sys.stderr)
        return 2
    torch.set_num_threads(options.threads)
    device = Device.choose(options.device)
    context = Context(device, options.quick, Path(options.out), time.monotonic() + budget, point_seconds(device, options.quick))
    kinds = [*KINDS, COLLECTIVE] if "all" in options.what else list(dict.fromkeys(options.what))
    try:
        _measure_all(context, kinds, options.processes)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(context.out / "scratch", ignore_errors=True)
    print("\n".join(context.lines))
    files = " ".join(f"{context.out}/{name}" for name in sorted(path.name for path in context.out.glob("*.jsonl")))
    print(f"\nnext: clustersim fit profile {files} -o profiles/{device.kind}.yaml")
    return 0


def point_seconds(device: Device, quick: bool) -> float:
    """Seconds for the repeats of one point."""
    return 0.05 if quick else 1.0 if device.is_gpu else 0.2


def _measure_all(context: Context, kinds: list[str], processes: int) -> None:
    weights = {kind: KINDS[kind][1] if kind in KINDS else WEIGHT_COLLECTIVE for kind in kinds}
    for index, kind in enumerate(kinds):
        share = max(0.0, context.left_s) * weights[kind] / sum(weights[other] for other in kinds[index:])
        print(f"{kind}: up to {share:.0f} s", file=sys.stderr)
        if kind == COLLECTIVE:
            _collectives(context, share, processes)
        else:
            measure(context, kind, KINDS[kind][0](context), share)


def _collectives(context: Context, share: float, processes: int) -> None:
    """Under torchrun or Slurm in place; else in processes of their own on this machine."""
    arguments = ["-o", str(context.out), "--device", context.device.kind, "--budget-s", str(share)]
    arguments += ["--quick"] if context.quick else []
    if "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        context.lines.append("collective   skipped: under torchrun start `-m calibration.collectives` instead")
        return
    count = processes or (torch.cuda.device_count() if context.device.is_gpu else 2)
    if count < 2:
        context.lines.append("collective   skipped: one process alone has nobody to talk to (--processes 2)")
        return
    try:
        torchrun("calibration.collectives", count, arguments, limit_s=share + 120)
        context.lines.append(f"collective   {count} processes: see {context.out}/collective-*.jsonl")
    except RuntimeError as error:
        context.lines.append(f"collective   failed: {error}")


if __name__ == "__main__":
    sys.exit(main())
