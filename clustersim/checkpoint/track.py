"""Legs that follow one another after a resumption, as sums from its start: looked up as far as a table reaches.

A track depends on the pattern and on where in the pattern training resumes, not on when: all stretches that begin alike
share one. First come the legs of the head, then those of the pattern's cycle over and over. The table ends with a whole
cycle, and what lies beyond it is the table's end and so many cycles more.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustersim.checkpoint.pattern import Leg, Pattern

TABLE = 96
"""Legs that are looked up, at least: between two failures of a large job lie some tens of saves."""


class Track:
    """The legs after a resumption.

    Args:
        pattern: what repeats; one that never saves has no legs.
        head: legs of which the first starts with the resumption.
        place: the leg of the cycle that follows them.
        number: number of the last save before the resumption.

    Attributes:
        known: legs that the table holds; the last cycle of it repeats beyond.
        legs: those legs.
        starts, steps, slows, stalls: seconds, steps, slow steps and seconds of stall before leg 0, 1, … ``known``.
        lags: of each tier and the save at the end of leg 0, 1, …: seconds from the end of its stall until the copy is
            durable (negative where a tier holds it before; None: the save makes none there).
    """

    __slots__ = ("_cycle", "_pattern", "known", "lags", "legs", "saved", "slows", "stalls", "starts", "steps")

    def __init__(self, pattern: Pattern, head: Sequence[Leg], place: int, number: int) -> None:
        cycle = pattern.cycle
        lone = [*head, *cycle[place:]] if place else list(head)
        rounds = max(1, math.ceil((TABLE - len(lone)) / len(cycle))) if cycle else 0
        self._pattern, self._cycle, self.legs = pattern, len(cycle), [*lone, *cycle * rounds]
        self.known = len(self.legs)
        self.starts: list[float] = _sums([leg.length_s for leg in lone], pattern.starts, rounds)
        self.steps: list[int] = _sums([leg.steps for leg in lone], pattern.steps, rounds)
        self.slows: list[int] = _sums([leg.slow for leg in lone], pattern.slows, rounds)
        self.stalls: list[float] = _sums([leg.stall_s for leg in lone], pattern.stalls, rounds)
        self.saved = [pattern.outlay(number + save + 1).stall_s for save in range(self.known)]
        self.lags = {
            tier: [pattern.lag(number + save + 1, tier, leg) for save, leg in enumerate(self.legs)]
            for tier, _ in pattern.tiers
        }

    def like(self, leg: int) -> int:
        """The leg of the table that a leg is like."""
        return leg if leg < self.known else self.known - self._cycle + (leg - self.known) % self._cycle

    def start(self, leg: int) -> float:
        """Seconds before a leg."""
        if leg <= self.known:
            return self.starts[leg]
        return float(self._beyond(self.starts, self._pattern.starts, leg))

    def done(self, leg: int) -> int:
        """Steps before a leg."""
        if leg <= self.known:
            return self.steps[leg]
        return int(self._beyond(self.steps, self._pattern.steps, leg))

    def slow(self, leg: int) -> int:
        """Slow steps before a leg."""
        return self.slows[leg] if leg <= self.known else int(self._beyond(self.slows, self._pattern.slows, leg))

    def stall(self, leg: int) -> float:
        """Seconds of stall before a leg."""
        return self.stalls[leg] if leg <= self.known else float(self._beyond(self.stalls, self._pattern.stalls, leg))

    def _beyond(self, sums: list[Any], cycle: list[Any], leg: int) -> Any:
        """The sum before a leg beyond the table."""
        rounds, rest = divmod(leg - self.known, self._cycle)
        return sums[-1] + rounds * cycle[-1] + cycle[rest]

    def leg_at(self, seconds: float) -> int:
        """The last leg that has started after so many seconds (to rounding)."""
        starts = self.starts
        if seconds < starts[-1]:
            return max(0, bisect.bisect_right(starts, seconds) - 1)
        return self._last(self._pattern.starts, seconds - starts[-1])

    def leg_of(self, steps: int) -> int:
        """The last leg that starts at or before so many steps."""
        if steps < self.steps[-1]:
            return bisect.bisect_right(self.steps, steps) - 1
        return self._last(self._pattern.steps, steps - self.steps[-1])

    def _last(self, cycle: list[Any], rest: Any) -> int:
        """The last leg beyond the table whose sum, counted from the table's end, is at most ``rest``."""
        rounds = int(rest // cycle[-1])
        leg = bisect.bisect_right(cycle, rest - rounds * cycle[-1]) - 1
        return self.known + rounds * self._cycle + min(leg, self._cycle - 1)


def _sums(lone: list[Any], cycle: list[Any], rounds: int) -> list[Any]:
    """Running sums over ``lone``, then over the cycle (itself running sums) so many times, each adding the same."""
    sums = list(accumulate(lone, initial=0))
    end = sums[-1]
    for turn in range(rounds):
        sums += [end + turn * cycle[-1] + value for value in cycle[1:]]
    return sums
