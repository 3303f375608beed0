"""Four pictures of a fitted log: repair times, up times after repair, the rate over the calendar, nodes down at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clustersim.faults.fit.describe import down_profile, gaps_after_repair
from clustersim.faults.fit.lifetimes import Fit, Lifetimes, kaplan_meier
from clustersim.faults.fit.log import FaultLog

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from clustersim.faults.fit.model import FittedFailures

DAY = 86400.0
COLOURS = {"exponential": "#999999", "weibull": "#0072b2", "gamma": "#d55e00", "lognormal": "#009e73"}


def figure(fitted: FittedFailures, simulated: Sequence[FaultLog] = ()) -> Figure:
    """The four pictures; ``simulated`` logs of the fitted model add a band to nodes down and to the rate."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(11, 7.5), layout="constrained")
    axes = drawing.subplots(2, 2)
    log = fitted.log
    _survival(axes[0, 0], Lifetimes.of(log.down_s, log.closed), fitted.repairs.overall, "down time, h", 3600.0)
    gaps, observed, _ = gaps_after_repair(log)
    _survival(axes[0, 1], Lifetimes.of(gaps, observed), fitted.refaults, "up time from repair to the next fault, d", DAY)
    _rate(axes[1, 0], fitted, simulated)
    _down(axes[1, 1], log, simulated)
    return drawing


def _survival(axis: Any, data: Lifetimes, fits: Sequence[Fit], label: str, unit: float) -> None:
    """Product-limit estimate against the fitted families, on logarithmic time."""
    data = data.positive()
    ends, survivor = kaplan_meier(data)
    axis.step(ends / unit, survivor, where="post", color="black", linewidth=1.5, label="log (product limit)")
    grid = np.geomspace(max(float(ends[0]), unit * 1e-3), float(data.times.max()), 300)
    for fit in fits:
        curve = np.exp(fit.family.logsf(grid, *fit.values))
        axis.plot(grid / unit, curve, color=COLOURS[fit.family.name], linewidth=1,
                  label=f"{fit.family.name}: AIC {fit.aic:.0f}, KS {fit.ks:.3f}")  # fmt: skip
    axis.set(xscale="log", xlabel=label, ylabel="share longer than this", ylim=(0, 1.02))
    axis.legend(fontsize=8)


def _rate(axis: Any, fitted: FittedFailures, simulated: Sequence[FaultLog]) -> None:
    """Faults in equal periods; the band holds 90 % of the simulated logs."""
    log = fitted.log
    edges = np.linspace(0, log.window_s, max(2, min(40, int(log.window_s / (15 * DAY)) + 1)))
    middle = (edges[1:] + edges[:-1]) / 2 / DAY
    if simulated:
        low, high = np.quantile([np.histogram(each.start_s, edges)[0] for each in simulated], [0.05, 0.95], axis=0)
        axis.fill_between(middle, low, high, color=COLOURS["weibull"], alpha=0.2, label="fitted model, 90 % of replicas")
    axis.plot(middle, np.histogram(log.start_s, edges)[0], color="black", marker=".", label="log")
    axis.set(xlabel="day", ylabel=f"faults in {(edges[1] - edges[0]) / DAY:.3g} days", ylim=(0, None))
    axis.legend(fontsize=8)


def _down(axis: Any, log: FaultLog, simulated: Sequence[FaultLog]) -> None:
    """Share of time with more than so many nodes down."""

    def tail(each: FaultLog, size: int) -> np.ndarray:
        lengths, down = down_profile(each)
        share = np.bincount(down, weights=lengths, minlength=size)[:size] / lengths.sum()
        rest: np.ndarray = 1 - np.cumsum(share)
        return rest

    most = int(max(down_profile(each)[1].max() for each in (log, *simulated))) + 2
    counts = np.arange(most)
    if simulated:
        low, high = np.quantile([tail(each, most) for each in simulated], [0.05, 0.95], axis=0)
        axis.fill_between(counts, np.maximum(low, 1e-5), np.maximum(high, 1e-5), color=COLOURS["weibull"], alpha=0.2,
                          step="post", label="fitted model, 90 % of replicas")  # fmt: skip
    own = tail(log, most)
    axis.step(counts, np.maximum(own, 1e-5), where="post", color="black", label="log")
    mean = float((down_profile(log)[0] * down_profile(log)[1]).sum() / log.window_s)
    from scipy.stats import poisson

    axis.step(counts, np.maximum(poisson.sf(counts, mean), 1e-5), where="post", color="#999999", linestyle="--",
              label="independent (Poisson of the same mean)")  # fmt: skip
    axis.set(yscale="log", xlabel="nodes down at once", ylabel="share of time with more", ylim=(1e-3, 1.05), xlim=(0, most - 1))
    axis.legend(fontsize=8)
