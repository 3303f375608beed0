"""Fabrics inside a fast domain: measured curves of time against message size, and the law where no curve is known.

A fabric preset (``presets/fabrics``) holds what nccl-tests measured on one generation of links. A curve is read in the
logarithm of the size; its first value is the latency floor and its last the asymptotic rate. It carries over to a
link of
another rate by reading it at ``size x rate measured / rate given``, which keeps the floor and scales the asymptote.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from pydantic import Field

from clustersim.hardware.node import Node
from clustersim.part import Block, PresetModel, preset_names
from clustersim.units import Bytes, PositiveBytesPerSecond, Seconds


class Curve:
    """Seconds against bytes, monotone, straight lines in log-log; constant below the first size, a constant rate
    above the last."""

    __slots__ = ("_logs", "seconds", "sizes")

    def __init__(self, sizes: Sequence[float], seconds: Sequence[float]) -> None:
        if len(sizes) != len(seconds) or not sizes or any(a >= b for a, b in pairwise(sizes)):
            raise ValueError("a curve needs as many times as sizes, sizes ascending")
        self.sizes = tuple(map(float, sizes))
        # A larger message is never faster: dips in the measurement (a change of protocol) are levelled upwards.
        self.seconds = tuple(accumulate(map(float, seconds), max))
        self._logs = tuple(
            (math.log(size), math.log(time)) for size, time in zip(self.sizes, self.seconds, strict=True)
        )

    def at(self, size: float) -> float:
        """Seconds of a message of ``size`` bytes."""
        if size <= self.sizes[0]:
            return self.seconds[0]
        if size >= self.sizes[-1]:
            return self.seconds[-1] * size / self.sizes[-1]
        place = bisect_right(self.sizes, size)
        (x0, y0), (x1, y1) = self._logs[place - 1], self._logs[place]
        return math.exp(y0 + (y1 - y0) * (math.log(size) - x0) / (x1 - x0))

    @property
    def rate(self) -> float:
        """Bytes/s at the largest size measured."""
        return self.sizes[-1] / self.seconds[-1]


class Table(Block):
    """Median all-reduce times by number of ranks, as nccl-tests prints them."""

    from_ranks: int = Field(default=2, gt=1)
    """Fewest ranks at which NCCL chooses this algorithm."""
    sizes_bytes: tuple[float, ...]
    time_us: dict[int, tuple[float, ...]]

    @functools.cached_property
    def curves(self) -> dict[int, Curve]:
        """A curve for each number of ranks measured."""
        return {n: Curve(self.sizes_bytes, [t * 1e-6 for t in times]) for n, times in sorted(self.time_us.items())}


class Fabric(PresetModel, folder="fabrics"):
    """One generation of links between the GPUs of a fast domain."""

    name: str
    gpus: tuple[str, ...] = ()
    """Words in the names of GPU types that have links of this generation."""
    kinds: tuple[str, ...]
    """Kinds of ``intra_node`` that the fabric stands for."""
    link: PositiveBytesPerSecond
    """One GPU, one direction, on the machine measured (datasheet)."""
    ring: Table | None = None
    nvls: Table | None = None
    """All-reduce with reduction in the switch."""
    share: float = Field(gt=0, le=1)
    """Share of ``link`` that a large ring reaches (bus bandwidth ÷ link)."""
    latency: Seconds
    """One pass of a collective without its bytes."""
    hop: Seconds
    """One more rank on the ring."""
    ramp: Bytes = 0.0
    """Size up to which a ring pays half as much again for its bytes."""
    gather_extra: Seconds = 0.0
    """What an all-gather or reduce-scatter needs beyond half an all-reduce."""
    all_to_all_share: float = Field(gt=0, le=1)
    send_share: float = Field(gt=0, le=1)
    send_latency: Seconds
    cross: PositiveBytesPerSecond | None = None
    """All flows together, one direction, between the halves of a domain (sockets of a PCIe node); null: not a limit."""
    cross_all_to_all_share: float = Field(default=1.0, gt=0, le=1)
    """Share of ``cross`` that the sixteen flows each way of an all-to-all of eight reach; others by the root of the flows."""

    def all_reduce_ring(self, size: float, ranks: int, link: float) -> float:
        """Seconds of a ring all-reduce of ``size`` bytes: the curve of ``ranks``, else of the nearest number, else
        the law."""
        if self.ring is None:
            return 2 * self.ring_pass(size, ranks, link)
        curves = self.ring.curves
        known = ranks if ranks in curves else min(max(curves), max(min(curves), ranks))
        wire = 2 * (ranks - 1) / ranks / (2 * (known - 1) / known)
        return curves[known].at(size * wire * self.link / link) + 2 * max(0, ranks - known) * self.hop

    def all_reduce_nvls(self, size: float, ranks: int, link: float) -> float | None:
        """Seconds of an in-switch all-reduce, or None where NCCL would not choose it.

        Every GPU sends its buffer once and receives the sum of its 1/ranks share once more: bytes ∝ 1 + 1/ranks (bus
        bandwidths of 5, 6, 7 and 8 H200 follow it to 2 %).
        """
        if self.nvls is None or ranks < self.nvls.from_ranks:
            return None
        known = max(self.nvls.curves)
        wire = (1 + 1 / ranks) / (1 + 1 / known)
        return self.nvls.curves[known].at(size * wire * self.link / link)

    def ring_pass(self, size: float, ranks: int, link: float) -> float:
        """Seconds of one way around a ring (half an all-reduce), from ``latency``, ``hop``, ``share`` and ``ramp``."""
        wire = (ranks - 1) / ranks * (size + min(size, self.ramp) / 2)
        return self.latency + self.hop * (ranks - 1) + wire / (self.share * link)

    def gather(self, size: float, ranks: int, link: float) -> float:
        """Seconds of an all-gather to, or a reduce-scatter from, ``size`` bytes a rank."""
        half = self.ring_pass(size, ranks, link) if self.ring is None else self.all_reduce_ring(size, ranks, link) / 2
        return half + self.gather_extra

    def all_to_all(self, size: float, ranks: int, link: float, *, crossing: bool = True) -> float:
        """Seconds of an all-to-all in which each rank sends ``size`` bytes, its own share included.

        ``crossing``: the ranks fill both halves of the domain; then half of the bytes of half of them cross, each way.
        """
        near = (ranks - 1) / ranks * size / (self.all_to_all_share * link)
        over = 0.0
        if self.cross is not None and crossing:
            share = min(1.0, self.cross_all_to_all_share * 8 / ranks)
            over = ranks / 2 * size / 2 / (self.cross * share * link / self.link)
        return self.latency + self.hop * (ranks - 1) + max(near, over)

    def broadcast(self, size: float, ranks: int, link: float) -> float:
        """Seconds of a pipelined broadcast of ``size`` bytes."""
        return self.latency + self.hop * (ranks - 1) + size / (self.share * link)

    def send(self, size: float, link: float, flows: int = 1) -> float:
        """Seconds of one message of ``size`` bytes; ``flows`` such messages go from one half of the domain to the other."""
        rate = self.send_share * link
        return self.send_latency + size / (
            rate if self.cross is None else min(rate, self.cross * link / self.link / flows)
        )


@functools.cache
def _fabrics() -> tuple[Fabric, ...]:
    return tuple(Fabric.preset(name) for name in preset_names("fabrics"))


@functools.cache
def _choose(gpu: str, kind: str, link: float) -> Fabric:
    fitting = [fabric for fabric in _fabrics() if kind in fabric.kinds]
    named = [fabric for fabric in fitting if any(word in gpu.lower() for word in fabric.gpus)]
    return (named or sorted(fitting, key=lambda fabric: abs(math.log(fabric.link / link))))[0]


def fabric_of(node: Node) -> Fabric:
    """The fabric inside a node: the one measured on its GPU type, else the one of its kind with the nearest link
    rate."""
    return _choose(node.gpu.name, node.intra_node.kind, node.link_bandwidth)
