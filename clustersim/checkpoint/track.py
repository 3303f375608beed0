"""Legs that follow one another after a resumption, as sums from its start: looked up as far as a table reaches.

A track depends on the pattern and on where in the pattern training resumes, not on when: all stretches that begin alike
share one. First come the legs of the head, then those of the pattern's cycle over and over. The table ends with a whole
cycle where that is short; what lies beyond it is the table's end and so many cycles more, from the leg at which it ends.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from clustersim.checkpoint.tiers import Tier

if TYPE_CHECKING:
    from clustersim.checkpoint.pattern import Leg, Pattern

TABLE = 96
"""Legs that are looked up, at least: between two failures of a large job lie some tens of saves."""


class Column(NamedTuple):
    """One quantity of the legs of a cycle: of each, and running sums over two cycles."""

    each: list[Any]
    twice: list[Any]

    @classmethod
    def of(cls, each: list[Any]) -> Column:
        """The column of these values."""
        sums = list(accumulate(each, initial=type(each[0])(0) if each else 0))
        return cls(each, [*sums, *(sums[-1] + value for value in sums[1:])])


class Repeated(NamedTuple):
    """The legs of a cycle, column by column.

    Attributes:
        lengths, steps, slows, stalls: seconds, steps, slow steps and seconds of stall.
        saved: what the save at the end of each stalls alone, seconds.
        lags: by tier, see ``Pattern.lag``.
    """

    lengths: Column
    steps: Column
    slows: Column
    stalls: Column
    saved: list[float]
    lags: dict[Tier, list[float]]


class Track:
    """The legs after a resumption.

    Args:
        pattern: what repeats; one that never saves has no legs.
        head: legs of which the first starts with the resumption.
        place: the leg of the cycle that follows them.
        number: number of the last save before the resumption.

    Attributes:
        known: legs over which the sums are looked up.
        legs: those legs, or so many that the whole cycle is among them.
        starts, steps, slows, stalls: seconds, steps, slow steps and seconds of stall before leg 0, 1, … ``known``.
        saved: what the save at the end of leg 0, 1, … stalls alone, seconds.
        lags: of each tier and that save: see ``Pattern.lag``.
    """

    __slots__ = ("_cycle", "_first", "_repeated", "known", "lags", "legs", "saved", "slows", "stalls", "starts", "steps")

    def __init__(self, pattern: Pattern, head: Sequence[Leg], place: int, number: int) -> None:
        repeated, cycle = pattern.repeated(), len(pattern.cycle)
        part = cycle - place if place else 0
        rounds = max(1, math.ceil((TABLE - len(head) - part) / cycle)) if cycle else 0
        turns = rounds + 1 if place else rounds
        self._repeated, self._cycle, self.legs = repeated, cycle, [*head, *(pattern.cycle * turns)[place:]]
        long = cycle > TABLE
        self.known = len(head) + TABLE if long else len(self.legs)
        self._first = (place + TABLE) % cycle if long else 0

        def sums(heads: list[Any], column: Column) -> list[Any]:
            """Running sums over the head and the cycle."""
            if long:
                return list(accumulate(heads + (column.each * 2)[place : place + TABLE], initial=0))
            return _sums(heads + (column.each[place:] if place else []), column.twice[: cycle + 1], rounds)

        self.starts: list[float] = sums([leg.length_s for leg in head], repeated.lengths)
        self.steps: list[int] = sums([leg.steps for leg in head], repeated.steps)
        self.slows: list[int] = sums([leg.slow for leg in head], repeated.slows)
        self.stalls: list[float] = sums([leg.stall_s for leg in head], repeated.stalls)
        self.saved = [pattern.outlay(number + save + 1).stall_s for save in range(len(head))]
        self.saved += (repeated.saved * turns)[place:]
        self.lags = {
            tier: [pattern.lag(number + save + 1, tier, leg) for save, leg in enumerate(head)] + (lags * turns)[place:]
            for tier, lags in repeated.lags.items()
        }

    def like(self, leg: int) -> int:
        """The leg of ``legs`` that a leg is like."""
        legs = len(self.legs)
        return leg if leg < legs else legs - self._cycle + (leg - legs) % self._cycle

    def start(self, leg: int) -> float:
        """Seconds before a leg."""
        if leg <= self.known:
            return self.starts[leg]
        return float(self._beyond(self.starts, self._repeated.lengths.twice, leg))

    def done(self, leg: int) -> int:
        """Steps before a leg."""
        if leg <= self.known:
            return self.steps[leg]
        return int(self._beyond(self.steps, self._repeated.steps.twice, leg))

    def slow(self, leg: int) -> int:
        """Slow steps before a leg."""
        return self.slows[leg] if leg <= self.known else int(self._beyond(self.slows, self._repeated.slows.twice, leg))

    def stall(self, leg: int) -> float:
        """Seconds of stall before a leg."""
        return self.stalls[leg] if leg <= self.known else float(self._beyond(self.stalls, self._repeated.stalls.twice, leg))

    def _beyond(self, sums: list[Any], twice: list[Any], leg: int) -> Any:
        """The sum before a leg beyond the table."""
        rounds, rest = divmod(leg - self.known, self._cycle)
        first = self._first
        return sums[-1] + rounds * twice[self._cycle] + (twice[first + rest] - twice[first])

    def leg_at(self, seconds: float) -> int:
        """The last leg that has started after so many seconds (to rounding)."""
        starts = self.starts
        if seconds < starts[-1]:
            return max(0, bisect.bisect_right(starts, seconds) - 1)
        return self._last(self._repeated.lengths.twice, seconds - starts[-1])

    def leg_of(self, steps: int) -> int:
        """The last leg that starts at or before so many steps."""
        if steps < self.steps[-1]:
            return bisect.bisect_right(self.steps, steps) - 1
        return self._last(self._repeated.steps.twice, steps - self.steps[-1])

    def _last(self, twice: list[Any], rest: Any) -> int:
        """The last leg beyond the table whose sum, counted from the table's end, is at most ``rest``."""
        whole, first = twice[self._cycle], self._first
        rounds = int(rest // whole)
        leg = bisect.bisect_right(twice, rest - rounds * whole + twice[first]) - 1 - first
        return self.known + rounds * self._cycle + min(leg, self._cycle - 1)


def _sums(lone: list[Any], cycle: list[Any], rounds: int) -> list[Any]:
    """Running sums over ``lone``, then over the cycle (itself running sums) so many times, each adding the same."""
    sums = list(accumulate(lone, initial=0))
    end = sums[-1]
    for turn in range(rounds):
        sums += [end + turn * cycle[-1] + value for value in cycle[1:]]
    return sums
