"""What can fail: the family of failure models, and the severities that say what a failure takes with it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from clustersim.distributions import Constant, Distribution
from clustersim.part import Part
from clustersim.units import PositiveSeconds

Component = Literal["gpu", "hbm", "nic", "host", "disk", "psu", "switch", "link", "node", "nvlink-domain", "rack", "storage",
                    "power-feed", "job"]  # fmt: skip


class Severity(StrEnum):
    """Which nodes leave the pool, and which copies are gone."""

    PROCESS = "process"  # no node lost, none repaired
    GPU = "gpu"  # one node leaves; its host memory and disk copies are gone
    NODE = "node"  # likewise
    NVLINK_DOMAIN = "nvlink-domain"  # all nodes of the domain
    RACK = "rack"  # all nodes of the rack
    CLUSTER = "cluster"  # all host memory gone, nodes return
    STORAGE = "storage"  # no node; the shared tier stands still


class FailureModel(Part, family="failure"):
    """One cause of failures."""

    name: str = "failure"
    component: Component = "node"
    severity: Severity = Severity.NODE
    detection: Distribution = Constant(value=60.0)
    """From the failure to the moment that somebody notices; the GPUs are held meanwhile."""
    repair: Distribution | None = None
    """Time in the repair shop; null: the scenario's ``repair.time``."""
    planned: bool = False
    """Planned interruptions are counted apart."""

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """A mapping without ``kind`` is a component with an MTBF."""
        if isinstance(value, dict) and "kind" not in value:
            return {"kind": "component", **value}
        return super().short_form(value)


class ComponentFailure(FailureModel, kind="component"):
    """Failures of a component with a mean time between failures of ONE unit of it.

    ``distribution`` is that of the time between failures of one unit; its mean is ``mtbf``.
    """

    mtbf: PositiveSeconds
    distribution: Literal["exponential", "weibull", "gamma", "lognormal"] = "exponential"
    shape: float | None = Field(default=None, gt=0)
    """Shape of a Weibull or gamma; standard deviation of the logarithm of a lognormal."""
