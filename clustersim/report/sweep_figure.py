"""A figure of a sweep: a curve with its interval band over one axis, a heat map over two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersim.shown import drawable, save_figure
from clustersim.units import DURATION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from clustersim.study.sweeping import Sweep

LINE, BAND, BEST = "#0072B2", "#56B4E9", "#D55E00"  # Okabe and Ito's colour-blind safe palette


def _as_number(value: Any) -> float | None:
    """A number, or a duration in seconds; None for what has no place on a scale."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    try:
        return DURATION.parse(value) if isinstance(value, str) else None
    except ValueError:
        return None


def sweep_axes(found: Sweep, metric: str, axes: Axes | None = None) -> Axes:
    """Draw a sweep on ``axes`` (new ones by default) and return them.

    One axis: the mean and its 95 % interval; two: a heat map with the mean written in each cell; more: a dot a point.
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(6.4, 4.2), layout="constrained").add_subplot()
    rows = [row for row in found.rows() if row.get(f"mean_{metric}") is not None]
    if not rows:
        axes.text(0.5, 0.5, f"no point has a {metric}", ha="center", va="center", transform=axes.transAxes)
    elif len(found.paths) == 2 and len(rows) > 2:
        _heat_map(found, rows, metric, axes)
    else:
        _curve(found, rows, metric, axes)
    return axes


def sweep_figure(found: Sweep, metric: str, path: Path) -> None:
    """Write the figure of a sweep as PNG (or what the suffix says)."""
    axes = sweep_axes(found, metric)
    figure: Figure = axes.figure  # type: ignore[assignment]
    save_figure(figure, path, dpi=150)


def _curve(found: Sweep, rows: list[dict[str, Any]], metric: str, axes: Axes) -> None:
    path = found.paths[0] if len(found.paths) == 1 else None
    numbers = [_as_number(row[path]) for row in rows] if path else [None]
    means = [row[f"mean_{metric}"] for row in rows]
    lows = [
        row[f"ci95_low_{metric}"] if row[f"ci95_low_{metric}"] is not None else row[f"mean_{metric}"] for row in rows
    ]
    highs = [
        row[f"ci95_high_{metric}"] if row[f"ci95_high_{metric}"] is not None else row[f"mean_{metric}"] for row in rows
    ]
    if path is None or None in numbers:
        labels = [drawable(", ".join(str(row[name]) for name in found.paths), 40) for row in rows]
        errors = [[mean - low for mean, low in zip(means, lows, strict=True)],
                  [high - mean for mean, high in zip(means, highs, strict=True)]]  # fmt: skip
        axes.errorbar(range(len(rows)), means, yerr=errors, fmt="o", color=LINE, capsize=3)
        axes.set_xticks(range(len(rows)), labels, rotation=30, ha="right", fontsize=8)
    else:
        order = sorted(range(len(rows)), key=lambda k: numbers[k] or 0.0)
        xs = [numbers[k] or 0.0 for k in order]
        axes.fill_between(xs, [lows[k] for k in order], [highs[k] for k in order], color=BAND, alpha=0.35, lw=0,
                          label="95 % interval of the mean")  # fmt: skip
        axes.plot(xs, [means[k] for k in order], "o-", color=LINE, ms=4, label="mean")
        _scale(axes, xs, [rows[k][path] for k in order])
        _mark_best(found, metric, path, axes)
        axes.legend(frameon=False, fontsize=8)
    axes.set_xlabel(drawable(path or " × ".join(found.paths)))
    axes.set_ylabel(metric)
    axes.grid(alpha=0.25)


def _scale(axes: Axes, xs: list[float], labels: list[Any]) -> None:
    if min(xs) > 0 and max(xs) / min(xs) > 8:
        axes.set_xscale("log")
    if len(xs) <= 12:
        axes.set_xticks(xs, [_short(said) for said in labels], fontsize=8)
        axes.set_xticks([], minor=True)


def _short(value: Any) -> str:
    number = _as_number(value)
    if isinstance(value, str) and number is not None:
        return DURATION.format(float(f"{number:.3g}"))
    return f"{value:g}" if isinstance(value, float) else drawable(str(value), 40)


def _mark_best(found: Sweep, metric: str, path: str, axes: Axes) -> None:
    best = found.best(metric)
    place = None if best is None else _as_number(best.point.get(path))
    if best is not None and place is not None:
        told = best.summaries()[metric]
        assert told is not None
        axes.plot([place], [told["mean"]], "D", color=BEST, ms=7, label=f"best: {_short(best.point[path])}", zorder=5)


def _heat_map(found: Sweep, rows: list[dict[str, Any]], metric: str, axes: Axes) -> None:
    import numpy as np

    across, down = found.paths
    columns = list(dict.fromkeys(str(row[across]) for row in rows))
    lines = list(dict.fromkeys(str(row[down]) for row in rows))
    cells = np.full((len(lines), len(columns)), np.nan)
    halves = np.full(cells.shape, np.nan)
    for row in rows:
        cells[lines.index(str(row[down])), columns.index(str(row[across]))] = row[f"mean_{metric}"]
        if row[f"ci95_high_{metric}"] is not None:
            half = row[f"ci95_high_{metric}"] - row[f"mean_{metric}"]
            halves[lines.index(str(row[down])), columns.index(str(row[across]))] = half
    image = axes.imshow(cells, cmap="cividis", aspect="auto", origin="lower")
    axes.figure.colorbar(image, ax=axes, label=f"mean {metric}")
    axes.set_xticks(range(len(columns)), [drawable(name, 40) for name in columns], rotation=30, ha="right", fontsize=8)
    axes.set_yticks(range(len(lines)), [drawable(name, 40) for name in lines], fontsize=8)
    axes.set_xlabel(drawable(across))
    axes.set_ylabel(drawable(down))
    if cells.size <= 100:
        middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
        for (line, column), value in np.ndenumerate(cells):
            if np.isfinite(value):
                half = halves[line, column]
                said = f"{value:.4g}" + (f"\n± {half:.2g}" if np.isfinite(half) else "")
                axes.text(column, line, said, ha="center", va="center", fontsize=7,
                          color="white" if value < middle else "black")  # fmt: skip
