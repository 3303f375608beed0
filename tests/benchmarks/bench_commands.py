"""How fast commands start and run: medians of whole processes, CPU seconds and peak memory, beside their targets."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.bench_pipeline import Result

ROOT = Path(__file__).parents[2]
MAIN = str(ROOT / "scenarios" / "llama3-405b-16k.yaml")
FLEET = str(ROOT / "scenarios" / "cases" / "llama3-fleet.yaml")
"""The same with lemons, recurrence, groups, stragglers and long repairs."""
MILLION = ["cluster.nodes=131072", "cluster.spare_nodes=4096", "repair.crews=4096", "parallelism.dp=8192",
           "training.global_batch=131072", "training.duration=90 d"]  # fmt: skip
"""131,072 nodes (1,048,576 GPUs) for 90 days, spares and crews scaled with them."""


class Spent(NamedTuple):
    """CPU seconds of a process and its children, and peak resident memory in MiB."""

    seconds: float
    mebibytes: float


def spent(*arguments: str) -> Spent:
    """What one run of the program takes."""
    process = subprocess.Popen([sys.executable, "-m", "clustersim", *arguments], stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"clustersim {' '.join(arguments)} ended with {process.returncode}")
    return Spent(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def median(times: int, *arguments: str) -> Spent:
    """Medians over ``times`` runs, after one that does not count."""
    spent(*arguments)
    all_spent = [spent(*arguments) for _ in range(times)]
    return Spent(statistics.median(one.seconds for one in all_spent), statistics.median(one.mebibytes for one in all_spent))


def bounded(name: str, taken: Spent, seconds: float, mebibytes: float) -> Iterator[Result]:
    """Time and memory of one command against upper bounds."""
    yield Result(name, taken.seconds, "CPU s", f"<= {seconds:g}", taken.seconds <= seconds)
    yield Result(f"{name}, peak memory", taken.mebibytes, "MiB", f"<= {mebibytes:g}", taken.mebibytes <= mebibytes)


def more(scenario: str) -> tuple[float, float]:
    """Replicas a CPU second beyond the first 50, and MiB that 200 more of them add."""
    few = median(1, "run", scenario, "--workers", "1", "--replicas", "50", "--json")
    many = median(1, "run", scenario, "--workers", "1", "--replicas", "250", "--json")
    return 200 / max(1e-9, many.seconds - few.seconds), many.mebibytes - few.mebibytes


def results() -> Iterator[Result]:
    """All measurements."""
    yield from bounded("clustersim --help", median(5, "--help"), 0.3, 100)
    yield from bounded("run, main scenario, 20 replicas", median(3, "run", MAIN, "--workers", "1"), 3.0, 512)
    rate, growth = more(MAIN)
    yield Result("run, main scenario, replicas a CPU second", rate, "1/s", ">= 40", rate >= 40)
    yield Result("memory added by 200 more replicas", growth, "MiB", "<= 5", growth <= 5)
    options = [word for change in MILLION for word in ("--set", change)]
    taken = median(1, "run", MAIN, *options, "--replicas", "1", "--json")
    yield from bounded("run, 1,048,576 GPUs for 90 days, one replica", taken, 10.0, 1024)
    rate, _ = more(FLEET)
    yield Result("run, correlated failures and stragglers, replicas a CPU second", rate, "1/s", ">= 20", rate >= 20)
    taken = median(1, "run", FLEET, *options, "--replicas", "1", "--json")
    yield from bounded("run, 1,048,576 GPUs for 90 days, correlated failures and stragglers", taken, 20.0, 1024)
