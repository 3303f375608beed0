"""Failures that are announced: a predictor looks at what is about to strike, and is wrong at times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import simpy

from clustersim.checkpoint.interval import Predicted
from clustersim.faults.process import Arrivals, Change, Hit
from clustersim.faults.spare_places import SparePlaces
from clustersim.run.clock import at


class Predictor:
    """Raises alarms: a share ``recall`` of all failures ``lead`` ahead of them, and false ones, so that a share
    ``precision`` of all alarms is right.

    Args:
        policy: recall, precision and lead.
        rate: failures a second of all causes.
        alarm: called at every alarm.
        rng: the replica's stream of alarms.
    """

    def __init__(self, env: simpy.Environment, policy: Predicted, rate: float, alarm: Callable[[], None],
                 rng: np.random.Generator) -> None:  # fmt: skip
        self._env, self._policy, self._alarm, self._rng = env, policy, alarm, rng
        self._false = rate * policy.recall * (1 - policy.precision) / policy.precision
        if self._false > 0:
            self._next_false()

    def foresee(self, time_s: float) -> None:
        """A failure will strike at a time, which nobody but the predictor may know."""
        if self._rng.random() < self._policy.recall and time_s < float("inf"):
            at(self._env, max(self._env.now, time_s - self._policy.lead), lambda _: self._alarm(), "alarm")

    def _next_false(self) -> None:
        wait = float(self._rng.exponential(1 / self._false))
        at(self._env, self._env.now + wait, lambda _: self._raise_false(), "alarm")

    def _raise_false(self) -> None:
        self._alarm()
        self._next_false()


class Foreseen(Arrivals):
    """Arrivals whose every next hit a predictor is told of."""

    def __init__(self, source: Arrivals, predictor: Predictor) -> None:
        self._source, self._predictor = source, predictor
        self.observes, self.hears = source.observes, source.hears
        self._follow()

    def _follow(self) -> None:
        self.next_s = self._source.next_s
        self._predictor.foresee(self.next_s)

    def pop(self) -> Hit:
        """The source's hit."""
        hit = self._source.pop()
        self._follow()
        return hit

    def observe(self, change: Change) -> bool:
        """The source observes; where its next hit moves, the predictor is told anew."""
        moved = self._source.observe(change)
        if moved:
            self._follow()
        return moved


def foreseen(arrivals: Sequence[Arrivals], predictor: Predictor | None) -> list[Arrivals]:
    """The arrivals, seen by a predictor where there is one; failures of spare places stop nothing and are not announced."""
    if predictor is None:
        return list(arrivals)
    return [source if isinstance(source, SparePlaces) else Foreseen(source, predictor) for source in arrivals]
