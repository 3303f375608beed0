"""Training time between saves: ``10 min``, ``{steps: 200}``, ``auto``, or another policy by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import Field

from clustersim.checkpoint import optimum
from clustersim.part import Part
from clustersim.units import DURATION, PositiveSeconds


@dataclass(frozen=True)
class Costs:
    """What a policy may weigh.

    Attributes:
        stall_s: what an uncontended save stalls training.
        persist_s: from the end of the stall until the copy is durable.
        mtbf_s: mean time between all failures that interrupt the job; inf: none.
    """

    stall_s: float
    persist_s: float
    mtbf_s: float


class Every(NamedTuple):
    """A resolved interval: seconds of training or steps; both None: never."""

    seconds: float | None = None
    steps: int | None = None

    @property
    def never(self) -> bool:
        """No save is ever due."""
        return self.seconds is None and self.steps is None


class Interval(Part, family="checkpoint interval"):
    """Training time from the end of a save's stall, or from resumption, to the next; rounded up to whole steps."""

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """A duration, ``{steps: n}``, or a policy's name."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return {"kind": "every", "time": value}
        if isinstance(value, str) and value not in cls.kinds:
            return {"kind": "every", "time": value}
        if isinstance(value, dict) and set(value) == {"steps"}:
            return {"kind": "steps", **value}
        return super().short_form(value)

    def about_s(self, step_s: float) -> float | None:
        """The interval in seconds where it is fixed; None: it depends on costs."""
        return None

    def again(self, costs: Costs, elapsed_s: float, failures: int) -> Every | None:
        """The interval after ``failures`` in ``elapsed_s``; None: it never changes."""
        return None

    def resolve(self, costs: Costs) -> Every:
        """The interval under given costs.

        Raises:
            TypeError: the class does not say.
        """
        raise TypeError(f"{type(self).__name__} resolves nothing")


class Fixed(Interval, kind="every"):
    """A fixed training time."""

    time: PositiveSeconds

    def about_s(self, step_s: float) -> float | None:
        return self.time

    def resolve(self, costs: Costs) -> Every:
        return Every(seconds=self.time)

    def dump(self) -> Any:
        """The short form: a duration."""
        return DURATION.format(self.time)


class Steps(Interval, kind="steps"):
    """A fixed number of steps."""

    steps: int = Field(gt=0)

    def about_s(self, step_s: float) -> float | None:
        return self.steps * step_s

    def resolve(self, costs: Costs) -> Every:
        return Every(steps=self.steps)

    def dump(self) -> Any:
        """The short form: ``{steps: n}``."""
        return {"steps": self.steps}


class Policy(Interval):
    """Base of policies that follow from the stall and the mean time between failures; never earlier than durable."""

    def resolve(self, costs: Costs) -> Every:
        if math.isinf(costs.mtbf_s):
            return Every()
        return Every(seconds=max(self.best(costs.stall_s, costs.mtbf_s), costs.persist_s))

    def best(self, stall_s: float, mtbf_s: float) -> float:
        """Training time between saves, seconds."""
        raise TypeError(f"{type(self).__name__} has no formula")


class Auto(Policy, kind="auto"):
    """The exact optimum: of the stall for synchronous saves; with τ ≥ persist time for asynchronous ones. Never without
    failures."""

    def best(self, stall_s: float, mtbf_s: float) -> float:
        return optimum.exact(stall_s, mtbf_s)


class Young(Policy, kind="young"):
    """Young 1974: √(2 · stall · MTBF)."""

    def best(self, stall_s: float, mtbf_s: float) -> float:
        return optimum.young(stall_s, mtbf_s)


class Daly(Policy, kind="daly"):
    """Daly 2006, higher order."""

    def best(self, stall_s: float, mtbf_s: float) -> float:
        return optimum.daly(stall_s, mtbf_s)


class DalyFirstOrder(Policy, kind="daly-first-order"):
    """Daly 2006, first order: √(2 · stall · MTBF) − stall."""

    def best(self, stall_s: float, mtbf_s: float) -> float:
        return optimum.daly_first_order(stall_s, mtbf_s)


class Bounded(Interval, kind="bounded"):
    """As often as a bound on what saves stall allows, and not before the save before is durable (CheckFreq, FAST 2021:
    3.5 %)."""

    overhead: float = Field(default=0.035, gt=0, lt=1)

    def resolve(self, costs: Costs) -> Every:
        """τ = stall ÷ overhead; with a free save one a step."""
        least = max(costs.stall_s / self.overhead, costs.persist_s)
        return Every(seconds=least) if least > 0 else Every(steps=1)


class Adaptive(Interval, kind="adaptive"):
    """Follows the failures that are seen: the exact optimum for the rate measured so far, anew after every failure.

    The rate is (failures + 1) ÷ (elapsed + ``prior``): ``prior`` is the MTBF that is believed before anything has been
    seen, and weighs as one failure.
    """

    prior: PositiveSeconds = 86400.0

    def resolve(self, costs: Costs) -> Every:
        return self._at(costs, self.prior)

    def again(self, costs: Costs, elapsed_s: float, failures: int) -> Every:
        """The interval for the rate measured so far."""
        return self._at(costs, (elapsed_s + self.prior) / (failures + 1))

    def _at(self, costs: Costs, mtbf_s: float) -> Every:
        best = max(optimum.exact(costs.stall_s, mtbf_s), costs.persist_s)
        return Every(seconds=best) if best > 0 else Every(steps=1)


class Predicted(Policy, kind="predicted"):
    """A predictor announces a share ``recall`` of the failures ``lead`` ahead, and of its alarms a share ``precision``
    is right: every alarm makes one more save, and the periodic ones follow the rate of failures that come unannounced.

    τ = the exact optimum for M ÷ (1 − recall) (Aupy, Robert, Vivien, Zaidouni, 2014, first order).
    """

    recall: float = Field(default=0.5, ge=0, lt=1)
    precision: float = Field(default=0.8, gt=0, le=1)
    lead: PositiveSeconds = 300.0

    def best(self, stall_s: float, mtbf_s: float) -> float:
        return optimum.exact(stall_s, mtbf_s / (1 - self.recall))
