"""One picture of the replayed cases: ours ÷ published, a dot a row, with what its bound allows."""

from __future__ import annotations

from pathlib import Path

from clustersim.validation.reliability_case import Case


def save_figure(rows: list[Case], path: Path) -> None:
    """Write the picture of the rows that have a bound and a published figure above 0."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [row for row in rows if row.scored and row.published and not row.suite.startswith("8 ")]
    figure, axes = pyplot.subplots(figsize=(9, 0.24 * len(shown) + 1.2))
    for place, row in enumerate(reversed(shown)):
        low = (row.low if row.low is not None else 0.0) / row.published
        high = (row.high if row.high is not None else 2 * row.published) / row.published
        span = [max(low, 0.5), min(high, 1.5)]
        axes.plot(span, [place, place], color="#b0bec5", linewidth=6, solid_capstyle="butt", zorder=1)
        ratio = min(max(row.ours / row.published, 0.5), 1.5)
        axes.plot(ratio, place, "o", color="#1565c0" if row.holds else "#c62828", markersize=5, zorder=2)
    axes.axvline(1.0, color="#37474f", linewidth=0.8, zorder=0)
    labels = [f"{row.suite.split(maxsplit=1)[-1]}: {row.case}" for row in reversed(shown)]
    axes.set_yticks(range(len(shown)), labels, fontsize=7)
    axes.set_xlim(0.48, 1.52)
    axes.set_ylim(-0.8, len(shown) - 0.2)
    axes.set_xlabel("ours ÷ published (grey: what the bound allows, cut at 0.5 and 1.5)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    pyplot.close(figure)
