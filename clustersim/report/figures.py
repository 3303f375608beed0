"""Figures for papers and notebooks: each function draws on matplotlib ``Axes`` and returns them.

Colours are Okabe and Ito's, which colour-blind readers tell apart; lines differ in style too. Give ``axes`` to place a
figure among others; without, one of its own is made that belongs to no window: ``axes.figure.savefig("it.pdf")``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clustersim.report.story import Row, rows_of
from clustersim.report.summary import duration
from clustersim.shown import drawable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from clustersim.pipeline.replay import Timeline
    from clustersim.pipeline.step_report import StepReport
    from clustersim.report.scene import View
    from clustersim.run.result import RunResult
    from clustersim.scenario.schema import Scenario
    from clustersim.study.planning import Plan
    from clustersim.study.sweeping import Sweep

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000",
)  # fmt: skip
"""Okabe and Ito 2008."""
GREY = "#8a929c"
GIB = 2.0**30
_LEDGER = {"train": GREEN, "rework": RED, "checkpoint_stall": ORANGE, "checkpoint_slowdown": YELLOW,
           "straggle": PURPLE, "degraded": PURPLE,
           "detect": BLACK, "load": SKY, "warm_up": SKY, "wait_for_nodes": PURPLE}  # fmt: skip


def plain_axes(axes: Axes | None = None, size: tuple[float, float] = (5.6, 3.4)) -> Axes:
    """``axes``, or new ones with a light grid and no box around them."""
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=size, layout="constrained").add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    return axes


def waterfall(ledger_s: Mapping[str, Any], axes: Axes | None = None) -> Axes:
    """Where every hour went: from all time down to what is kept.

    Args:
        ledger_s: seconds by category, plain (``RunResult.ledger_s``) or summaries with a ``mean`` (a report's
        ``run["ledger_s"]``).
    """
    seconds = {
        name: float(item["mean"] if isinstance(item, Mapping) else item) for name, item in ledger_s.items() if item
    }
    whole = math.fsum(seconds.values()) or 1.0
    lost = sorted(
        ((name, value / whole) for name, value in seconds.items() if name != "train" and value > 0),
        key=lambda pair: -pair[1],
    )
    axes = plain_axes(axes, (5.6, 0.26 * (len(lost) + 2) + 0.8))
    at, labels = 1.0, []
    for number, (name, share) in enumerate(lost):
        axes.barh(number, share, left=at - share, color=_LEDGER.get(name, BLUE), height=0.72)
        axes.text(1.005, number, f"{share:.2%}", va="center", fontsize=8, transform=axes.get_yaxis_transform())
        labels.append(drawable(name.replace("_", " "), 40))
        at -= share
    axes.barh(len(lost), at, color=GREEN, height=0.72)
    axes.text(1.005, len(lost), f"{at:.2%}", va="center", fontsize=8, transform=axes.get_yaxis_transform())
    axes.set_yticks(range(len(lost) + 1), [*labels, "train (kept)"], fontsize=8)
    axes.invert_yaxis()
    low = 0.0 if at < 0.5 else min(0.95, math.floor(20 * (1 - 1.6 * (1 - at))) / 20)
    axes.set_xlim(low, 1.0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_xlabel("share of the wall time" + (f" (axis starts at {100 * low:g} %)" if low else ""), fontsize=9)
    axes.grid(axis="y", visible=False)
    return axes


def sync_ettr(interval_s: float, stall_s: float, mtbf_s: float, restart_s: float) -> float:
    """ETTR of synchronous saves where exponential failures may strike at any time, also while coming back (Daly 2006):
    τ ÷ (M e^{R/M} (e^{(τ+d)/M} − 1))."""
    return interval_s / (mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1((interval_s + stall_s) / mtbf_s))


def async_ettr(interval_s: float, stall_s: float, persist_s: float, mtbf_s: float, restart_s: float) -> float:
    """ETTR of asynchronous saves, durable a time P after their stall s: τ e^{−(τ+s+P)/M} ÷ ((1 − "
    "e^{−(τ+s)/M}) (M + R)), for τ ≥ P."""
    period = (interval_s + stall_s) / mtbf_s
    return interval_s * math.exp(-period - persist_s / mtbf_s) / (-math.expm1(-period) * (mtbf_s + restart_s))


def ettr_by_interval(found: Sweep, scenario: Scenario, axes: Axes | None = None) -> Axes:
    """ETTR against the checkpoint interval: simulated means with 95 % intervals, and the closed forms beside them.

    Args:
        found: a sweep over ``checkpoint.interval``.
        scenario: what was swept; gives stall, time until durable, mean time between interruptions and to come back.
    """
    from clustersim.report.sweep_figure import _as_number
    from clustersim.study.replicas import prepared_for

    axes = plain_axes(axes)
    prepared = prepared_for(scenario)
    told = [
        (_as_number(outcome.point["checkpoint.interval"]), outcome.summaries().get("ettr"))
        for outcome in found.outcomes
    ]
    known = sorted((at, item) for at, item in told if at is not None and item is not None)
    xs, means = [at for at, _ in known], [item["mean"] for _, item in known]
    halves = [0.0 if item["ci95"] is None else (item["ci95"][1] - item["ci95"][0]) / 2 for _, item in known]
    axes.errorbar(
        xs, means, yerr=halves, fmt="o", color=BLUE, ms=4, capsize=2, label="simulated, 95 % interval", zorder=4
    )
    if prepared.save is not None and math.isfinite(prepared.mtbf_s):
        stall, persist, mtbf = prepared.save.stall_s, prepared.save.busy_s, prepared.mtbf_s
        back = mean_restart_s(scenario)
        fine = [xs[0] * (xs[-1] / xs[0]) ** (k / 120) for k in range(121)]
        if persist > 0:
            axes.plot(
                fine,
                [async_ettr(x, stall, persist, mtbf, back) if x >= persist else math.nan for x in fine],
                "-",
                color=RED,
                lw=1.2,
                label="closed form, asynchronous saves",
            )
        axes.plot(
            fine,
            [sync_ettr(x, stall, mtbf, back) for x in fine],
            "--",
            color=BLACK,
            lw=1.0,
            label="closed form (Daly 2006), stall only",
        )
        from clustersim.checkpoint import optimum

        best: dict[str, list[str]] = {}
        for name, formula in (("Young", optimum.young), ("Daly", optimum.daly), ("exact", optimum.exact)):
            best.setdefault(f"{formula(stall, mtbf):.3g}", []).append(name)
        for (text, names), style in zip(best.items(), (":", "-.", "--"), strict=False):
            if xs[0] <= float(text) <= xs[-1]:
                label = f"best ({', '.join(names)}): {duration(float(text))}"
                axes.axvline(float(text), color=GREY, lw=1, ls=style, label=label)
    axes.set_xscale("log")
    axes.set_xticks(xs, [duration(x) for x in xs])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("training time between saves", fontsize=9)
    axes.set_ylabel("ETTR", fontsize=9)
    axes.legend(frameon=False, fontsize=7.5)
    return axes


def mean_restart_s(scenario: Scenario) -> float:
    """Mean time from a failure to training again where spares suffice: detection (weighted by rate) and the stages."""
    from clustersim.study.replicas import prepared_for

    prepared = prepared_for(scenario)
    site = prepared.job_site()
    rates = [(cause.rate(site), cause.detection.mean_s()) for cause in prepared.causes]
    whole = math.fsum(rate for rate, _ in rates)
    detection = math.fsum(rate * seconds for rate, seconds in rates) / whole if whole else 0.0
    return detection + scenario.recovery.graph.mean_s(prepared.load_s)


def gantt_axes(timelines: Timeline | View | Sequence[Timeline | View], **options: Any) -> Axes:
    """The Gantt chart of a schedule or of several, stacked; the first of its axes (``axes.figure`` holds all).

    Options are those of ``clustersim.report.gantt.gantt``.
    """
    from clustersim.report.gantt import gantt

    return gantt(timelines, **options).axes[0]


def memory_by_stage(report: StepReport, axes: Axes | None = None) -> Axes:
    """Peak memory of each pipeline rank, stacked by part, against the limit."""
    stages, limit = report.memory["stages"], report.memory["limit_bytes"]
    axes = plain_axes(axes)
    names = [name for name in stages[0] if name != "total" and any(stage[name] > 0 for stage in stages)]
    base = [0.0] * len(stages)
    for name, colour in zip(names, (GREEN, BLUE, BLACK, ORANGE, PURPLE, SKY, GREY, YELLOW), strict=False):
        sizes = [stage[name] / GIB for stage in stages]
        axes.bar(range(len(stages)), sizes, bottom=base, color=colour, label=name, width=0.8)
        base = [low + size for low, size in zip(base, sizes, strict=True)]
    axes.axhline(limit / GIB, color=RED, ls="--", lw=1.2, label="limit")
    axes.set_xlabel("pipeline rank", fontsize=9)
    axes.set_ylabel("memory of a GPU [GiB]", fontsize=9)
    axes.legend(frameon=False, fontsize=7.5, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return axes


def failures_timeline(result: RunResult, axes: Axes | None = None, most: int = 12) -> Axes:
    """When each cause struck in one replica, a row a cause, the most frequent first."""
    hits: dict[str, list[float]] = {}
    for row in _rows(result):
        if row.event == "failure":
            hits.setdefault(row.subject, []).append(row.time_s / 86400)
    order = sorted(hits, key=lambda name: (-len(hits[name]), name))
    shown = order[:most]
    rest = [at for name in order[most:] for at in hits[name]]
    lines = [(name, hits[name]) for name in shown] + ([(f"{len(order) - most} others", sorted(rest))] if rest else [])
    axes = plain_axes(axes, (6.4, 0.24 * max(len(lines), 2) + 0.9))
    for number, (_, times) in enumerate(lines):
        axes.vlines(times, number - 0.38, number + 0.38, color=RED, lw=0.7)
    axes.set_yticks(range(len(lines)), [f"{drawable(name, 40)} ({len(times)})" for name, times in lines], fontsize=8)
    axes.set_xlim(0, result.wall_s / 86400)
    axes.invert_yaxis()
    axes.set_xlabel("days", fontsize=9)
    axes.grid(axis="y", visible=False)
    return axes


def spares_coverage(
    results: RunResult | Sequence[RunResult], spares: int | None = None, axes: Axes | None = None
) -> Axes:
    """Share of the time in which so many spares cover all nodes that are down, against the number of spares.

    Args:
        results: one replica or several (their time is pooled).
        spares: a number to mark.
    """
    pooled: dict[int, float] = {}
    for result in [results] if not isinstance(results, Sequence) else results:
        for nodes, seconds in result.down_s.items():
            pooled[nodes] = pooled.get(nodes, 0.0) + seconds
    whole = math.fsum(pooled.values()) or 1.0
    most = max([*pooled, spares or 0, 1])
    covered, run = [], 0.0
    for nodes in range(most + 1):
        run += pooled.get(nodes, 0.0) / whole
        covered.append(min(run, 1.0))
    axes = plain_axes(axes)
    axes.step(range(most + 1), covered, where="mid", color=BLUE, lw=1.6)
    for share in (0.9, 0.99):
        enough = next((n for n, value in enumerate(covered) if value >= share), most)
        axes.plot([enough], [covered[enough]], "D", color=ORANGE, ms=5)
        axes.annotate(
            f"{enough} for {share:.0%}",
            (enough, covered[enough]),
            xytext=(6, -12),
            textcoords="offset points",
            fontsize=8,
        )
    if spares is not None:
        axes.axvline(spares, color=RED, ls="--", lw=1.2, label=f"{spares} spares: {covered[spares]:.2%}")
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_xlabel("spare nodes", fontsize=9)
    axes.set_ylabel("time in which they suffice", fontsize=9)
    return axes


def sweep_heat_map(found: Sweep, metric: str = "goodput_tokens_per_s", axes: Axes | None = None) -> Axes:
    """A sweep over one path (a curve with its band) or two (a heat map with the interval in each cell)."""
    from clustersim.report.sweep_figure import sweep_axes

    return sweep_axes(found, metric, axes)


def predicted_against_measured(
    pairs: Sequence[tuple[float, float]], unit: str = "", axes: Axes | None = None, band: float = 0.1
) -> Axes:
    """Predictions against measurements with the line of equality and a band of ± ``band``.

    Args:
        pairs: (measured, predicted), both positive.
        unit: of both, for the labels.
    """
    axes = plain_axes(axes, (4.2, 4.0))
    low = min(min(pair) for pair in pairs) / 1.15
    high = max(max(pair) for pair in pairs) * 1.15
    axes.fill_between(
        [low, high],
        [low * (1 - band), high * (1 - band)],
        [low * (1 + band), high * (1 + band)],
        color=GREY,
        alpha=0.25,
        lw=0,
        label=f"± {band:.0%}",
    )
    axes.plot([low, high], [low, high], color=BLACK, lw=1)
    axes.plot([m for m, _ in pairs], [p for _, p in pairs], "o", color=BLUE, ms=4, alpha=0.75)
    errors = sorted(abs(predicted / measured - 1) for measured, predicted in pairs)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set_xlabel(f"measured {unit}".strip(), fontsize=9)
    axes.set_ylabel(f"predicted {unit}".strip(), fontsize=9)
    axes.set_title(f"{len(pairs)} pairs, median error {errors[len(errors) // 2]:.1%}", fontsize=9, loc="left")
    axes.legend(frameon=False, fontsize=8)
    return axes


def pareto(found: Plan, axes: Axes | None = None) -> Axes:
    """Designs of a plan: tokens kept a day against memory to spare; those that none beats are joined."""
    from clustersim.report.plan_figure import plan_axes

    return plan_axes(found, axes)


def _rows(result: RunResult) -> list[Row]:
    return list(rows_of(result.events))
