"""Ways of coming back, side by side: what each strategy cost in the runs, what it holds ready, what it would choose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from clustersim.report.study_text import table
from clustersim.report.summary import mean, rough_bytes, rough_duration, way_line, wrapped
from clustersim.shown import cut, printable

Json = dict[str, Any]
WAYS = 3
"""Ways back that are told of each."""


def strategies_text(labels: Sequence[str], told: Sequence[Json | None], runs: Sequence[Json | None]) -> str:
    """The stages of each way of coming back, below a table where the strategies differ; empty where nothing ever fails.

    Args:
        labels: the first column.
        told: documents of ``recovery_document``; None: not simulated.
        runs: summaries of the runs (``Comparison.to_dict()["runs"]``).
    """
    known = [(cut(printable(label), 20), document, run) for label, document, run in zip(labels, told, runs, strict=True)
             if document and document["ways"] and run]  # fmt: skip
    if not known:
        return ""
    differ = any(_held(document) != _held(known[0][1]) for _, document, _ in known)
    return "\n".join([*(_table(known) if differ else ()), *_stages(known)])


def _held(told: Json) -> list[Any]:
    """What tells one strategy from another."""
    return [told[name] for name in ("strategy", "spare_nodes", "cold_spare_nodes", "extra_memory_bytes_per_node",
                                    "network_bytes_per_node_per_step", "step_overhead_s")]  # fmt: skip


_COLUMNS = (
    ("mean", "of the ways back, after detection"),
    ("redone", "steps done again, in the run"),
    ("stall", "of saves, in the run"),
    ("spares", "spare nodes (+ those that are off)"),
    ("memory", "held on each node"),
    ("a step", "what each node sends a step"),
    ("a time", "what all nodes send in a recovery"),
    ("saves", "the interval that would suit it"),
)
"""Heading and meaning; a column that is empty for all is left out."""


def _table(known: Sequence[tuple[str, Json, Json]]) -> list[str]:
    rows = [_row(document, run) for _, document, run in known]
    shown = [at for at in range(len(_COLUMNS)) if any(row[at] != "-" for row in rows)]
    header = ["coming back", *(_COLUMNS[at][0] for at in shown)]
    body = [[name, *(row[at] for at in shown)] for (name, _, _), row in zip(known, rows, strict=True)]
    legend = "; ".join(f"{_COLUMNS[at][0]}: {_COLUMNS[at][1]}" for at in shown)
    return [table(header, body), "", *wrapped(f"{legend}."), ""]


def _row(told: Json, run: Json) -> list[str]:
    cold, best = told["cold_spare_nodes"], told["best_interval_s"]
    back = math.fsum(way["share"] * way["total_s"] for way in told["ways"])
    return [
        rough_duration(back),
        f"{mean(run.get('steps_lost')) or 0.0:,.0f}",
        rough_duration(mean(run.get("ledger_s.checkpoint_stall")) or 0.0),
        f"{told['spare_nodes']}" + (f" + {cold}" if cold else ""),
        rough_bytes(told["extra_memory_bytes_per_node"]),
        rough_bytes(told["network_bytes_per_node_per_step"]),
        rough_bytes(told["network_bytes_per_recovery"]),
        rough_duration(best) if best else "-",
    ]


def _stages(known: Sequence[tuple[str, Json, Json]]) -> list[str]:
    """Each way back with its stages; scenarios that come back alike together."""
    same: dict[str, list[str]] = {}
    for name, told, _ in known:
        ways = [line for way in told["ways"][:WAYS] for line in wrapped(f"    {way_line(way)}")]
        same.setdefault("\n".join([told["strategy"], *ways]), []).append(name)
    lines = []
    for key, names in same.items():
        strategy, *rest = key.split("\n")
        lines += [*wrapped(f"{', '.join(names)}: strategy {strategy}"), *rest]
    return lines
