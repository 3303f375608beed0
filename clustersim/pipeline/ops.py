"""Ops, programs and their order: what a pipeline schedule is made of.

An op is one piece of work of one stage for one *unit* (a microbatch, or one slice of its sequence: unit = microbatch ×
slices + slice). It prints as in torch.distributed.pipelining: ``2F3`` is stage 2, forward, unit 3.
A program is one ordered list of ops a rank; which stage sits on which rank is read off the lists, never assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple


class Kind(StrEnum):
    """What an op does."""

    F = "F"  # forward
    B = "B"  # full backward = I + W
    I = "I"  # gradient of the input only  # noqa: E741 - the field's name
    W = "W"  # gradient of the weights only
    R = "R"  # recomputation of the forward ahead of a backward
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"
    UNSHARD = "UNSHARD"  # gather a stage's parameters (FSDP)
    RESHARD = "RESHARD"  # drop the gathered parameters
    REDUCE_GRAD = "REDUCE_GRAD"  # reduce(-scatter) a stage's gradients over data parallel ranks
    OFFLOAD = "OFFLOAD"  # copy a unit's activations off the GPU (host, or a partner rank for BPipe)
    RELOAD = "RELOAD"  # copy them back
    S = "S"  # vocabulary-parallel output layer: local logits, maximum and sum
    T = "T"  # vocabulary-parallel output layer: gradients after the all-reduce


COMPUTE = frozenset({Kind.F, Kind.B, Kind.I, Kind.W, Kind.R, Kind.S, Kind.T})
COMMUNICATION = frozenset({Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B})


class Op(NamedTuple):
    """One piece of work: ``Op(2, Kind.F, 3)`` prints as ``2F3``. ``microbatch`` is the unit's index, None for a whole
    stage."""

    stage: int
    kind: Kind
    microbatch: int | None

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.value}{'' if self.microbatch is None else self.microbatch}"


class Fused(NamedTuple):
    """Two ops that run as one (a forward overlapped with a backward): one start and one end for both."""

    first: Op
    second: Op

    def __str__(self) -> str:
        return f"({self.first};{self.second})OVERLAP_F_B"


class Batch(NamedTuple):
    """Sends and receives that are posted together (``batch_isend_irecv``): none waits for another of the same batch."""

    ops: tuple[Op, ...]

    def __str__(self) -> str:
        return f"[{'+'.join(str(op) for op in self.ops)}]"


Action = Op | Fused | Batch


def parts_of(action: Action) -> Iterator[Op]:
    """The op itself, both ops of a fused pair, or every message of a batch."""
    if isinstance(action, Op):
        yield action
    elif isinstance(action, Fused):
        yield action.first
        yield action.second
    else:
        yield from action.ops


def _stage_names(rank: tuple[Action, ...]) -> set[int]:
    """Stages that one rank's list names; the usual list of plain ops takes one pass without a call an op."""
    heads = {action[0] for action in rank}
    if all(isinstance(head, int) for head in heads):
        return heads  # type: ignore[return-value]
    return {op.stage for action in rank for op in parts_of(action)}


@dataclass(frozen=True)
class Program:
    """A schedule for one step: ``ranks[r]`` is rank r's ordered list of actions.

    ``slices`` units make one microbatch; ``chains`` independent pipelines share the ranks (Chimera and DualPipe: 2,
    with stage s of chain c named c·stages_per_chain + s); ``weight_copies`` is parameters held a rank ÷ (model ÷
    ranks).
    """

    ranks: tuple[tuple[Action, ...], ...]
    microbatches: int
    slices: int = 1
    chains: int = 1
    weight_copies: float = 1.0
    name: str = ""
    options: dict[str, object] = field(default_factory=dict)

    @cached_property
    def stages(self) -> int:
        """Number of stage names in use, over all chains."""
        return 1 + max(self.stage_rank, default=-1)

    @cached_property
    def stage_rank(self) -> dict[int, int]:
        """The rank that runs each stage, read off the lists (the last rank that names it), in order of the ranks."""
        return {stage: r for r, rank in enumerate(self.ranks) for stage in sorted(_stage_names(rank))}

    @property
    def stages_per_chain(self) -> int:
        """Stages of one chain: stage s belongs to chain s // stages_per_chain."""
        return self.stages // self.chains

    @property
    def units(self) -> int:
        """Units a step: microbatches × slices."""
        return self.microbatches * self.slices

    @property
    def units_per_chain(self) -> int:
        """Units that each stage sees: the chains share the microbatches evenly."""
        return self.units // self.chains


def program(ranks: Sequence[Sequence[Action]], microbatches: int, **more: object) -> Program:
    """A ``Program`` from any sequences."""
    return Program(tuple(tuple(rank) for rank in ranks), microbatches, **more)  # type: ignore[arg-type]
