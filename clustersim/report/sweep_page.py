"""The page of a sweep: the best with its interval and its rivals, a figure, every point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from clustersim.report.curves import Curve, Panel, panels
from clustersim.report.metrics import named
from clustersim.report.page import figure, page, section, table, warnings
from clustersim.report.summary import percent, plain, quantity, short
from clustersim.report.svg import Estimate, intervals

if TYPE_CHECKING:
    from clustersim.study.statistics import Difference
    from clustersim.study.sweeping import Sweep

_BLUES = ((247, 252, 253), (8, 64, 129))
"""Ends of the heat map's scale: light to dark, one hue, readable without colour."""


def sweep_page(found: Sweep, metric: str = "goodput_tokens_per_s", title: str = "Sweep") -> str:
    """The page of a sweep as HTML text."""
    sections = [
        section(
            "answer",
            "The answer",
            _best(found, metric),
            _picture(found, metric),
            warnings(f"{o.label}: {o.error}" for o in found.outcomes if o.error),
        ),
        section("rivals", "Against the best", rivals_table(found.rivals(metric), unit=named(metric))),
        section("points", "Every point", _points(found, metric)),
        section(
            "method",
            "Method",
            f"<p>Seed {found.seed}: replica r of every point sees the same failures. Intervals are 95 "
            "% intervals of the mean (Student's t).</p>",
        ),
    ]
    about = f"{named(metric)} over {', '.join(found.paths)} · {len(found.outcomes)} points"
    return page(
        title,
        about,
        sections,
        links=[("answer", "Answer"), ("rivals", "Rivals"), ("points", "Points"), ("method", "Method")],
    )


def _best(found: Sweep, metric: str) -> str:
    best = found.best(metric)
    if best is None:
        return '<p class="answer">No point has a result.</p>'
    told = best.summaries()[metric]
    assert told is not None
    between = f" (95 % interval {plain(told['ci95'][0])} to {plain(told['ci95'][1])})" if told["ci95"] else ""
    rivals = found.rivals(metric)
    alike = [rival.b for rival in rivals if rival.verdict == "undecided"]
    tail = (
        f"The replicas do not tell it from {len(alike)} of the other {len(rivals)} points."
        if alike
        else "Every other point is worse, with 95 % confidence each."
        if rivals
        else ""
    )
    return (
        f'<p class="answer">Best: <b>{escape(best.label)}</b>, {escape(named(metric))} '
        f"{plain(told['mean'])}{between}. {tail}</p>"
    )


def _picture(found: Sweep, metric: str) -> str:
    rows = [row for row in found.rows() if row.get(f"mean_{metric}") is not None]
    if not rows:
        return ""
    if len(found.paths) == 2 and len(rows) > 2:
        return figure(
            f"Mean {named(metric)}",
            _heat(found.paths, rows, metric),
            "Darker is higher; the second line of a cell is half the 95 % interval of its mean.",
        )
    numbers = [_number(row[found.paths[0]]) for row in rows] if len(found.paths) == 1 else [None]
    if None in numbers or len(rows) < 2:
        shown = [
            Estimate(
                ", ".join(str(row[path]) for path in found.paths),
                row[f"mean_{metric}"],
                row[f"ci95_low_{metric}"],
                row[f"ci95_high_{metric}"],
                f"{row[f'mean_{metric}']:,.5g}",
            )
            for row in rows
        ]
        return f'<div class="narrow">{figure(f"Mean {named(metric)}", _dots(shown, metric))}</div>'
    title = f"Mean {named(metric)} and its 95 % interval"
    return f'<div class="narrow">{figure(title, _curve(found.paths[0], rows, metric))}</div>'


def _number(value: Any) -> float | None:
    from clustersim.report.sweep_figure import _as_number

    return _as_number(value)


