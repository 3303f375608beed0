"""A figure of a plan: tokens kept a day against memory to spare, with the designs that none beats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from clustersim.report.sweep_figure import BEST, LINE
from clustersim.shown import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from clustersim.study.planning import Plan


def plan_axes(found: Plan, axes: Axes | None = None) -> Axes:
    """Draw designs as dots (memory to spare, tokens a day); the Pareto front joined, the best named."""
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(6.4, 4.2), layout="constrained").add_subplot()
    usable = [design for design in found.designs if design.goodput > 0]
    front = sorted(found.pareto(), key=lambda design: design.headroom_bytes)
    axes.plot([d.headroom_bytes / 2**30 for d in usable], [d.goodput * 86400 / 1e9 for d in usable], "o", color=LINE,
              alpha=0.6, ms=5, label="design")  # fmt: skip
    axes.plot([d.headroom_bytes / 2**30 for d in front], [d.goodput * 86400 / 1e9 for d in front], "D-", color=BEST, ms=6,
              lw=1, label="none beats it in tokens, memory and spares")  # fmt: skip
    axes.set_xlabel("memory to spare on the fullest GPU (GiB)")
    axes.set_ylabel("tokens kept a day (10⁹)")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8)
    return axes


def plan_figure(found: Plan, path: Path) -> None:
    """Write the figure as PNG (or what the suffix says)."""
    figure = plan_axes(found).figure
    save_figure(figure, path, dpi=150)  # type: ignore[arg-type]
