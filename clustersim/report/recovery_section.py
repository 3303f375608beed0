"""The page's section on coming back: ways, stages, what is held ready and sent, the interval that suits."""

from __future__ import annotations

from html import escape
from typing import Any

from clustersim.report.page import section, table
from clustersim.report.summary import duration, held

Json = dict[str, Any]


def recovery_section(told: Json | None) -> str:
    """Each way back with its stages (means, after detection); empty where nothing ever fails."""
    if not told or not told["ways"]:
        return ""
    rows = [
        [
            way["path"],
            f"{way['share']:.0%}",
            "one step" if way["keeps_state"] else "all since the newest copy",
            duration(way["total_s"]),
            ", ".join(f"{name} {duration(seconds)}" for name, seconds in way["stages_s"].items()) or "none",
        ]
        for way in told["ways"]
    ]
    head = ["Way back", "Failures", "Loses", "Takes", "Stages"]
    best = told["best_interval_s"]
    suits = f" Saves every {duration(best)} would suit it." if best else ""
    about = f"Strategy {told['strategy']}: {'; '.join(held(told))}.{suits} Times are means, after detection."
    return section("recovery", "Coming back", f"<p>{escape(about)}</p>", table(head, rows, "Ways back and their stages"))