def _curve(path: str, rows: Sequence[dict[str, Any]], metric: str) -> str:
    """Mean and band over one axis, logarithmic where the values span more than a factor 8."""
    ordered = sorted(rows, key=lambda row: _number(row[path]) or 0.0)
    xs = [_number(row[path]) or 0.0 for row in ordered]
    means = [row[f"mean_{metric}"] for row in ordered]
    low = [
        row[f"ci95_low_{metric}"] if row[f"ci95_low_{metric}"] is not None else mean
        for row, mean in zip(ordered, means, strict=True)
    ]
    high = [
        row[f"ci95_high_{metric}"] if row[f"ci95_high_{metric}"] is not None else mean
        for row, mean in zip(ordered, means, strict=True)
    ]
    log = xs[0] > 0 and xs[-1] / xs[0] > 8
    pad = 0.06 * (max(high) - min(low) or abs(means[0]) or 1.0)
    points = list(zip(xs, means, strict=True))
    curve = Curve(points, "c2", "mean", (list(zip(xs, low, strict=True)), list(zip(xs, high, strict=True))))
    panel = Panel(
        named(metric),
        [curve],
        min(low) - pad,
        max(high) + pad,
        lambda v: short(v) if abs(v) >= 1000 else f"{v:.4g}",
        220.0,
    )
    every = max(1, len(xs) // 9)
    ticks = [(x, str(row[path])) for x, row in list(zip(xs, ordered, strict=True))[::every]]
    told = "; ".join(f"{row[path]}: {mean:,.5g}" for row, mean in zip(ordered, means, strict=True))
    return panels(f"{metric} over {path}", told, [panel], (xs[0], xs[-1]), path, ticks, log)


def _dots(rows: Sequence[Estimate], metric: str) -> str:
    """Points without a scale: differences to the best mean, with the intervals of the means."""
    top = max(row.mean for row in rows)
    shifted = [
        Estimate(
            row.label,
            row.mean - top,
            None if row.low is None else row.low - top,
            None if row.high is None else row.high - top,
            row.said,
            "var(--c-recover)",
        )
        for row in rows
    ]
    return intervals(f"{named(metric)} below the best", shifted[:60], f"{named(metric)}, less that of the best")


def _heat(paths: Sequence[str], rows: Sequence[dict[str, Any]], metric: str) -> str:
    """A table with coloured cells: readable by eye, by keyboard and by a screen reader."""
    across, down = paths
    columns = list(dict.fromkeys(str(row[across]) for row in rows))
    lines = list(dict.fromkeys(str(row[down]) for row in rows))
    cells = {(str(row[down]), str(row[across])): row for row in rows}
    means = [row[f"mean_{metric}"] for row in rows]
    low, high = min(means), max(means)
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        f"{''.join(_cell(cells.get((name, column)), metric, low, high) for column in columns)}</tr>"
        for name in lines
    )
    caption = f"<caption>{escape(down)} (down) × {escape(across)} (across)</caption>"
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="heat map"><table class="heat">'
        f"{caption}<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(row: dict[str, Any] | None, metric: str, low: float, high: float) -> str:
    if row is None:
        return "<td>–</td>"
    mean = row[f"mean_{metric}"]
    share = (mean - low) / (high - low) if high > low else 0.5
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(*_BLUES, strict=True))
    ink = "#ffffff" if share > 0.45 else "#000000"
    half = row[f"ci95_high_{metric}"]
    more = f"<br><small>± {_rounded(half - mean)}</small>" if half is not None else ""
    said = short(mean) if abs(mean) >= 1000 else f"{mean:.4g}"
    return f'<td class="heat" style="background:rgb({red},{green},{blue});color:{ink}">{said}{more}</td>'


def _rounded(value: float) -> str:
    """Two figures: ``54 k``, ``110``, ``0.0031``."""
    rounded = float(f"{value:.2g}")
    return short(rounded) if abs(value) >= 1000 else f"{rounded:g}"


def rivals_table(rivals: Sequence[Difference], said: Mapping[str, str] | None = None, unit: str = "") -> str:
    """Paired differences of the best against each other.

    Args:
        rivals: the differences.
        said: what each other is called; None: its label.
        unit: of the differences, for the heading.
    """
    if not rivals:
        return ""
    known = said or {}
    rows = [
        [
            known.get(one.b, one.b),
            _signed(one.mean),
            f"{_signed(one.ci95[0])} to {_signed(one.ci95[1])}" if one.ci95 else "–",
            "–" if one.relative is None else f"{one.relative:+.3%}",
            {"a": "worse", "b": "better"}.get(one.verdict, "undecided"),
        ]
        for one in rivals
    ]
    return table(
        (
            "the best against",
            f"difference [{unit}]" if unit else "difference",
            "95 % interval",
            "relative",
            "the other is",
        ),
        rows,
        "Paired differences, best minus other",
    )


def _signed(value: float) -> str:
    """Four figures with a sign: ``+1,235``, ``+23.76``."""
    return f"{value:+,.0f}" if abs(value) >= 1e3 else f"{value:+.4g}"


def _points(found: Sweep, metric: str) -> str:
    others = [] if metric == "ettr" else ["ettr"]
    wrong = any(outcome.error for outcome in found.outcomes)
    head = [*found.paths, "replicas", named(metric), *(named(name) for name in others), *(["error"] if wrong else [])]
    rows = []
    for outcome in found.outcomes:
        told = outcome.summaries()
        rows.append(
            [
                *(str(outcome.point.get(path)) for path in found.paths),
                str(sum(r is not None for r in outcome.replicas)),
                _told(metric, told.get(metric)),
                *(_told(name, told.get(name)) for name in others),
                *([outcome.error or ""] if wrong else []),
            ]
        )
    best = found.best(metric)
    return table(head, rows, best=found.outcomes.index(best) if best is not None else None)


def _told(metric: str, item: Any) -> str:
    return percent(item) if metric in ("ettr", "effective_mfu") else quantity(item)
