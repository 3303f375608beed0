"""The lanes of a save: its blocking moves, those behind them, and each that is made beside; and how far each has come.

The moves of a lane follow one another. A lane of blocking moves starts with the save; the others start when it has ended
(one that streams: with its last move). The lane behind waits for that of the save before it, where saves queue; what is to
be made beside is left out while the same of an earlier save is under way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from clustersim.checkpoint.fluid import Move
from clustersim.checkpoint.tiers import Tier

EDGE_S = 1e-6
"""What ends so soon is waited for by what is beside, where it would be left out: rounding of the clock."""


class Place(NamedTuple):
    """How far a lane is.

    Attributes:
        at: the move under way; as many as there are moves: all are done.
        fixed_s: what is left of its fixed time, seconds.
        left: share of its bytes that is left.
    """

    at: int
    fixed_s: float
    left: float


class Places(NamedTuple):
    """How far the lanes of a save are."""

    block: Place
    back: Place
    sides: tuple[Place, ...]


class Lanes(NamedTuple):
    """The moves of a save by lane."""

    block: tuple[Move, ...]
    back: tuple[Move, ...]
    sides: tuple[Move, ...]

    @classmethod
    def of(cls, moves: Sequence[Move]) -> Lanes:
        """The lanes of a save."""
        aside = tuple(move for move in moves if move.transfer.beside)
        chain = [move for move in moves if not move.transfer.beside]
        return cls(tuple(move for move in chain if move.transfer.blocking),
                   tuple(move for move in chain if not move.transfer.blocking), aside)  # fmt: skip

    @property
    def streams(self) -> bool:
        """Whether the lane behind starts with the last blocking move."""
        return bool(self.back) and bool(self.block) and self.back[0].transfer.streams

    @property
    def tiers(self) -> tuple[Tier | None, ...]:
        """Where each side ends."""
        return tuple(move.transfer.tier for move in self.sides)

    def start(self) -> Places:
        """Nothing is done."""
        return Places(begin(self.block, 0), begin(self.back, 0), tuple(begin([move], 0) for move in self.sides))

    def undisturbed(self, elapsed_s: float, late_s: float = 0.0) -> Places:
        """How far the lanes are so long after the start of the stall where each move takes what it takes alone.

        ``late_s``: from the end of the stall until the lane behind could start.
        """
        stall = sum(move.alone_s for move in self.block)
        beyond = max(0.0, elapsed_s - stall)
        block = along(self.block, min(elapsed_s, stall) if beyond > 0 else elapsed_s)
        if self.streams:
            back = self._streamed(elapsed_s - (stall - self.block[-1].alone_s))
        else:
            back = along(self.back, max(0.0, beyond - late_s))
        return Places(block, back, tuple(along([move], beyond) for move in self.sides))

    def _streamed(self, since_s: float) -> Place:
        """How far the lane behind is so long after the start of the last blocking move, with which it started."""
        first, beside = self.back[0], self.block[-1].alone_s
        flown = max(first.flow_s, beside)
        if since_s >= flown + first.fixed_s > 0:
            place = along(self.back[1:], since_s - flown - first.fixed_s)
            return place._replace(at=place.at + 1)
        left = max(0.0, 1.0 - max(0.0, since_s) / first.flow_s) if first.flow_s > 0 else 0.0
        return Place(0, min(first.fixed_s, flown + first.fixed_s - since_s), left)


def rest_s(moves: Sequence[Move], place: Place) -> float:
    """Seconds that are left of a lane if each move takes what it takes alone."""
    if place.at == len(moves):
        return 0.0
    rest = place.fixed_s + place.left * moves[place.at].flow_s
    return rest + math.fsum(move.alone_s for move in moves[place.at + 1 :])


def begin(moves: Sequence[Move], at: int) -> Place:
    """A lane that begins move ``at``."""
    return Place(at, moves[at].fixed_s, 1.0) if at < len(moves) else Place(at, 0.0, 0.0)


def along(moves: Sequence[Move], elapsed_s: float) -> Place:
    """How far a lane is after so long, where each move takes what it takes alone; what ends at its time has ended."""
    at = 0
    while at < len(moves) and elapsed_s > 0 and elapsed_s >= moves[at].alone_s:
        elapsed_s -= moves[at].alone_s
        at += 1
    place = begin(moves, at)
    if at == len(moves) or elapsed_s <= 0:
        return place
    fixed, flow = moves[at].fixed_s, moves[at].flow_s
    left = min(1.0, (flow - (elapsed_s - fixed)) / flow) if flow > 0 else 0.0
    return Place(at, max(0.0, fixed - elapsed_s), left)


__all__ = ["Lanes", "Place", "Places", "along", "begin", "rest_s"]
