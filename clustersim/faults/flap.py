"""Link flaps: a link goes down and comes back by itself, soon enough for training to wait for it, or too late."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from pydantic import model_validator

from clustersim.distributions import Constant, Distribution, Exponential
from clustersim.faults.clocked import ClockedArrivals
from clustersim.faults.failure import Component, FailureModel, Severity
from clustersim.faults.hazard.calendar import Calendar
from clustersim.faults.process import Arrivals, Hit, Site
from clustersim.units import PositiveSeconds

_DRAWS = 65536
"""Outages by which the share of long ones is estimated where no formula gives it."""


class Flap(NamedTuple):
    """What a hit of a ``LinkFlap`` carries that training waits for: how long the link is down."""

    outage_s: float


class LinkFlap(FailureModel, kind="link-flap"):
    """A link of the job goes down for ``outage``.

    Whoever communicates over it waits, and all others with it: the step under way, or the next one, takes as much longer
    (``straggle``). Communication that has waited for ``tolerate`` gives up: the job crashes, has stood still until then
    (``detect``), and the node behind the link is taken out (``severity``).

    ``tolerate`` is what gives up first: the collective time-out of PyTorch (600 s), or the transport's own retries: NCCL's
    over InfiniBand and RoCE are ``NCCL_IB_RETRY_CNT`` (7) of 4.096 µs · 2^``NCCL_IB_TIMEOUT`` each (20: 4.3 s), 30 s together.
    HPN saw 5,000 to 60,000 flaps a day in its fleet, and one to two crashes a month of a job below 3,000 GPUs (SIGCOMM 2024).

    A link that has another beside it does not stop anybody; that it is slower meanwhile is a ``fail-slow`` of ``what: link``.
    """

    name: str = "link-flap"
    component: Component = "link"
    severity: Severity = Severity.NODE
    mtbf: PositiveSeconds
    """Mean time between flaps of ONE link."""
    outage: Distribution
    """How long a link is down."""
    tolerate: PositiveSeconds = 600.0
    """How long communication waits for a link before it gives up."""
    calendar: tuple[Calendar, ...] = ()
    """Factors on the rate over calendar time; several multiply."""
    detection: Distribution = Constant(value=0.0)
    """From the moment at which communication gave up to the moment at which somebody notices."""

    @model_validator(mode="after")
    def _stops_the_job(self) -> LinkFlap:
        if self.severity == Severity.STORAGE:
            raise ValueError("communication that gives up on a link crashes the job, and 'storage' stops nobody: "
                             "'process' or 'node' would be right")  # fmt: skip
        return self

    def rate(self, site: Site) -> float:
        """Crashes a second: flaps that last for longer than ``tolerate`` (calendars left aside)."""
        return 0.0 if site.block is not None else site.units(self) / self.mtbf * share_over(self.outage, self.tolerate)

    def frequency(self, site: Site) -> float:
        """Flaps a second."""
        return 0.0 if site.block is not None else site.units(self) / self.mtbf

    def arrivals(self, site: Site) -> Arrivals | None:
        """Flaps of the links of the job's places; those of spares stop nobody."""
        units = site.units(self)
        return None if site.block is not None or units == 0 else _Flaps(self, site, units)


class _Flaps(ClockedArrivals):
    """Flaps; outages draw from a stream of their own."""

    def __init__(self, cause: LinkFlap, site: Site, units: int) -> None:
        super().__init__(cause, site, units, cause.mtbf, cause.calendar)
        self._cause = cause
        self._outages = site.streams(f"outage/{cause.name}", *site.ids)
        self._detection = site.streams(f"detection/{cause.name}", *site.ids)
        self._repair = site.streams(f"repair/{cause.name}", *site.ids)

    def pop(self) -> Hit:
        cause = self._cause
        first, last = self._places(cause)
        outage = cause.outage.sample(self._outages)
        hit = Hit(self.next_s, cause, first, last, 0.0, 0.0, extra=Flap(outage))
        if outage > cause.tolerate:
            noticed = cause.tolerate + cause.detection.sample(self._detection)
            repair = (cause.repair or self._site.repair).sample(self._repair)
            hit = hit._replace(detection_s=noticed, repair_s=repair, extra=None)
        self._advance()
        return hit


def share_over(distribution: Distribution, limit_s: float) -> float:
    """Probability of more than ``limit_s`` seconds; of distributions without a formula here, estimated by fixed draws."""
    if type(distribution) is Exponential:
        return math.exp(-limit_s / distribution.mean) if distribution.mean > 0 else 0.0
    return float((distribution.draw(np.random.default_rng(0), _DRAWS) > limit_s).mean())
