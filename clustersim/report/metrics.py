"""How pages call the metrics of a run."""

from __future__ import annotations

NAMES = {
    "goodput_tokens_per_s": "tokens a second kept",
    "ettr": "ETTR",
    "effective_mfu": "MFU over the run",
    "wall_s": "wall time",
    "tokens": "tokens",
    "interruptions": "interruptions",
    "mtti_s": "one every (mean over replicas with interruptions)",
    "lost_work_s": "work done again",
    "nodes_down_p99": "nodes down (99 % of the time at most)",
    "gpu_hours": "GPU-hours",
}
"""``mtti_s`` is undefined in a replica without an interruption, and its mean leaves those out: too short where they are few."""


def named(metric: str) -> str:
    """What a metric is called in a sentence or a table."""
    return NAMES.get(metric, metric.replace("_", " "))
