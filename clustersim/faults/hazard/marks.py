"""What a fault of a fleet is: its class, how long it goes unnoticed, and how long its repair takes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from clustersim.distributions import Constant, Distribution, Exponential, Gamma, Lognormal, Uniform, Weibull
from clustersim.faults.failure import FailureModel
from clustersim.faults.hazard.calendar import LONGEST_S, Clock
from clustersim.faults.process import Site, checked

if TYPE_CHECKING:
    from clustersim.faults.fleet import FleetFailure

_BATCH = 64
_ONE_BY_ONE = (Exponential, Gamma, Lognormal, Uniform, Weibull)
"""Distributions that draw the same numbers whether one after the other or many at once."""


class ClassMarks:
    """Cause, detection and repair time of each fault of a fleet, drawn from streams of their own."""

    def __init__(self, cause: FleetFailure, site: Site) -> None:
        self._calendar = cause.repair_calendar
        self._speed = Clock.of(cause.repair_speed, site.horizon_s)
        self._kinds: list[FailureModel] = [each.model(cause) for each in cause.classes] or [cause]
        shares = np.cumsum([each.share for each in cause.classes] or [1.0])
        self._limits: list[float] = (shares / shares[-1]).tolist()
        self._which = site.streams(f"class/{cause.name}")
        detection, repair = site.streams(f"detection/{cause.name}"), site.streams(f"repair/{cause.name}")
        alone = len(self._kinds) == 1
        self._detection = [sampler(each.detection, detection, alone) for each in self._kinds]
        self._repair = [sampler(each.repair or site.repair, repair, alone) for each in self._kinds]

    def draw(self, time_s: float) -> tuple[FailureModel, float, float]:
        """(cause, detection in seconds, repair in seconds) of a fault at ``time_s``."""
        kind = bisect_right(self._limits, self._which.random()) if len(self._kinds) > 1 else 0
        repair = self._repair[kind]()
        for calendar in self._calendar:
            repair *= calendar.factor(time_s)
        return self._kinds[kind], self._detection[kind](), repair

    def repair_s(self, time_s: float, work_s: float) -> float:
        """How long a repair from ``time_s`` on takes that needs ``work_s``; at most ``LONGEST_S``."""
        if self._speed.flat:
            return work_s
        return min(self._speed.when(self._speed.read(time_s) + work_s) - time_s, LONGEST_S)


def sampler(distribution: Distribution, rng: np.random.Generator, alone: bool) -> Callable[[], float]:
    """What draws one duration after the other; ``alone``: nothing else draws from the stream, so that batches may be drawn."""
    if type(distribution) is Constant:
        value = distribution.value
        return lambda: value
    if not alone or type(distribution) not in _ONE_BY_ONE:
        return lambda: distribution.sample(rng)
    left: list[float] = []

    def draw() -> float:
        if not left:
            left.extend(reversed(checked(distribution, distribution.draw(rng, _BATCH)).tolist()))
        return left.pop()

    return draw
