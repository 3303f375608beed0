"""Rates that change over calendar time: a driver release, a hot week, planned phases, day and night.

A calendar is a factor on the hazard, constant between edges; several multiply.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from clustersim.errors import InputError, Problem
from clustersim.part import Part
from clustersim.units import PositiveSeconds, Seconds

Array = NDArray[np.float64]

LONGEST_S = 100 * 365 * 86400.0
"""Where no horizon is known, calendars are laid out for this long."""

MOST_CHANGES = 2e6
"""Most edges of a cause's calendars: every hour of a century is 0.9 million, and takes 1.3 s to lay out."""


class Calendar(Part, family="calendar"):
    """A factor on the hazard as a function of the time since the run's start."""

    def edges(self, horizon_s: float) -> list[float]:
        """Times in (0, horizon) at which the factor may change, in seconds."""
        raise TypeError(f"{type(self).__name__} has no edges")

    def changes(self, horizon_s: float) -> float:
        """About how many edges there are, without laying them out."""
        return 0.0

    def factor(self, time_s: float) -> float:
        """The factor from ``time_s`` on (until the next edge)."""
        raise TypeError(f"{type(self).__name__} has no factor")


class StepCalendar(Calendar, kind="steps"):
    """From ``at[i]`` on the factor is ``factors[i]``; the first time is 0 and the last factor stays."""

    at: tuple[Seconds, ...] = Field(min_length=1)
    factors: tuple[float, ...] = Field(min_length=1)

    def model_post_init(self, context: Any, /) -> None:
        """Check that the steps are a function of time."""
        if len(self.at) != len(self.factors) or self.at[0] != 0 or list(self.at) != sorted(set(self.at)):
            raise ValueError("'at' must begin with 0, rise, and be as many as 'factors'")
        if min(self.factors) < 0:
            raise ValueError("'factors' must be at least 0")

    def edges(self, horizon_s: float) -> list[float]:
        return [time for time in self.at if 0 < time < horizon_s]

    def factor(self, time_s: float) -> float:
        return self.factors[bisect_right(self.at, time_s) - 1]


class SurgeCalendar(Calendar, kind="surge"):
    """``factor`` times the rate from ``start`` for ``length``: a driver release, a hot week."""

    start: Seconds
    length: PositiveSeconds
    times: float = Field(ge=0)
    every: PositiveSeconds | None = None
    """Comes back after this time, again and again; null: once."""

    def changes(self, horizon_s: float) -> float:
        return 2.0 if self.every is None else 2.0 * horizon_s / self.every

    def edges(self, horizon_s: float) -> list[float]:
        period = self.every or math.inf
        number = 1 if math.isinf(period) else int(max(0.0, horizon_s - self.start) // period) + 1
        both = [self.start + k * (0.0 if math.isinf(period) else period) for k in range(number)]
        return sorted({t for begin in both for t in (begin, begin + self.length) if 0 < t < horizon_s})

    def factor(self, time_s: float) -> float:
        since = time_s - self.start
        if since < 0:
            return 1.0
        if self.every is not None:
            since -= math.floor(since / self.every) * self.every
        return self.times if since < self.length else 1.0


class PeriodicCalendar(Calendar, kind="periodic"):
    """``factors`` over equal parts of ``period``, again and again: day and night, weekdays."""

    period: PositiveSeconds = 86400.0
    factors: tuple[float, ...] = Field(min_length=2)

    def changes(self, horizon_s: float) -> float:
        return horizon_s / self.period * len(self.factors)

    def edges(self, horizon_s: float) -> list[float]:
        part = self.period / len(self.factors)
        return [k * part for k in range(1, math.ceil(horizon_s / part))]

    def factor(self, time_s: float) -> float:
        part = self.period / len(self.factors)
        return self.factors[int((time_s + 1e-9 * part) // part) % len(self.factors)]


def refuse_restless(calendars: Sequence[Calendar], horizon_s: float, path: str = "failures") -> None:
    """Refuse calendars that change too often to be laid out up to ``horizon_s`` (inf: unknown, up to ``LONGEST_S``).

    Args:
        path: the key at which they stand.

    Raises:
        InputError: they change more than ``MOST_CHANGES`` times.
    """
    span = LONGEST_S if math.isinf(horizon_s) else horizon_s
    if (changes := math.fsum(calendar.changes(span) for calendar in calendars)) > MOST_CHANGES:
        where = "a century, for which it is laid out without a training.duration" if math.isinf(horizon_s) else "the run"
        raise InputError(Problem(path, f"a calendar changes {changes:.2g} times in {where}; at most "
                                       f"{MOST_CHANGES:.0e} changes are laid out"))  # fmt: skip


@dataclass(frozen=True)
class Clock:
    """Calendars multiplied into one operational clock: ``C(t) = ∫ factor`` and its inverse.

    Attributes:
        edges: seconds, the first 0.
        factors: from each edge on; the last holds for ever.
        sums: C at each edge, seconds.
    """

    edges: Array
    factors: Array
    sums: Array

    @classmethod
    def of(cls, calendars: Sequence[Calendar], horizon_s: float) -> Clock:
        """The product of ``calendars`` up to ``horizon_s`` (inf: unknown, up to ``LONGEST_S``).

        Raises:
            InputError: they change more than ``MOST_CHANGES`` times.
        """
        refuse_restless(calendars, horizon_s)
        span = (tuple(calendars), LONGEST_S if math.isinf(horizon_s) else horizon_s)
        try:
            return _laid_out(*span)
        except TypeError:  # a plug-in's calendar that cannot be hashed is laid out anew
            return _laid_out.__wrapped__(*span)

    @functools.cached_property
    def flat(self) -> bool:
        """True where calendar and clock agree."""
        return len(self.edges) == 1 and bool(self.factors[0] == 1.0)

    @functools.cached_property
    def _lists(self) -> tuple[list[float], list[float], list[float]]:
        """(edges, factors, sums) for the look-up of single times."""
        return self.edges.tolist(), self.factors.tolist(), self.sums.tolist()

    def read(self, time_s: float) -> float:
        """C(time) in seconds of operation."""
        if self.flat:
            return time_s
        edges, factors, sums = self._lists
        at = bisect_right(edges, time_s) - 1
        return sums[at] + (time_s - edges[at]) * factors[at]

    def when(self, reading_s: float) -> float:
        """The earliest time at which the clock reads ``reading_s``; infinity if it never does."""
        if self.flat:
            return reading_s
        edges, factors, sums = self._lists
        at = max(bisect_left(sums, reading_s) - 1, 0)
        if factors[at] > 0:
            return edges[at] + (reading_s - sums[at]) / factors[at]
        return math.inf if reading_s > sums[at] else edges[at]


@functools.lru_cache(maxsize=8)
def _laid_out(calendars: tuple[Calendar, ...], horizon_s: float) -> Clock:
    """The clock of ``calendars``, which every replica of a cause reads: hours of a century take seconds to lay out."""
    edges = sorted({0.0, *(edge for calendar in calendars for edge in calendar.edges(horizon_s))})
    factors = [math.prod(calendar.factor(edge) for calendar in calendars) for edge in edges]
    sums = np.concatenate([[0.0], np.cumsum(np.diff(edges) * np.array(factors[:-1]))])
    return Clock(np.array(edges), np.array(factors), sums)
