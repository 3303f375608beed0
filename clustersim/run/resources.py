"""Shared storage, and what the transfers of saves cross within a node: one fluid, max–min fair, bytes conserved.

Nodes are alike, so one resource of a kind stands for that of each. Flows that cross storage stand still in its outages;
those within nodes go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import simpy

from clustersim.checkpoint.fluid import Demand, Move, max_min, storage_pools
from clustersim.hardware.storage import Storage
from clustersim.run.storage import Flow, SharedStorage


class NodeFlow(Flow):
    """A flow of bytes that cross resources of nodes; ``uses`` of each resource what it takes a byte/s a node."""

    __slots__ = ("uses",)

    uses: Mapping[str, float]


class Resources(SharedStorage):
    """The storage of a run and the resources of its nodes.

    Attributes:
        carried: bytes a node that each resource has carried (of pools of storage: shares of their capacity · s).
    """

    def __init__(self, env: simpy.Environment, system: Storage, capacity: Mapping[str, float]) -> None:
        super().__init__(env, system)
        self._capacity = capacity
        self.carried: dict[str, float] = dict.fromkeys(capacity, 0.0)
        self.moved["node"] = 0.0

    def carry(self, move: Move, clients: int, share: float, done: Callable[[], None]) -> Flow:
        """Start ``share`` of the bytes of a move, by the ``clients`` nodes that take part."""
        assert move.demand is not None
        clients = move.transfer.clients or clients
        direction = "write" if move.transfer.channel == "storage" else "node"
        size = share * move.size * clients
        flow = NodeFlow(size, direction, clients, move.demand.limit, self._env.now, done)
        flow.uses = move.demand.uses
        self._settle()
        self._flows.append(flow)
        self._share()
        return flow

    def _running(self, now: float) -> list[Flow]:
        return [
            flow for flow in self._flows if flow.start_s <= now and (self._outages == 0 or flow.direction == "node")
        ]

    def _settle(self) -> None:
        before = [(flow, flow.left) for flow in self._flows]
        super()._settle()
        for flow, left in before:
            self._count(flow, left - flow.left)

    def _finish(self, event: simpy.Event) -> None:
        if event is self._wake:
            self._settle()
            for flow in self._ending:
                self._count(flow, flow.left)
        super()._finish(event)

    def _count(self, flow: Flow, size: float) -> None:
        """Account for bytes that a flow has moved."""
        if size > 0:
            for resource, use in self._uses(flow).items():
                self.carried[resource] += size / flow.clients * use

    def _uses(self, flow: Flow) -> Mapping[str, float]:
        if isinstance(flow, NodeFlow):
            return flow.uses
        return storage_pools(self._system, flow.clients, flow.direction)

    def rates(self, flows: list[Flow]) -> list[float]:
        """Max–min fair rate of each flow, bytes/s of all its nodes."""
        each = max_min([Demand(flow.limit, self._uses(flow)) for flow in flows], self._capacity)
        return [rate * flow.clients for rate, flow in zip(each, flows, strict=True)]
