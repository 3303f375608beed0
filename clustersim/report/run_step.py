"""The step of a run's page: breakdown, why ranks stand still, memory by rank, the Gantt chart."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from clustersim.report.page import figure, section
from clustersim.report.summary import Answer, short
from clustersim.report.svg import WIDTH, Bar, Scale, bars, box, drawing, line, nice_ticks, text

if TYPE_CHECKING:
    from clustersim.report.scene import View


Json = dict[str, Any]
GIB = 2.0**30
_PARTS = {
    "compute": "train",
    "bubble": "other",
    "tp": "recover",
    "cp": "recover",
    "ep": "recover",
    "pp": "load",
    "dp": "detect",
    "offload": "save",
    "optimizer": "slow",
    "straggler": "rework",
    "data": "wait",
}
_CAUSE_NAMES = {
    "fill": "the first op has not come yet",
    "drain": "the last op is done, others are not",
    "dependency": "its input is still computed",
    "latency": "its input is on the way",
    "blocked_send": "its own send holds it up",
    "imbalance": "another stage is slower than the mean",
    "memory": "it waits for an offload or reload",
}


def step_section(answer: Answer, view: View | None) -> str:
    """Breakdown, bubble causes, memory by rank, and the Gantt chart."""
    from clustersim.report.timeline_html import timeline_part

    step = answer.document["step"]
    total = step["step_time_s"]
    layout, scenario = answer.scenario.parallelism, answer.scenario
    modelled = step.get("step_time_modelled_s")
    given = "" if modelled is None else f" (given; op by op below is the modelled one, {modelled:.4g} s)"
    about = (
        f"{total:.4g} s a step{given} of {short(scenario.training.tokens_per_step)} tokens: "
        f"{step['tflops_per_gpu']:.0f} TFLOP/s a GPU, MFU {step['mfu']:.1%}, "
        f"HFU {step['hfu']:.1%} ({step['convention']}). Layout tp {layout.tp} × pp {layout.pp} × cp "
        f"{layout.cp} × dp {scenario.dp}, "
        f"{step['microbatches']} microbatches, schedule {layout.schedule.kind}; software stack "
        f"{step.get('stack', 'as calibrated')}."
    )
    parts = sorted(
        ((name, value) for name, value in step["breakdown_s"].items() if value > 0), key=lambda pair: -pair[1]
    )
    broken = bars(
        "Breakdown of a step",
        [
            Bar(name, value, f"{value * 1e3:,.1f} ms · {value / total:.1%}", f"var(--c-{_PARTS.get(name, 'other')})")
            for name, value in parts
        ],
    )
    causes = ""
    if view is not None:
        idle: dict[str, float] = view.numbers["idle_by_cause"]  # type: ignore[assignment]
        ranks = view.timeline.graph.ranks
        rows = [
            Bar(
                name.replace("_", " "),
                value / ranks,
                f"{value / ranks * 1e3:,.1f} ms",
                "var(--c-wait)",
                _CAUSE_NAMES.get(name, ""),
            )
            for name, value in sorted(idle.items(), key=lambda pair: -pair[1])
            if value > 1e-9 * view.timeline.makespan
        ]
        causes = (
            figure(
                "Why ranks stand still",
                bars("Idle time of the average rank by cause", rows),
                "Idle time of the average pipeline rank inside the pipeline, by cause; hover for the meaning.",
            )
            if rows
            else ""
        )
    two = (
        f'<div class="two"><div>{figure("Where the step goes (critical rank)", broken)}</div><div>{causes}</div></div>'
    )
    gantt = timeline_part(view, heading="<h3>One step, op by op</h3>", table=False) if view is not None else ""
    return section(
        "step", "One step", f"<p>{escape(about)}</p>", two, f'<div class="narrow">{memory_figure(step)}</div>', gantt
    )


def memory_figure(step: Json) -> str:
    """Peak memory of each pipeline rank, stacked, against the limit."""
    stages, limit = step["memory"]["stages"], step["memory"]["limit_bytes"]
    names = [name for name in stages[0] if name != "total" and any(stage[name] > 0 for stage in stages)]
    colours = [
        "var(--c-train)",
        "var(--c-recover)",
        "var(--c-detect)",
        "var(--c-save)",
        "var(--c-slow)",
        "var(--c-load)",
        "var(--c-other)",
        "var(--c-wait)",
    ]
    up = Scale(0.0, max(limit, step["memory"]["peak_bytes"]) / GIB * 1.05, 150.0, 22.0)
    pitch = (WIDTH - 64) / len(stages)
    body = [
        line(50, up(tick), WIDTH - 14, up(tick))
        + text(44, up(tick) + 4, f"{tick:g}", anchor="end", style="soft", size=11)
        for tick in nice_ticks(0, limit / GIB, 4)
    ]
    for rank, stage in enumerate(stages):
        base = 0.0
        for number, name in enumerate(names):
            size = stage[name] / GIB
            body.append(
                box(
                    50 + pitch * (rank + 0.1),
                    up(base + size),
                    pitch * 0.8,
                    up(base) - up(base + size),
                    colours[number % len(colours)],
                    f"rank {rank}, {name}: {size:.1f} GiB",
                )
            )
            base += size
        if rank % max(1, round(26 / pitch)) == 0:
            body.append(text(50 + pitch * (rank + 0.5), 164, str(rank), anchor="middle", style="soft", size=11))
    body.append(line(50, up(limit / GIB), WIDTH - 14, up(limit / GIB), "level"))
    body.append(
        text(WIDTH - 16, up(limit / GIB) - 4, f"limit {limit / GIB:.1f} GiB", anchor="end", style="soft", size=11)
    )
    body.append(text(50, 14, "GiB on a GPU of each pipeline rank", style="soft", size=11))
    legend = "".join(
        f'<span><i style="background:{colours[n % len(colours)]}"></i>{escape(name)}</span>'
        for n, name in enumerate(names)
    )
    told = step["memory"].get("verdict", "")
    return figure(
        "Memory by pipeline rank at its peak",
        drawing("Memory by pipeline rank", told, 170, "".join(body)) + f'<div class="legend">{legend}</div>',
        told,
    )
