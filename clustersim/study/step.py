"""One training step of a scenario."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clustersim.scenario.places import at_its_place, tells_places

if TYPE_CHECKING:
    from clustersim.pipeline.step import StepModel
    from clustersim.pipeline.step_report import StepReport
    from clustersim.scenario.schema import Scenario


@tells_places
def step(scenario: Scenario) -> StepReport:
    """The nominal step of ``scenario``: time, MFU, breakdown, memory of each stage.

    Raises:
        InputError: the layout or the schedule does not fit.
    """
    from clustersim.pipeline.step import StepModel

    return _placed(StepModel.of(scenario).report(), scenario)


def _placed(report: StepReport, scenario: Scenario) -> StepReport:
    """The report with its cautions at the places of ``scenario``."""
    return replace(report, cautions=tuple(at_its_place(problem, scenario.origin) for problem in report.cautions))


@tells_places
def fitting_model(scenario: Scenario) -> StepModel:
    """The step model of a job that fits in memory.

    Raises:
        DoesNotFit: which rank, how many bytes over, what takes them, and what would make it fit.
        InputError: the layout or the schedule does not fit.
    """
    from clustersim.pipeline.step import StepModel
    from clustersim.pipeline.step_memory import checked_memory

    model = StepModel.of(scenario)
    checked_memory(model)
    return model


@tells_places
def fitting_step(scenario: Scenario) -> StepReport:
    """Like ``step``, for a job that fits in memory; raises as ``fitting_model`` does."""
    return _placed(fitting_model(scenario).report(), scenario)
