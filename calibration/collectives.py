"""Collectives by size and group, alone and while computing: a point is the slowest rank's median.

Run by ``calibration`` under torchrun on this machine; on many nodes start it yourself with torchrun or Slurm:
``torchrun --nnodes … -m calibration.collectives -o measurements/``. Sizes follow nccl-tests: all-gather and
reduce-scatter count the whole buffer, all-to-all what one rank sends, its own share included. GPU paths (NCCL) untested.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from calibration.device import Device, Timing
from calibration.plan import Context, Point
from calibration.transfer import busy
from clustersim.calibrate.records import Writer

OPS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send")


def collective_points(context: Context, ranks: int, group: Any, place: str) -> Iterator[Point]:
    """All ops and sizes over one group."""
    if context.device.is_gpu:
        sizes = [2**p for p in range(10, 31, 4 if context.quick else 1)]
    else:
        sizes = [2**p for p in ((10, 14, 18, 20) if context.quick else range(10, 25))]
    for op in OPS:
        if op == "send" and ranks != 2:
            continue
        for beside in ("", "compute"):
            for size in sizes:
                key = {"op": op, "group": ranks, "place": place, "bytes": size, "beside": beside}
                yield Point(key, partial(_timed, context, key, group), 4.0 * size * ranks, moved=float(size))


def call_of(op: str, size: int, ranks: int, device: torch.device, group: Any) -> Callable[[], Any]:
    """One collective on random data."""
    count = max(ranks, size // 4 // ranks * ranks)
    whole = torch.randn(count, device=device)
    part = torch.randn(count // ranks, device=device)
    root = dist.get_global_rank(group, 0) if group is not None else 0
    if op == "all-reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if op == "all-gather":
        return lambda: dist.all_gather_into_tensor(whole, part, group=group)
    if op == "reduce-scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole, group=group)
    if op == "all-to-all":
        other = torch.empty_like(whole)
        return lambda: dist.all_to_all_single(other, whole, group=group)
    if op == "broadcast":
        return lambda: dist.broadcast(whole, root, group=group)
    first = dist.get_rank() == root
    return lambda: dist.send(whole, 1 - dist.get_rank()) if first else dist.recv(whole, 1 - dist.get_rank())


def _timed(context: Context, key: dict[str, Any], group: Any) -> dict[str, Any]:
    call = call_of(key["op"], key["bytes"], key["group"], context.device.torch, group)
    for _ in range(5 if context.device.is_gpu else 2):
        call()
    turns = 5 if context.quick else 20
    if key["beside"]:
        with busy(context):
            mine = _turns(context, call, turns, group)
    else:
        mine = _turns(context, call, turns, group)
    every: list[Any] = [None] * key["group"]
    dist.all_gather_object(every, mine, group=group)
    slowest = [max(turn) for turn in zip(*every, strict=True)]
    return {**Timing.of(slowest)._asdict(), "bytes_per_s": key["bytes"] / Timing.of(slowest).median_s,
            "state": context.device.state()}  # fmt: skip


def _turns(context: Context, call: Callable[[], Any], turns: int, group: Any) -> list[float]:
    """Seconds of each turn from a common start to this rank's end."""
    seconds = []
    for _ in range(turns):
        dist.barrier(group=group)
        context.device.sync()
        start = time.perf_counter()
        call()
        context.device.sync()
        seconds.append(time.perf_counter() - start)
    return seconds


def groups_of(world: int, local: int) -> list[tuple[int, str, list[int]]]:
    """(ranks, place, members): powers of two inside the first node; one rank a node and all ranks across nodes."""
    found = [(size, "inside", list(range(size))) for size in (2, 4, 8, 16) if size <= min(world, local)]
    if world > local:
        found.append((world // local, "across", list(range(0, world, local))))
        found.append((world, "across", list(range(world))))
    return found


def agreed(points: Iterator[Point], writer_has: Callable[[dict[str, Any]], bool], end: float, group: Any) -> Iterator[Point]:
    """Points that no rank skips alone: rank 0 says whether each is measured."""
    for point in points:
        say: list[Any] = [writer_has(point.key) or time.monotonic() > end]
        dist.broadcast_object_list(say, dist.get_global_rank(group, 0), group=group)
        if not say[0]:
            yield point


def main() -> None:
    """Measure all groups of the job; rank 0 of each writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", default="measurements")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--budget-s", type=float, default=120.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = Device.choose(options.device)
    dist.init_process_group("nccl" if device.is_gpu else "gloo")
    end = time.monotonic() + options.budget_s
    context = Context(device, options.quick, Path(options.out), end)
    world, local = dist.get_world_size(), int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))
    for ranks, place, members in groups_of(world, local):
        group = dist.new_group(members)
        if dist.get_rank() in members:
            _measure_group(context, ranks, place, group, end)
        dist.barrier()
    dist.destroy_process_group()


def _measure_group(context: Context, ranks: int, place: str, group: Any, end: float) -> None:
    kind, name = "collective", f"collective-{ranks}-{place}"
    path = context.out / f"{name}.jsonl"
    first = dist.get_rank(group) == 0
    writer = Writer(path, kind, context.device.header()) if first else None
    skipped = 0
    points = list(collective_points(context, ranks, group, place))
    for point in agreed(iter(points), lambda key: writer is not None and writer.has(key), end, group):
        values = point.prepare()
        if writer is not None:
            assert isinstance(values, dict)
            writer.add(point.key, values)
    if writer is not None:
        skipped = sum(not writer.has(point.key) for point in points)
        writer.end([f"{skipped} points: out of time (give more --budget and run again)"] if skipped else [])


if __name__ == "__main__":
    main()
