"""Where the ranks of a parallel group sit: rank order, fast domains, and who shares a domain's NICs.

Global rank = sum over dimensions of index x stride; the first dimension of the order has stride 1 (it varies
fastest, its
ranks are neighbours). Megatron's default order is tp-cp-ep-dp-pp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from clustersim.hardware.collectives import Group, domain_gpus
from clustersim.hardware.network import Network
from clustersim.hardware.node import Node

DIMENSIONS = ("tp", "cp", "ep", "dp", "pp")


def parse_order(order: str) -> tuple[str, ...]:
    """``"tp-cp-dp-pp"`` as a tuple of all dimensions: ``ep`` stands just before ``dp`` unless it is named, others
    that are left out follow at the end.

    Raises:
        ValueError: naming a dimension that does not exist or stands twice.
    """
    names = [name for name in order.split("-") if name]
    for name in names:
        if name not in DIMENSIONS or names.count(name) > 1:
            raise ValueError(f"'{order}' must name {', '.join(DIMENSIONS)} at most once each, innermost first")
    names += [name for name in DIMENSIONS if name not in names and name != "ep"]
    if "ep" not in names:
        names.insert(names.index("dp"), "ep")
    return tuple(names)


@dataclass(frozen=True)
class Placement:
    """A grid of ranks: ``sizes`` of the dimensions, laid out in ``order`` (the first is innermost)."""

    sizes: Mapping[str, int]
    order: tuple[str, ...] = DIMENSIONS
    strides: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        strides, stride = {}, 1
        for name in self.order:
            strides[name] = stride
            stride *= self.sizes.get(name, 1)
        object.__setattr__(self, "strides", strides)

    @property
    def world(self) -> int:
        """Ranks of the grid."""
        return prod(self.sizes.get(name, 1) for name in self.order)

    def ranks(self, dims: Sequence[str], others: Mapping[str, int] | None = None) -> list[int]:
        """Global ranks of the group over ``dims`` at index ``others`` (0 where left out) of the other dimensions."""
        base = sum(self.strides[name] * index for name, index in (others or {}).items())
        inner = [name for name in self.order if name in dims]
        grids = (range(self.sizes.get(name, 1)) for name in reversed(inner))
        return [
            base + sum(self.strides[n] * i for n, i in zip(reversed(inner), place, strict=True))
            for place in product(*grids)
        ]

    def groups(self, dims: Sequence[str]) -> Iterator[list[int]]:
        """Every group over ``dims``; each rank is in exactly one."""
        rest = [name for name in self.order if name not in dims]
        for place in product(*(range(self.sizes.get(name, 1)) for name in rest)):
            yield self.ranks(dims, dict(zip(rest, place, strict=True)))

    def group(self, dims: str | Sequence[str], node: Node, network: Network) -> Group:
        """The group over ``dims`` that holds rank 0, with its place in the fast domains.

        ``per_node`` counts its ranks in rank 0's domain; every domain is full of ranks, so ``concurrent`` groups
        share it.
        """
        names = (dims,) if isinstance(dims, str) else tuple(dims)
        domain = domain_gpus(node)
        size, inside, last = 1, 1, 0
        for name in self.order:
            if name in names:
                length, stride = self.sizes.get(name, 1), self.strides[name]
                size, last = size * length, last + (length - 1) * stride
                inside *= min(length, max(1, domain // stride))
        return Group(size, inside, last + 1, node, network, max(1, min(domain, self.world) // inside))

    def place(self, rank: int) -> dict[str, int] | None:
        """Index of a global rank along each dimension; None beyond the grid."""
        if not 0 <= rank < self.world:
            return None
        return {name: rank // self.strides[name] % self.sizes.get(name, 1) for name in self.order}

    def neighbours(self, dim: str, node: Node, network: Network) -> Group:
        """A pair of neighbours along ``dim`` (pipeline stages, ring neighbours), for ``send``.

        The pair is one of the domain's at its edge: ``concurrent`` such pairs leave a domain together.
        """
        stride, domain = self.strides[dim], domain_gpus(node)
        size = self.sizes.get(dim, 1)
        if size == 1:
            return Group(1, 1, 1, node, network)
        crossing = stride * size > domain
        # Of the ranks of a full domain, those of its last index along dim send out: `stride` of them (all, when
        # stride >= domain).
        leaving = min(stride, domain, self.world)
        return Group(2, 1 if crossing else 2, 2 * stride, node, network, max(1, leaving))
