"""Heat rows: what thousands of ops a rank look like from afar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clustersim.report.scene import Floats, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def heat_rows(axes: Axes, view: View, colours: Any, height: float, bins: int = 1500) -> None:
    """One image row a rank: the mean colour of what runs in each stretch of time, clear where idle."""
    from matplotlib.colors import to_rgb

    boxes, end = view.boxes, view.timeline.makespan
    palette = {colour: to_rgb(colour) for colour in set(colours.tolist())}
    weight = np.where(boxes.half == 0, 1.0, 0.5)
    for rank in range(view.timeline.graph.ranks):
        mine = np.flatnonzero((boxes.rank == rank) & boxes.compute)
        image = np.zeros((1, bins, 4))
        for colour, rgb in palette.items():
            some = mine[colours[mine] == colour]
            share = _coverage(boxes.start[some] * bins / end, boxes.end[some] * bins / end, weight[some], bins)
            image[0, :, :3] += share[:, None] * np.array(rgb)
            image[0, :, 3] += share
        image[0, :, :3] /= np.maximum(image[0, :, 3:], 1e-12)
        extent = (0, end, rank * height + 1, rank * height)
        axes.imshow(np.clip(image, 0, 1), aspect="auto", extent=extent, interpolation="nearest", zorder=2)
    axes.set_xlim(0, axes.get_xlim()[1])


def _coverage(start: Floats, end: Floats, weight: Floats, bins: int) -> Floats:
    """(bins,) share of each bin that intervals (in bins) cover: differences of the integral at the bins' edges."""
    edges = np.arange(bins + 1)
    total = np.zeros(bins + 1)
    for points, sign in ((start, 1.0), (end, -1.0)):
        by = np.argsort(points, kind="stable")
        at, mass = points[by], np.concatenate([[0.0], np.cumsum(weight[by])])
        moment = np.concatenate([[0.0], np.cumsum(weight[by] * at)])
        before = np.searchsorted(at, edges, side="right")
        total += sign * (edges * mass[before] - moment[before])
    return np.clip(np.diff(total), 0, 1)
