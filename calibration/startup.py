"""Process start, import of torch, init_process_group against world size, the first step compiled and not."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from calibration.device import Device, Timing
from calibration.launch import environment, torchrun
from calibration.plan import Context, Point


def startup_points(context: Context) -> Iterator[Point]:
    """What a restart consists of."""
    yield Point({"what": "process"}, lambda: _process("pass"))
    yield Point({"what": "import-torch"}, lambda: _process("import torch"))
    worlds = [2] if context.quick else ([2, 4, 8] if not context.device.is_gpu else [2, 4, torch.cuda.device_count()])
    for world in dict.fromkeys(worlds):
        for what in ("torchrun", "init_process_group"):
            yield Point({"what": what, "world": world}, partial(_group, context, world, what))


def _process(code: str) -> Timing:
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return Timing.of(seconds)


def _group(context: Context, world: int, what: str) -> Timing:
    """Seconds from the start of torchrun to the first collective's end, or of init_process_group and that alone."""
    out = context.out / "scratch" / "startup.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    start = time.time()
    torchrun("calibration.startup", world, ["--out", str(out), "--device", context.device.kind], limit_s=300)
    found = json.loads(Path(out).read_text(encoding="utf-8"))
    return Timing.of([found["init_s"]] if what == "init_process_group" else [found["end"] - start])


def compile_points(context: Context) -> Iterator[Point]:
    """First training step of a small model: eager, and with torch.compile; each in a fresh process that may be cut off."""
    backends = ["eager"] if context.quick and not context.device.is_gpu else ["eager", "aot_eager", "inductor"]
    for backend in backends:
        yield Point({"what": "first-step", "backend": backend}, partial(_fresh_first_step, context, backend))


def _fresh_first_step(context: Context, backend: str) -> Timing:
    line = [sys.executable, "-m", "calibration.startup", "--first-step", backend, "--device", context.device.kind]
    limit = max(30.0, min(600.0, context.left_s))
    try:
        done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"took longer than the {limit:.0f} s left") from None
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    return Timing.of([float(done.stdout.split()[-1])])


def first_step(device: Device, backend: str) -> float:
    """Seconds of the first forward and backward of a one-layer model."""
    from calibration.gpt import GptSize, batch_of, loss_of, whole

    size = GptSize(hidden=64, heads=2, layers=1, length=32)
    model: torch.nn.Module = whole(size).to(device.torch)
    tokens, targets = (item.to(device.torch) for item in batch_of(size, 1))
    run = model if backend == "eager" else torch.compile(model, backend=backend)
    start = time.perf_counter()
    loss_of(run(tokens), targets).backward()
    device.sync()
    return time.perf_counter() - start


def main() -> None:
    """One rank of the group whose start is timed."""
    import argparse

    import torch.distributed as dist

    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--first-step", default="", help="only time a first step with this backend")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.first_step:
        print(first_step(Device.choose(options.device), options.first_step))
        return
    start = time.time()
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    if options.device == "cuda":
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    dist.all_reduce(torch.ones(1, device=options.device))
    if options.device == "cuda":
        torch.cuda.synchronize()
    end = time.time()
    if dist.get_rank() == 0:
        Path(options.out).write_text(json.dumps({"init_s": end - start, "end": end}), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
