"""`clustersim fit profile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clustersim.cli.options import Json, Quiet
from clustersim.cli.talk import say

if TYPE_CHECKING:
    from clustersim.calibrate.records import Measurements
    from clustersim.workload.profile import Profile

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE…", show_default=False,
                   help="Measurement files (.jsonl), nccl-tests logs, fio JSON, Kineto traces, checkpoint or Lustre logs."),
]  # fmt: skip
Out = Annotated[str | None, typer.Option("--out", "-o", metavar="FILE.yaml", show_default=False,
                                         help="Write the profile here; scenarios name it under `calibration:`.")]  # fmt: skip
Name = Annotated[str | None, typer.Option("--name", show_default=False, help="Name of the profile; default: the file's.")]
GpuName = Annotated[str | None, typer.Option("--gpu", metavar="PRESET", show_default=False,
                                             help="Datasheet to state shares of the peak against.")]  # fmt: skip
FilesOn = Annotated[Literal["local", "shared"] | None,
                    typer.Option("--files-on", show_default=False,
                                 help="Where files and saves were measured; then scenarios use them.")]  # fmt: skip


def command(
    files: Files, out: Out = None, name: Name = None, gpu: GpuName = None, files_on: FilesOn = None, json: Json = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """A hardware profile from measurements: surfaces of ops, curves of messages, with their errors and ranges."""
    from clustersim.calibrate.build import LEFT, build_profile
    from clustersim.calibrate.load import load
    from clustersim.cli.talk import Talk, print_json
    from clustersim.hardware.gpu import Gpu

    read = [load(file) for file in files]
    traces = [item for item in read if item.kind in LEFT]
    rest = [item for item in read if item.kind not in LEFT]
    title = name or (Path(out).stem if out else "profile")
    known = Gpu.preset(gpu) if gpu is not None else None
    profile = build_profile(rest, title, known, files_on) if rest or not traces else None
    if out and profile is not None:
        from clustersim.report.files import write_output

        Path(out).parent.mkdir(parents=True, exist_ok=True)
        write_output(Path(out), profile_yaml(profile).encode())
        Talk(quiet, 0).remark(f"wrote {out}")
    if json:
        print_json({"profile": profile.model_dump(mode="json") if profile else None,
                    "traces": [record for item in traces for record in item.records]})  # fmt: skip
        return
    for line in [*_trace_lines(traces), *(table(profile) if profile else [])]:
        say(line)


def profile_yaml(profile: Profile) -> str:
    """The profile as YAML, absent parts left out."""
    from clustersim.scenario.dump import to_yaml

    return to_yaml(_pruned(profile.model_dump(mode="json")))


def _pruned(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _pruned(value) for key, value in data.items() if value not in (None, {}, [], "")}
    return [_pruned(item) for item in data] if isinstance(data, list) else data


def table(profile: Profile) -> list[str]:
    """One line a fit: what, points, residual, held-out error, range."""
    lines = [f"{'what':<44}{'points':>7}{'residual':>10}{'held out':>10}  measured"]
    for item in profile.surfaces:
        spans = ", ".join(f"{size} {low:g}–{high:g}" for size, (low, high) in item.measured.items())
        lines.append(_line(f"{item.op} {item.precision}", item.quality, spans))
    for curve in profile.curves:
        where = "" if curve.group == 1 else f" ×{curve.group} {curve.place}"
        beside = f" beside {curve.beside}" if curve.beside else ""
        low, high = curve.limits
        lines.append(_line(f"{curve.op}{where}{beside}", curve.quality, f"{low:g}–{high:g} B, {len(curve.ranges)} ranges"))
    lines += [f"{name:<44}{seconds:>27.4g} s" for name, seconds in profile.startup.items()]
    both = f"computation {100 * profile.uncertainty:.1f} %, messages {100 * profile.message_uncertainty:.1f} %"
    lines.append(f"uncertainty of a prediction (one standard deviation): {both}")
    notes = profile.provenance.notes if profile.provenance else ()
    return [*lines, *(f"note: {note}" for note in notes)]


def _line(what: str, quality: Any, measured: str) -> str:
    out = "–" if quality.held_out is None else f"{100 * quality.held_out:.1f} %"
    return f"{what:<44}{quality.points:>7}{100 * quality.residual:>8.1f} %{out:>10}  {measured}"


def _trace_lines(traces: list[Measurements]) -> list[str]:
    lines = []
    for item in traces:
        for record in item.records:
            if "groups_s" not in record:
                continue
            parts = ", ".join(f"{name} {1e3 * seconds:.3f}" for name, seconds in record["groups_s"].items())
            idle = ", ".join(f"{cause} {1e3 * seconds:.3f}" for cause, seconds in record["idle_s"].items())
            where = f"{item.name} {record['key']['step']} {record['key']['device']}"
            exposed = f"exposed communication {1e3 * record['exposed_communication_s']:.3f}"
            lines.append(f"{where}: {1e3 * record['step_s']:.3f} ms: {parts}; {exposed}; idle: {idle} (ms)")
    return lines
