"""Further sections of a run's page: its course, checkpoints, assumptions, method."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from clustersim.report.course import Course, colour_of, course_data
from clustersim.report.curves import Curve, Panel, panels
from clustersim.report.page import data_block, figure, folded, section, table, warnings
from clustersim.report.summary import Answer, duration, mean

if TYPE_CHECKING:
    from clustersim.report.story import Story
    from clustersim.run.prepared import Prepared


Json = dict[str, Any]


def course_section(course: Course, answer: Answer) -> str:
    """The canvas with the run's months."""
    kinds = list(dict.fromkeys(kind for _, _, kind in course.spans))
    entries = {
        "var(--c-train)": ["training"],
        "var(--c-save)": ["save in flight"],
        "var(--c-rework)": ["failure, save that never became durable"],
    }
    for kind in kinds:
        entries.setdefault(colour_of(kind), []).append(kind.replace("_", " "))
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{escape(", ".join(names))}</span>'
        for colour, names in entries.items()
    )
    tools = "".join(
        f'<button id="course-{name}" type="button">{said}</button>'
        for name, said in (
            ("in", "zoom in"),
            ("out", "zoom out"),
            ("all", "whole run"),
            ("next", "next failure"),
            ("step", "single steps"),
        )
    )
    hint = "ctrl + wheel or + − : zoom · drag or ← → : move · 0: all · hover: details"
    shown = (
        f'<div class="tools">{tools}<span id="course-range" role="status"></span><span class="hint">{hint}</span></div>'
        '<div><canvas id="course-canvas" tabindex="0" role="img" aria-label="course of one run over '
        "time: what the job does, saves, failures, nodes down. "
        'Plus and minus zoom, arrows move, 0 shows all."></canvas></div>'
        f'<div class="legend">{legend}</div>'
    )
    note = '<p class="note">Replica 0 from start to end: one possible course, not the mean.'
    note += (
        f" Saves after {duration(course.shown_until)} are left out.</p>" if course.shown_until is not None else "</p>"
    )
    return section(
        "course",
        "The course of a run",
        shown,
        note,
        data_block("course-data", course_data(course, answer.scenario.cluster.spare_nodes, "")),
    )


def checkpoint_section(answer: Answer, story: Story | None, prepared: Prepared, course: Course | None) -> str:
    """Stall, durable lag, how many saves, what the storage carries."""
    saves, run = answer.document["checkpoint"], answer.document["run"]
    if saves is None:
        return section(
            "checkpoints",
            "Checkpoints",
            "<p>Nothing is ever saved: every failure starts the job from its beginning.</p>",
        )
    wall, count = mean(run["wall_s"]) or 1.0, story.replicas if story is not None else 0
    shared = math.fsum(transfer.bytes for transfer in prepared.transfers if transfer.channel != "local")
    every = f"{saves['interval_steps']:,} steps" if saves["interval_steps"] else duration(saves["interval_s"])
    rows = [
        ["engine", str(saves["engine"])],
        ["training time between saves", every],
        ["stall of a save", duration(saves["stall_s"])],
        ["durable after (uncontended)", duration(saves["durable_s"])],
        ["durable by tier (with all that saves wait for and share)", ", ".join(
            f"{tier} {duration(told['durable_mean_s'])}" for tier, told in saves["tiers"].items()) or "nowhere"],
        ["stall in the mean", duration(saves["stall_mean_s"])],
        ["host memory a node", f"{saves['host_memory_bytes'] / 1e9:,.3g} GB"],
        ["bytes of a save to shared storage", f"{shared / 1e12:.3g} TB" if shared else "none"],
        ["loading it back (uncontended)", duration(prepared.load_s)],
    ]
    if story is not None and count and story.saves:
        written = shared * story.saves / count / wall
        rows += [
            ["saves begun a run", f"{story.saves / count:,.1f}"],
            ["never durable: cut off by failures, a run", f"{(story.saves - story.durable) / count:,.2f}"],
            [
                "written to shared storage, mean",
                f"{written / 1e9:.3g} GB/s of {answer.scenario.cluster.storage.write_bandwidth / 1e9:,.4g} GB/s",
            ],
        ]
    stall = (run["ledger_s"].get("checkpoint_stall") or {"mean": 0.0})["mean"] / wall
    again = (run["ledger_s"].get("rework") or {"mean": 0.0})["mean"] / wall
    note = (
        f"<p>Saves take {stall:.3%} of the time, work done again {again:.2%}. With synchronous saves at "
        "the best interval the two are about equal.</p>"
    )
    return section("checkpoints", "Checkpoints", table(("what", "value"), rows), note, _lags(course))


