"""What a schedule declares about itself, the size of a pipeline, and a schedule described in words and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from clustersim.pipeline.placement import Placement

Rules = Callable[..., Iterable[str]]


class Pipeline(NamedTuple):
    """The size of a pipeline: ``microbatches`` are those of one step on all chains together."""

    ranks: int
    microbatches: int
    chunks: int = 1
    slices: int = 1

    @property
    def units(self) -> int:
        """Units a step: microbatches × slices."""
        return self.microbatches * self.slices

    @property
    def stages(self) -> int:
        """Stages of one chain: ranks × chunks."""
        return self.ranks * self.chunks


@dataclass(frozen=True)
class Traits:
    """What a schedule declares about itself; see :func:`schedule` for the meaning of each."""

    order: Callable[..., Any]
    whole: bool
    options: tuple[str, ...]
    summary: str
    defined: str
    in_flight: Callable[..., float]
    formula: str
    source: str
    rules: Rules | None
    notes: Rules | None
    placement: Placement
    chunks: int | None
    default_chunks: int
    chains: int | Callable[..., int]
    splits_backward: bool
    sliced: bool
    synchronous: bool
    verified: bool


@dataclass(frozen=True)
class Description:
    """A schedule in words and, where a pipeline is given, in numbers (None where the size is refused or not given).

    ``in_flight`` is in A (activations of one microbatch through 1/p of the model), one a rank; ``messages`` counts
    tensor transfers of both directions in one step; ``weight_copies`` is parameters held a rank ÷ (model ÷ ranks).
    """

    kind: str
    aliases: tuple[str, ...]
    summary: str
    defined: str
    options: dict[str, Any]
    placement: str
    chunks: str
    weight_copies: float
    splits_backward: bool
    synchronous: bool
    in_flight_formula: str
    messages_formula: str
    source: str
    verified: bool
    in_flight: tuple[float, ...] | None = None
    messages: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def evidence(self) -> str:
        """``verified`` (an independent code's lists agree op for op) or ``by definition``."""
        return "verified" if self.verified else "by definition, not verified"


MESSAGES: dict[tuple[Placement, bool], str] = {
    (Placement.LOOP, False): "2m(pv-1)",
    (Placement.LOOP, True): "2mk(pv-1), each 1/k of the size",
    (Placement.V, False): "2m(2p-2), the turn is local",
    (Placement.ZIGZAG, False): "2m(pv-1) less the v-1 local turns",
    (Placement.BIDIRECTIONAL, False): "2m(p-1)",
}
