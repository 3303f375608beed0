"""The page of a plan: the best design, why its step is the shortest, tokens against memory, all designs."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from clustersim.report.page import figure, page, section, table
from clustersim.report.summary import short
from clustersim.report.svg import WIDTH, Scale, drawing, line, nice_ticks, text
from clustersim.report.sweep_page import rivals_table

if TYPE_CHECKING:
    from clustersim.study.planning import Plan


def plan_page(found: Plan, title: str = "Plan") -> str:
    """The page of a plan as HTML text."""
    best = found.best
    alike = [rival.b for rival in found.rivals() if rival.verdict == "undecided"]
    told = best.row(found.gpus, found.prices)
    tail = (
        f"The replicas do not tell it from {len(alike)} of the finalists."
        if alike
        else "It is better than each other finalist."
    )
    answer = (
        f'<p class="answer">The best of {found.search.considered:,} layouts keeps <b>'
        f"{short(told['tokens_per_day'] or 0.0)} tokens a day</b>"
        f"{_between(told)}, ETTR {told['mean_ettr'] or 0.0:.2%}, {best.headroom_bytes / 2**30:.1f} "
        f"GiB to spare. {tail}</p><p>It is: {escape(best.outcome.label)}</p>"
    )
    front = {id(design) for design in found.pareto()}
    rows = []
    for number, design in enumerate(found.designs, start=1):
        row = design.row(found.gpus, found.prices)
        cost = row.get("cost_per_billion_tokens")
        rows.append(
            [
                f"{number}{' *' if id(design) in front else ''}: {design.outcome.label}",
                f"{row['step_time_s']:.4g} s",
                _share(row["mean_ettr"]),
                short(row["tokens_per_day"] or 0.0),
                f"{design.headroom_bytes / 2**30:.1f} GiB",
                str(design.spares),
                str(row["replicas"]),
                f"{cost:,.2f}" if cost else "–",
            ]
        )
    head = ("design", "step", "ETTR", "tokens a day", "to spare", "spares", "replicas", "cost a 10⁹ tokens")
    why = "<ul>" + "".join(f"<li>{escape(said)}</li>" for said in found.why()) + "</ul>"
    counts = (
        f"<p>{found.search.considered:,} layouts considered, {found.search.evaluated:,} timed, "
        f"{found.search.unfit:,} do not fit in memory.</p>"
    )
    sections = [
        section(
            "answer",
            "The answer",
            answer,
            f'<div class="two"><div>{_pareto(found)}</div><div><h3>Why this step</h3>{why}</div></div>',
        ),
        section(
            "designs",
            "Designs, best first",
            table(head, rows, "* none beats it in tokens, memory to spare and spares at once", best=0),
        ),
        section("rivals", "Against the best", rivals_table(found.rivals())),
        section(
            "method",
            "Method",
            counts,
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


def _between(row: dict[str, Any]) -> str:
    low, high = row["ci95_low_goodput_tokens_per_s"], row["ci95_high_goodput_tokens_per_s"]
    return f" (95 % interval {short(low * 86400)} to {short(high * 86400)})" if low is not None else ""


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


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
    for design, x, y in zip(usable, xs, ys, strict=True):
        chosen = id(design) in front
        hover = f"<title>{escape(design.outcome.label)}: {short(y)} tokens a day, {x:.1f} GiB to spare</title>"
        colour = "var(--c-rework)" if chosen else "var(--c-recover)"
        body.append(
            f'<circle cx="{right(x):.1f}" cy="{up(y):.1f}" r="{6 if chosen else 4}" fill="{colour}">{hover}</circle>'
        )
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
        "Larger, orange: no other design beats it in tokens, memory and spares at once. "
        "Designs that were dropped early stand at the mean of fewer replicas.",
    )