def _lags(course: Course | None) -> str:
    """Time until each save of replica 0 was durable, where it varies."""
    lags = [(start / 86400, end - start) for start, end, _ in course.saves if end >= 0] if course is not None else []
    if len(lags) < 2 or course is None or max(lag for _, lag in lags) < 1.001 * min(lag for _, lag in lags):
        return ""
    most = max(lag for _, lag in lags)
    kept = lags[:: max(1, len(lags) // 800)]
    panel = Panel("seconds until durable", [Curve(kept, "c4")], 0.0, most * 1.1, lambda v: f"{v:.3g}", 90.0)
    return figure(
        "Time until a save is durable (replica 0)",
        panels("Durable lag", f"At most {most:.3g} s.", [panel], (0.0, course.wall_s / 86400), "days"),
    )


def assumptions_section(answer: Answer) -> str:
    """Warnings, sources, and the resolved scenario."""
    document, scenario = answer.document, answer.scenario
    told = [*document["step"].get("warnings", []), *document["warnings"]]
    what = (
        "<p>"
        + ("No warnings: nothing is extrapolated beyond what the presets state. " if not told else "")
        + "All values, presets expanded and defaults written out:</p>"
    )
    sources = [*measured_in(scenario), *sources_of(scenario)]
    listed = (
        folded(
            f"Sources ({len(sources)})",
            "<ul>" + "".join(f"<li>{escape(source)}</li>" for source in sources) + "</ul>",
        )
        if sources
        else ""
    )
    return section(
        "assumptions",
        "Assumptions",
        warnings(told),
        what,
        folded("Resolved scenario (YAML)", f'<pre tabindex="0">{escape(scenario.resolved())}</pre>'),
        listed,
    )


def measured_in(scenario: Any) -> list[str]:
    """Keys whose values come from the calibration profile, a line each."""
    profile = scenario.calibration
    return [] if profile is None else [f"{path}: {use.measurement} (profile {profile.name})"
                                       for path, use in profile.used_for.items()]  # fmt: skip


def sources_of(scenario: Any) -> list[str]:
    """Sources of the presets whose values stand in the scenario, told by their names: ``h100-sxm (memory, …): …``."""
    from clustersim.presets import preset_data, preset_names

    names = _names(scenario.data())
    found = []
    for folder in ("gpus", "nodes", "storage", "models", "failures"):
        for preset in preset_names(folder):
            if not _mentions(folder, preset, names):
                continue
            data = preset_data(folder, preset)
            causes = {cause.get("name") for cause in data.get("failures", ()) if isinstance(cause, dict)}
            if {preset, data.get("name")} & names or (causes and causes <= names):
                found += _grouped(preset, data.get("sources", {}))
    return found


def _mentions(folder: str, preset: str, names: set[str]) -> bool:
    """Whether a preset's file holds any of the names at all: cheaper than reading its YAML."""
    from importlib.resources import files

    text = (files("clustersim") / "hardware" / "presets" / folder / f"{preset}.yaml").read_text(encoding="utf-8")
    return preset in names or any(f"name: {name}" in text for name in names)


def _grouped(preset: str, sources: Any) -> list[str]:
    """A line a source, with all keys that rest on it."""
    if not isinstance(sources, dict):
        return [f"{preset}: {sources}"]
    keys: dict[str, list[str]] = {}
    for key, source in sources.items():
        keys.setdefault(str(source), []).append(key)
    return [f"{preset} ({', '.join(of)}): {source}" for source, of in keys.items()]


def _names(value: Any) -> set[str]:
    """Every name in resolved data."""
    if isinstance(value, dict):
        own = {str(value["name"])} if isinstance(value.get("name"), str) else set()
        return own.union(*(_names(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(_names(item) for item in value))
    return set()


def method_section(answer: Answer, provenance: dict[str, Any]) -> str:
    """How the numbers were found, and with what."""
    document = answer.document
    said = (
        f"{document['replicas']} replicas under seed {document['seed']}. One step is replayed op by "
        "op; the run is a discrete-event simulation of failures, detection, "
        "spares, repair, storage, saves and recovery, and asks the step model for the step's time. "
        "Intervals are 95 % intervals of the mean over replicas (Student's t): "
        "they hold luck, not the error of the inputs or of the models. "
        "“One every” is wall time ÷ interruptions of all replicas together; mtti_s below is a mean over those replicas that "
        "were interrupted at all, and shorter where many were not."
    )
    names = ("mean", "sd", "p05", "p50", "p95")
    rows = [
        [_NOTED.get(name, name), *(f"{item[key]:,.5g}" if item else "–" for key in names), _interval(item or {})]
        for name, item in document["run"].items()
        if name != "ledger_s"
    ]
    every = folded(
        "All metrics", table(("metric", "mean", "sd", "5 %", "50 %", "95 %", "95 % interval of the mean"), rows)
    )
    ledger = [
        [name.replace("_", " "), *(f"{item[key] / 3600:,.3f}" for key in names)]
        for name, item in document["run"]["ledger_s"].items()
        if item
    ]
    hours = folded("The ledger in hours", table(("category", "mean", "sd", "5 %", "50 %", "95 %"), ledger))
    versions = folded(
        "Versions and identity", table(("what", "value"), [[key, str(value)] for key, value in provenance.items()])
    )
    return section("method", "Method and versions", f"<p>{escape(said)}</p>", every, hours, versions)


_NOTED = {"mtti_s": "mtti_s (mean over replicas with interruptions)"}


def _interval(item: Json) -> str:
    return f"{item['ci95'][0]:,.5g} to {item['ci95'][1]:,.5g}" if item.get("ci95") else "–"
