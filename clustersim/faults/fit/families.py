"""Lifetime families by their logarithms: what a likelihood needs, and nothing else.

Every family has two parameters or one, both positive, so that all of them are estimated on a logarithmic scale:

============ =============================== ==========================================
family       parameters                      log survivor function at ``t``
============ =============================== ==========================================
exponential  ``scale``                       ``-t / scale``
weibull      ``shape``, ``scale``            ``-(t / scale) ** shape``
gamma        ``shape``, ``scale``            ``log Q(shape, t / scale)``
lognormal    ``sigma``, ``median``           ``log Φ(-(log t - log median) / sigma)``
============ =============================== ==========================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Family:
    """One lifetime family.

    ``logpdf`` and ``logsf`` take times in seconds (shape ``(n,)``, > 0) and the parameters; ``mean`` and ``quantile`` are
    in seconds; ``start`` guesses parameters from the mean and the coefficient of variation of complete times.
    """

    name: str
    parameters: tuple[str, ...]
    logpdf: Callable[..., Array]
    logsf: Callable[..., Array]
    mean: Callable[..., float]
    quantile: Callable[..., Array]
    start: Callable[[Array], tuple[float, ...]]
    scale_key: str = "scale"


def _exponential_logpdf(t: Array, scale: float) -> Array:
    return -math.log(scale) - t / scale


def _exponential_logsf(t: Array, scale: float) -> Array:
    return -t / scale


def _weibull_logpdf(t: Array, shape: float, scale: float) -> Array:
    z = np.log(t / scale)
    return math.log(shape / scale) + (shape - 1) * z - np.exp(np.minimum(shape * z, 700.0))


def _weibull_logsf(t: Array, shape: float, scale: float) -> Array:
    with np.errstate(divide="ignore"):
        return -np.exp(np.minimum(shape * np.log(t / scale), 700.0))


def _gamma_logpdf(t: Array, shape: float, scale: float) -> Array:
    return (shape - 1) * np.log(t / scale) - t / scale - math.lgamma(shape) - math.log(scale)


def _gamma_logsf(t: Array, shape: float, scale: float) -> Array:
    from scipy.special import gammaincc

    return np.log(np.maximum(gammaincc(shape, np.asarray(t) / scale), 1e-300))


def _lognormal_logpdf(t: Array, sigma: float, median: float) -> Array:
    z = np.log(t / median) / sigma
    return -0.5 * z * z - np.log(t) - math.log(sigma * math.sqrt(2 * math.pi))


def _lognormal_logsf(t: Array, sigma: float, median: float) -> Array:
    from scipy.special import log_ndtr

    with np.errstate(divide="ignore"):
        return np.asarray(log_ndtr(-np.log(np.asarray(t) / median) / sigma), dtype=np.float64)


def _gamma_quantile(q: Array, shape: float, scale: float) -> Array:
    from scipy.special import gammaincinv

    return scale * np.asarray(gammaincinv(shape, q), dtype=np.float64)


def _lognormal_quantile(q: Array, sigma: float, median: float) -> Array:
    from scipy.special import ndtri

    return median * np.exp(sigma * np.asarray(ndtri(q), dtype=np.float64))


def _log_moments(times: Array) -> tuple[float, float]:
    logs = np.log(times)
    return float(logs.mean()), max(float(logs.std()), 0.05)


def _weibull_start(times: Array) -> tuple[float, float]:
    mean, spread = _log_moments(times)
    shape = math.pi / math.sqrt(6) / spread
    return shape, math.exp(mean + np.euler_gamma / shape)


def _gamma_start(times: Array) -> tuple[float, float]:
    gap = max(math.log(times.mean()) - float(np.log(times).mean()), 1e-3)
    shape = (3 - gap + math.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)  # Minka 2002
    return shape, float(times.mean()) / shape


def _lognormal_start(times: Array) -> tuple[float, float]:
    mean, spread = _log_moments(times)
    return spread, math.exp(mean)


EXPONENTIAL = Family(
    "exponential", ("scale",), _exponential_logpdf, _exponential_logsf, lambda scale: scale,
    lambda q, scale: -scale * np.log1p(-q), lambda times: (float(times.mean()),), "mean")  # fmt: skip
WEIBULL = Family(
    "weibull", ("shape", "scale"), _weibull_logpdf, _weibull_logsf,
    lambda shape, scale: scale * math.gamma(1 + 1 / shape),
    lambda q, shape, scale: scale * (-np.log1p(-q)) ** (1 / shape), _weibull_start)  # fmt: skip
GAMMA = Family(
    "gamma", ("shape", "scale"), _gamma_logpdf, _gamma_logsf, lambda shape, scale: shape * scale,
    _gamma_quantile, _gamma_start)  # fmt: skip
LOGNORMAL = Family(
    "lognormal", ("sigma", "median"), _lognormal_logpdf, _lognormal_logsf,
    lambda sigma, median: median * math.exp(sigma * sigma / 2), _lognormal_quantile, _lognormal_start,
    "median")  # fmt: skip

FAMILIES: dict[str, Family] = {family.name: family for family in (EXPONENTIAL, WEIBULL, GAMMA, LOGNORMAL)}
