"""Minimisation within bounds, by BFGS with a wall of parabolas.

SciPy's L-BFGS-B calls LAPACK for matrices of a few numbers, whose threads spin and slow a busy machine down tenfold; its BFGS
does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from clustersim.faults.fit.families import Array

WALL = 1e3
"""Curvature of the wall behind a bound, in units of log likelihood."""


def minimise(loss: Callable[[Array], float], start: Array, bounds: Sequence[tuple[float, float]],
             gradient: Callable[[Array], Array] | None = None) -> tuple[Array, float]:  # fmt: skip
    """The place of the smallest ``loss`` within ``bounds``, and its value; the gradient by differences where not given."""
    from scipy.optimize import minimize

    low, high = np.array(bounds, dtype=np.float64).T

    def walled(theta: Array) -> float:
        inside = np.clip(theta, low, high)
        value = loss(inside) + WALL * float(((theta - inside) ** 2).sum())
        return value if np.isfinite(value) else 1e300

    def slope(theta: Array) -> Array:
        inside = np.clip(theta, low, high)
        assert gradient is not None
        return np.where(theta == inside, gradient(inside), 0.0) + 2 * WALL * (theta - inside)

    found = minimize(walled, np.clip(start, low, high), method="BFGS", jac=slope if gradient else None, options={"gtol": 1e-4})
    best = np.clip(found.x, low, high)
    return best, float(loss(best))
