"""A scenario's step as drawings want it: with the bytes that each rank holds over time, and what its GPU has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustersim.pipeline.step_memory import UnitBytes, memory_report
from clustersim.report.scene import View

if TYPE_CHECKING:
    from clustersim.pipeline.step import StepModel

MOST_BOXES = 40_000
"""Ops of a step that a page draws; a larger step has its tables only (``clustersim step --timeline`` draws it)."""


def step_view(model: StepModel, title: str = "") -> View:
    """The nominal step: activations in flight over time on what the rank always holds, against its GPU's memory.

    Weights, gradients, optimizer state, logits, buffers and overhead count as always held (the allocator keeps what it
    once took), so that the highest point of a rank's strip is its peak in the memory table.

    Args:
        model: the step model of a scenario.
        title: what the drawing is called; the schedule's name if empty.
    """
    report, sizes = memory_report(model), UnitBytes.of(model)
    stays = 1.0 - model.plan.training.offload.activations
    return View(
        model.timeline(),
        title=title,
        activation_bytes=(stays * sizes.kept).tolist(),
        pending_bytes=(stays * sizes.pending).tolist(),
        static_bytes=[rank.total - rank.activations for rank in report.stages],
        limit=report.limits,
    )


def page_view(model: StepModel, title: str = "") -> View | None:
    """The same; None where it has too many ops for a page."""
    view = step_view(model, title)
    return view if len(view.boxes.op) <= MOST_BOXES else None
