"""What can fail: the family of failure models, and the severities that say what a failure takes with it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema, model_validator

from clustersim.distributions import Constant, Distribution
from clustersim.part import Block, Part
from clustersim.units import PositiveSeconds

if TYPE_CHECKING:
    from clustersim.faults.process import Arrivals, Site

Component = Literal[
    "gpu",
    "hbm",
    "nic",
    "host",
    "disk",
    "psu",
    "switch",
    "link",
    "node",
    "nvlink-domain",
    "rack",
    "storage",
    "power-feed",
    "job",
]


class Severity(StrEnum):
    """Which nodes leave the pool, and which copies are gone."""

    PROCESS = "process"  # no node lost, none repaired
    GPU = "gpu"  # one node leaves; its host memory and disk copies are gone
    NODE = "node"  # likewise
    NVLINK_DOMAIN = "nvlink-domain"  # all nodes of the domain
    RACK = "rack"  # all nodes of the rack
    CLUSTER = "cluster"  # all host memory gone, nodes return
    STORAGE = "storage"  # no node; the shared tier stands still

    @property
    def takes_nodes(self) -> bool:
        """Whether nodes leave the pool for the repair shop."""
        return self in TAKES_NODES


TAKES_NODES = frozenset({Severity.GPU, Severity.NODE, Severity.NVLINK_DOMAIN, Severity.RACK})
"""Severities after which nodes leave the pool for the repair shop."""


class FailureModel(Part, family="failure"):
    """One cause of failures."""

    spoils: ClassVar[bool] = False
    """Whether the state is wrong afterwards, on whatever node it is held."""
    replays: ClassVar[bool] = False
    """Whether it plays a log again, in which a node that is down may fail once more."""
    name: str = "failure"
    component: Component = "node"
    severity: Severity = Severity.NODE
    detection: Distribution = Constant(value=60.0)
    """From the failure to the moment that somebody notices; the GPUs are held meanwhile."""
    repair: Distribution | None = None
    """Time in the repair shop (of a ``storage`` failure: how long the storage stands still); null: the scenario's
    ``repair.time``."""
    planned: bool = False
    """Planned interruptions are counted apart."""
    units: int | None = Field(default=None, gt=0)
    """How many units of the component the job's nodes hold; null: counted from the cluster."""

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """A mapping without ``kind`` is a component with an MTBF."""
        if isinstance(value, dict) and "kind" not in value:
            return {"kind": "component", **value}
        return super().short_form(value)

    def rate(self, site: Site) -> float:
        """Long-run failures a second at a site.

        Raises:
            TypeError: the class does not say.
        """
        raise TypeError(f"{type(self).__name__} has no rate")

    @property
    def rate_key(self) -> str:
        """A dot and the key that says how often it strikes; empty where no single one does."""
        return next((f".{key}" for key in ("mtbf", "every") if key in type(self).model_fields), "")

    def frequency(self, site: Site) -> float:
        """Arrivals a second in the long run, those included that interrupt nothing."""
        return self.rate(site)

    def arrivals(self, site: Site) -> Arrivals | None:
        """The failures of this cause at a site (the job's places, or a block of spare places); None where it has none.

        Raises:
            TypeError: the class does not say.
        """
        raise TypeError(f"{type(self).__name__} has no arrivals")


_DISTRIBUTION: dict[str, Any] = {
    "anyOf": [
        {"enum": ["exponential", "weibull", "gamma", "lognormal"]},
        {
            "type": "object",
            "properties": {
                "kind": {"enum": ["exponential", "weibull", "gamma", "lognormal"]},
                "shape": {"type": "number", "minimum": 0.05, "maximum": 1000},
                "age": {"enum": ["stationary", "new"]},
            },
            "required": ["kind"],
            "additionalProperties": False,
        },
    ]
}


class ComponentFailure(FailureModel, kind="component"):
    """Failures of a component with a mean time between failures of ONE unit of it.

    ``distribution`` is that of the time between failures of one unit; its mean is ``mtbf``. Each unit is a renewal
    process in wall time that belongs to the place, not to the node which happens to stand there.
    """

    mtbf: PositiveSeconds
    distribution: Annotated[
        Literal["exponential", "weibull", "gamma", "lognormal"], WithJsonSchema(_DISTRIBUTION)
    ] = "exponential"
    """Its name, or a mapping with ``shape`` and ``age`` in it: ``{kind: weibull, shape: 0.7}``."""
    shape: float | None = Field(default=None, ge=0.05, le=1000)
    """Shape of a Weibull or gamma; standard deviation of the logarithm of a lognormal."""
    age: Literal["stationary", "new"] = "stationary"
    """Age of the units at the start: in the steady state (the rate is units ÷ mtbf from the first second), or all
    new."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        """A mapping with a kind says what the name and the keys beside it say; a key given twice is left for an error."""
        named = value.get("distribution") if isinstance(value, dict) else None
        if not isinstance(named, dict) or "kind" not in named or not {"kind", "shape", "age"} >= set(named):
            return value
        rest = {key: item for key, item in named.items() if key != "kind"}
        return value if set(rest) & set(value) else {**value, **rest, "distribution": named["kind"]}

    @model_validator(mode="after")
    def _shape_fits(self) -> ComponentFailure:
        if self.distribution == "exponential" and self.shape is not None:
            raise ValueError("an exponential distribution has no 'shape'")
        if self.distribution != "exponential" and self.shape is None:
            raise ValueError(f"a {self.distribution} distribution needs a 'shape'")
        if self.distribution == "lognormal" and self.shape is not None and self.shape > 10:
            raise ValueError("the 'shape' of a lognormal, the standard deviation of its logarithm, is at most 10")
        return self

    def rate(self, site: Site) -> float:
        """``units ÷ mtbf``."""
        return site.units(self) / self.mtbf

    def arrivals(self, site: Site) -> Arrivals | None:
        """Superposed Poisson process, or one renewal process a unit."""
        from clustersim.faults.process import PoissonArrivals, RenewalArrivals

        units = site.units(self)
        if units == 0:
            return None
        if self.distribution == "exponential":
            return PoissonArrivals(self, site, units)
        return RenewalArrivals(self, site, units)


class FailuresDuring(Block):
    """When failures may strike: an assumption in which closed forms differ. A failure at a moment that is set to
    ``false`` does not happen at all: it is not counted and takes nothing with it."""

    save: bool = True
    """While training stands still for a save."""
    recovery: bool = True
    """During the recovery stages, the wait for nodes and the load."""
    detection: bool | None = None
    """Between a failure and its detection; null: as ``recovery``."""
    spare: bool = True
    """On powered spare nodes."""

    @property
    def detecting(self) -> bool:
        """Whether failures strike before the last one is noticed."""
        return self.recovery if self.detection is None else self.detection
