"""Links that flows share, for the SimPy replay: which messages cross which links, and how a link divides its bandwidth.

A flow crosses all links of its route at once. A ``fair`` link gives every flow on it the same share; a ``fifo`` link
serves one flow at a time, in order of arrival. A flow moves at the least that any of its links gives it; what one
link leaves over because another is narrower is not handed on (equal shares, not max-min filling). Bytes are conserved
and no link ever carries more than its bandwidth.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from simpy import Environment, Event

Route = Sequence[str]
_ROUNDING = 16 * sys.float_info.epsilon  # a clock at time t cannot tell apart times closer than a few ε·t


@dataclass(frozen=True)
class Link:
    """One direction of a link: ``bandwidth`` in bytes per second."""

    name: str
    bandwidth: float
    sharing: Literal["fair", "fifo"] = "fair"

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise ValueError(f"link {self.name!r} needs a bandwidth above 0")


@dataclass(frozen=True)
class Traffic:
    """A flow that is no part of the program, such as a data-parallel all-reduce or a checkpoint on the same NIC."""

    route: Route
    bytes: float
    start: float = 0.0


def _no_route(*_: int) -> Route:
    return ()


@dataclass(frozen=True)
class Fabric:
    """Links, and the routes over them.

    Attributes:
        links: every link.
        route: (source rank, target rank) → names of the links that a message crosses; none: it meets no other traffic.
        collective_route: rank → names of the links that its UNSHARD, REDUCE_GRAD, OFFLOAD and RELOAD cross.
        traffic: flows beside the program.
    """

    links: tuple[Link, ...]
    route: Callable[[int, int], Route] = _no_route
    collective_route: Callable[[int], Route] = _no_route
    traffic: tuple[Traffic, ...] = ()


def nic_per_rank(
    ranks: int, bandwidth: float, *, sharing: Literal["fair", "fifo"] = "fair", traffic: Sequence[Traffic] = ()
) -> Fabric:
    """A fabric in which each rank has one NIC, both directions apart, that its messages and collectives share.

    Links are named ``out 3`` and ``in 3``. ``bandwidth`` in bytes per second and direction.
    """
    links = [Link(f"{way} {rank}", bandwidth, sharing) for rank in range(ranks) for way in ("out", "in")]
    return Fabric(
        tuple(links),
        route=lambda source, target: (f"out {source}", f"in {target}"),
        collective_route=lambda rank: (f"out {rank}", f"in {rank}"),
        traffic=tuple(traffic),
    )


@dataclass(eq=False)
class Flow:
    """A flow in motion: ``left`` bytes at ``rate``; ``alone`` while it never had less than its full rate."""

    links: tuple[Link, ...]
    left: float
    full_rate: float
    ended: Callable[[bool], None]
    rate: float = 0.0
    alone: bool = True


@dataclass(eq=False)
class Network:
    """Flows in motion. Rates change only when a flow starts or ends."""

    env: Environment
    fabric: Fabric
    flows: list[Flow] = field(default_factory=list)
    _links: dict[str, Link] = field(default_factory=dict)
    _since: float = 0.0
    _version: int = 0

    def __post_init__(self) -> None:
        self._links = {link.name: link for link in self.fabric.links}

    def seconds(self, route: Route, size: float) -> float:
        """How long ``size`` bytes take on an idle route."""
        return size / min(self._links[name].bandwidth for name in route)

    def start(self, route: Route, size: float, ended: Callable[[bool], None]) -> Flow:
        """Start a flow; ``ended(alone)`` is called when it ends, ``alone`` if it never had less than its full rate."""
        links = tuple(self._links[name] for name in route)
        rate = min(link.bandwidth for link in links)
        self._advance()
        flow = Flow(links, size, rate, ended)
        self.flows.append(flow)
        self._settle()
        return flow

    def _advance(self) -> None:
        elapsed = self.env.now - self._since
        self._since = self.env.now
        for flow in self.flows:
            flow.left -= flow.rate * elapsed
        finished = [flow for flow in self.flows if self._over(flow)]
        if finished:
            self.flows = [flow for flow in self.flows if not self._over(flow)]
            for flow in finished:
                flow.ended(flow.alone)

    def _over(self, flow: Flow) -> bool:
        return flow.left <= flow.full_rate * _ROUNDING * self.env.now

    def _settle(self) -> None:
        """Share every link anew and set the alarm for the next flow to end."""
        on: dict[str, list[Flow]] = {}
        for flow in self.flows:
            for link in flow.links:
                on.setdefault(link.name, []).append(flow)
        soonest = float("inf")
        for flow in self.flows:
            flow.rate = min(self._share(flow, link, on[link.name]) for link in flow.links)
            flow.alone = flow.alone and flow.rate == flow.full_rate
            if flow.rate > 0:
                soonest = min(soonest, flow.left / flow.rate)
        self._version += 1
        if soonest < float("inf"):
            alarm = self.env.timeout(soonest)
            assert alarm.callbacks is not None
            alarm.callbacks.append(partial(self._wake, self._version))

    @staticmethod
    def _share(flow: Flow, link: Link, flows: list[Flow]) -> float:
        if link.sharing == "fifo":
            return link.bandwidth if flows[0] is flow else 0.0
        return link.bandwidth / len(flows)

    def _wake(self, version: int, _: Event) -> None:
        if version == self._version:
            self._advance()
            self._settle()
