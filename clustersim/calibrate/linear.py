"""Fits of seconds as sums of terms with coefficients of at least 0: relative errors, robust, with a bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clustersim.workload.fitted import Quality

Floats = npt.NDArray[np.float64]
HELD_OUT_EVERY = 5
"""Every fifth point is kept back to test the fit …"""
HELD_OUT_FROM = 10
"""… if there are at least so many."""
_HUBER = 1.5
"""Residuals beyond 1.5 robust standard deviations count linearly: timings have a heavy tail to the slow side."""
_BOOTSTRAP = 200


@dataclass(frozen=True)
class Fit:
    """``coefficients``, ``low``, ``high``: (terms,) with their 95 % bootstrap interval; ``quality`` of the fit."""

    coefficients: Floats
    low: Floats
    high: Floats
    quality: Quality


def held_out(count: int) -> npt.NDArray[np.bool_]:
    """(count,) which points are kept back: every fifth, none of fewer than ten. Never the first or last."""
    kept = np.zeros(count, dtype=np.bool_)
    if count >= HELD_OUT_FROM:
        kept[2 : count - 1 : HELD_OUT_EVERY] = True
    return kept


def nonnegative(terms: Floats, seconds: Floats, rounds: int = 4) -> Floats:
    """(terms,) coefficients ≥ 0 that minimise Huber's loss of fitted ÷ measured − 1.

    Args:
        terms: (points, terms) values of the terms.
        seconds: (points,) measured, above 0.
        rounds: reweightings.
    """
    from scipy.optimize import nnls

    relative = terms / seconds[:, None]
    scale = np.maximum(relative.max(axis=0), 1e-300)
    weight = np.ones(len(seconds))
    found = np.zeros(terms.shape[1])
    for _ in range(rounds):
        found = nnls(relative / scale * weight[:, None], weight)[0] / scale
        off = np.abs(relative @ found - 1)
        limit = _HUBER * max(1.4826 * float(np.median(off)), 1e-9)
        weight = np.sqrt(np.minimum(1.0, limit / np.maximum(off, 1e-300)))
    return found


def fitted(terms: Sequence[Sequence[float]] | Floats, seconds: Sequence[float] | Floats, seed: int = 0) -> Fit:
    """Fit, held-out error and bootstrap intervals.

    Args:
        terms: (points, terms), in an order in which neighbours are alike (sorted by size).
        seconds: (points,) measured, above 0.
        seed: of the bootstrap.

    Raises:
        ValueError: no more points than terms, or a time that is not above 0.
    """
    table, times = np.asarray(terms, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if len(times) <= table.shape[1]:
        raise ValueError(f"needs at least {table.shape[1] + 1} points, there are {len(times)}")
    if not (times > 0).all() or not np.isfinite(times).all():
        raise ValueError("every measured time must be above 0")
    kept = held_out(len(times))
    seen, unseen = (table[~kept], times[~kept]), (table[kept], times[kept])
    best = nonnegative(*seen)
    low, high = _bootstrap(*seen, seed)
    return Fit(best, np.minimum(low, best), np.maximum(high, best), quality_of(best, seen, unseen))


def quality_of(best: Floats, seen: tuple[Floats, Floats], unseen: tuple[Floats, Floats]) -> Quality:
    """Residual on the points seen, error on those kept back."""
    return quality(seen[0] @ best, seen[1], unseen[0] @ best, unseen[1])


def quality(seen: Floats, seen_s: Floats, unseen: Floats, unseen_s: Floats) -> Quality:
    """From fitted and measured seconds of points seen and kept back."""
    some = len(unseen_s) > 0
    return Quality(
        points=len(seen_s),
        residual=rms_log(seen, seen_s),
        held_out_points=len(unseen_s),
        held_out=rms_log(unseen, unseen_s) if some else None,
        held_out_typical=1.4826 * float(np.median(np.abs(np.log(unseen_s / np.maximum(unseen, 1e-300))))) if some else None,
    )


def rms_log(predicted: Floats, measured: Floats) -> float:
    """Root mean square of log(measured ÷ predicted)."""
    off = np.log(measured / np.maximum(predicted, 1e-300))
    return float(np.sqrt(np.mean(off**2)))


def _bootstrap(terms: Floats, seconds: Floats, seed: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    drawn = np.empty((_BOOTSTRAP, terms.shape[1]))
    for row in range(_BOOTSTRAP):
        pick = rng.integers(len(seconds), size=len(seconds))
        drawn[row] = nonnegative(terms[pick], seconds[pick], rounds=2)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return low, high
