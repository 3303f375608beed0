"""The page that shows one run: self-contained, readable in any browser and in print. Its parts are modules of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustersim.report.course import course_of
from clustersim.report.documents import provenance
from clustersim.report.page import page
from clustersim.report.recovery_section import recovery_section
from clustersim.report.run_answer import answer_section
from clustersim.report.run_details import (
    assumptions_section,
    checkpoint_section,
    course_section,
    method_section,
)
from clustersim.report.run_failures import failures_section
from clustersim.report.run_step import step_section
from clustersim.report.summary import Answer

if TYPE_CHECKING:
    from clustersim.report.story import Story
    from clustersim.study.sensitivity import Gain

LINKS = (
    ("answer", "Answer"),
    ("course", "Course"),
    ("step", "Step"),
    ("failures", "Failures"),
    ("recovery", "Coming back"),
    ("checkpoints", "Checkpoints"),
    ("assumptions", "Assumptions"),
    ("method", "Method"),
)


def report_page(answer: Answer, story: Story | None = None, gains: list[Gain] | str | None = None) -> str:
    """The whole page as HTML text.

    Args:
        answer: the scenario and its document.
        story: what the replicas did; None: the page has no curves and no timeline.
        gains: what single changes bring (see ``clustersim.study.sensitivity``); None: they are not shown; a sentence: why not.
    """
    from clustersim.pipeline.step import StepModel
    from clustersim.report.step_view import page_view
    from clustersim.study.replicas import prepared_for

    scenario, document = answer.scenario, answer.document
    prepared = prepared_for(scenario)
    course = (
        course_of(story.rows, story.wall_s, prepared.pace.nominal_s) if story is not None and story.replicas else None
    )
    told = story if course is not None else None
    sections = [
        answer_section(answer, told, course, gains or []),
        course_section(course, answer) if course is not None else "",
        step_section(answer, page_view(StepModel.of(scenario))),
        failures_section(answer, told, course) if told is not None and course is not None else "",
        recovery_section(document.get("recovery")),
        checkpoint_section(answer, told, prepared, course),
        assumptions_section(answer),
        method_section(answer, provenance(scenario)),
    ]
    links = [(name, what) for name, what in LINKS if any(part.startswith(f'<section id="{name}"') for part in sections)]
    about = f"{scenario.description} · " if scenario.description else ""
    about += f"{scenario.cluster.gpus:,} GPUs · {document['replicas']} replicas · seed {document['seed']}"
    return page(scenario.name, about, sections, scripts=["course.js"] if course is not None else [], links=links)
