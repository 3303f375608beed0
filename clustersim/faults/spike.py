"""Loss spikes: training goes wrong by itself, goes back to before it did, and may leave out the data that brought it there."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

from pydantic import Field, model_validator

from clustersim.distributions import Constant, Distribution
from clustersim.faults.failure import Component, FailureModel, Severity
from clustersim.faults.process import Arrivals, Hit, Site
from clustersim.units import PositiveSeconds


class Spike(NamedTuple):
    """What a hit of a ``LossSpike`` carries."""

    latency_s: float
    margin: int
    saves_back: int
    skip: int


class LossSpike(FailureModel, kind="loss-spike"):
    """The loss of the job jumps up and does not come down again; no node is to blame.

    Training goes on until somebody sees it, ``latency`` after it began. After ``detection`` the job goes back to a copy on
    shared storage that is older than the spike by ``margin`` steps, all newer ones are given up, and it goes on with the data
    behind the next ``skip`` batches. PaLM saw about 20 spikes in a run, went back about 100 steps before each and skipped 200
    to 500 batches, after which it did not come again (arXiv 2204.02311, section 5.1).

    A spike needs training: none begins while the job is down. One that has not been seen is undone by going back past it for
    another spike or a silent corruption; any other failure meanwhile trains the same batches again, and the spike with them.
    """

    spoils: ClassVar[bool] = True

    name: str = "loss-spike"
    component: Component = "job"
    severity: Severity = Severity.PROCESS
    mtbf: PositiveSeconds
    """Mean time between spikes of the whole job."""
    latency: Distribution = Constant(value=3600.0)
    """From the beginning of a spike to the moment that somebody sees that it stays."""
    passes: float = Field(default=0.0, ge=0, le=1)
    """Share of spikes that pass by themselves: nothing is done about them."""
    margin: int = Field(default=0, ge=0)
    """Steps before the beginning of the spike that the copy has to be old."""
    saves_back: int = Field(default=0, ge=0)
    """Further saves to go back from there, for caution; at most ``checkpoint.keep`` − 1."""
    skip: int = Field(default=0, ge=0)
    """Batches (of one step each) that are left out after going back. They are read where a recovery stage reads past data
    (``per_step``)."""
    detection: Distribution = Constant(value=0.0)
    """The decision what to do; the GPUs are held meanwhile."""

    @model_validator(mode="after")
    def _of_the_job(self) -> LossSpike:
        if self.component != "job" or self.severity != Severity.PROCESS:
            raise ValueError("a loss spike is of component 'job' and severity 'process': it takes no node")
        return self

    def rate(self, site: Site) -> float:
        """Spikes a second that make the job go back."""
        return 0.0 if site.block is not None else (1 - self.passes) / self.mtbf

    def frequency(self, site: Site) -> float:
        """Spikes a second, those that pass included."""
        return 0.0 if site.block is not None else 1 / self.mtbf

    def arrivals(self, site: Site) -> Arrivals | None:
        """A Poisson process of the job."""
        return None if site.block is not None else _Spikes(self, site)


class _Spikes(Arrivals):
    """Spikes that do not pass, each with the time until it is seen."""

    def __init__(self, cause: LossSpike, site: Site) -> None:
        self._cause, self._nodes = cause, site.nodes
        self._rng = site.streams(f"failure/{cause.name}", *site.ids)
        self._latency = site.streams(f"latency/{cause.name}", *site.ids)
        self._detection = site.streams(f"detection/{cause.name}", *site.ids)
        self.next_s = 0.0
        self._advance()

    def _advance(self) -> None:
        if self._cause.passes == 1:
            self.next_s = math.inf
            return
        while True:  # one number for the gap and one for whether it passes, so that the share moves no spike in time
            self.next_s += float(self._rng.exponential(self._cause.mtbf))
            if self._rng.random() >= self._cause.passes:
                return

    def pop(self) -> Hit:
        cause = self._cause
        spike = Spike(cause.latency.sample(self._latency), cause.margin, cause.saves_back, cause.skip)
        hit = Hit(self.next_s, cause, 0, self._nodes, cause.detection.sample(self._detection), 0.0, extra=spike)
        self._advance()
        return hit
