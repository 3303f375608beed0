"""Copies between host and device, files, and checkpoints of torch: blocking time and durable time apart."""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from calibration.device import Timing
from calibration.plan import Context, Point

REPEATS = 3
TENSORS = 64
"""Tensors of a saved state: what a save costs in Python goes by the tensor."""


@contextmanager
def busy(context: Context) -> Iterator[None]:
    """Products run beside what is measured: on a stream of their own, or on a CPU in a thread."""
    stop = threading.Event()

    def work() -> None:
        side = 1024 if context.device.is_gpu else 256
        a = torch.randn(side, side, device=context.device.torch)
        if context.device.is_gpu:
            torch.cuda.set_device(context.device.torch)
            with torch.cuda.stream(torch.cuda.Stream()):
                while not stop.is_set():
                    for _ in range(20):
                        a @ a
                    torch.cuda.current_stream().synchronize()
        while not stop.is_set():
            a @ a

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def copy_points(context: Context) -> Iterator[Point]:
    """Host to device and back, pinned and not, alone and while training; on a CPU, memory to memory."""
    fine = range(12, 31, 2) if context.device.is_gpu else range(12, 29)  # on a CPU, through several caches
    sizes = [2**14, 2**18, 2**22] if context.quick else [2**p for p in fine]
    ways = [("h2d", True), ("h2d", False), ("d2h", True), ("d2h", False)] if context.device.is_gpu else [("copy-host", False)]
    for direction, pinned in ways:
        for beside in ("", "compute"):
            for size in sizes:
                key = {"op": direction, "pinned": pinned, "bytes": size, "beside": beside}
                yield Point(key, partial(_copied, context, key), 4.0 * size, moved=float(size))


def _copied(context: Context, key: dict[str, Any]) -> Timing:
    count, gpu = key["bytes"] // 4, context.device.is_gpu
    host = torch.randn(count)
    if key["pinned"]:
        host = host.pin_memory()
    other = torch.empty(count, device=context.device.torch if gpu else "cpu")
    source, target = (other, host) if key["op"] == "d2h" else (host, other)

    def call() -> None:
        target.copy_(source, non_blocking=bool(key["pinned"]))

    if not key["beside"]:
        return context.device.time(call, context.point_s)
    with busy(context):
        return context.device.time(call, context.point_s)


def storage_points(context: Context) -> Iterator[Point]:
    """Write with fsync, read with a cold cache, and many small files, in the folder of the measurements."""
    sizes = [2**16, 2**20, 2**22] if context.quick else [2**p for p in range(16, 33, 2)]
    for size in sizes:
        for op in ("storage-write", "storage-read"):
            yield Point({"op": op, "bytes": size}, partial(_stored, context, op, size), 2.0 * size, moved=float(size))
    for files in ([16] if context.quick else [16, 256, 2048]):
        total = files * 2**14
        key = {"op": "storage-files", "files": files, "bytes": total}
        yield Point(key, partial(_files, context, files), moved=float(total))


def _folder(context: Context) -> Path:
    folder = context.out / "scratch"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _stored(context: Context, op: str, size: int) -> Timing:
    _room(context, size)
    path, data = _folder(context) / "block", os.urandom(min(size, 2**24))
    seconds = []
    for _ in range(REPEATS):
        seconds.append(write_durably(path, data, size))
        if op == "storage-read":
            seconds[-1] = _read_cold(path)
    path.unlink()
    return Timing.of(seconds)


def _room(context: Context, size: float) -> None:
    free = shutil.disk_usage(_folder(context)).free
    if size > free / 4:
        raise OSError(f"needs {size / 2**30:.1f} GiB, a quarter of the free disk is less")


def write_durably(path: Path, data: bytes, size: int) -> float:
    """Seconds to write ``size`` bytes and have them on disk (fsync)."""
    start = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        left = size
        while left > 0:
            left -= file.write(data[:left])
        os.fsync(file.fileno())
    return time.perf_counter() - start


