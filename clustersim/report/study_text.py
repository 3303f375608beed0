"""Studies as text for a terminal, at most 80 columns where the labels allow it."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clustersim.shown import cut, printable

if TYPE_CHECKING:
    from clustersim.study.comparison import Comparison
    from clustersim.study.importance import Importance, Spread
    from clustersim.study.optimal import Optimum
    from clustersim.study.planning import Plan
    from clustersim.study.sweeping import Sweep

_COLUMNS = (("ettr", "ETTR", 4), ("goodput_tokens_per_s", "tokens/s", 4), ("interruptions", "interr.", 4),
            ("lost_work_s", "lost h", 4))  # fmt: skip


def _number(value: float | None, digits: int = 4, scale: float = 1.0) -> str:
    if value is None:
        return "-"
    shown = value / scale
    return f"{shown:,.0f}" if abs(shown) >= 10**digits else f"{shown:.{digits}g}"


def _mean(told: dict[str, Any] | None, metric: str) -> str:
    if told is None:
        return "-"
    scale = 3600.0 if metric == "lost_work_s" else 1.0
    text = _number(told["mean"], 4, scale)
    if told["ci95"]:
        text += f" ±{_number((told['ci95'][1] - told['ci95'][0]) / 2, 2, scale)}"
    return text


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table: the first column left, the others right."""
    widths = [max(len(row[k]) for row in (header, *rows)) for k in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _shown(label: str, width: int = 34) -> str:
    return cut(printable(label), width)


def _width(labels: Sequence[str]) -> int:
    """How much of each label to show: so much that no two look alike."""
    return next((width for width in (34, 60, 90) if len({_shown(label, width) for label in labels}) == len(set(labels))), 200)


def _lines(outcomes: Sequence[Any]) -> list[list[str]]:
    rows, width = [], _width([outcome.label for outcome in outcomes])
    for outcome in outcomes:
        if outcome.error is not None and not any(outcome.replicas):
            rows.append([_shown(outcome.label, width), *(["-"] * len(_COLUMNS))])
            continue
        told = outcome.summaries()
        rows.append([_shown(outcome.label, width), *(_mean(told.get(metric), metric) for metric, _, _ in _COLUMNS)])
    return rows


def _errors(outcomes: Sequence[Any]) -> list[str]:
    return [f"! {_shown(outcome.label, 60)}: {outcome.error}" for outcome in outcomes if outcome.error is not None]


def comparison_text(found: Comparison) -> str:
    """The table of scenarios and a sentence for each pair."""
    header = ["scenario", *(title for _, title, _ in _COLUMNS)]
    count = max((sum(r is not None for r in outcome.replicas) for outcome in found.outcomes), default=0)
    told = found.sentences() if count != 1 else ["One replica each does not tell design from luck: give --replicas 2 or more."]
    told = [textwrap.fill(sentence, 80, subsequent_indent="  ", break_long_words=False) for sentence in told]
    parts = [table(header, _lines(found.outcomes)), *_errors(found.outcomes), "", *told, "",
             f"{count} replica{'s' * (count != 1)} each under seed {found.seed}, the same failures for all;\n"
             "± is half a 95 % interval"]  # fmt: skip
    return "\n".join(parts)


def sweep_text(found: Sweep, metric: str) -> str:
    """The table of points, the best with its interval, and the rivals that the data cannot tell from it."""
    header = ["point", *(title for _, title, _ in _COLUMNS)]
    parts = [table(header, _lines(found.outcomes)), *_errors(found.outcomes), ""]
    best = found.best(metric)
    if best is None:
        parts.append(f"No point has a {metric}.")
    else:
        told = best.summaries()[metric]
        assert told is not None
        parts.append(f"Best {metric}: {_shown(best.label, 200)} ({_mean(told, metric)}).")
        alike = [rival.b for rival in found.rivals(metric) if rival.verdict == "undecided"]
        if alike:
            width = _width([outcome.label for outcome in found.outcomes])
            parts.append(f"The data do not tell it from: {'; '.join(_shown(label, width) for label in alike[:6])}"
                         f"{' …' if len(alike) > 6 else ''}.")  # fmt: skip
        elif len(found.outcomes) > 1:
            parts.append("Each other point is worse, with 95 % confidence each.")
    if not found.complete:
        parts.append("Only a shard was run; `clustersim results DIR` puts all shards together.")
    return "\n".join(parts)


def optimum_text(found: Optimum) -> str:
    """Where the optimum lies, how sure that is, how flat it is, and what the closed forms say."""
    from clustersim.study.axes import _quantity

    dimension = None
    with contextlib.suppress(ValueError):
        dimension, _ = _quantity(found.shown)

    def show(value: float) -> str:
        rounded = float(f"{value:.3g}")
        return dimension.format(rounded) if dimension is not None else f"{rounded:g}"

    lines = [f"Best {found.path}: {show(found.value)} (95 % interval {show(found.ci95[0])} to {show(found.ci95[1])}).",
             f"Within 0.1 % of it: {show(found.flat[0])} to {show(found.flat[1])}."]  # fmt: skip
    if found.at_edge:
        lines.append("The best lies at the edge of the range: widen it.")
    lines += [f"{name}: {show(value)}." for name, value in found.references.items()]
    return "\n".join(lines)


def spread_text(found: Spread) -> str:
    """How much of a metric's spread is luck, and how much comes from not knowing the inputs."""
    low, high = found.interval90
    more = "measure the inputs better" if found.sd_inputs > found.sd_luck else "luck rules: no measurement narrows it"
    return (f"{found.metric}: {_number(found.mean, 6)}; 90 % of the inputs give {_number(low, 6)} to {_number(high, 6)}.\n"
            f"Spread from the inputs: {_number(found.sd_inputs, 3)}; from luck: {_number(found.sd_luck, 3)} ({more}).\n"
            f"{found.draws} scenarios drawn, {found.replicas} replicas each.")  # fmt: skip


def importance_text(found: Importance) -> str:
    """The inputs, the most important first."""
    titles = ("share alone", "with others") if found.method == "sobol" else ("mean |effect|", "sd of effect")
    rows = [
        [_shown(item["path"]), _number(item["first"], 3), _number(item["total"], 3)]
        for item in found.to_dict()["inputs"]
    ]
    return (
        table([f"input of {found.metric}", *titles], rows) + f"\n{found.evaluations} scenarios, method {found.method}."
    )


def plan_text(found: Plan, most: int = 10) -> str:
    """The designs, best first, whether the best is really better, and why its step is the shortest."""
    shared, differ = found.shared()
    front = {id(design) for design in found.pareto()}
    priced = found.prices.per_hour(found.gpus) is not None
    header = ["design", *(key.rsplit(".", 1)[-1] for key in differ), "step s", "ETTR", "tokens/day", "free GiB", "n",
              *(["cost/10⁹"] if priced else [])]  # fmt: skip
    rows = []
    for number, design in enumerate(found.designs[:most], start=1):
        row = design.row(found.gpus, found.prices)
        per_day, cost = row["tokens_per_day"], row.get("cost_per_billion_tokens")
        rows.append([f"{number}{'*' if id(design) in front else ''}",
                     *(_shown(design.choices.get(key, "-"), 18) for key in differ), _number(design.candidate.seconds),
                     _number(row["mean_ettr"]), f"{per_day / 1e9:,.2f} G" if per_day else "-",
                     f"{design.headroom_bytes / 2**30:.1f}", str(row["replicas"]),
                     *([f"{cost:,.2f}" if cost else "-"] if priced else [])])  # fmt: skip
    seen = found.search
    told = f"{seen.considered:,} layouts considered, {seen.evaluated:,} timed, {seen.unfit:,} do not fit."
    alike = [rival.b for rival in found.rivals() if rival.verdict == "undecided"]
    verdict = (
        f"The data do not tell 1 from {len(alike)} of the finalists."
        if alike
        else "1 is better than each other finalist."
    )
    marked = ["* none beats it in tokens, free memory and spares at once; n: replicas (a design dropped early has seen",
              "  fewer bad days, and its ETTR and tokens are not to be held against the finalists')."]  # fmt: skip
    same = [f"All: {', '.join(f'{key} {_shown(value, 80)}' for key, value in shared.items())}.", ""] if shared else []
    return "\n".join([*same, table(header, rows), *marked, "", told, verdict, "", *found.why()[:8]])
