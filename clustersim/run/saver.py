"""One save, event by event: its moves over the resources that they share with others.

Its lanes are those of ``checkpoint/lanes.py``: blocking moves, then those behind them; what is beside starts when training
goes on, each by itself. Where moves may meet on a resource (``run/resources.py``) they share it; elsewhere what is local
takes what it takes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import simpy

from clustersim.checkpoint.fluid import Move
from clustersim.checkpoint.lanes import EDGE_S, Lanes, Place, Places, begin, rest_s
from clustersim.checkpoint.tiers import Tier
from clustersim.run.clock import at
from clustersim.run.resources import Resources
from clustersim.run.storage import Flow, SharedStorage


@dataclass
class Start:
    """How far a save is, and what it waits for.

    Attributes:
        places: how far its lanes are; None: it begins.
        after: what the lane behind waits for; None: nothing.
        behind: by tier, the save whose move beside is still under way: it is not made again meanwhile.
    """

    places: Places | None = None
    after: simpy.Event | None = None
    behind: dict[Tier, Saver] = field(default_factory=dict)


class _Lane:
    """A lane under way."""

    __slots__ = ("at", "begun", "fixed_s", "flow", "left", "moves", "then", "until_s")

    def __init__(self, moves: Sequence[Move], place: Place, then: Callable[[], None]) -> None:
        self.moves, self.then = moves, then
        self.at, self.fixed_s, self.left = place
        self.begun = False
        self.flow: Flow | None = None
        self.until_s: float | None = None
        """When the fixed time, or a move that shares nothing, ends; None: something flows, or nothing is under way."""

    @property
    def done(self) -> bool:
        return self.at == len(self.moves)


class Saver:
    """A save under way. ``unblocked`` succeeds when training may go on, ``ended`` when its lane behind has ended.

    Args:
        lanes: what the save consists of.
        clients: nodes that write.
        step: steps in the state that is saved.
        durable: called with each tier on which the copy has become durable.
        start: how far it is, and what it waits for.
        serial: which save of the run it is.

    Attributes:
        sides: of what is made beside, an event a tier for its end.
    """

    def __init__(
        self,
        env: simpy.Environment,
        storage: SharedStorage,
        lanes: Lanes,
        clients: int,
        step: int,
        durable: Callable[[Tier], None],
        start: Start | None = None,
        serial: int = 0,
    ) -> None:
        self._env, self._storage, self._clients, self._durable = env, storage, clients, durable
        start = start or Start()
        places = start.places or lanes.start()
        self.step, self.serial, self.lanes = step, serial, lanes
        self.unblocked, self.ended = simpy.Event(env), simpy.Event(env)
        self.sides = {tier: simpy.Event(env) for tier in lanes.tiers if tier is not None}
        self._cut = False
        self._start, self._streams = start, lanes.streams
        self._block = _Lane(lanes.block, places.block, self._unblock)
        self._back = _Lane(lanes.back, places.back, self._end)
        self._aside = [_Lane((move,), place, self._side_end(move.transfer.tier))
                       for move, place in zip(lanes.sides, places.sides, strict=True)]  # fmt: skip
        self._begin(self._block)

    @property
    def stalling(self) -> bool:
        """Whether training stands still for this save."""
        return not self._block.done

    @property
    def flow(self) -> Flow | None:
        """The last of its flows on shared resources that are under way."""
        return next((lane.flow for lane in reversed(self._lanes) if lane.flow is not None), None)

    @property
    def flows(self) -> int:
        """Its flows on shared resources that are under way."""
        return sum(lane.flow is not None for lane in self._lanes)

    @property
    def on_time(self) -> bool:
        """Whether what streams stands, at the end of the stall, where it would stand undisturbed."""
        if not self._streams:
            return True
        wanted = self.lanes.undisturbed(sum(move.alone_s for move in self.lanes.block)).back
        return abs(rest_s(self.lanes.back, wanted) - rest_s(self.lanes.back, self._place(self._back))) < EDGE_S

    @property
    def open_sides(self) -> dict[Tier, simpy.Event]:
        """What is still being made beside, by tier."""
        return {tier: event for tier, event in self.sides.items() if not event.triggered}

    def beside_s(self, tier: Tier | None) -> float:
        """What is left of what is made beside on a tier, alone, seconds."""
        lanes = [lane for lane in self._aside if lane.moves[0].transfer.tier == tier]
        return max((rest_s(lane.moves, self._place(lane)) for lane in lanes), default=0.0)

    @property
    def over(self) -> bool:
        """Nothing is left to do."""
        return self.ended.triggered and not self.open_sides

    @property
    def _lanes(self) -> list[_Lane]:
        return [self._block, self._back, *self._aside]

    def places(self) -> Places:
        """How far its lanes are now."""
        block, back, *sides = (self._place(lane) for lane in self._lanes)
        return Places(block, back, tuple(sides))

    def _place(self, lane: _Lane) -> Place:
        fixed, left = lane.fixed_s, lane.left
        if lane.until_s is not None:
            wait = max(0.0, lane.until_s - self._env.now)
            if fixed > 0 and not (lane.moves[lane.at].transfer.streams and left > 0):
                fixed = wait
            else:
                flow_s = lane.moves[lane.at].flow_s
                left = wait / flow_s if flow_s > 0 else 0.0
        elif lane.flow is not None and lane.flow.bytes > 0:
            left = self._storage.left_of(lane.flow) / (lane.moves[lane.at].size * lane.flow.clients)
        return Place(lane.at, fixed, left)

    def cut(self) -> None:
        """Stop the save; nothing that is not yet durable will be."""
        self._cut = True
        for lane in self._lanes:
            if lane.flow is not None:
                self._storage.cancel(lane.flow)
                lane.flow = None

    # -- lanes

    def _begin(self, lane: _Lane) -> None:
        """Start a lane where it stands."""
        lane.begun = True
        self._go(lane)

    def _begin_back(self) -> None:
        """Start the lane behind when what it waits for has come."""
        if self._back.begun:
            return
        self._back.begun = True
        self._wait(None if self._back.done else self._start.after, lambda: self._go(self._back))

    def _wait(self, event: simpy.Event | None, then: Callable[[], None]) -> None:
        """Go on when an event has come, unless the save has been cut off."""
        if event is None or event.callbacks is None:
            then()
            return
        event.callbacks.append(lambda _: None if self._cut else then())

    def _unblock(self) -> None:
        """The blocking moves have ended."""
        self.unblocked.succeed()
        for lane in self._aside:
            older = self._start.behind.get(lane.moves[0].transfer.tier or Tier.SHARED)
            if older is None or Place(lane.at, lane.fixed_s, lane.left) != begin(lane.moves, 0):
                self._begin(lane)
            elif older.beside_s(lane.moves[0].transfer.tier) > EDGE_S:
                lane.then()  # left out
            else:
                self._wait(older.open_sides.get(lane.moves[0].transfer.tier or Tier.SHARED), partial(self._begin, lane))
        self._begin_back()
        if self._streams and self._back.at == 0 and self._back.left == 0.0:
            self._finish(self._back)

    def _end(self) -> None:
        """The lane behind has ended."""
        self.ended.succeed()

    def _side_end(self, tier: Tier | None) -> Callable[[], None]:
        """What to do when a move beside has ended."""

        def end() -> None:
            if tier is not None:
                self.sides[tier].succeed()

        return end

    # -- moves

    def _go(self, lane: _Lane) -> None:
        """Go on with the move at which a lane stands, or end the lane."""
        if lane is self._block and self._streams and lane.at >= len(lane.moves) - 1:
            self._begin_back()
        if lane.done:
            lane.then()
        elif lane.fixed_s > 0 and not lane.moves[lane.at].transfer.streams:
            self._after(lane, lane.fixed_s, self._flow_on)
        else:
            self._flow_on(lane)

    def _after(self, lane: _Lane, seconds: float, then: Callable[[_Lane], None]) -> None:
        """Go on after a time."""
        lane.until_s = self._env.now + seconds

        def come(_: simpy.Event) -> None:
            lane.until_s = None
            if not self._cut:
                then(lane)

        at(self._env, lane.until_s, come, "save")

    def _flow_on(self, lane: _Lane) -> None:
        """Let the bytes of a move flow."""
        move = lane.moves[lane.at]
        if not move.transfer.streams:
            lane.fixed_s = 0.0
        if lane.left <= 0.0:
            self._arrived(lane)
        elif isinstance(self._storage, Resources) and move.demand is not None:
            lane.flow = self._storage.carry(move, self._clients, lane.left, lambda: self._flown(lane))
        elif move.transfer.channel == "local":
            self._after(lane, lane.left * move.flow_s, self._arrived)
        else:
            transfer = move.transfer
            lane.flow = self._storage.start(lane.left * transfer.bytes, "write", transfer.clients or self._clients,
                                            lambda: self._flown(lane), transfer.per_client)  # fmt: skip

    def _flown(self, lane: _Lane) -> None:
        lane.flow = None
        self._arrived(lane)

    def _arrived(self, lane: _Lane) -> None:
        """All bytes of a move have arrived."""
        if self._cut:
            return
        lane.left = 0.0
        if not lane.moves[lane.at].transfer.streams or not self._streams:
            self._next(lane)
        elif self.unblocked.triggered:
            self._finish(lane)

    def _finish(self, lane: _Lane) -> None:
        """Finish what has streamed."""
        if lane.fixed_s > 0:
            self._after(lane, lane.fixed_s, self._next)
        else:
            self._next(lane)

    def _next(self, lane: _Lane) -> None:
        """A move has ended."""
        tier = lane.moves[lane.at].transfer.tier
        lane.at, lane.fixed_s, lane.left = begin(lane.moves, lane.at + 1)
        if tier is not None:
            self._durable(tier)
        self._go(lane)
