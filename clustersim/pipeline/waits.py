"""What each op waits for, op by op: the rules that checks and lowering go by.

==========  ==============================================================================================
op          waits for
==========  ==============================================================================================
F(s,u)      F(s−1,u); the slice before on the same stage (its keys and values)
B, I(s,u)   F(s,u); B or I of (s+1,u); the slice behind on the same stage
W(s,u)      I(s,u)
R(s,u)      F(s,u)
S(·,u)      F of the loss stage; T(·,u) every S(·,u); the loss stage's backward every T(·,u) (algorithm 2: every S)
OFFLOAD     F(s,u); RELOAD its OFFLOAD
==========  ==============================================================================================

A need is a tuple of ops of which one must be done (a gradient comes from B or from I).
"""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.pipeline.ops import Action, Kind, Op, Program, parts_of

Need = tuple[Op, ...]


class Waits:
    """The rules for one program."""

    def __init__(self, program: Program) -> None:
        self.slices, self.per_chain = program.slices, max(1, program.stages_per_chain)
        self.stages = program.stages
        self.vocabulary: dict[Kind, list[int]] = {Kind.S: [], Kind.T: []}
        for rank in program.ranks:
            found = {(op.kind, op.stage) for action in rank for op in parts_of(action) if op.kind in (Kind.S, Kind.T)}
            for kind, stage in sorted(found):
                self.vocabulary[kind].append(stage)
        local = program.options.get("vocabulary_algorithm") == 2 or not self.vocabulary[Kind.T]
        self.before_loss = Kind.S if local else Kind.T

    def first(self, stage: int) -> bool:
        """Whether the stage is its chain's first."""
        return stage % self.per_chain == 0

    def last(self, stage: int) -> bool:
        """Whether the stage is its chain's last, the one with the loss."""
        return (stage + 1) % self.per_chain == 0

    def of(self, action: Action) -> Iterator[Need]:
        """Needs of an action; a fused pair has those of both, without one of its own ops."""
        own = set(parts_of(action))
        for op in parts_of(action):
            for need in self._op(op):
                if own.isdisjoint(need):
                    yield need

    def _op(self, op: Op) -> Iterator[Need]:
        stage, kind, unit = op
        if unit is None:
            return
        if kind is Kind.F:
            yield from self._forward(stage, unit)
        elif kind in (Kind.B, Kind.I):
            yield from self._backward(stage, unit)
        elif kind is Kind.W:
            yield (Op(stage, Kind.I, unit),)
        elif kind in (Kind.R, Kind.OFFLOAD, Kind.SEND_F):
            yield (Op(stage, Kind.F, unit),)
        elif kind is Kind.SEND_B:
            yield _gradient(stage, unit)
        elif kind is Kind.RELOAD:
            yield (Op(stage, Kind.OFFLOAD, unit),)
        elif kind is Kind.S:
            yield (Op(self.stages - 1, Kind.F, unit),)
        elif kind is Kind.T:
            yield from ((Op(other, Kind.S, unit),) for other in self.vocabulary[Kind.S])

    def _forward(self, stage: int, unit: int) -> Iterator[Need]:
        if not self.first(stage):
            yield (Op(stage - 1, Kind.F, unit),)
        if unit % self.slices:
            yield (Op(stage, Kind.F, unit - 1),)

    def _backward(self, stage: int, unit: int) -> Iterator[Need]:
        yield (Op(stage, Kind.F, unit),)
        if not self.last(stage):
            yield _gradient(stage + 1, unit)
        else:
            yield from ((Op(other, self.before_loss, unit),) for other in self.vocabulary[self.before_loss])
        if (unit + 1) % self.slices:
            yield _gradient(stage, unit + 1)


def _gradient(stage: int, unit: int) -> Need:
    return Op(stage, Kind.B, unit), Op(stage, Kind.I, unit)
