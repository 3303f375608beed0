"""Predicted against measured: a figure a suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersim.shown import drawable, save_figure
from clustersim.validation.results import Result, SuiteResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = {"step_time_s": ("step time (s)", 1.0), "memory_bytes": ("memory (GiB)", 2.0**-30), "tflops": ("TFLOP/s", 1.0),
         "time_us": ("time (µs)", 1.0), "layer_time_s": ("time of a layer (ms)", 1e3), "states_bytes": ("GiB", 2.0**-30),
         "activations_bytes": ("GiB", 2.0**-30), "activations_pct": ("%", 1.0), "forward_ms": ("ms", 1.0),
         "backward_ms": ("ms", 1.0)}  # fmt: skip
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKS = ("o", "s", "^", "D", "v", "P")


def figure(suite: SuiteResult) -> Figure:
    """Predicted against measured with the lines of equality and of ±10 %; colours and marks by metric or source."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(5.2, 4.6), layout="constrained")
    axes = drawing.add_subplot()
    metric = suite.scored[0].metric if suite.scored else "step_time_s"
    label, factor = UNITS.get(metric, (metric, 1.0))
    if len({UNITS.get(result.metric, (result.metric, 1.0))[0] for result in suite.scored}) > 1:
        label = "(unit as in the legend)"
    groups: dict[str, list[Result]] = {}
    for result in suite.scored:
        groups.setdefault(result.label if len({r.metric for r in suite.scored}) == 1 else result.metric, []).append(
            result
        )
    for index, (name, rows) in enumerate(sorted(groups.items())):
        own = UNITS.get(rows[0].metric, (label, factor))[1]
        axes.scatter([own * (row.measured or 0) for row in rows], [own * (row.predicted or 0) for row in rows], s=18,
                     color=COLOURS[index % len(COLOURS)], marker=MARKS[index % len(MARKS)], alpha=0.75, linewidths=0,
                     label=drawable(name) or None)  # fmt: skip
    _frame(axes, suite, label)
    if len(groups) > 1 and any(groups):
        axes.legend(loc="upper left", fontsize=8, frameon=False)
    return drawing


def _frame(axes: Any, suite: SuiteResult, label: str) -> None:
    values = [value for (low, high) in (axes.get_xlim(), axes.get_ylim()) for value in (low, high) if value > 0]
    points = [*axes.collections]
    data = [float(v) for collection in points for pair in collection.get_offsets() for v in pair if v > 0]
    low, high = (min(data) / 1.15, max(data) * 1.15) if data else (0.1, max(values, default=1.0))
    line = [low, high]
    axes.plot(line, line, color="#444444", linewidth=1)
    axes.fill_between(line, [0.9 * v for v in line], [1.1 * v for v in line], color="#bbbbbb", alpha=0.35, linewidth=0)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal",
             xlabel=f"measured {label}", ylabel=f"predicted {label}")  # fmt: skip
    median = suite.median_abs_error_pct
    text = f"{len(suite.scored)} rows" + (
        f", median error {median:.1f} %, bias {suite.bias_pct:+.1f} %" if median is not None else ""
    )
    axes.set_title(f"{drawable(suite.name)}: {text}", fontsize=9)
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    for axis in (axes.xaxis, axes.yaxis):
        steps = (1.0, 2.0, 5.0) if high / low < 200 else (1.0,)
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter(ScalarFormatter() if high / low < 2e4 else axis.get_major_formatter())
        axis.set_minor_formatter(NullFormatter())


def save_figures(suites: tuple[SuiteResult, ...], folder: str) -> list[Path]:
    """One PNG a suite that has rows; returns what was written."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for suite in suites:
        if suite.scored:
            path = target / f"{Path(suite.name).stem}.png"
            save_figure(figure(suite), path, dpi=150)
            written.append(path)
    return written
