"""Replay in SimPy: streams are processes, messages and copies are flows over links, everything happens at its time.

It replays the graph that the compiled replay walks, and without shared links its start and end times are the same to
the last float. With a ``Fabric`` it models what a longest path cannot: messages of neighbouring stages, data-parallel
traffic and checkpoints that share a NIC. Blocking, deferred or overlapped p2p are properties of the graph
(``compile(…, p2p=…)``).
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy
from simpy.events import Timeout

from clustersim.pipeline.dependencies import IS_COMPUTE
from clustersim.pipeline.fabric import Fabric, Network, Route
from clustersim.pipeline.graph import Floats, Graph
from clustersim.pipeline.replay import Timeline, checked, release_times

__all__ = ["simulate"]


def simulate(
    graph: Graph,
    durations: npt.ArrayLike,
    delays: npt.ArrayLike | None = None,
    *,
    release: npt.ArrayLike | None = None,
    fabric: Fabric | None = None,
    message_bytes: npt.ArrayLike = 0.0,
    op_bytes: npt.ArrayLike = 0.0,
) -> Timeline:
    """Replay a graph in SimPy.

    Args:
        graph: from ``compile``.
        durations: (ops,) seconds; those of ops off the compute stream with an idle network.
        delays: (messages,) seconds from departure to arrival with an idle network; None: 0.
        release: (ranks,) or (ops,) earliest starts, seconds.
        fabric: links that are shared; None: every message and copy has the network for itself.
        message_bytes: (messages,) or one number: bytes of each message on its route.
        op_bytes: (ops,) or one number: bytes of each collective or copy on its rank's collective route.

    Returns:
        The timeline; its ``message_delay`` is what each message took.

    What contention adds to a message: its bytes cross the route at the rate that the links leave; the rest of its delay
    (latency) follows. A flow that never shared a link takes its delay to the last float.
    """
    run = _Run(graph, checked(durations, (graph.ops,), "durations"), delays, release_times(graph, release))
    if fabric is not None:
        run.share(
            fabric,
            checked(message_bytes, (len(graph.messages),), "message_bytes"),
            checked(op_bytes, (graph.ops,), "op_bytes"),
        )
    run.run()
    return run.timeline()


class _Run:
    """One replay: what has ended, what each node still waits for, and the streams' processes."""

    def __init__(self, graph: Graph, durations: Floats, delays: npt.ArrayLike | None, release: Floats) -> None:
        self.env = simpy.Environment()
        self.graph = graph
        self.ops = graph.ops
        delay = checked(0.0 if delays is None else delays, (len(graph.messages),), "delays")
        node_seconds = np.zeros(graph.nodes)
        node_seconds[: graph.ops] = durations
        if len(graph.transfer):
            node_seconds[graph.transfer] = delay
        self.seconds: list[float] = node_seconds.tolist()
        self.delay: list[float] = delay.tolist()
        self.start = [0.0] * graph.nodes
        self.end = [0.0] * graph.nodes
        self.taken = list(self.delay)
        self.gate: dict[int, simpy.Event] = {}
        self.coming: dict[int, simpy.Event] = {}
        self.network: Network | None = None
        self.route: dict[int, tuple[Route, float]] = {}
        self.message_route: dict[int, tuple[Route, float]] = {}
        wiring = graph.wiring
        self.waits = list(wiring.waits)
        self.first_edge, self.head, self.carried = wiring.first_edge, wiring.head, wiring.carried
        self._release(release)
        self.only_one = [count == 1 and node < graph.ops for node, count in enumerate(self.waits)]

    def _release(self, release: Floats) -> None:
        for node in np.flatnonzero(release).tolist():
            self.waits[node] += 1
            self._after(float(release[node]), partial(self._arrived, node))

    def share(self, fabric: Fabric, message_bytes: Floats, op_bytes: Floats) -> None:
        """Let messages and copies cross shared links."""
        graph, self.network = self.graph, Network(self.env, fabric)
        ends = zip(graph.messages.source_rank.tolist(), graph.messages.target_rank.tolist(), strict=True)
        for message, ((source, target), size) in enumerate(zip(ends, message_bytes.tolist(), strict=True)):
            route = fabric.route(source, target)
            if route and size > 0:
                self.message_route[message] = (route, size)
        for message, node in enumerate(graph.transfer.tolist()):
            if message in self.message_route:
                self.route[node] = self.message_route[message]
        for op in np.flatnonzero((op_bytes > 0) & ~IS_COMPUTE[graph.kind]).tolist():
            route = fabric.collective_route(int(graph.rank[op]))
            if route:
                self.route[op] = (route, float(op_bytes[op]))
        for traffic in fabric.traffic:
            self._after(traffic.start, partial(self.network.start, traffic.route, traffic.bytes, lambda _: None))

    def run(self) -> None:
        """Start the streams and run until nothing is left to do."""
        self._find_express()
        for nodes in self.graph.wiring.streams:
            self.env.process(self._stream(nodes))
        self.env.run()

    def _find_express(self) -> None:
        """The usual case, found ahead: a node whose one outgoing edge is a message that meets no traffic and is all
        that its target awaits. ``express``: (nodes,) that target, −1 for other nodes; ``hop``: (nodes,) the delay."""
        count = np.diff(self.first_edge)
        edge = np.minimum(np.array(self.first_edge[:-1]), max(0, len(self.head) - 1))
        head, message = (np.array([*values, -1])[edge] for values in (self.head, self.carried))
        delay = np.where(message >= 0, np.array([*self.delay, 0.0])[message], 0.0)
        free = (count == 1) & (delay > 0) & ~np.isin(message, list(self.message_route))
        free[free] = np.array(self.only_one)[head[free]]
        self.express: list[int] = np.where(free, head, -1).tolist()
        self.hop: list[float] = delay.tolist()

    # --- processes and events -------------------------------------------------------------------------------

    def _stream(self, nodes: list[int]) -> Generator[simpy.Event, Any, None]:
        """A stream: its ops one after another, each when all that it waits for is there."""
        env, seconds, waits, start, end = self.env, self.seconds, self.waits, self.start, self.end
        gates, coming, first_edge, shared, notify = self.gate, self.coming, self.first_edge, self.route, self._notify
        express, hop = self.express, self.hop
        for node in nodes:
            if waits[node]:
                event = coming.pop(node, None)
                if event is None:
                    event = gates[node] = simpy.Event(env)
                if event.callbacks is not None:  # neither there yet nor here already
                    yield event
            start[node] = env._now
            if node in shared:
                over = simpy.Event(env)
                self._flow(shared[node], seconds[node], over.succeed)
                yield over
            elif seconds[node]:
                yield Timeout(env, seconds[node])
            end[node] = env._now
            if express[node] >= 0:
                arrival = Timeout(env, hop[node])
                gate = gates.pop(express[node], None)
                if gate is None:
                    coming[express[node]] = arrival
                else:  # the stream stands there already: the arrival itself wakes it
                    arrival.callbacks = gate.callbacks
            elif first_edge[node] != first_edge[node + 1]:
                notify(node)

    def _notify(self, node: int) -> None:
        """A node has ended: its messages leave, and what waits for it here may go on."""
        for edge in range(self.first_edge[node], self.first_edge[node + 1]):
            head, message = self.head[edge], self.carried[edge]
            delay = self.delay[message] if message >= 0 else 0.0
            if message >= 0 and message in self.message_route:
                self._flow(self.message_route[message], delay, partial(self._delivered, head, message, self.env.now))
            elif delay:
                self._after(delay, partial(self._arrived, head))
            else:
                self._arrived(head)

    def _delivered(self, node: int, message: int, left: float) -> None:
        self.taken[message] = self.env.now - left
        self._arrived(node)

    def _arrived(self, node: int, _: simpy.Event | None = None) -> None:
        """One thing that a node waits for is there."""
        left = self.waits[node] - 1
        self.waits[node] = left
        if left:
            return
        if node in self.gate:
            self.gate.pop(node).succeed()
        elif node >= self.ops:
            self._begin(node)

    def _begin(self, node: int) -> None:
        """A transfer or barrier starts: it is on no stream."""
        self.start[node] = self.env.now
        if node in self.route:
            self._flow(self.route[node], self.seconds[node], partial(self._finish, node))
        else:
            self._after(self.seconds[node], partial(self._finish, node))

    def _finish(self, node: int) -> None:
        self.end[node] = self.env.now
        self._notify(node)

    def _after(self, seconds: float, then: Any) -> None:
        timeout = self.env.timeout(seconds)
        assert timeout.callbacks is not None
        timeout.callbacks.append(lambda _: then())

    def _flow(self, way: tuple[Route, float], seconds: float, then: Any) -> None:
        """Bytes over shared links, then what is left of ``seconds``; alone on the links it takes ``seconds``
        exactly."""
        assert self.network is not None
        route, size = way
        idle = self.network.seconds(route, size)
        rest = max(0.0, seconds - idle)
        delivered = False

        def on_time() -> None:
            nonlocal delivered
            if flow.alone:
                delivered = True
                then()

        def ended(alone: bool) -> None:
            if not alone and not delivered:
                self._after(rest, then)

        flow = self.network.start(route, size, ended)
        self._after(max(seconds, idle), on_time)

    def timeline(self) -> Timeline:
        """What happened."""
        graph = self.graph
        taken = np.array(self.taken)
        if len(graph.transfer):
            taken = np.array(self.end)[graph.transfer] - np.array(self.start)[graph.transfer]
        return Timeline(graph, np.array(self.start), np.array(self.end), taken)
