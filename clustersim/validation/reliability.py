"""Published cases of failures and recovery against clustersim: one row a figure, each with its bound.

``cases()`` gives all rows, those of checkpointing included; ``failed(rows)`` those beyond their bound. A row whose figure went
into its own scenario is *told* (no bound): it shows that the machinery reproduces it, and proves nothing. The scenarios lie in
``scenarios/papers`` and ``scenarios/cases``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from clustersim.validation.reliability_case import Case
from clustersim.validation.reliability_clusters import airesim, delta, fleet, hlat, lablup, marin
from clustersim.validation.reliability_jobs import bloom, byterobust, dlrover, llama3, opt, rsc
from clustersim.validation.reliability_systems import fftrainer, megascale, trainmover


def checkpointing() -> Iterator[Case]:
    """Case 8, and all else on checkpoints."""
    try:
        from clustersim.validation.checkpointing import cases as rows
    except ImportError:
        return
    for row in rows():
        low = None if row.bound is None else row.published / (1 + row.bound)
        high = None if row.bound is None else row.published * (1 + row.bound)
        yield Case(f"8 {row.suite}", row.case, row.published, row.ours, low, high, row.source, row.note)


GROUPS: tuple[Callable[[], Iterator[Case]], ...] = (
    llama3, rsc, byterobust, bloom, opt, dlrover, checkpointing, trainmover, fftrainer, megascale, marin, fleet, delta, lablup,
    airesim, hlat,
)  # fmt: skip


def cases(groups: Iterable[Callable[[], Iterator[Case]]] = GROUPS) -> list[Case]:
    """All rows."""
    return [case for group in groups for case in group()]


def failed(rows: Iterable[Case]) -> list[Case]:
    """Rows beyond their bound."""
    return [row for row in rows if not row.holds]


def dump(rows: list[Case]) -> dict[str, Any]:
    """The JSON document: one suite, its rows with their bounds."""
    errors = [abs(row.deviation) * 100 for row in rows if row.scored and row.deviation is not None]
    results = [{"row_id": f"{row.suite}: {row.case}", "metric": row.case, "measured": row.published, "predicted": row.ours,
                "error_pct": None if row.deviation is None else 100 * row.deviation, "low": row.low, "high": row.high,
                "within_bound": row.holds if row.scored else None, "source": row.source,
                "assumed": {"note": row.note} if row.note else {}, "skipped": None} for row in rows]  # fmt: skip
    return {"suites": [{"name": "reliability", "rows": len(rows), "median_abs_error_pct": statistics.median(errors),
                        "mape_pct": statistics.fmean(errors), "spearman": None, "within_bound": not failed(rows),
                        "results": results}]}  # fmt: skip


def table(rows: list[Case], everything: bool = True) -> list[str]:
    """Lines for a terminal, at most 80 columns wide; unless ``everything``, without rows on checkpoints that are only told."""
    lines, suite = [f"{'':<44}{'published':>10}{'ours':>10}{'':>9} within"], ""
    for row in rows:
        if not everything and row.suite.startswith("8 ") and not row.scored:
            continue
        if row.suite != suite:
            suite = row.suite
            lines.append(suite)
        error = "" if row.deviation is None else f"{100 * row.deviation:+.1f} %"
        verdict = "told" if not row.scored else "yes" if row.holds else "NO"
        short = row.case if len(row.case) <= 41 else row.case[:40] + "…"
        lines.append(f"  {short:<42}{row.published:>10.5g}{row.ours:>10.5g}{error:>9}  {verdict}")
    scored = [row for row in rows if row.scored]
    lines.append(
        f"{sum(row.holds for row in scored)} of {len(scored)} rows within their bound, {len(rows) - len(scored)} told"
    )
    return lines
