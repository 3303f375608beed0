"""How fast the main scenario runs under each registered checkpoint engine, and where saves meet.

``python -m tests.benchmarks engines`` or ``make bench ARGS=engines``. One core: CPU seconds, however busy the rest. Replicas are
counted from a fresh process's first on, with all that is built on the way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clustersim.checkpoint.engine import CheckpointEngine
from clustersim.checkpoint.memory import MemoryEngine
from clustersim.scenario.load import load
from clustersim.study.work import prepare, replica_metrics
from tests.benchmarks.bench_pipeline import Result

MAIN = Path(__file__).parents[2] / "scenarios" / "llama3-405b-16k.yaml"
TARGET = 20.0
MEETING: dict[str, dict[str, Any]] = {
    "gemini, uploads over training's network": {"engine": "gemini", "uplink": "training", "persist_every": 100},
    "transom, likewise": {"engine": "transom", "uplink": "training", "interval": "10 min"},
    "byterobust, likewise, one upload in 1000 saves": {"engine": "byterobust", "uplink": "training", "persist_every": 1000},
    "megascale, every step, three at once": {"engine": "megascale", "interval": {"steps": 1}, "snapshots": 3, "queued": False,
                                             "writer_bandwidth": "10 MB/s"},
    "datastates, every step, three in flight": {"engine": "datastates", "interval": {"steps": 1}, "snapshots": 3,
                                                "writer_bandwidth": "20 MB/s"},
    "checkfreq, every step, two copies at once": {"engine": "checkfreq", "interval": {"steps": 1}, "snapshots": 2,
                                                  "copy_bandwidth": "50 MB/s"},
}  # fmt: skip
"""Ways of saving whose transfers are under way together."""


def ways() -> dict[str, dict[str, Any]]:
    """Each engine: those in memory at their own interval with uploads, others every 10 min; then those that meet."""
    found: dict[str, dict[str, Any]] = {}
    for kind in CheckpointEngine.known_kinds():
        part = CheckpointEngine.kinds[kind]
        often = issubclass(part, MemoryEngine) or kind in ("just-in-time", "peer-rebuild", "none")
        keys = {"persist_every": 100} if issubclass(part, MemoryEngine) else {}
        if part.kind == kind:
            found[kind] = {"engine": kind, **keys, **({} if often else {"interval": "10 min"})}
    return {**found, **MEETING}


def replicas_per_s(keys: dict[str, Any], count: int = 40) -> float:
    """Replicas of the main scenario a CPU second, the pattern of saves built anew."""
    prepared = prepare(load(MAIN).replace("checkpoint", keys))
    begin = time.process_time()
    for replica in range(count):
        replica_metrics(prepared, 0, replica)
    return count / (time.process_time() - begin)


def results() -> Iterator[Result]:
    """All measurements."""
    for name, keys in ways().items():
        rate = replicas_per_s(keys)
        yield Result(f"main scenario, {name}", rate, "replicas/s", f">= {TARGET:g}", rate >= TARGET)
