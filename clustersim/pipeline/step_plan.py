"""The sizes that follow from a layout: replicas, microbatches, pipeline shape, and what a GPU sees of a microbatch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from clustersim.errors import InputError, Problem
from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.schedule import Pipeline, Schedule
from clustersim.pipeline.step_graph import Shape, shape_of
from clustersim.pipeline.step_messages import expert_tp
from clustersim.workload.layers import Slice
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.precision import activation_bytes
from clustersim.workload.training import Training


@dataclass(frozen=True, eq=False)
class Plan:
    """One job's sizes. ``dp`` replicas of ``microbatches`` each run ``schedule`` on ``layout.pp`` ranks."""

    model: TransformerModel
    cluster: Cluster
    training: Training
    layout: Layout
    schedule: Schedule
    dp: int
    microbatches: int

    @classmethod
    def of(
        cls, model: TransformerModel, cluster: Cluster, training: Training, layout: Layout, schedule: Schedule
    ) -> Plan:
        """The plan of a layout on a cluster.

        Raises:
            InputError: the layout needs more GPUs than there are, or the global batch does not divide.
        """
        inner = layout.tp * layout.pp * layout.cp
        dp = layout.dp or cluster.gpus // inner
        problems = []
        if dp < 1 or dp * inner > cluster.gpus:
            problems.append(
                Problem(
                    "parallelism",
                    f"tp {layout.tp} x pp {layout.pp} x cp {layout.cp} x dp {max(dp, 1)} = "
                    f"{inner * max(dp, 1)} GPUs, but the cluster has {cluster.gpus}",
                )
            )
        each = max(dp, 1) * training.micro_batch
        if training.global_batch % each:
            problems.append(
                Problem(
                    "training.global_batch",
                    f"must be a multiple of dp x micro_batch = {max(dp, 1)} x {training.micro_batch} = {each}",
                )
            )
        if training.seq_len % layout.cp:
            problems.append(Problem("parallelism.cp", f"must divide seq_len {training.seq_len}"))
        if problems:
            raise InputError(problems)
        return cls(model, cluster, training, layout, schedule, dp, training.global_batch // each)

    def with_replicas(self, dp: int, keep_batch: bool) -> Plan:
        """The plan with fewer replicas; ``keep_batch`` spreads the whole batch over them (rounded up to whole
        microbatches)."""
        if not keep_batch:
            return replace(self, dp=dp)
        total = self.training.global_batch // self.training.micro_batch
        return replace(self, dp=dp, microbatches=-(-total // dp))

    @cached_property
    def pipe(self) -> Pipeline:
        """The pipeline's size; chunks and slices that are not given are what the schedule needs."""
        traits, pp = self.schedule.traits, self.layout.pp
        own = 1 if pp == 1 and traits.chunks is None else traits.chunks or self.schedule.default_chunks()
        slices = self.schedule.slices_for(pp)
        return self.schedule.resolve(Pipeline(pp, self.microbatches, self.layout.chunks or own, slices))

    @cached_property
    def shape(self) -> Shape:
        """The compiled schedule."""
        return shape_of(self.schedule, self.pipe)

    @cached_property
    def cut(self) -> Slice:
        """What one GPU sees of one unit (a microbatch, or a slice of its sequence)."""
        training, layout = self.training, self.layout
        slices = self.shape.program.slices
        tokens = training.micro_batch * training.seq_len // (layout.cp * slices)
        return Slice(
            training.micro_batch,
            training.seq_len,
            tokens,
            layout.tp,
            layout.cp * slices,
            layout.ep,
            expert_tp(layout),
            layout.sequence_parallel and layout.tp > 1,
            training.mask_share,
            activation_bytes(training.precision),
        )

    @property
    def tokens(self) -> float:
        """Tokens that a step trains."""
        return float(self.dp * self.microbatches * self.training.micro_batch * self.training.seq_len)
