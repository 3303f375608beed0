"""What repeats where saves meet: legs of steps and saves whose moves share what they cross, or wait for each other.

``PlayedPattern`` is ``Pattern`` with its saves played move by move (``checkpoint/play.py``) until what is under way has been
seen before; ``PlayedStretch`` looks it up. Both cost no more a failure than the arithmetic for moves that are alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from clustersim.checkpoint.fluid import Shop
from clustersim.checkpoint.interval import Every
from clustersim.checkpoint.lanes import Lanes, Places
from clustersim.checkpoint.pattern import MOST_ROUNDS, Leg, Outlay, Pace, Pattern, make_leg
from clustersim.checkpoint.play import Key, Play, alike
from clustersim.checkpoint.stretch import Spot, Stretch
from clustersim.checkpoint.tiers import Tier
from clustersim.checkpoint.track import Track

MOST_UNDER = 64
"""Saves under way at once beyond which more and more are taken to pile up, so that nothing ever repeats."""


class Held(NamedTuple):
    """A save under way when a stretch is broken off.

    Attributes:
        save: the leg at whose end it is; −1, −2, …: before the stretch.
        places: how far it is.
    """

    save: int
    places: Places


class Course:
    """Legs played one after the other, with what is under way as each starts.

    Attributes:
        legs: those played so far.
        states, keys: what is under way as each starts.
        starts: when each starts, the end of the last one included, seconds.
    """

    def __init__(self, pattern: PlayedPattern, phase: int) -> None:
        self._pattern, self._phase = pattern, phase
        self._play = Play(pattern.shop, pattern.lanes)
        self.legs: list[Leg] = []
        self.states: list[Play] = []
        self.keys: list[Key] = []
        self.starts = [0.0]
        self._lags: list[dict[Tier, float]] = []

    @property
    def key(self) -> Key:
        """What is under way now."""
        return self._play.key(len(self.legs))

    def leg(self) -> None:
        """Play one more leg."""
        pattern, play, index = self._pattern, self._play, len(self.legs)
        number = self._phase + index + 1
        self.states.append(play.copy())
        self.keys.append(self.key)
        leg = pattern.leg_after(play, pattern.outlay(number))
        begun = self.starts[-1] + leg.train_s + leg.wait_s
        play.to(begun)
        play.now = begun
        save = play.save(index, number)
        end = play.until(lambda: save.block.done)
        lags: dict[Tier, float] = {}
        self._lags.append(lags)
        self.legs.append(leg._replace(stall_s=leg.wait_s + end - begun, lags=lags))
        self.starts.append(end)
        self._note()

    @property
    def piled(self) -> bool:
        """Whether saves pile up."""
        return len(self._play.under) > MOST_UNDER

    def finish(self, legs: int, repeats: bool) -> None:
        """Play on until the saves of the first ``legs`` legs are over; where nothing ``repeats``, without more saves."""
        while repeats and any(save.leg < legs for save in self._play.under):
            self.leg()
        if not repeats:
            self._play.until(lambda: not self._play.under)
            self._note()

    def _note(self) -> None:
        """Note when copies became durable, from the end of the stall on."""
        for ended in self._play.ended:
            if ended.tier is not None:
                self._lags[ended.leg][ended.tier] = ended.time_s - self.starts[ended.leg + 1]
        self._play.ended.clear()


class PlayedPattern(Pattern):
    """What repeats where saves meet.

    Args:
        shop: what saves consist of, and what they share.
        lanes: their moves by number.
    """

    def __init__(self, every: Every, pace: Pace, saves: tuple[Outlay, ...], when_busy: str, shop: Shop,
                 lanes: tuple[Lanes, ...]) -> None:  # fmt: skip
        self.shop, self.lanes = shop, lanes
        self.states: list[Play] = []
        self._keys: list[Key] = []
        self._heads: dict[int, list[Play]] = {}
        self._joined: dict[int, Track] = {}
        self.before = 0
        super().__init__(every, pace, saves, when_busy, shop.depth)

    def leg_after(self, play: Play, save: Outlay) -> Leg:
        """The leg that starts with what is under way now, its save's stall as it would be alone."""
        chains = sum(not under.back.done for under in play.under)
        even = self.pace.saving_s == self.pace.step_s
        busy, slot = (0.0, 0.0) if even and chains < self.depth else (self._slow_s(play), self._slot_s(play))
        return make_leg(self.every, self.pace, save, busy, self._when_busy, slot)

    def _slow_s(self, play: Play) -> float:
        """Seconds for which steps are slow from now on."""
        twin = play.copy()
        lanes = [save.back for save in twin.under] if self.shop.chain_slows else []
        if self.shop.uploads_slow:
            lanes += [side for save in twin.under for side in save.sides]
        left = [lane for lane in lanes if not lane.done]
        return twin.until(lambda: all(lane.done for lane in left)) - play.now if left else 0.0

    def _slot_s(self, play: Play) -> float:
        """Seconds until there is room for one more save."""
        twin = play.copy()
        left = [save.back for save in twin.under if not save.back.done]
        if len(left) < self.depth:
            return 0.0
        return twin.until(lambda: sum(not lane.done for lane in left) < self.depth) - play.now

    def _find_cycle(self) -> None:
        """Play saves from the start until what is under way has been seen before."""
        course, count = Course(self, 0), len(self.saves)
        seen: dict[Key, int] = {}
        while True:
            if len(course.legs) % count == 0:
                key, here = course.key, len(course.legs)
                if key in seen or len(seen) > MOST_ROUNDS or (seen and course.piled):
                    first = seen.get(key, here - count)
                    break
                seen[key] = here
            course.leg()
        course.finish(here, key in seen)
        self._cycle, self.states, self.phase = course.legs[first:here], course.states[first:here], first % count
        self._keys, self.before = course.keys[first:here], first

    def prefix(self, number: int) -> tuple[tuple[Leg, ...], int]:
        """See ``Pattern``."""
        count = len(self.saves)
        phase = number % count
        if phase not in self._prefixes and (same := self.place_of(phase, ())) is not None:
            after = (same + 1) % len(self._cycle)  # nothing is under way then in the cycle either
            self._prefixes[phase], self._heads[phase] = ((self._cycle[same],), after), [self.states[same]]
        if phase not in self._prefixes:
            course = Course(self, phase)
            place: int | None = None
            while place is None:
                course.leg()
                at = (phase + len(course.legs)) % count
                place = self.place_of(at, course.key)
                found = place is not None
                if not found and (course.piled or len(course.legs) > 4 * len(self._cycle) + 64):
                    place = (at - self.phase) % count
            legs = len(course.legs)
            course.finish(legs, found)
            self._prefixes[phase] = tuple(course.legs[:legs]), place
            self._heads[phase] = course.states[:legs]
        return self._prefixes[phase]

    def place_of(self, number: int, key: Key, apart_ns: float = 2.0) -> int | None:
        """The leg of the cycle that follows save ``number`` with so much under way; None: none does.

        ``apart_ns``: by how much times may differ.
        """
        count = len(self.saves)
        places = range((number - self.phase) % count, len(self._cycle), count)
        return next((place for place in places if alike(self._keys[place], key, apart_ns)), None)

    def head_states(self, number: int) -> list[Play]:
        """What is under way as each leg of a prefix starts."""
        self.prefix(number)
        return self._heads[number % len(self.saves)]

    def lag(self, number: int, tier: Tier, leg: Leg | None = None) -> float:
        """See ``Pattern``; ``leg``: the one at whose end the save is."""
        lags = (leg and leg.lags) or {}
        return lags.get(tier, math.inf) + self.outlay(number).stall_s

    def track_from(self, place: int, number: int) -> Track:
        """The legs of the cycle from one of them on, after save ``number``."""
        if place not in self._joined:
            self._joined[place] = Track(self, (self._cycle[place],), (place + 1) % len(self._cycle), number)
        return self._joined[place]


