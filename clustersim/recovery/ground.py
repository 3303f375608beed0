"""What a strategy knows of its job before anything has failed: sizes, where replicas and stages sit, bytes, bandwidth."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from clustersim.checkpoint.state import StateBytes
    from clustersim.pipeline.conditions import Conditions
    from clustersim.recovery.strategy import RecoveryStrategy


KNOWN = 4096
"""Conditions that are remembered."""


class Seat(NamedTuple):
    """One part of the model that a node holds: pipeline rank ``stage`` of data-parallel replica ``replica``."""

    replica: int
    stage: int


@dataclass(frozen=True, eq=False)
class Ground:
    """The job as recovery sees it.

    Attributes:
        nodes, spares: places of the job, powered spares beside them.
        gpus_per_node: GPUs of a node.
        tp, pp, cp, dp: sizes of the parallel groups.
        zero: ZeRO stage of the layout (from 1 on the optimizer's state is held once).
        order: dimensions of the placement, innermost first.
        layers: layers of the model.
        state: bytes of the training state.
        network: bytes/s that a node's NICs move in one direction.
        step_s: nominal step, seconds.
        memory: bytes of GPU memory of a node.
        microbatches: microbatches a step of one replica.
    """

    nodes: int
    spares: int
    gpus_per_node: int
    tp: int
    pp: int
    cp: int
    dp: int
    zero: int
    order: tuple[str, ...]
    layers: int
    state: StateBytes
    network: float
    step_s: float
    memory: float
    microbatches: int = 1
    _seats: dict[int, tuple[Seat, ...]] = field(default_factory=dict, repr=False)
    _known: dict[tuple[int, frozenset[int]], Conditions | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, scenario: Any, state: StateBytes, step_s: float) -> Ground:
        """The ground of a scenario."""
        cluster, layout = scenario.cluster, scenario.parallelism
        node = cluster.node
        return cls(
            nodes=cluster.nodes, spares=cluster.spare_nodes, gpus_per_node=node.gpus, tp=layout.tp, pp=layout.pp,
            cp=layout.cp, dp=max(1, scenario.dp), zero=layout.zero, order=layout.dimensions, layers=scenario.model.layers,
            state=state, network=node.network_bandwidth, step_s=step_s, memory=node.gpu.memory * node.gpus,
            microbatches=scenario.microbatches,
        )  # fmt: skip

    @functools.cached_property
    def gpus(self) -> int:
        """GPUs of the job."""
        return self.nodes * self.gpus_per_node

    @property
    def node_state(self) -> float:
        """Bytes of training state on one node: its weights and its own part of the optimizer's state."""
        return self.state.read_by_all / self.nodes

    @functools.cached_property
    def _strides(self) -> dict[str, int]:
        sizes = {"tp": self.tp, "pp": self.pp, "cp": self.cp, "dp": self.dp}
        strides, stride = {}, 1
        for name in self.order:
            strides[name] = stride
            stride *= sizes.get(name, 1)
        return {**strides, "world": stride}

    def seats(self, place: int) -> tuple[Seat, ...]:
        """What the node of a place holds, sorted; empty: nothing (a node beyond the layout)."""
        found = self._seats.get(place)
        if found is None:
            strides, first = self._strides, place * self.gpus_per_node
            gpus = range(first, min(first + self.gpus_per_node, strides["world"]))
            found = tuple(
                sorted({Seat(gpu // strides["dp"] % self.dp, gpu // strides["pp"] % self.pp) for gpu in gpus})
            )
            self._seats[place] = found
        return found

    def under(self, strategy: RecoveryStrategy, away: frozenset[int]) -> Conditions | None:
        """``strategy.conditions`` without the nodes of ``away``; the same question is asked once."""
        key = (id(strategy), away)
        if key not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[key] = strategy.conditions(away, self)
        return self._known[key]

    def replicas(self, places: frozenset[int]) -> frozenset[int]:
        """Replicas that the nodes of ``places`` take part in."""
        return frozenset(seat.replica for place in places for seat in self.seats(place))

    def missing(self, places: frozenset[int]) -> dict[int, set[int]]:
        """Of each pipeline rank that the nodes of ``places`` hold a part of: the replicas in which they do."""
        stages: dict[int, set[int]] = {}
        for place in sorted(places):
            for seat in self.seats(place):
                stages.setdefault(seat.stage, set()).add(seat.replica)
        return stages

    def copied(self, places: frozenset[int]) -> bool:
        """Whether each part that the nodes of ``places`` hold is also held by another replica."""
        return all(len(replicas) < self.dp for replicas in self.missing(places).values())

    def gpu_of(self, replica: int, stage: int) -> int:
        """First GPU of a pipeline rank of a replica."""
        return replica * self._strides["dp"] + stage * self._strides["pp"]

    @functools.cached_property
    def replica_nodes(self) -> int:
        """Nodes that one replica spans."""
        return max(1, math.ceil(self.tp * self.pp * self.cp / self.gpus_per_node))
