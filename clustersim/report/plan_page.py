"""The page of a plan: the best design, why its step is the shortest, tokens against memory, all designs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from clustersim.report.page import figure, folded, page, section, table
from clustersim.report.summary import short
from clustersim.report.svg import WIDTH, Scale, drawing, line, nice_ticks, text
from clustersim.report.sweep_page import rivals_table

if TYPE_CHECKING:
    from clustersim.study.planning import Plan


def plan_page(found: Plan, title: str = "Plan") -> str:
    """The page of a plan as HTML text."""
    shared, differ = found.shared()
    same = f"All have {', '.join(f'{key} {value}' for key, value in shared.items())}." if shared else ""
    sections = [
        section(
            "answer",
            "The answer",
            _answer(found),
            f'<div class="two"><div>{_pareto(found)}</div><div>{_why(found)}</div></div>',
        ),
        section("designs", "Designs, best first", f"<p>{escape(same)}</p>" if same else "", _designs(found, differ)),
        section("rivals", "Against the best", _rivals(found, differ)),
        section(
            "method",
            "Method",
            f"<p>{found.search.considered:,} layouts considered, {found.search.evaluated:,} timed, "
            f"{found.search.unfit:,} do not fit in memory.</p>",
            f"<p>Seed {found.seed}. All designs see the same failures; the better half gets twice the "
            "replicas, again and again.</p>",
        ),
    ]
    return page(
        title,
        f"{found.gpus:,} GPUs · {len(found.designs)} designs simulated",
        sections,
        links=[("answer", "Answer"), ("designs", "Designs"), ("rivals", "Rivals"), ("method", "Method")],
    )


def _answer(found: Plan) -> str:
    best = found.best
    alike = [rival.b for rival in found.rivals() if rival.verdict == "undecided"]
    told = best.row(found.gpus, found.prices)
    tail = (
        f"The replicas do not tell it from {len(alike)} of the finalists."
        if alike
        else "It is better than each other finalist."
    )
    return (
        f'<p class="answer">The best of {found.search.considered:,} layouts keeps <b>'
        f"{short(told['tokens_per_day'] or 0.0)} tokens a day</b>"
        f"{_between(told)}, ETTR {told['mean_ettr'] or 0.0:.2%}, {best.headroom_bytes / 2**30:.1f} "
        f"GiB to spare. {tail}</p><p>It is: {escape(best.outcome.label)}</p>"
    )


def _why(found: Plan) -> str:
    """Why the best step is the best; what is ruled out is folded away."""
    told = found.why()
    ruled_out = [said for said in told if ": ruled out (" in said]
    possible = [said for said in told if said not in ruled_out]
    folded_away = folded(f"{len(ruled_out)} changes that are ruled out", _list(ruled_out)) if ruled_out else ""
    return f"<h3>Why this step</h3>{_list(possible)}{folded_away}"


def _list(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(said)}</li>" for said in sentences) + "</ul>"


def _designs(found: Plan, differ: Sequence[str]) -> str:
    front = {id(design) for design in found.pareto()}
    priced = found.prices.per_hour(found.gpus) is not None
    rows = []
    for number, design in enumerate(found.designs, start=1):
        row = design.row(found.gpus, found.prices)
        cost = row.get("cost_per_billion_tokens")
        rows.append(
            [
                f"{number}{' *' if id(design) in front else ''}",
                *(design.choices.get(key, "–") for key in differ),
                f"{row['step_time_s']:.4g}",
                _share(row["mean_ettr"]),
                _billions(row["tokens_per_day"]),
                f"{design.headroom_bytes / 2**30:.1f}",
                str(design.spares),
                str(row["replicas"]),
                *([f"{cost:,.2f}" if cost else "–"] if priced else []),
            ]
        )
    head = ("design", *differ, "step [s]", "ETTR", "10⁹ tokens a day", "GiB to spare", "spares", "replicas",
            *(["cost of 10⁹ tokens"] if priced else []))  # fmt: skip
    return table(head, rows, "* none beats it in tokens, memory to spare and spares at once", best=0, breaks=True)


def _rivals(found: Plan, differ: Sequence[str]) -> str:
    """Each other finalist by its number and by what it does otherwise than the best."""
    best, said = found.best.choices, {}
    for number, design in enumerate(found.designs, start=1):
        other = [f"{key} {design.choices.get(key, '–')}" for key in differ if design.choices.get(key) != best.get(key)]
        said[design.outcome.label] = f"{number}: {', '.join(other)}" if other else str(number)
    return rivals_table(found.rivals(), said, "tokens a second")


def _billions(value: float | None) -> str:
    return "–" if value is None else f"{value / 1e9:,.2f}"


def _between(row: dict[str, Any]) -> str:
    low, high = row["ci95_low_goodput_tokens_per_s"], row["ci95_high_goodput_tokens_per_s"]
    return f" (95 % interval {short(low * 86400)} to {short(high * 86400)})" if low is not None else ""


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


def _numbers(places: Mapping[tuple[int, int], Sequence[int]]) -> list[str]:
    """Numbers of the designs at each place (in twelfths of a drawing's unit), above and below in turns."""
    drawn = []
    for turn, ((across, down), numbers) in enumerate(sorted(places.items())):
        said = ", ".join(map(str, sorted(numbers)[:5])) + (", …" if len(numbers) > 5 else "")
        y = 12.0 * down + (22 if turn % 2 else -10)
        anchor = "end" if 12 * across > WIDTH - 60 else "start" if 12 * across < 120 else "middle"
        drawn.append(text(12.0 * across, y, said, anchor=anchor, size=11))
    return drawn


def _pareto(found: Plan) -> str:
    """Tokens kept a day against memory to spare; the front as larger, joined dots."""
    usable = [design for design in found.designs if design.goodput > 0]
    xs = [design.headroom_bytes / 2**30 for design in usable]
    ys = [design.goodput * 86400 for design in usable]
    right = Scale(min(0.0, *xs), max(xs) * 1.05 or 1.0, 70.0, WIDTH - 16)
    pad = 0.08 * (max(ys) - min(ys) or max(ys))
    up = Scale(min(ys) - pad, max(ys) + pad, 230.0, 24.0)
    body = [
        line(70, up(tick), WIDTH - 16, up(tick))
        + text(64, up(tick) + 4, f"{tick / 1e9:.6g}", anchor="end", style="soft", size=11)
        for tick in nice_ticks(up.low, up.high, 5)
    ]
    body += [
        line(right(tick), 24, right(tick), 230)
        + text(right(tick), 246, f"{tick:g}", anchor="middle", style="soft", size=11)
        for tick in nice_ticks(right.low, right.high, 6)
    ]
    front = {id(design) for design in found.pareto()}
    places: dict[tuple[int, int], list[int]] = {}
    numbered = [(number, design) for number, design in enumerate(found.designs, start=1) if design.goodput > 0]
    for number, design in sorted(numbered, key=lambda pair: id(pair[1]) in front):  # the front lies on top
        x, y, chosen = design.headroom_bytes / 2**30, design.goodput * 86400, id(design) in front
        places.setdefault((round(right(x) / 12), round(up(y) / 12)), []).append(number)
        hover = f"<title>{escape(design.outcome.label)}: {short(y)} tokens a day, {x:.1f} GiB to spare</title>"
        colour = "var(--c-rework)" if chosen else "var(--c-recover)"
        body.append(
            f'<circle cx="{right(x):.1f}" cy="{up(y):.1f}" r="{6 if chosen else 4}" fill="{colour}">{hover}</circle>'
        )
    body += _numbers(places)
    body += [
        text(70, 14, "tokens kept a day [10⁹]", style="soft", size=11),
        text(WIDTH - 16, 262, "memory to spare on the fullest GPU [GiB]", anchor="end", style="soft", size=11),
    ]
    told = "; ".join(
        f"{design.outcome.label}: {short(y)} tokens a day" for design, y in zip(usable[:10], ys, strict=False)
    )
    return figure(
        "Tokens against memory to spare",
        drawing("Tokens kept a day against memory to spare", told, 268, "".join(body)),
        "Numbers are those of the table. Larger, orange: no other design beats it in tokens, memory and spares at once. "
        "Designs that were dropped early stand at the mean of fewer replicas.",
    )
