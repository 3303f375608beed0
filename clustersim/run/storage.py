"""Shared storage as fluid flows: bandwidth is shared max–min fair by clients, event-driven, bytes conserved.

A flow is ``clients`` nodes that together move so many bytes. Every client gets the same rate, up to its own limit;
what a limited client leaves is shared by the others (Bertsekas and Gallager, Data Networks, section 6.5.2). With
``duplex: shared`` reads and writes draw on one pool, each taking rate ÷ (bandwidth of its direction) of it; with
``separate`` each direction has its own. An outage stops every flow; what has been moved stays moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import simpy

from clustersim.hardware.storage import Storage
from clustersim.run.clock import at

Direction = Literal["read", "write"]


class Flow:
    """Bytes on their way from ``start_s`` on; ``done`` is called once, when the last has arrived."""

    __slots__ = ("bytes", "clients", "direction", "done", "left", "limit", "open", "rate", "start_s")

    def __init__(
        self, size: float, direction: str, clients: int, limit: float, start_s: float, done: Callable[[], None]
    ) -> None:
        self.bytes, self.left, self.direction, self.clients, self.limit = size, size, direction, clients, limit
        self.done, self.rate, self.open, self.start_s = done, 0.0, True, start_s


class SharedStorage:
    """The storage system of a run: starts flows, shares bandwidth, and calls back when they end."""

    def __init__(self, env: simpy.Environment, system: Storage) -> None:
        self._env, self._system = env, system
        self._bandwidth: dict[str, float] = {"read": system.bandwidth("read"), "write": system.bandwidth("write")}
        self._limit = system.per_node_bandwidth or math.inf
        self._flows: list[Flow] = []
        self._since = 0.0
        self._outages = 0
        self._ending: list[Flow] = []
        self._wake: simpy.Event | None = None
        self.moved: dict[str, float] = {"read": 0.0, "write": 0.0}

    @property
    def quiet(self) -> bool:
        """No flow is under way and the storage is up."""
        return not self._flows and self._outages == 0

    @property
    def up(self) -> bool:
        """Not in an outage."""
        return self._outages == 0

    @property
    def flows(self) -> int:
        """Flows under way."""
        return len(self._flows)

    def only(self, flow: Flow | None) -> bool:
        """Whether no flow but this one is under way."""
        return not self._flows or self._flows == [flow]

    def start(
        self,
        size: float,
        direction: Direction,
        clients: int,
        done: Callable[[], None],
        per_client: float | None = None,
        after: float = 0.0,
    ) -> Flow:
        """A new flow of ``size`` bytes by ``clients`` nodes, which begins ``after`` seconds from now.

        Each node is limited to ``per_client`` bytes/s beside the system's own limit.
        """
        limit = self._limit if per_client is None else min(self._limit, per_client)
        flow = Flow(size, direction, clients, limit, self._env.now + after, done)
        if not self._flows and self._outages == 0:
            self._since, self._ending = flow.start_s, [flow]
            self._flows.append(flow)
            flow.rate = min(self._bandwidth[direction], limit * clients)
            self._alarm(after + size / flow.rate)
            return flow
        self._settle()
        self._flows.append(flow)
        self._share()
        return flow

    def left_of(self, flow: Flow) -> float:
        """Bytes that a flow has still to move."""
        return max(0.0, flow.left - flow.rate * max(0.0, self._env.now - self._since))

    def cancel(self, flow: Flow) -> float:
        """Cut a flow off; returns the bytes that it had still to move."""
        if flow.open:
            self._settle()
            self._flows.remove(flow)
            flow.open = False
            self._share()
        return flow.left

    def outage(self, seconds: float) -> None:
        """Stand still for a time; outages that overlap end with the last."""
        self._settle()
        self._outages += 1
        self._share()
        at(self._env, self._env.now + seconds, lambda _: self._back(), "storage outage")

    def _back(self) -> None:
        self._settle()
        self._outages -= 1
        self._share()

    def _settle(self) -> None:
        """Move what has been moved since the last change."""
        passed = self._env.now - self._since
        self._since = self._env.now
        if passed > 0:
            for flow in self._flows:
                step = min(flow.left, flow.rate * passed)
                flow.left -= step
                self.moved[flow.direction] += step

    def _share(self) -> None:
        """New rates, and a wake-up for the next change: the end of a flow, or the beginning of one."""
        self._wake = None
        now = self._env.now
        begun = self._running(now)
        for flow in self._flows:
            flow.rate = 0.0
        for flow, rate in zip(begun, self.rates(begun), strict=True):
            flow.rate = rate
        ends = [(flow.left / flow.rate, flow) for flow in begun if flow.rate > 0]
        first = min((seconds for seconds, _ in ends), default=math.inf)
        begins = min((flow.start_s - now for flow in self._flows if flow.start_s > now), default=math.inf)
        self._ending = [flow for seconds, flow in ends if seconds <= first * (1 + 1e-12)] if first <= begins else []
        if min(first, begins) < math.inf:
            self._alarm(min(first, begins))

    def _running(self, now: float) -> list[Flow]:
        """Flows that may move."""
        return [flow for flow in self._flows if flow.start_s <= now] if self._outages == 0 else []

    def _alarm(self, seconds: float) -> None:
        """Wake up when the first flow ends; a wake-up that was set before no longer counts."""
        self._wake = at(self._env, self._env.now + seconds, self._finish, "storage flow")

    def _finish(self, event: simpy.Event) -> None:
        """Flows end or begin here (unless something has changed since the wake-up was set)."""
        if event is not self._wake:
            return
        ended = self._ending
        if len(ended) == len(self._flows):  # most often: the only one
            self._since = self._env.now
            self._flows.clear()
        else:
            self._settle()
            self._flows = [flow for flow in self._flows if flow not in ended]
        for flow in ended:
            self.moved[flow.direction] += flow.left
            flow.left, flow.open = 0.0, False
        if self._flows:
            self._share()
        for flow in ended:
            flow.done()

    def rates(self, flows: list[Flow]) -> list[float]:
        """Max–min fair rate of each flow, bytes/s."""
        if len(flows) == 1:
            return [min(self._bandwidth[flows[0].direction], flows[0].limit * flows[0].clients)]
        rates = [0.0] * len(flows)
        groups: list[tuple[str, ...]] = (
            [("read", "write")] if self._system.duplex == "shared" else [("read",), ("write",)]
        )
        for group in groups:
            members = sorted(
                (i for i, flow in enumerate(flows) if flow.direction in group), key=lambda i: flows[i].limit
            )
            pool, weight = 1.0, math.fsum(flows[i].clients / self._bandwidth[flows[i].direction] for i in members)
            for i in members:
                flow = flows[i]
                each = min(flow.limit, pool / weight) if weight > 0 else flow.limit
                rates[i] = each * flow.clients
                pool = max(0.0, pool - rates[i] / self._bandwidth[flow.direction])
                weight -= flow.clients / self._bandwidth[flow.direction]
        return rates


def alone_s(system: Storage, size: float, direction: Direction, clients: int, limit: float = math.inf) -> float:
    """Seconds that ``size`` bytes take by ``clients`` nodes with the storage for themselves (latency apart)."""
    return system.alone_s(size, direction, clients, limit)
