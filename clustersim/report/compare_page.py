"""The page of a comparison: side by side, differences with intervals, the same axes for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from clustersim.report.course import colour_of
from clustersim.report.metrics import named
from clustersim.report.page import figure, folded, page, section, table, user
from clustersim.report.run_answer import MEANING
from clustersim.report.summary import number, percent, quantity, span
from clustersim.report.svg import WIDTH, Estimate, Scale, box, drawing, intervals, line, nice_ticks, text
from clustersim.shown import cut

if TYPE_CHECKING:
    from clustersim.scenario.schema import Scenario
    from clustersim.study.comparison import Comparison
    from clustersim.study.runner import Outcome

_SAID = {
    "goodput_tokens_per_s": quantity,
    "ettr": percent,
    "effective_mfu": percent,
    "wall_s": span,
    "tokens": quantity,
    "interruptions": number,
    "mtti_s": span,
    "lost_work_s": span,
    "nodes_down_p99": number,
    "gpu_hours": quantity,
}
_NAME = 60
"""Characters of a name in a heading; what is cut off stands in full below the method."""
_STEPS = 4
"""Scenarios whose steps are drawn above each other at most."""
_BOXES = 20_000


def comparison_page(found: Comparison, scenarios: Sequence[Scenario] = ()) -> str:
    """The page as HTML text.

    Args:
        found: the comparison.
        scenarios: what was compared, in order; without them the page has no differences of input and no steps.
    """
    good = [outcome for outcome in found.outcomes if outcome.error is None]
    names = [outcome.label for outcome in found.outcomes]
    answer = "".join(f'<p class="answer">{escape(said)}</p>' for said in found.sentences())
    answer += "".join(
        f'<p class="warning" role="note"><strong>{escape(o.label)}</strong> could not be run: {escape(o.error or "")}</p>'
        for o in found.outcomes
        if o.error is not None
    )
    sections = [
        section(
            "answer",
            "The answer",
            answer,
            f'<div class="two"><div>{_differences(found)}</div><div>{_ledgers(good)}</div></div>',
        ),
        section("metrics", "Side by side", _metrics(good), _strips(good)),
        section("inputs", "What differs in the scenarios", _inputs(names, scenarios)),
        section("steps", "One step of each, on one time axis", _steps(names, scenarios)),
        section("method", "Method", _method(found), _full_names(names), _all_differences(found)),
    ]
    links = [
        ("answer", "Answer"),
        ("metrics", "Side by side"),
        ("inputs", "Inputs"),
        ("steps", "Steps"),
        ("method", "Method"),
    ]
    shown = [(name, what) for name, what in links if any(part.startswith(f'<section id="{name}"') for part in sections)]
    return page(
        " against ".join(cut(name, _NAME) for name in names),
        "Each run on the same failures (common random numbers)",
        sections,
        links=shown,
    )


def _differences(found: Comparison) -> str:
    """Relative paired differences of the headline metrics, a row a pair and metric."""
    rows = []
    for one in found.differences:
        if (
            one.metric not in ("goodput_tokens_per_s", "ettr", "lost_work_s", "interruptions", "wall_s")
            or one.relative is None
            or not one.mean
        ):
            continue
        base = one.mean / one.relative
        low, high = (100 * value / base for value in one.ci95) if one.ci95 else (None, None)
        half = f" ± {(high - low) / 2:.2g}" if low is not None and high is not None else ""
        colour = {"a": "var(--good)", "b": "var(--bad)"}.get(one.verdict, "var(--soft)")
        pair = "" if len(found.outcomes) == 2 else f"{cut(one.a, 12)} − {cut(one.b, 12)}: "
        rows.append(
            Estimate(
                pair + named(one.metric),
                100 * one.relative,
                low,
                high,
                f"{100 * one.relative:+.2f}{half} %",
                colour,
            )
        )
    if not rows:
        return ""
    first = found.differences[0]
    what = (
        f"{cut(first.a, 30)} minus {cut(first.b, 30)}, in % of the latter"
        if len(found.outcomes) == 2
        else "first minus second, in % of the second"
    )
    drawn = intervals("Differences with 95 % intervals", rows[:15], what)
    return figure(
        "Differences with their intervals",
        drawn,
        "Green: the first is better; red: the second; grey: the replicas do not decide. Paired replicas.",
    )


def _ledgers(outcomes: Sequence[Outcome]) -> str:
    """The ledgers as stacked bars on one axis; the axis leaves out training that all share."""
    shares = [_shares(outcome) for outcome in outcomes]
    if not shares:
        return ""
    low = max(0.0, math.floor(20 * (min(part.get("train", 0.0) for part in shares) - 0.05)) / 20)
    scale = Scale(low, 1.0, 150.0, WIDTH - 20)
    body, pitch = [], 30.0
    height = 8 + pitch * len(shares)
    body += [
        line(scale(tick), 4, scale(tick), height)
        + text(scale(tick), height + 14, f"{100 * tick:.4g} %", anchor="middle", style="soft", size=11)
        for tick in nice_ticks(low, 1.0, 5)
    ]
    for number_, (outcome, parts) in enumerate(zip(outcomes, shares, strict=True)):
        y, at = 8 + pitch * number_, 0.0
        body.append(text(142, y + 16, cut(outcome.label, 22), anchor="end"))
        for name, share in parts.items():
            hover = f"{outcome.label}: {name.replace('_', ' ')} {share:.3%} ({MEANING.get(name, '')})"
            body.append(box(scale(at), y, scale(at + share) - scale(at), 22, colour_of(name), hover))
            at += share
    told = "; ".join(
        f"{outcome.label}: train {parts.get('train', 0):.2%}" for outcome, parts in zip(outcomes, shares, strict=True)
    )
    every = dict.fromkeys(name for parts in shares for name in parts)
    groups: dict[str, list[str]] = {}
    for name in every:
        groups.setdefault(colour_of(name), []).append(name.replace("_", " "))
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{escape(", ".join(of))}</span>' for colour, of in groups.items()
    )
    note = f"The axis starts at {100 * low:.4g} %." if low else ""
    return figure(
        "Where every hour went",
        drawing("Ledgers", told, height + 22, "".join(body)) + f'<div class="legend">{legend}</div>',
        note,
    )


def _shares(outcome: Outcome) -> dict[str, float]:
    told = {
        name[9:]: item["mean"] for name, item in outcome.summaries().items() if name.startswith("ledger_s.") and item
    }
    whole = math.fsum(told.values()) or 1.0
    rest = sorted(
        ((name, value / whole) for name, value in told.items() if name != "train" and value > 0),
        key=lambda pair: -pair[1],
    )
    return {"train": told.get("train", 0.0) / whole, **dict(rest)}


def _metrics(outcomes: Sequence[Outcome]) -> str:
    told = [outcome.summaries() for outcome in outcomes]
    rows = [
        [named(metric), *(said(item.get(metric)) for item in told)]
        for metric, said in _SAID.items()
        if any(item.get(metric) for item in told)
    ]
    return (
        table(
            ["", *(cut(outcome.label, _NAME) for outcome in outcomes)],
            rows,
            "Means over replicas ± half a 95 % interval",
        )
        if outcomes
        else ""
    )


def _strips(outcomes: Sequence[Outcome]) -> str:
    """ETTR of every replica, one row a scenario, one axis: the same replica is the same bad days."""
    values = [[value for value in outcome.column("ettr") if value is not None] for outcome in outcomes]
    flat = [value for row in values for value in row]
    if not flat or max(flat) == min(flat):
        return ""
    pad = 0.05 * (max(flat) - min(flat))
    scale = Scale(min(flat) - pad, max(flat) + pad, 150.0, WIDTH - 20)
    pitch, body = 30.0, []
    height = 8 + pitch * len(values)
    body += [
        line(scale(tick), 4, scale(tick), height)
        + text(scale(tick), height + 14, f"{100 * tick:.4g} %", anchor="middle", style="soft", size=11)
        for tick in nice_ticks(min(flat), max(flat), 5)
    ]
    for number_, (outcome, row) in enumerate(zip(outcomes, values, strict=True)):
        y = 8 + pitch * (number_ + 0.5)
        body.append(text(142, y + 4, cut(outcome.label, 22), anchor="end"))
        body += [
            f'<circle cx="{scale(value):.1f}" cy="{y:.1f}" r="4" fill="var(--c-recover)" '
            f'fill-opacity=".55"><title>replica {r}: {value:.3%}</title></circle>'
            for r, value in enumerate(row[:400])
        ]
    told = "; ".join(
        f"{o.label}: {min(row):.2%} to {max(row):.2%}" for o, row in zip(outcomes, values, strict=True) if row
    )
    return (
        '<div class="narrow">'
        f"{figure('ETTR of each replica', drawing('ETTR of each replica', told, height + 22, ''.join(body)))}</div>"
        ""
    )


def _flat(value: Any, path: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        return {
            key: said
            for name, item in value.items()
            for key, said in _flat(item, f"{path}.{name}" if path else name).items()
        }
    if isinstance(value, list):
        return {
            key: said for number_, item in enumerate(value) for key, said in _flat(item, f"{path}.{number_}").items()
        }
    return {path: "null" if value is None else str(value)}


def _inputs(names: Sequence[str], scenarios: Sequence[Scenario], most: int = 200) -> str:
    """Keys of the resolved scenarios whose values differ."""
    if not scenarios:
        return ""
    flat = [_flat(scenario.data()) for scenario in scenarios]
    keys = [
        key for key in dict.fromkeys(key for data in flat for key in data) if len({data.get(key) for data in flat}) > 1
    ]
    rows = [[key, *(data.get(key, "–") for data in flat)] for key in keys if key not in ("name", "description")]
    if not rows:
        return "<p>Nothing: the resolved scenarios are equal.</p>"
    more = f"<p class='note'>{len(rows) - most} more keys differ.</p>" if len(rows) > most else ""
    return table(["key", *(cut(name, _NAME) for name in names)], rows[:most]) + more


def _steps(names: Sequence[str], scenarios: Sequence[Scenario]) -> str:
    from clustersim.errors import ClusterSimError
    from clustersim.pipeline.step import StepModel
    from clustersim.report.step_view import page_view
    from clustersim.report.timeline_html import timeline_part

    views = []
    for name, scenario in list(zip(names, scenarios, strict=False))[:_STEPS]:
        try:
            view = page_view(StepModel.of(scenario), title=cut(name, _NAME))
        except ClusterSimError:
            continue
        if view is not None:
            views.append(view)
    same = len({view.timeline.makespan for view in views}) == 1 and len({len(view.boxes.op) for view in views}) == 1
    if not views or sum(len(view.boxes.op) for view in views) > _BOXES:
        return ""
    if same:
        return "<p>All have the same step.</p>"
    return timeline_part(views)


def _method(found: Comparison) -> str:
    count = max((sum(r is not None for r in o.replicas) for o in found.outcomes), default=0)
    return (
        f"<p>{count} replicas each under seed {found.seed}. Replica r of every scenario sees the same "
        "failures, so differences are paired: their 95 % interval is "
        "Student's over the differences of replicas. A verdict needs an interval that excludes 0; "
        "with several pairs each has its own 5 % chance of a false one. “One every” is a mean over the replicas that "
        "were interrupted at all.</p>"
    )


def _full_names(names: Sequence[str]) -> str:
    if all(len(name) <= _NAME for name in names):
        return ""
    told = "".join(f"<p>{number}: {user(name)}</p>" for number, name in enumerate(names, start=1))
    return folded("Names in full", told)


def _all_differences(found: Comparison) -> str:
    rows = [
        [
            f"{cut(one.a, _NAME)} − {cut(one.b, _NAME)}",
            one.metric,
            f"{one.mean:+.5g}",
            f"{one.ci95[0]:+.5g} to {one.ci95[1]:+.5g}" if one.ci95 else "–",
            one.verdict,
        ]
        for one in found.differences
    ]
    return folded("All differences", table(("pair", "metric", "mean", "95 % interval", "better"), rows))


__all__ = ["comparison_page"]
