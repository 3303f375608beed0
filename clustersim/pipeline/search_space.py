"""The space of layouts that a search walks: which values each dimension takes, and the rules that refuse
combinations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from clustersim.hardware.cluster import Cluster
from clustersim.hardware.collectives import domain_gpus
from clustersim.part import Block
from clustersim.pipeline.schedule import Pipeline, Schedule, get_schedule
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.training import FullRecompute, NoRecompute, Recompute, SelectiveRecompute, Training

LIGHT = SelectiveRecompute(ops=("norm", "activation"))
"""Recompute of cheap elementwise ops only."""
CHUNKED = "interleaved-1f1b"


Size = Annotated[int, Field(gt=0)]


class Space(Block):
    """Values of each dimension; null takes what the model and the cluster allow."""

    tp: tuple[Size, ...] | None = None
    """null: powers of two that divide the heads and stay inside a fast domain."""
    pp: tuple[Size, ...] | None = None
    """null: divisors of the GPUs up to the model's layers + 2 (embedding and head alone), at most 64."""
    cp: tuple[Size, ...] | None = None
    """null: powers of two that leave at least 1,024 tokens a rank."""
    ep: tuple[Size, ...] | None = None
    """null: divisors of the experts; 1 for a dense model."""
    chunks: tuple[Size, ...] | None = None
    """null: 1 to 16 for schedules with any number of chunks."""
    micro_batch: tuple[Size, ...] = (1, 2, 4)
    recompute: tuple[Recompute, ...] = (NoRecompute(), LIGHT, SelectiveRecompute(), FullRecompute())
    schedules: tuple[str, ...] = ("1f1b", "interleaved-1f1b", "zb-h1", "zb-v")
    zero: tuple[Annotated[int, Field(ge=0, le=3)], ...] = (1, 2, 3)
    slices: tuple[Size, ...] = (4,)
    """Slices of a sequence, for schedules that cut it."""
    gpus: int | None = Field(default=None, gt=0)
    """GPUs to use; null: all."""


class Choice(NamedTuple):
    """One candidate: the values that a search decides."""

    tp: int
    pp: int
    cp: int
    ep: int
    dp: int
    chunks: int
    slices: int
    micro_batch: int
    microbatches: int
    recompute: int
    """Index into ``Space.recompute``."""
    schedule: str
    zero: int

    @property
    def gpus(self) -> int:
        """GPUs that it uses."""
        return self.tp * self.pp * self.cp * self.dp

    def pipe(self) -> Pipeline:
        """Its pipeline."""
        return Pipeline(self.pp, self.microbatches, self.chunks, self.slices)


def divisors(number: int) -> list[int]:
    """Divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4 … ≤ most."""
    return [1 << k for k in range(max(1, most).bit_length())]


class Enumeration:
    """Walks the space; ``refused`` counts, by rule, the branches that were cut."""

    def __init__(
        self, model: TransformerModel, cluster: Cluster, training: Training, space: Space, base: Layout
    ) -> None:
        self.model, self.cluster, self.training, self.space, self.base = model, cluster, training, space, base
        self.gpus = space.gpus or cluster.gpus
        self.refused: Counter[str] = Counter()
        self._parts: dict[str, Schedule] = {name: get_schedule(name) for name in space.schedules}
        self._allowed: dict[tuple[str, Pipeline], bool] = {}

    def __iter__(self) -> Iterator[Choice]:
        for tp in self._tensor():
            for cp in self._context():
                for pp in self._pipeline(tp * cp):
                    if self.gpus % (tp * pp * cp):
                        self.refused["tp x pp x cp divides the GPUs"] += 1
                        continue
                    yield from self._replicated(tp, pp, cp, self.gpus // (tp * pp * cp))

    def _replicated(self, tp: int, pp: int, cp: int, dp: int) -> Iterator[Choice]:
        for ep in self._experts(tp, cp, dp):
            for micro_batch in self.space.micro_batch:
                if self.training.global_batch % (dp * micro_batch):
                    self.refused["dp x micro_batch divides the global batch"] += 1
                    continue
                count = self.training.global_batch // (dp * micro_batch)
                for name, chunks, slices in self._scheduled(pp, count):
                    for recompute in range(len(self.space.recompute)):
                        for zero in self.space.zero if dp * cp > 1 else self.space.zero[:1]:
                            yield Choice(tp, pp, cp, ep, dp, chunks, slices, micro_batch, count, recompute, name, zero)

    def _tensor(self) -> Iterator[int]:
        model, domain = self.model, domain_gpus(self.cluster.node)
        for tp in self.space.tp or powers_of_two(model.heads):
            width = model.moe.expert_ffn_hidden if model.moe is not None else model.ffn_hidden
            if model.heads % tp or model.ffn_hidden % tp or width % tp:
                self.refused["tp divides heads and MLP width"] += 1
            elif self.space.tp is None and tp > domain:
                self.refused["tp stays inside a fast domain"] += 1
            else:
                yield tp

    def _context(self) -> Iterator[int]:
        length = self.training.seq_len
        for cp in self.space.cp or powers_of_two(max(1, length // 1024)):
            if cp > 1 and length % (2 * cp):
                self.refused["2 x cp divides the sequence"] += 1
            else:
                yield cp

    def _pipeline(self, inner: int) -> Sequence[int]:
        if self.space.pp is not None:
            return self.space.pp
        most = min(64, self.model.layers + 2)
        return [pp for pp in divisors(max(1, self.gpus // inner)) if pp <= most]

    def _experts(self, tp: int, cp: int, dp: int) -> Iterator[int]:
        moe = self.model.moe
        if moe is None:
            yield 1
            return
        for ep in self.space.ep or divisors(moe.experts):
            cut = self.base.expert_tp or (1 if ep > 1 else tp)
            if moe.experts % ep or (tp * cp * dp) % (ep * cut):
                self.refused["ep divides the experts, and ep x expert_tp the GPUs of a stage"] += 1
            else:
                yield ep

    def _scheduled(self, pp: int, microbatches: int) -> Iterator[tuple[str, int, int]]:
        """(schedule, chunks, slices) that are defined for this pipeline; without one, plain accumulation."""
        if pp == 1:
            yield self.space.schedules[0], 1, 1
            return
        for name, part in self._parts.items():
            traits = part.traits
            many = self.space.chunks or tuple(range(2 if name == CHUNKED else 1, 17))
            for chunks in (traits.chunks,) if traits.chunks is not None else many:
                for slices in self.space.slices if traits.sliced else (1,):
                    if self._defined(name, Pipeline(pp, microbatches, chunks, slices)):
                        yield name, chunks, slices

    def _defined(self, name: str, pipe: Pipeline) -> bool:
        if pipe.stages > self.model.layers + 2:
            self.refused["a virtual stage for every layer at most"] += 1
            return False
        key = (name, pipe)
        if key not in self._allowed:
            self._allowed[key] = not self._parts[name].refusals(pipe)
        if not self._allowed[key]:
            self.refused[f"{name} is defined there"] += 1
        return self._allowed[key]
