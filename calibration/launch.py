"""Starts a module under torchrun on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def environment() -> dict[str, str]:
    """This process's environment with the project's root on the path, one thread a process, and no ranks of an outer job."""
    outer = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
    kept = {key: value for key, value in os.environ.items() if key not in outer and not key.startswith("TORCHELASTIC_")}
    root = str(Path(__file__).resolve().parent.parent)
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [root, kept.get("PYTHONPATH", "")]))
    kept.setdefault("OMP_NUM_THREADS", "1")
    return kept


def command(module: str, processes: int, arguments: Sequence[str], restarts: int = 0) -> list[str]:
    """The command line of torchrun for a module of this project."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}",
            f"--max-restarts={restarts}", "--monitor-interval=0.1", "-m", module, *arguments]  # fmt: skip


def torchrun(module: str, processes: int, arguments: Sequence[str], limit_s: float, restarts: int = 0) -> str:
    """Run a module in ``processes`` processes and wait.

    Returns:
        What it wrote to standard output.

    Raises:
        RuntimeError: it failed (with the end of what it said), or took longer than ``limit_s``.
    """
    process = subprocess.Popen(command(module, processes, arguments, restarts), env=environment(), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
    try:
        said, complaints = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _stop(process)
        raise RuntimeError(f"{module} took longer than {limit_s:.0f} s") from None
    if process.returncode != 0:
        raise RuntimeError(f"{module} failed: {complaints.strip()[-600:]}")
    return said


def _stop(process: subprocess.Popen[str]) -> None:
    """End torchrun and its workers (its own process group)."""
    import signal

    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
