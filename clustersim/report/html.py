"""A page that shows one run: self-contained, no script, readable in any browser and in print."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from clustersim.report.summary import Answer, advice, costs_of, duration, mean, number, percent, quantity, span

_COLOURS = {
    "train": "#2e7d32", "rework": "#c62828", "checkpoint_stall": "#ef6c00", "checkpoint_slowdown": "#f9a825",
    "straggle": "#6d4c41", "degraded": "#8d6e63", "detect": "#1565c0", "diagnose": "#1e88e5", "reschedule": "#42a5f5",
    "wait_for_nodes": "#5e35b1", "start": "#00838f", "communicators": "#00acc1", "load": "#26a69a", "warm_up": "#9ccc65",
    "migrate": "#ad1457",
}  # fmt: skip
_STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.45 }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid #8884 }
th:first-child, td:first-child { text-align: left }
.bar { display: flex; height: 2rem; border-radius: 4px; overflow: hidden; margin: .5rem 0 }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em }
pre { background: #8882; padding: 1rem; overflow: auto }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 1rem }
.facts div { background: #8881; border-radius: 6px; padding: .8rem } .facts b { font-size: 1.25rem; display: block }
"""


def report_page(answer: Answer) -> str:
    """The whole page as HTML text."""
    scenario, document = answer.scenario, answer.document
    run, step = document["run"], document["step"]
    warnings = [*step.get("warnings", []), *document["warnings"]]
    body = [
        f"<h1>{escape(scenario.name)}</h1><p>{escape(scenario.description)}</p>",
        f"<p>{scenario.cluster.gpus:,} GPUs · {document['replicas']} replicas · seed {document['seed']} · "
        f"clustersim {escape(document['version'])}</p>",
        _facts(answer),
        "<h2>Where the time goes</h2>", _bar(run), _ledger(run),
        *[f"<p>{escape(line)}</p>" for line in advice(run, scenario)],
        *[f"<p><strong>Warning:</strong> {escape(text)}</p>" for text in warnings],
        "<h2>One step</h2>", _step(step),
        "<h2>Metrics</h2>", _metrics(run),
        f"<h2>Scenario</h2><details><summary>resolved, as YAML</summary><pre>{escape(scenario.resolved())}</pre></details>",
    ]  # fmt: skip
    head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{escape(scenario.name)}</title>"
    return (
        f"<!doctype html>\n<html lang='en'><head>{head}<style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _facts(answer: Answer) -> str:
    run, step = answer.document["run"], answer.document["step"]
    fixed = answer.scenario.training.duration is not None
    facts = [
        ("tokens trained", quantity(run["tokens"])) if fixed else ("time to train", span(run["wall_s"])),
        ("ETTR", percent(run["ettr"])),
        ("MFU of a step", f"{step['mfu']:.1%}"),
        ("interruptions", number(run["interruptions"])),
        ("work done twice", duration(mean(run["lost_work_s"]))),
    ]
    return f"<div class='facts'>{''.join(f'<div>{escape(name)}<b>{escape(value)}</b></div>' for name, value in facts)}</div>"


def _shares(run: dict[str, Any]) -> list[tuple[str, float]]:
    lost = costs_of(run)
    return [("train", 1.0 - math.fsum(share for _, share in lost)), *lost]


def _bar(run: dict[str, Any]) -> str:
    parts = [
        f"<span title='{escape(name)} {share:.2%}' style='flex:{share:.6f};background:{_colour(name)}'></span>"
        for name, share in _shares(run)
        if share > 0
    ]
    return f"<div class='bar'>{''.join(parts)}</div>"


def _colour(name: str) -> str:
    return _COLOURS.get(name, "#757575")


def _ledger(run: dict[str, Any]) -> str:
    rows = []
    for name, share in _shares(run):
        item = run["ledger_s"][name] or {"mean": 0.0, "p05": 0.0, "p95": 0.0}
        hours = "".join(f"<td>{item[key] / 3600:,.2f}</td>" for key in ("mean", "p05", "p95"))
        swatch = f"<span class='swatch' style='background:{_colour(name)}'></span>"
        rows.append(f"<tr><td>{swatch}{escape(name)}</td><td>{share:.2%}</td>{hours}</tr>")
    head = "<tr><th>category</th><th>share</th><th>mean h</th><th>5 % h</th><th>95 % h</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _step(step: dict[str, Any]) -> str:
    total = step["step_time_s"]
    rows = [
        f"<tr><td>{escape(name)}</td><td>{value * 1e3:,.1f}</td><td>{value / total:.2%}</td></tr>"
        for name, value in sorted(step["breakdown_s"].items(), key=lambda pair: (-pair[1], pair[0]))
        if value > 0
    ]
    about = (f"<p>{total:.4g} s · {step['tflops_per_gpu']:.0f} TFLOP/s a GPU · MFU {step['mfu']:.1%}, HFU {step['hfu']:.1%} "
             f"({escape(step['convention'])})</p>")  # fmt: skip
    return f"{about}<table><tr><th>part</th><th>ms</th><th>share</th></tr>{''.join(rows)}</table>"


def _metrics(run: dict[str, Any]) -> str:
    rows = []
    for name, item in run.items():
        if name == "ledger_s":
            continue
        keys = ("mean", "sd", "p05", "p50", "p95")
        cells = "".join(f"<td>{item[key]:,.5g}</td>" for key in keys) if item else "<td colspan='5'>undefined</td>"
        rows.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("metric", "mean", "sd", "5 %", "50 %", "95 %"))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"
