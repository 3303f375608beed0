"""A graph as the SimPy replay walks it: streams, and the edges between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersim.pipeline.graph import Graph
from clustersim.pipeline.topology import Csr


@dataclass(frozen=True, eq=False)
class Wiring:
    """Edges without those of stream order, which each stream's process holds by itself.

    ``streams``: for each its nodes in order; ``waits``: (nodes,) how many edges come in; the edges that go out of
    node i are ``first_edge[i]`` to ``first_edge[i + 1]``: each has a ``head`` and the message that it ``carried``, −1
    for none.
    """

    streams: list[list[int]]
    waits: list[int]
    first_edge: list[int]
    head: list[int]
    carried: list[int]

    @classmethod
    def of(cls, graph: Graph) -> Wiring:
        """The wiring of a graph."""
        source, target = graph.edges.other, graph.edge_target
        inside = (source < graph.ops) & (target < graph.ops)
        ordered = inside.copy()
        ordered[inside] = graph.stream[source[inside]] == graph.stream[target[inside]]
        keep = ~ordered
        csr, by = Csr.group(source[keep], target[keep], graph.nodes)
        waits = np.bincount(target[keep], minlength=graph.nodes)
        carried = graph.edge_message[keep][by]
        return cls(_streams(graph), waits.tolist(), csr.start.tolist(), csr.other.tolist(), carried.tolist())


def _streams(graph: Graph) -> list[list[int]]:
    by = np.argsort(graph.stream, kind="stable")
    bounds = np.searchsorted(graph.stream[by], np.arange(1, len(graph.stream_names)))
    return [nodes.tolist() for nodes in np.split(by, bounds)]
