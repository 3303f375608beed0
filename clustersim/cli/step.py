"""`clustersim step`."""

from __future__ import annotations

from typing import Annotated

import typer

from clustersim.cli.options import Json, Quiet, ScenarioFile, Set
from clustersim.cli.talk import say


def command(
    scenario: ScenarioFile,
    set_: Set = None,
    json: Json = False,
    timeline: Annotated[
        str | None,
        typer.Option("--timeline", metavar="FILE", help="Draw the step: .html, .png, .svg, or .json for Perfetto."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Time one training step: MFU and HFU, where the time goes, memory of each stage."""
    from clustersim.cli.scenarios import load_one
    from clustersim.cli.talk import Talk, print_json
    from clustersim.report.summary import step_summary
    from clustersim.study.step import fitting_step

    talk = Talk(quiet)
    if timeline is not None:
        from clustersim.report.timeline import require_ending

        require_ending(timeline)
    loaded = load_one(scenario, set_)
    report = fitting_step(loaded).to_dict()
    if json:
        print_json(report)
        talk.warn(report["warnings"])
    else:
        say(step_summary(loaded, report))
    if timeline is not None:
        from clustersim.pipeline.step import StepModel
        from clustersim.report.step_view import step_view
        from clustersim.report.timeline import write_timeline

        title = f"{loaded.name}: one step"
        write_timeline(timeline, step_view(StepModel.of(loaded), title=title), title=title)
        talk.remark(f"wrote {timeline}")
