"""How fast studies are: scaling over processes, overhead on Dask, reading the store, the sweep that people run.

``python -m tests.benchmarks studies`` or ``make bench ARGS=studies``. Needs two free cores.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clustersim import __version__
from clustersim.run.result import RunResult
from clustersim.scenario.load import load
from clustersim.study.executors import Dask, Executor, Processes, Serial
from clustersim.study.merging import merge
from clustersim.study.store import Store, record_key
from clustersim.study.sweeping import sweep
from tests.benchmarks.bench_pipeline import Result

MAIN = Path(__file__).parents[2] / "scenarios" / "llama3-405b-16k.yaml"
INTERVALS = ["1 min", "2 min", "3 min", "5 min", "7 min", "10 min", "15 min", "20 min", "30 min", "1 h"]


def swept(replicas: int, place: Executor, intervals: list[str]) -> float:
    """Wall seconds of a sweep of the main scenario."""
    scenario = load(MAIN)
    start = time.perf_counter()
    sweep(scenario, over={"checkpoint.interval": intervals}, replicas=replicas, executor=place)
    return time.perf_counter() - start


def nothing(shared: Any, task: int) -> int:
    """A task that does nothing."""
    return task


def dask_overhead_ms(tasks: int = 2000) -> float:
    """Wall milliseconds a task that does nothing, on a local cluster of two workers that is up already."""
    place = Dask(None, 2)
    stamps = [time.perf_counter() for _ in place.run(nothing, None, list(range(tasks)))]
    return 1e3 * (stamps[-1] - stamps[100]) / (len(stamps) - 101)


def filled(folder: Path, points: int, replicas: int) -> None:
    """A store of finished replicas with as many digits as real ones have."""
    rng = np.random.default_rng(0)
    ledger = (
        "train",
        "rework",
        "checkpoint_stall",
        "detect",
        "diagnose",
        "reschedule",
        "start",
        "communicators",
        "load",
    )
    names = [*RunResult.METRICS, *(f"ledger_s.{name}" for name in ledger)]
    with Store(folder) as store:
        store.open_study({"study": "sweep", "version": __version__, "seed": 0, "paths": ["x"], "replicas": replicas,
                          "points": [{"x": k} for k in range(points)], "hashes": [str(k) for k in range(points)],
                          "errors": [None] * points})  # fmt: skip
        for point in range(points):
            values = rng.random((replicas, len(names))).tolist()
            store.append((record_key(str(point), 0, r, __version__), r, dict(zip(names, row, strict=True)))
                         for r, row in enumerate(values))  # fmt: skip


def read_and_summarised(folder: Path) -> float:
    """CPU seconds to load, check and summarise a store."""
    start = time.process_time()
    merge(folder)
    return time.process_time() - start


def at_most(name: str, value: float, target: float, unit: str) -> Result:
    """A measurement that must not exceed its target."""
    return Result(name, value, unit, f"<= {target:g}", value <= target)


def results() -> Iterator[Result]:
    """All measurements."""
    swept(1, Serial(), ["10 min"])
    alone, both = swept(100, Serial(), INTERVALS[:2]), swept(100, Processes(2), INTERVALS[:2])
    efficiency = alone / both / 2
    yield Result("parallel efficiency on 2 processes", efficiency, "of 1", ">= 0.85", efficiency >= 0.85)
    yield at_most("10 intervals x 200 replicas of the main scenario", swept(200, Processes(2), INTERVALS), 30.0, "s")
    yield at_most("overhead a task on Dask", dask_overhead_ms(), 2.0, "ms")
    with tempfile.TemporaryDirectory() as name:
        filled(Path(name), 100, 1000)
        yield at_most("100,000 records read and summarised", read_and_summarised(Path(name)), 2.0, "CPU s")
