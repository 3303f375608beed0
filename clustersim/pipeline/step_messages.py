"""The groups of a layout on a cluster, and the seconds of their messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from clustersim.hardware.cluster import Cluster
from clustersim.hardware.collectives import Group, collective_time
from clustersim.hardware.topology import Placement
from clustersim.workload.context_parallel import (
    ContextGroup,
    RingWork,
    causal_steps,
    context_group,
    ring_pass_seconds,
    ulysses_seconds,
)
from clustersim.workload.data_parallel import Shards, zero_shards
from clustersim.workload.experts import exchange_seconds
from clustersim.workload.layout import Layout
from clustersim.workload.measured import Measured
from clustersim.workload.mixer import ContextWork


class Dispatch(NamedTuple):
    """How tokens reach their experts."""

    top_k: int = 1
    once_a_node: bool = False


PLAIN_DISPATCH = Dispatch()


@dataclass(frozen=True, eq=False)
class Groups:
    """Where the ranks of each parallel axis sit; ``dp`` is the number of replicas.

    ``layout.order`` names the dimensions from the innermost out. Experts have a grid of their own on the same GPUs
    (parallel folding): expert_tp, ep and what is left take the places of tp, cp and dp. Groups of one axis that share a
    node's NICs all talk at the same time.
    """

    layout: Layout
    cluster: Cluster
    dp: int
    dispatch: Dispatch = PLAIN_DISPATCH
    ring_wait: float = 0.0
    """Seconds that each step of a context-parallel ring adds."""
    measured: Measured | None = None
    """What a profile knows of messages."""
    listed_gathers: bool = False
    """Whether the schedule lists the gathers of sharded parameters as ops of its own."""

    @cached_property
    def place(self) -> Placement:
        """The grid of all ranks, pipeline ranks and replicas."""
        layout = self.layout
        sizes = {"tp": layout.tp, "cp": layout.cp, "dp": self.dp, "pp": layout.pp}
        return Placement(sizes, layout.dimensions)

    @cached_property
    def expert_place(self) -> Placement:
        """The grid of experts over the same GPUs."""
        layout, cut = self.layout, expert_tp(self.layout)
        ranks = self.dp * layout.cp * layout.tp
        sizes = {"tp": cut, "ep": layout.ep, "dp": max(1, ranks // (cut * layout.ep)), "pp": layout.pp}
        return Placement(sizes, layout.dimensions)

    def group(self, *dims: str) -> Group:
        """The group over some dimensions of the grid."""
        return self.known(self.place.group(dims, self.cluster.node, self.cluster.network))

    def known(self, group: Group) -> Group:
        """The group, with what the profile knows of its messages."""
        return group if self.measured is None else group._replace(measured=self.measured)

    @cached_property
    def tp(self) -> Group:
        """Tensor parallel ranks."""
        return self.group("tp")

    @cached_property
    def cp(self) -> Group:
        """Context parallel ranks."""
        return self.group("cp")

    @cached_property
    def ep(self) -> Group:
        """Expert parallel ranks."""
        return self.known(self.expert_place.group("ep", self.cluster.node, self.cluster.network))

    @cached_property
    def data(self) -> Group:
        """Ranks that hold the same parameters: replicas × context parallel ranks."""
        return self.group("cp", "dp")

    @cached_property
    def pp(self) -> Group:
        """Two neighbouring pipeline ranks; where they sit on different nodes, all GPUs of a node send at once."""
        return self.known(self.place.neighbours("pp", self.cluster.node, self.cluster.network))

    @cached_property
    def ends(self) -> Group:
        """First and last pipeline rank (they share a tied embedding)."""
        apart = self.place.strides["pp"] * (self.layout.pp - 1)
        return self.pp._replace(span_gpus=apart + 1)

    @cached_property
    def shards(self) -> Shards:
        """Over how many ranks parameters, gradients and optimizer state of dense layers are cut while they are in use.

        Behind a pipeline parameters stay gathered from the first microbatch to the last, unless the schedule lists
        their gathers (torchtitan, Llama 3 section 3.3.2: or every microbatch would gather anew).
        """
        own = self.layout.shard
        return self._in_use(zero_shards(self.layout.zero, self.data.size, own.parameters, own.gradients, own.optimizer))

    def _in_use(self, shards: Shards) -> Shards:
        return shards if self.layout.pp == 1 or self.listed_gathers else shards._replace(parameters=1)

    @cached_property
    def expert_data(self) -> Group:
        """Ranks that hold the same experts: the GPUs of one pipeline rank ÷ those that share the experts out."""
        return self.known(self.expert_place.group("dp", self.cluster.node, self.cluster.network))

    @cached_property
    def expert_shards(self) -> Shards:
        """The same of experts, over the ranks that hold them."""
        return self._in_use(zero_shards(self.layout.zero, self.expert_data.size))

    def seconds(self, axis: str, collective: str, size: float) -> float:
        """Seconds of a tensor- or expert-parallel message of a layer."""
        group = self.tp if axis == "tp" else self.ep
        if group.size == 1:
            return 0.0
        if axis == "ep" and collective == "all-to-all":
            return exchange_seconds(size, group, self.dispatch.top_k, once_a_node=self.dispatch.once_a_node)
        return collective_time(collective, size, group)  # type: ignore[arg-type]

    @cached_property
    def context(self) -> ContextGroup:
        """Ring and Ulysses groups of context parallel ranks."""
        return context_group(self.cp, self.layout.context.kind, self.layout.context.ulysses)

    def context_seconds(self, attention: float, work: ContextWork) -> float:
        """Seconds that context parallelism adds to a pass whose core attention takes ``attention`` seconds on this
        GPU."""
        place, balanced, causal = self.context, self.layout.context.balanced, work.causal
        shares = sum(causal_steps(place.ring.size, causal, True))
        ring = RingWork(attention / shares, self._ring_bytes(work))
        total = ring_pass_seconds(ring, place, causal=causal, balanced=balanced, overlap=self.layout.overlap.cp)
        heads = ulysses_seconds(work.tokens, work.query_width, work.kv_width, work.width, place.ulysses)
        waits = self.ring_wait * place.ring.size if place.ring.size > 1 else 0.0
        return max(0.0, total - attention) + heads + waits

    def _ring_bytes(self, work: ContextWork) -> float:
        """Bytes of one ring step; with Burst's backward, its three query tensors where they are fewer."""
        forward = 2 * work.tokens * work.kv_width * work.width
        if not self.layout.context.burst or work.ring_bytes <= 1.5 * forward:
            return work.ring_bytes
        return min(work.ring_bytes, 3 * work.tokens * work.query_width * work.width)

    def send_seconds(self, size: float) -> float:
        """Seconds of one tensor of ``size`` bytes to the next pipeline rank.

        Each tensor-parallel rank sends its own part; without sequence parallelism the parts are gathered inside the
        node (scatter-gather of Narayanan et al. 2021, section 4.1).
        """
        if self.layout.pp == 1:
            return 0.0
        own = size / self.layout.tp
        seconds = collective_time("send", own, self.pp)
        if self.layout.tp > 1 and not self.layout.sequence_parallel:
            seconds += collective_time("all-gather", size, self.tp)
        return seconds


def expert_tp(layout: Layout) -> int:
    """GPUs that cut one expert."""
    if layout.expert_tp is not None:
        return layout.expert_tp
    return 1 if layout.ep > 1 else layout.tp
