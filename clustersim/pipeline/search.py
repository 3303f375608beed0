"""The step-level search: which layout, schedule, microbatch and recompute make the shortest step that fits.

Best first: candidates are looked at in the order of their lower bounds (:mod:`search_bound`). The search ends when the
next bound is above the worst of the ``top`` steps found: nothing behind it can be better, so the result is that of
evaluating everything. Ties in time go to the smaller candidate in field order.
"""

from __future__ import annotations

import heapq
import time as clock
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from clustersim.errors import ImpossibleError, InputError, Problem
from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.conditions import StepTime
from clustersim.pipeline.search_bound import layout_of, training_of
from clustersim.pipeline.search_evaluate import Evaluator, Fit
from clustersim.pipeline.search_space import Choice, Enumeration, Space
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.stack import Stack, default_stack
from clustersim.workload.training import Training


@dataclass(frozen=True)
class Candidate:
    """One layout with its step."""

    choice: Choice
    layout: Layout
    training: Training
    schedule: str
    step: StepTime
    fit: Fit
    bound_s: float

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self.step.seconds

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Trained tokens a second and GPU."""
        return self.step.tokens / self.step.seconds / self.choice.gpus

    def describe(self) -> dict[str, object]:
        """The decided keys as a scenario writes them."""
        choice = self.choice
        return {
            "tp": choice.tp, "pp": choice.pp, "cp": choice.cp, "ep": choice.ep, "dp": choice.dp,
            "chunks": choice.chunks, "schedule": self.schedule, "slices": choice.slices,
            "micro_batch": choice.micro_batch, "microbatches": choice.microbatches,
            "recompute": self.training.recompute.dump(), "zero": choice.zero,
        }  # fmt: skip


@dataclass(frozen=True)
class SearchResult:
    """What a search found, and how it came to it."""

    candidates: tuple[Candidate, ...]
    """Best first."""
    considered: int
    """Candidates that the rules let through."""
    evaluated: int
    """Candidates whose step was computed."""
    unfit: int
    """Candidates that were looked at and do not fit."""
    pruned: int
    """Candidates whose lower bound was above the worst of the steps found."""
    refused: Mapping[str, int]
    """Branches that each rule cut."""
    elapsed_s: float
    evaluator: Evaluator
    choices: tuple[Choice, ...]

    @property
    def best(self) -> Candidate:
        """The shortest step."""
        return self.candidates[0]


def search_steps(model: TransformerModel, cluster: Cluster, training: Training, space: Space | None = None, *,
                 base: Layout | None = None, stack: Stack | None = None, top: int = 10,
                 progress: Callable[[int, int], None] | None = None) -> SearchResult:  # fmt: skip
    """Search the space; see the module.

    Args:
        space: values of each dimension (default: what model and cluster allow).
        base: keys that the search does not decide (overlap, order, shard degrees, expert_tp …).
        stack: software stack (default: the training's, else that of the GPU's generation).
        top: how many of the best to find.
        progress: called with (looked at, considered) now and then.

    Raises:
        InputError: the training gives its step's time, which would be the same for all.
        ImpossibleError: no candidate passes the rules, or none of them fits; names the nearest.
    """
    if training.step_time is not None:
        raise InputError(Problem("training.step_time", "gives every layout the same step; leave it out of a search of layouts"))
    started = clock.perf_counter()
    space, base = space or Space(), base or Layout()
    chosen = stack or training.stack or default_stack(cluster.node.gpu.name)
    walk = Enumeration(model, cluster, training, space, base)
    choices = tuple(walk)
    if not choices:
        raise ImpossibleError(f"no layout of {walk.gpus} GPUs passes the rules: {_counts(walk.refused)}")
    evaluator = Evaluator(model, cluster, training, space, base, chosen)
    bounds = [evaluator.bounds.bound(choice) for choice in choices]
    order = sorted(range(len(choices)), key=lambda i: (bounds[i], choices[i]))
    found = _best_first(evaluator, [(bounds[i], choices[i]) for i in order], top, progress)
    if not found.heap:
        raise ImpossibleError(Problem("cluster", _nothing_fits(found, len(choices))))
    kept = [(-entry[0], entry[1].choice, entry[2]) for entry in found.heap]
    candidates = [_candidate(evaluator, choice, bound, training, space, base) for _, choice, bound in sorted(kept)]
    return SearchResult(
        tuple(candidates), len(choices), found.evaluated, found.unfit, len(choices) - found.looked_at,
        MappingProxyType(dict(walk.refused)), clock.perf_counter() - started, evaluator, choices,
    )  # fmt: skip


def search(model: TransformerModel, cluster: Cluster, training: Training, space: Space | None = None, *,
           base: Layout | None = None, stack: Stack | None = None, top: int = 10) -> list[Candidate]:  # fmt: skip
    """The ``top`` candidates of :func:`search_steps`, best first."""
    return list(search_steps(model, cluster, training, space, base=base, stack=stack, top=top).candidates)


class _Reversed:
    """Heap order in which the larger choice leaves first among equal times."""

    __slots__ = ("choice",)

    def __init__(self, choice: Choice) -> None:
        self.choice = choice

    def __lt__(self, other: _Reversed) -> bool:
        return self.choice > other.choice


@dataclass
class _Found:
    """State of a best-first search: a heap of (-seconds, choice, bound) with the worst on top."""

    heap: list[tuple[float, _Reversed, float]] = field(default_factory=list)
    seconds: dict[Choice, float] = field(default_factory=dict)
    """Seconds of the first of the candidates that differ in the ZeRO stage alone."""
    listed: set[Choice] = field(default_factory=set)
    evaluated: int = 0
    unfit: int = 0
    looked_at: int = 0
    nearest: tuple[float, Choice] | None = None
    """Bytes over the limit of the unfit candidate that is over by least."""


def _best_first(evaluator: Evaluator, order: list[tuple[float, Choice]], top: int,
                progress: Callable[[int, int], None] | None) -> _Found:  # fmt: skip
    found = _Found()
    for bound, choice in order:
        if len(found.heap) == top and bound > -found.heap[0][0]:
            break
        found.looked_at += 1
        if progress is not None and found.looked_at % 100 == 0:
            progress(found.looked_at, len(order))
        fit = evaluator.fit(choice)
        if not fit.fits:
            found.unfit += 1
            if found.nearest is None or fit.over_bytes < found.nearest[0]:
                found.nearest = (fit.over_bytes, choice)
            continue
        try:
            seconds = evaluator.time(choice).seconds
        except InputError:
            continue
        found.evaluated += 1
        same = choice._replace(zero=-1)
        if found.seconds.setdefault(same, seconds) == seconds and same in found.listed:
            continue  # a higher ZeRO stage that costs and gains no time: the lower one stands for both
        found.listed.add(same)
        entry = (-seconds, _Reversed(choice), bound)
        if len(found.heap) < top:
            heapq.heappush(found.heap, entry)
        else:
            heapq.heappushpop(found.heap, entry)
    return found


def _candidate(
    evaluator: Evaluator, choice: Choice, bound: float, training: Training, space: Space, base: Layout
) -> Candidate:
    """A found choice with its whole step replayed and its units in flight counted."""
    return Candidate(choice, layout_of(choice, base), training_of(choice, training, space), choice.schedule,
                     evaluator.time(choice), evaluator.fit(choice, certain=True), bound)  # fmt: skip


def _counts(refused: Mapping[str, int]) -> str:
    return (
        "; ".join(f"{rule} ({count})" for rule, count in sorted(refused.items(), key=lambda pair: -pair[1])) or "none"
    )


def _nothing_fits(found: _Found, considered: int) -> str:
    assert found.nearest is not None
    over, choice = found.nearest
    named = ", ".join(f"{name} {value}" for name, value in choice._asdict().items())
    return (
        f"none of {considered} layouts fits in memory with room for fragmentation; the nearest is {over / 2**30:.1f} GiB "
        f"over: {named}. More GPUs, more memory, or offload of optimizer state would help"
    )