def drop_cache(path: Path) -> None:
    """Ask the kernel to forget a file's pages, so that a read meets the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_cold(path: Path) -> float:
    drop_cache(path)
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.read(2**24):
            pass
    return time.perf_counter() - start


def _files(context: Context, count: int) -> Timing:
    folder, data, seconds = _folder(context) / "many", os.urandom(2**14), []
    for _ in range(REPEATS):
        folder.mkdir(exist_ok=True)
        start = time.perf_counter()
        for index in range(count):
            write_durably(folder / str(index), data, len(data))
        seconds.append(time.perf_counter() - start)
        shutil.rmtree(folder)
    return Timing.of(seconds)


def checkpoint_points(context: Context) -> Iterator[Point]:
    """torch.save, DCP save, DCP async_save (what blocks, what is taken from work beside it, and durable), and loads, by
    bytes of state in ``TENSORS`` tensors."""
    sizes = [2**20, 2**22, 2**23] if context.quick else [2**p for p in range(20, 34, 2)]
    for size in sizes:
        for op in ("torch-save", "torch-load", "dcp-save", "dcp-load", "dcp-async-blocking", "dcp-async-lost",
                   "dcp-async-durable"):  # fmt: skip
            key = {"op": f"checkpoint-{op}", "bytes": size}
            yield Point(key, partial(checkpoint_time, context, op, size), 4.0 * size, moved=float(size))


def checkpoint_time(context: Context, op: str, size: int) -> Timing:
    """Seconds of one way to save or load ``size`` bytes of tensors."""
    _room(context, 2 * size)
    state = {f"part{index}": torch.randn(size // (4 * TENSORS), device=context.device.torch) for index in range(TENSORS)}
    folder = _folder(context) / "checkpoint"
    seconds = []
    for _ in range(REPEATS):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        seconds.append(WAYS[op](state, folder))
    shutil.rmtree(folder, ignore_errors=True)
    return Timing.of(seconds)


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _torch_save(state: dict[str, torch.Tensor], folder: Path) -> float:
    start = time.perf_counter()
    torch.save(state, folder / "state.pt")
    _sync_tree(folder)
    return time.perf_counter() - start


def _torch_load(state: dict[str, torch.Tensor], folder: Path) -> float:
    _torch_save(state, folder)
    drop_cache(folder / "state.pt")
    start = time.perf_counter()
    torch.load(folder / "state.pt", weights_only=True)
    return time.perf_counter() - start


def _dcp_save(state: dict[str, torch.Tensor], folder: Path) -> float:
    import torch.distributed.checkpoint as dcp

    with single_group():
        start = time.perf_counter()
        dcp.save(state, checkpoint_id=str(folder))
        _sync_tree(folder)
        return time.perf_counter() - start


def _dcp_load(state: dict[str, torch.Tensor], folder: Path) -> float:
    import torch.distributed.checkpoint as dcp

    _dcp_save(state, folder)
    for path in folder.rglob("*"):
        if path.is_file():
            drop_cache(path)
    with single_group():
        start = time.perf_counter()
        dcp.load(state, checkpoint_id=str(folder))
        return time.perf_counter() - start


def _dcp_async(durable: bool) -> Callable[[dict[str, torch.Tensor], Path], float]:
    def save(state: dict[str, torch.Tensor], folder: Path) -> float:
        import torch.distributed.checkpoint as dcp

        with single_group():
            start = time.perf_counter()
            future: Any = dcp.async_save(state, checkpoint_id=str(folder))
            blocking = time.perf_counter() - start
            future.result()
            _sync_tree(folder)
            return time.perf_counter() - start if durable else blocking

    return save


def _dcp_async_lost(state: dict[str, torch.Tensor], folder: Path) -> float:
    """Seconds that small products in this thread take longer while a save is in flight than alone: what the save's thread
    takes under the lock that both need, or on cores that are short."""
    import torch.distributed.checkpoint as dcp

    a = torch.randn(128, 128)

    def work() -> float:
        start = time.perf_counter()
        for _ in range(20):
            a @ a
        return time.perf_counter() - start

    work()
    alone = statistics.median(work() for _ in range(50))
    with single_group():
        future: Any = dcp.async_save(state, checkpoint_id=str(folder))
        taken = 0.0
        while not future.done():
            taken += work() - alone
        future.result()
    return max(taken, 1e-6)


@contextmanager
def single_group() -> Iterator[None]:
    """A process group of this process alone, unless there is one already (async_save needs one, others ask for one)."""
    import torch.distributed as dist

    if dist.is_initialized():
        yield
        return
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


WAYS: dict[str, Callable[[dict[str, torch.Tensor], Path], float]] = {
    "torch-save": _torch_save,
    "torch-load": _torch_load,
    "dcp-save": _dcp_save,
    "dcp-load": _dcp_load,
    "dcp-async-blocking": _dcp_async(durable=False),
    "dcp-async-lost": _dcp_async_lost,
    "dcp-async-durable": _dcp_async(durable=True),
}
