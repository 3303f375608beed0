"""What ops and messages cost: the input of a replay that a graph leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from clustersim.errors import InputError
from clustersim.pipeline.dependencies import CODE, KINDS
from clustersim.pipeline.graph import Floats, Graph
from clustersim.pipeline.ops import Kind

Numbers = float | Sequence[float] | npt.NDArray[np.float64]
Kinds = Mapping[Kind, Numbers]


@dataclass(frozen=True)
class Costs:
    """Durations of ops and delays of messages, in seconds.

    Attributes:
        seconds: duration of each kind of op: one number for all stages, or one a stage: (stages,), or (stages of a
            chain,) for all chains alike. A kind that is absent takes: B = I + W, R = F, every other kind 0.
        share: the durations are those of a whole rank's share of one microbatch, so an op takes
            duration ÷ (chunks a rank × slices). Otherwise they are those of one op.
        fused: what a fused pair takes, as a fraction of the sum of its parts.
        latency: seconds a message needs beside its bytes: one number, or (ranks, ranks) by source and target.
        message_bytes: bytes of one message: one number, or one a stage that makes the tensor.
        bandwidth: bytes per second of a message's link: one number, or (ranks, ranks).
        slice_factors: (slices,) factor on the ops of each slice of a sequence (uneven splits, causal attention).
        microbatch_factors: (microbatches,) factor on the ops of each microbatch (sequences of varying length).
        rank_factors: (ranks,) factor on the ops of each rank (a slow GPU, another type of GPU: 1.25 takes 25 % longer).
    """

    seconds: Kinds
    share: bool = False
    fused: float = 1.0
    latency: Numbers | Sequence[Sequence[float]] = 0.0
    message_bytes: Numbers = 0.0
    bandwidth: Numbers | Sequence[Sequence[float]] = field(default=float("inf"))
    slice_factors: Sequence[float] | None = None
    microbatch_factors: Sequence[float] | None = None
    rank_factors: Sequence[float] | None = None

    @classmethod
    def of(
        cls,
        F: Numbers = 1.0,
        I: Numbers = 1.0,  # noqa: E741 - the field's name
        W: Numbers = 1.0,
        B: Numbers | None = None,
        **more: object,
    ) -> Costs:
        """Costs of a whole rank's share of a microbatch.

        Args:
            F, I, W: forward, input gradient, weight gradient: one number, or one a stage.
            B: full backward; None: I + W.
            more: the other attributes.
        """
        seconds: dict[Kind, Numbers] = {Kind.F: F, Kind.I: I, Kind.W: W}
        if B is not None:
            seconds[Kind.B] = B
        return cls(seconds, share=True, **more)  # type: ignore[arg-type]

    def durations(self, graph: Graph) -> Floats:
        """(ops,) seconds of each op of a graph.

        Raises:
            InputError: an array has another length than the graph has stages, slices, microbatches or ranks.
        """
        parts, table = graph.parts, self._table(graph)
        value = table[parts.kind, parts.stage]
        for factors, index, name, count in self._factors(graph):
            array = _array(factors, (count,), name)
            value = value * np.where(index >= 0, array[np.maximum(index, 0)], 1.0)
        total = value[: graph.ops].copy()
        second = graph.second[graph.fused]
        total[graph.fused] = (total[graph.fused] + value[second]) * self.fused
        return total

    def _factors(self, graph: Graph) -> list[tuple[Sequence[float], npt.NDArray[np.int64], str, int]]:
        parts, program = graph.parts, graph.program
        unit, slices = parts.unit, program.slices
        slice_of = np.where(unit >= 0, unit % slices, -1)
        batch_of = np.where(unit >= 0, unit // slices, -1)
        rank_of = parts.rank[parts.node]
        every = [
            (self.slice_factors, slice_of, "slice_factors", slices),
            (
                self.microbatch_factors,
                batch_of,
                "microbatch_factors",
                max(program.microbatches, int(batch_of.max(initial=-1)) + 1),
            ),
            (self.rank_factors, rank_of, "rank_factors", graph.ranks),
        ]
        return [(factors, index, name, count) for factors, index, name, count in every if factors is not None]

    def _table(self, graph: Graph) -> Floats:
        """(kinds, stages) seconds of one op."""
        table = np.zeros((len(KINDS), graph.stages))
        for kind, value in self.seconds.items():
            table[CODE[kind]] = self._per_stage(graph, value, f"duration of {kind.value}")
        if Kind.B not in self.seconds:
            table[CODE[Kind.B]] = table[CODE[Kind.I]] + table[CODE[Kind.W]]
        if Kind.R not in self.seconds:
            table[CODE[Kind.R]] = table[CODE[Kind.F]]
        return table / (graph.chunks * graph.program.slices) if self.share else table

    def _per_stage(self, graph: Graph, value: Numbers, name: str) -> Floats:
        array = np.asarray(value, dtype=np.float64)
        in_chain = graph.stages // graph.program.chains
        if array.shape == (in_chain,) != (graph.stages,):
            array = np.tile(array, graph.program.chains)
        return _array(array, (graph.stages,), name)

    def delays(self, graph: Graph) -> Floats:
        """(messages,) seconds of each message of a graph: latency + bytes ÷ bandwidth."""
        messages, ranks = graph.messages, graph.ranks
        latency = _array(self.latency, (ranks, ranks), "latency")
        if np.any(np.asarray(self.bandwidth) <= 0):
            raise InputError("bandwidth must be above 0")
        bandwidth = _array(self.bandwidth, (ranks, ranks), "bandwidth")
        ends = (messages.source_rank, messages.target_rank)
        return np.asarray(latency[ends] + self.bytes(graph) / bandwidth[ends])

    def bytes(self, graph: Graph) -> Floats:
        """(messages,) bytes of each message of a graph."""
        return self._per_stage(graph, self.message_bytes, "message_bytes")[graph.messages.stage]


def _array(value: object, shape: tuple[int, ...], name: str) -> Floats:
    """A number or an array of just this shape, as an array of this shape."""
    array = np.asarray(value, dtype=np.float64)
    if array.ndim and array.shape != shape:
        raise InputError(
            f"{name} needs one number or {' × '.join(map(str, shape))}, not {' × '.join(map(str, array.shape))}"
        )
    if np.isnan(array).any() or (array < 0).any():
        raise InputError(f"{name} must be at least 0")
    return np.broadcast_to(array, shape)
