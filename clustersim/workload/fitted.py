"""What fits of measurements leave: seconds of an op by its sizes, seconds of a message by its bytes.

A *surface* is a sum of terms that grow with the sizes, each with a coefficient of at least 0, so that a larger op never
takes less time; the rate that it implies (FLOP ÷ seconds) is the efficiency surface. A *curve* is a latency and a rate by
size range (α–β), made monotone across ranges. Both carry residuals, held-out errors and the range that was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import Field

from clustersim.block import Block
from clustersim.units import Bytes, PositiveBytesPerSecond, Seconds

SurfaceOp = Literal["gemm", "attention-forward", "attention-backward", "attention-forward-windowed",
                    "attention-backward-windowed", "layer-forward", "layer-backward", "layer-input-gradient",
                    "layer-weight-gradient"]  # fmt: skip
Sizes = Mapping[str, float]


def _gemm(x: Sizes) -> dict[str, float]:
    m, n, k, batch = x["m"], x["n"], x["k"], x.get("batch", 1.0)
    return {"call": 1.0, "flop": 2 * m * n * k * batch, "results": m * n * batch, "operands": (m * k + k * n) * batch}


def _covered(x: Sizes, edges: int) -> float:
    """Pairs of one sequence that a kernel computes which takes ``block`` queries at a time: of the blocks on each edge of
    the mask the half outside as well, at most the square."""
    return min(x["length"] ** 2, x["pairs"] + edges * x["length"] * x.get("block", 0.0) / 2)


def _attention(x: Sizes) -> dict[str, float]:
    heads = x["sequences"] * x["heads"]
    pairs = heads * _covered(x, 1)
    return {"call": 1.0, "flop": 4 * pairs * x["head_dim"], "pairs": pairs, "rows": heads * x["length"] * x["head_dim"]}


def _windowed(x: Sizes) -> dict[str, float]:
    """A kernel that skips what lies outside the window pays for its pairs, one that is given a mask for the square."""
    heads = x["sequences"] * x["heads"]
    square = heads * x["length"] ** 2
    return {"call": 1.0, "flop": 4 * heads * _covered(x, 2) * x["head_dim"], "square": 4 * square * x["head_dim"],
            "scores": square, "rows": heads * x["length"] * x["head_dim"]}  # fmt: skip


def _layer(x: Sizes) -> dict[str, float]:
    tokens, hidden = x["tokens"], x["hidden"]
    return {"call": 1.0, "products": tokens * hidden**2, "mixing": tokens * x["length"] * hidden, "rows": tokens * hidden}


TERMS: dict[str, Callable[[Sizes], dict[str, float]]] = {
    "gemm": _gemm,
    "attention-forward": _attention,
    "attention-backward": _attention,
    "attention-forward-windowed": _windowed,
    "attention-backward-windowed": _windowed,
    "layer-forward": _layer,
    "layer-backward": _layer,
    "layer-input-gradient": _layer,
    "layer-weight-gradient": _layer,
}
"""Terms of each op: FLOP and elements that its sizes make; a coefficient is seconds for one of them."""


class Quality(Block):
    """How well a fit holds: relative errors (0.03 is 3 %)."""

    points: int = Field(ge=0)
    """Points that the coefficients come from."""
    residual: float = Field(ge=0)
    """Root mean square of log(measured ÷ fitted) on them."""
    held_out_points: int = Field(default=0, ge=0)
    held_out: float | None = Field(default=None, ge=0)
    """The same on points that the fit has not seen; null where there were too few to keep any back."""

    held_out_typical: float | None = Field(default=None, ge=0)
    """Standard deviation that the median of |log(measured ÷ fitted)| on the unseen points stands for (1.4826 × it); a
    single wild measurement does not move it."""

    @property
    def uncertainty(self) -> float:
        """One standard deviation of a prediction, relative: the larger of residual and typical held-out error (of a
        profile that does not state the typical one, the root mean square)."""
        unseen = self.held_out if self.held_out_typical is None else self.held_out_typical
        return max(self.residual, unseen or 0.0)


class Surface(Block):
    """Seconds of one op by its sizes: the sum of ``terms`` × what ``TERMS`` makes of the sizes."""

    op: SurfaceOp
    precision: str = "bf16"
    terms: dict[str, float]
    """Seconds a unit of each term, at least 0."""
    ci95: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """95 % bootstrap intervals of the coefficients."""
    block: float = Field(default=0.0, ge=0)
    """Queries that an attention kernel takes at a time (0: as if single ones)."""
    measured: dict[str, tuple[float, float]]
    """Smallest and largest value of each size that was measured."""
    quality: Quality

    def seconds(self, **sizes: float) -> float:
        """Seconds of the op at these sizes."""
        made = TERMS[self.op]({**sizes, "block": self.block} if self.block else sizes)
        return sum(self.terms.get(name, 0.0) * value for name, value in made.items())

    def outside(self, **sizes: float) -> list[str]:
        """Sentences on sizes outside the measured range (empty: all inside)."""
        return [
            f"{self.op} {self.precision}: {name} {value:g} outside the measured {self.measured[name][0]:g} to "
            f"{self.measured[name][1]:g}"
            for name, value in sizes.items()
            if name in self.measured and not self.measured[name][0] <= value <= self.measured[name][1]
        ]


class Range(Block):
    """One size range of a curve: seconds = latency + bytes ÷ rate."""

    low: Bytes
    high: Bytes
    latency: Seconds
    rate: PositiveBytesPerSecond | None = None
    """Null: the bytes cost nothing that the measurement can see."""

    def seconds(self, size: float) -> float:
        """Seconds of ``size`` bytes."""
        return self.latency + (size / self.rate if self.rate else 0.0)


class MeasuredCurve(Block):
    """Seconds by bytes of a collective (sizes as nccl-tests counts them), a copy, a memory-bound op, or a file."""

    op: str
    group: int = Field(default=1, gt=0)
    """Ranks."""
    place: Literal["inside", "across", "device"] = "device"
    """Inside a node, across nodes, or on one device."""
    beside: str = ""
    """What ran at the same time (``compute``); empty: nothing."""
    ranges: tuple[Range, ...] = Field(min_length=1)
    quality: Quality

    def seconds(self, size: float) -> float:
        """Seconds of ``size`` bytes; never less than a smaller message takes."""
        floor = 0.0
        for item in self.ranges[:-1]:
            if size <= item.high:
                return max(floor, item.seconds(size))
            floor = max(floor, item.seconds(item.high))
        return max(floor, self.ranges[-1].seconds(size))

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest size measured, bytes."""
        return self.ranges[0].low, self.ranges[-1].high

    def outside(self, size: float) -> list[str]:
        """A sentence if ``size`` lies outside the measured range."""
        low, high = self.limits
        if low <= size <= high:
            return []
        return [f"{self.op} over {self.group}: {size:g} bytes outside the measured {low:g} to {high:g}"]
