"""Saves under way, played without a clock of events: which moves are done when, where they share what they cross."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from clustersim.checkpoint.fluid import Move, Shop, max_min
from clustersim.checkpoint.lanes import EDGE_S, Lanes, Place, Places, begin, rest_s
from clustersim.checkpoint.tiers import Tier

Key = tuple[tuple[int, ...], ...]

ROUNDING_S = 1e-9
"""What ends so little after the end of a leg has ended with it."""


class _Lane:
    """The moves of a lane, and how far it is."""

    __slots__ = ("at", "fixed_s", "gate", "left", "moves", "side")

    def __init__(self, moves: tuple[Move, ...], place: Place, side: bool = False) -> None:
        self.moves, self.side = moves, side
        self.at, self.fixed_s, self.left = place
        self.gate: _Lane | None = None
        """The lane of an earlier save that must end first; None: none."""

    @property
    def done(self) -> bool:
        return self.at == len(self.moves)

    @property
    def open(self) -> bool:
        return self.gate is None or self.gate.done

    @property
    def started(self) -> bool:
        return self.place != begin(self.moves, 0)

    @property
    def place(self) -> Place:
        return Place(self.at, self.fixed_s, self.left)


class Under:
    """A save under way: the one at the end of leg ``leg``."""

    __slots__ = ("back", "begun", "block", "leg", "sides", "streams")

    def __init__(self, leg: int, lanes: Lanes, places: Places) -> None:
        self.leg, self.streams = leg, lanes.streams
        self.begun = False
        """Whether what is beside has begun, or has been left out."""
        self.block, self.back = _Lane(lanes.block, places.block), _Lane(lanes.back, places.back)
        self.sides = [_Lane((move,), place, True) for move, place in zip(lanes.sides, places.sides, strict=True)]

    @property
    def over(self) -> bool:
        """Nothing is left to do."""
        return self.block.done and self.back.done and all(side.done for side in self.sides)

    @property
    def places(self) -> Places:
        """How far its lanes are."""
        return Places(self.block.place, self.back.place, tuple(side.place for side in self.sides))

    def lanes(self) -> Iterator[_Lane]:
        """Its lanes."""
        yield self.block
        yield self.back
        yield from self.sides

    def begin(self) -> None:
        """Training goes on: what is to be made beside begins, unless the one before it is still under way."""
        self.begun = True
        for side in self.sides:
            if side.gate is not None and rest_s(side.gate.moves, side.gate.place) > EDGE_S and not side.started:
                side.at, side.fixed_s, side.left = len(side.moves), 0.0, 0.0

    def moving(self) -> Iterator[tuple[_Lane, bool]]:
        """The lanes that move, and whether their bytes flow (or a fixed time passes)."""
        if not self.block.done:
            yield self.block, self.block.fixed_s <= 0
        back = self.back
        ahead = self.streams and self.block.at >= len(self.block.moves) - 1
        if not back.done and back.open and (self.block.done or ahead):
            if not (self.streams and back.at == 0):
                yield back, back.fixed_s <= 0
            elif back.left > 0:
                yield back, True
            elif self.block.done:
                yield back, False
        if self.block.done:
            for side in self.sides:
                if not side.done and side.open:
                    yield side, side.fixed_s <= 0


class Ended(NamedTuple):
    """A move of the save at the end of leg ``leg`` has ended."""

    leg: int
    tier: Tier | None
    time_s: float


class Play:
    """Saves under way from time 0 on."""

    def __init__(self, shop: Shop, lanes: tuple[Lanes, ...]) -> None:
        self._shop, self._lanes = shop, lanes
        self.now = 0.0
        self.under: list[Under] = []
        self.ended: list[Ended] = []

    def copy(self) -> Play:
        """The same state, to play on from."""
        twin = Play(self._shop, self._lanes)
        twin.now = self.now
        for save in self.under:
            twin.add(save.leg, self._lanes_like(save), save.places).begun = save.begun
        return twin

    def _lanes_like(self, save: Under) -> Lanes:
        return Lanes(save.block.moves, save.back.moves, tuple(side.moves[0] for side in save.sides))

    def add(self, leg: int, lanes: Lanes, places: Places) -> Under:
        """One more save under way, behind those that are."""
        save = Under(leg, lanes, places)
        if self._shop.queued:
            save.back.gate = next((old.back for old in reversed(self.under) if not old.back.done), None)
        for side in save.sides:
            tier = side.moves[0].transfer.tier
            side.gate = next((mine for old in reversed(self.under) for mine in old.sides
                              if mine.moves[0].transfer.tier == tier and not mine.done), None)  # fmt: skip
        self.under.append(save)
        return save

    def save(self, leg: int, number: int) -> Under:
        """Start save ``number``, at the end of leg ``leg``."""
        lanes = self._lanes[number % len(self._lanes)]
        return self.add(leg, lanes, lanes.start())

    def key(self, leg: int) -> Key:
        """What is under way when leg ``leg`` starts, to a nanosecond: equal keys have equal futures."""
        return tuple(key_of(leg - save.leg, self._lanes_like(save), save.places) for save in self.under)

    # -- forward

    def to(self, time_s: float) -> None:
        """Play on to a time."""
        self._settle()
        while self.now < time_s:
            seconds = self._step(time_s - self.now)
            self.now = time_s if seconds is None else self.now + seconds
            self._settle()

    def until(self, done: Callable[[], bool]) -> float:
        """Play on until ``done`` says so; returns the time.

        Raises:
            ValueError: nothing is left that could end.
        """
        self._settle()
        while not done():
            if not self.under:
                raise ValueError("nothing is under way that could end")
            self.now += self._step(math.inf) or 0.0
            self._settle()
        return self.now

    def _step(self, most_s: float) -> float | None:
        """Move on to the next change; None: there is none within ``most_s``, all of which has passed."""
        moving = [pair for save in self.under for pair in save.moving()]
        flowing = [lane for lane, flows in moving if flows and lane.moves[lane.at].demand is not None]
        demands = [demand for lane in flowing if (demand := lane.moves[lane.at].demand) is not None]
        rates = dict(zip(map(id, flowing), max_min(demands, self._shop.capacity), strict=True))
        waits = [self._left_s(lane, flows, rates) for lane, flows in moving]
        first = min(waits, default=math.inf)
        if first > most_s + ROUNDING_S:
            for (lane, flows), wait in zip(moving, waits, strict=True):
                self._pass(lane, flows, most_s, wait)
            return None
        for (lane, flows), wait in zip(moving, waits, strict=True):
            if wait <= first * (1 + 1e-12) + 1e-12:
                wait = first
            self._pass(lane, flows, first, wait)
        return first

    def _left_s(self, lane: _Lane, flows: bool, rates: dict[int, float]) -> float:
        """Seconds until what a lane does now ends."""
        if not flows:
            return lane.fixed_s
        move = lane.moves[lane.at]
        return lane.left * (move.flow_s if move.demand is None else move.size / rates[id(lane)])

    def _pass(self, lane: _Lane, flows: bool, seconds: float, wait_s: float) -> None:
        """So many seconds pass, of the ``wait_s`` that what a lane does now takes."""
        if flows:
            lane.left = 0.0 if seconds >= wait_s else lane.left * (1.0 - seconds / wait_s)
        else:
            lane.fixed_s = 0.0 if seconds >= wait_s else lane.fixed_s - seconds

    def _settle(self) -> None:
        """Go over to the next moves where one has ended."""
        again = True
        while again:
            again = False
            for save in self.under:
                if save.block.done and not save.begun:
                    save.begin()
                for lane, flows in list(save.moving()):
                    ready = not (save.streams and lane is save.back and lane.at == 0) or save.block.done
                    if lane.left <= 0.0 and lane.fixed_s <= 0.0 and ready:
                        self.ended.append(Ended(save.leg, lane.moves[lane.at].transfer.tier, self.now))
                        lane.at, lane.fixed_s, lane.left = begin(lane.moves, lane.at + 1)
                        again = True
                    elif flows and lane.left > 0.0 and lane.moves[lane.at].flow_s <= 0.0:
                        lane.left, again = 0.0, True
        self.under = [save for save in self.under if not save.over]


def key_of(age: int, lanes: Lanes, places: Places) -> tuple[int, ...]:
    """A save under way that started ``age`` legs ago, to a nanosecond."""
    found = [age]
    every = (lanes.block, lanes.back, *((side,) for side in lanes.sides))
    for moves, place in zip(every, (places.block, places.back, *places.sides), strict=True):
        flow_s = moves[place.at].flow_s if place.at < len(moves) else 0.0
        found += [place.at, round(place.fixed_s * 1e9), round(place.left * flow_s * 1e9)]
    return tuple(found)


def alike(one: Key, other: Key, apart: float) -> bool:
    """Whether keys differ in times alone, by so many nanoseconds at most."""
    if len(one) != len(other):
        return False
    return all(len(mine) == len(its) and mine[0] == its[0] and all(
        abs(a - b) <= (0 if place % 3 == 0 else apart) for place, (a, b) in enumerate(zip(mine[1:], its[1:], strict=True)))
        for mine, its in zip(one, other, strict=True))  # fmt: skip
