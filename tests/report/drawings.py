"""What the tests of drawings share."""

from __future__ import annotations

from clustersim.report.scene import View
from tests.pipeline.replays import built, timed


def view(kind: str, ranks: int = 4, microbatches: int = 8, chunks: int = 1, slices: int = 1, **more: object) -> View:
    """A schedule with unit costs and a hop of 0.1, as a view."""
    return View(timed(built(kind, ranks, microbatches, chunks, slices), latency=0.1), **more)  # type: ignore[arg-type]