class PlayedStretch(Stretch):
    """Training from ``start_s`` and ``step`` on, undisturbed, where saves meet.

    Args:
        place: the leg of the cycle that starts now, with what is under way then; None: nothing is.
        number, serial: see ``Stretch``.
    """

    __slots__ = ("_played", "place")

    def __init__(self, pattern: PlayedPattern, start_s: float, step: int, place: int | None = None, number: int = 0,
                 serial: int = 0) -> None:  # fmt: skip
        super().__init__(pattern, start_s, step, False, number, serial)
        self._played, self.place = pattern, place
        if place is not None:
            self._track = pattern.track_from(place, number)
            self.flying = max((pattern.before + place - save.leg for save in pattern.states[place].under), default=0)

    def _cycle_leg(self, leg: int) -> int:
        """The leg of the cycle that leg ``leg`` is, where it is one."""
        first = self.place
        if first is None:
            head, after = self._played.prefix(self.number)
            first = after - len(head)
        return (first + leg) % len(self._played.cycle)

    def leg_at(self, leg: int) -> Leg:
        """See ``Stretch``; negative: those before it."""
        return super().leg_at(leg) if leg >= 0 else self._played.cycle[self._cycle_leg(leg)]

    def leg_start(self, leg: int) -> float:
        """See ``Stretch``; negative: those before it."""
        if leg >= 0:
            return self.start_s + self._track.start(leg)
        return self.start_s - math.fsum(self.leg_at(before).length_s for before in range(leg, 0))

    def steps_before(self, leg: int) -> int:
        """See ``Stretch``; negative: those before it."""
        return super().steps_before(leg) if leg >= 0 else -sum(self.leg_at(before).steps for before in range(leg, 0))

    def _durable_s(self, save: int, tier: Tier) -> float:
        if save >= 0:
            return super()._durable_s(save, tier)
        durable = self.leg_start(save + 1) + (self.leg_at(save).lags or {}).get(tier, math.inf)
        return math.inf if durable < self.start_s else durable  # what became durable before is known, and when

    def started(self, spot: Spot, time_s: float) -> int:
        """See ``Stretch``."""
        if self.pattern.never:
            return 0
        return spot.leg + (spot.stalled and time_s >= self.stall_start(spot.leg) + self.leg_at(spot.leg).wait_s)

    def _latest(self, time_s: float, durable_s: float) -> float:
        return durable_s  # a copy that a newer one has overtaken is none

    def held(self, time_s: float) -> list[Held]:
        """The saves that are under way at a time of the stretch, oldest first."""
        pattern, spot = self._played, self.locate(time_s)
        leg, shape = spot.leg, self.leg_at(spot.leg)
        states = pattern.head_states(self.number) if self.place is None else []
        place = self._cycle_leg(leg)
        state, base = (states[leg], leg) if leg < len(states) else (pattern.states[place], pattern.before + place)
        play = state.copy()
        begun, since = shape.train_s + shape.wait_s, time_s - self.leg_start(leg)
        if self.started(spot, time_s) > leg:
            play.to(state.now + begun)
            play.save(base, self.number + leg + 1)
        play.to(state.now + since)
        return [Held(save.leg - base + leg, save.places) for save in play.under]
