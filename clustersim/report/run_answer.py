"""The first screen of a run's page: the answer, where every hour went, progress over time, what to change first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from clustersim.report.course import Course, colour_of
from clustersim.report.curves import Curve, Panel, panels
from clustersim.report.page import facts, figure, section, table
from clustersim.report.summary import (
    Answer,
    between_s,
    costs_of,
    duration,
    mean,
    number,
    percent,
    quantity,
    short,
    span,
)
from clustersim.report.svg import Bar, Estimate, intervals, waterfall

if TYPE_CHECKING:
    from clustersim.report.story import Story
    from clustersim.study.sensitivity import Gain

Json = dict[str, Any]
MEANING = {
    "train": "training that is kept",
    "rework": "work done again after a rollback",
    "checkpoint_stall": "training stands still for saves",
    "checkpoint_slowdown": "steps slowed by saves in flight",
    "straggle": "slow nodes hold up the others",
    "degraded": "training with fewer replicas",
    "detect": "from a failure until it is noticed",
    "diagnose": "finding what failed",
    "reschedule": "placing the job anew",
    "wait_for_nodes": "no spare: waiting for a repaired node",
    "start": "starting processes",
    "communicators": "setting up communicators",
    "load": "reading the checkpoint",
    "warm_up": "first steps after a start",
    "migrate": "moving state between nodes",
    "other": "unfinished steps and stages without a category of their own",
}


def answer_section(answer: Answer, story: Story | None, course: Course | None, gains: Sequence[Gain] | str) -> str:
    """The first screen."""
    run = answer.document["run"]
    left = figure(
        "Where every hour went",
        waterfall_of(run),
        "Shares of the wall time, means over replicas; hover for hours. The ledger's categories exclude each other.",
    )
    right = progress(answer, story, course) if story is not None and course is not None else ""
    return section(
        "answer",
        "The answer",
        f'<p class="answer">{sentence(answer)}</p>',
        facts(headline(answer)),
        f'<div class="two"><div>{left}</div><div>{right}</div></div>',
        change_first(gains),
    )


def sentence(answer: Answer) -> str:
    """The answer with its interval, as HTML."""
    scenario, document = answer.scenario, answer.document
    run, replicas = document["run"], document["replicas"]
    if document["given_up"]:
        return (
            f"<b>No answer in time:</b> {document['given_up']} of {replicas} replicas were given up, after "
            f"{escape(span(run['wall_s']))} in the mean. See the warnings below."
        )
    ettr = run["ettr"]
    # A mean of shares is a share: what Student's interval has beyond 0 and 1 is not said.
    low, high = (min(max(end, 0.0), 1.0) for end in ettr["ci95"] or (0.0, 0.0))
    between = f" (95 % interval {low:.2%} to {high:.2%})" if ettr["ci95"] else ""
    kept = f"{ettr['mean']:.2%} of the time is kept training{between}"
    if scenario.training.duration is not None:
        first = (
            f"In <b>{duration(scenario.training.duration)}</b> on {scenario.cluster.gpus:,} GPUs the job "
            f"trains <b>{escape(quantity(run['tokens']))}</b> tokens"
        )
    else:
        first = (
            f"<b>{escape(short(mean(run['tokens']) or 0.0))} tokens</b> take <b>"
            f"{escape(span(run['wall_s']))}</b> on {scenario.cluster.gpus:,} GPUs"
        )
    lost = costs_of(run)
    rest = f" The largest part of the rest, {lost[0][1]:.2%}, goes to {escape(_explained(lost[0][0]))}." if lost else ""
    return f"{first}: {kept}.{rest}"


def _explained(category: str) -> str:
    said = category.replace("_", " ")
    return f"{said} ({MEANING[category]})" if category in MEANING else said


def headline(answer: Answer) -> list[tuple[str, str, str]]:
    """The headline numbers, each with its interval."""
    run, step = answer.document["run"], answer.document["step"]
    pairs = [
        ("ETTR", percent(run["ettr"])),
        ("tokens a second", quantity(run["goodput_tokens_per_s"])),
        ("MFU of a step", f"{step['mfu']:.1%}"),
        ("MFU over the run", percent(run["effective_mfu"])),
        ("interruptions", number(run["interruptions"])),
        ("one every", "–" if (between := between_s(run)) is None else duration(between)),
        ("GPU-hours", quantity(run["gpu_hours"])),
        ("replicas", str(answer.document["replicas"])),
    ]
    split = [(what, *(said.split(" ± ") if " ± " in said else (said, ""))) for what, said in pairs]
    return [(what, value, f"± {more}" if more else "") for what, value, more in split]


def waterfall_of(run: Json) -> str:
    """The ledger as a waterfall from all time to what is kept."""
    lost = costs_of(run)
    shown = lost[:9]
    gone = math.fsum(share for _, share in lost[9:])
    rows = [_row(run, name, share) for name, share in shown]
    if gone > 0:
        rows.append(Bar("all else", gone, f"{gone:.2%}", "var(--c-other)"))
    kept = 1.0 - math.fsum(share for _, share in lost)
    return waterfall("Where every hour went", rows, _row(run, "train", kept), "all time")


def _row(run: Json, name: str, share: float) -> Bar:
    item = run["ledger_s"].get(name) or {"mean": 0.0, "p05": 0.0, "p95": 0.0}
    said = f"{share:.2%} · {duration(item['mean'])}"
    meaning = MEANING.get(name, "a category of the strategy")
    hover = (
        f"{name.replace('_', ' ')}: {meaning}\n{said} in the mean; {duration(item['p05'])} to "
        f"{duration(item['p95'])} in 90 % of replicas"
    )
    return Bar(name.replace("_", " "), share, said, colour_of(name), hover)


def progress(answer: Answer, story: Story, course: Course) -> str:
    """ETTR so far and tokens kept over time, failures and saves marked."""
    import numpy as np

    end = min(times[-1] for times, _ in story.curves)  # beyond, only the slower replicas would be left
    if end <= 0:
        return ""
    step_s, tokens = course.step_s, answer.scenario.training.tokens_per_step
    grid = np.linspace(end / 200, end, 200)
    kept = np.array([np.where(grid <= t[-1], np.interp(grid, t, s), np.nan) for t, s in story.curves])
    days, ettr = grid / 86400, kept * step_s / grid
    hidden = np.isnan(kept).all(axis=0)
    days, kept, ettr = days[~hidden], kept[:, ~hidden], ettr[:, ~hidden]
    low, high = np.nanquantile(ettr, [0.05, 0.95], axis=0)
    middle, amount = np.nanmean(ettr, axis=0), np.nanmean(kept, axis=0) * tokens
    settled = ettr[:, len(days) // 20 :]
    floor = max(0.0, 1.0 - 1.5 * max(1.0 - float(np.nanmin(settled)), 0.004))
    unit, name = _scale(float(amount[-1]))
    marks: list[tuple[str, str, Sequence[float]]] = [
        ("failures", "failure", [time / 86400 for time, _, _ in course.failures])
    ]
    saves = [at / 86400 for at, lag, _ in course.saves if lag >= 0]
    thinned = saves if len(saves) <= 600 else []
    marks += [("saves", "save", thinned)] if thinned else []
    shown = [
        Panel(
            "ETTR so far",
            [Curve(_zip(days, middle), "c0", "mean", (_zip(days, low), _zip(days, high)))],
            floor,
            1.0,
            lambda v: f"{v:.4g}",
        ),
        Panel(
            f"tokens kept [{name}]",
            [Curve([(0.0, 0.0), *_zip(days, amount / unit)], "c2", "mean")],
            0.0,
            float(amount[-1]) / unit * 1.05 or 1.0,
            lambda v: f"{v:g}",
            110.0,
            marks,
        ),
    ]
    title = "ETTR and tokens over time"
    note = "Band: 90 % of replicas. Failures" + (" and saves" if thinned else "") + " are those of replica 0"
    note += (
        "."
        if thinned or not saves
        else f"; its {len(saves):,} saves stand too close to be told apart here: zoom in the timeline below."
    )
    return figure(
        title,
        panels(
            title,
            f"ETTR ends at {middle[-1]:.2%}, tokens at {short(float(amount[-1]))}.",
            shown,
            (0.0, end / 86400),
            "days",
        ),
        note,
    )


def _zip(xs: Any, ys: Any) -> list[tuple[float, float]]:
    return list(zip(xs.tolist(), ys.tolist(), strict=True))


def _scale(most: float) -> tuple[float, str]:
    for unit, name in ((1e12, "10¹²"), (1e9, "10⁹"), (1e6, "10⁶")):
        if most >= unit:
            return unit, name
    return 1.0, "1"


def change_first(gains: Sequence[Gain] | str) -> str:
    """Single changes with their gains, the largest first; or the sentence that says why they are not told."""
    if not gains:
        return ""
    if isinstance(gains, str):
        return f'<p class="note">{escape(gains)}</p>'
    rows = [
        Estimate(gain.change.name.split(" (")[0], 100 * gain.relative, *_ends(gain), _said(gain), _colour(gain))
        for gain in gains
    ]
    drawn = intervals(
        "What to change first: gain in tokens a second", rows, "gain in tokens a second [%]", label_width=215
    )
    told = [[gain.change.name, _said(gain), "yes" if gain.decided else "no", _keys(gain)] for gain in gains]
    best = next((gain for gain in gains if gain.decided and gain.relative > 0), None)
    first = "None of these single changes brings a gain that the replicas can tell from nothing."
    if best is not None:
        first = f"First: {best.change.name}, {_said(best)} tokens a second."
    note = (
        f"{first} Each change alone, on the same failures ({gains[0].replicas} paired replicas); bars are 95 % intervals. "
        "Gains do not add up. The step model's own error is not part of the interval."
    )
    left, right = figure("What to change first", drawn), table(("change", "gain", "decided", "set"), told, breaks=True)
    return f'<div class="two"><div>{left}</div><div>{right}<p class="note">{escape(note)}</p></div></div>'


def _ends(gain: Gain) -> tuple[float | None, float | None]:
    return (None, None) if gain.ci95 is None else (100 * gain.ci95[0], 100 * gain.ci95[1])


def _said(gain: Gain) -> str:
    """The gain in per cent with as many decimals as its interval deserves."""
    if gain.ci95 == (0.0, 0.0):
        return "none"
    half = 0.0 if gain.ci95 is None else 50 * (gain.ci95[1] - gain.ci95[0])
    digits = min(5, max(2, 1 - math.floor(math.log10(half)))) if half > 0 else 2
    return f"{100 * gain.relative:+.{digits}f}" + (f" ± {half:.{digits}f}" if half else "") + " %"


def _colour(gain: Gain) -> str:
    if not gain.decided:
        return "var(--soft)"
    return "var(--good)" if gain.relative > 0 else "var(--bad)"


def _keys(gain: Gain) -> str:
    values = gain.change.values
    shown = [
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={'null' if value is None else value}"
        for key, value in values.items()
    ]
    if any(key.endswith((".mtbf", ".detection")) for key in values):
        return f"{len(values)} × failures.*.{next(iter(values)).rsplit('.', 1)[1]}"
    return ", ".join(shown)


__all__ = ["MEANING", "answer_section", "change_first", "progress", "sentence", "waterfall_of"]
