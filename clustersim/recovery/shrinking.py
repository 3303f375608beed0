"""Going on without the nodes that are lost: the step becomes longer, or trains fewer tokens, until others come back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import Field

from clustersim.distributions import Constant, Distribution
from clustersim.faults.failure import FailureModel, Severity
from clustersim.recovery.ground import Ground
from clustersim.recovery.stages import Stage, StageGraph
from clustersim.recovery.strategy import Comeback, Costs, JobView, RecoveryStrategy

if TYPE_CHECKING:
    from clustersim.pipeline.conditions import Conditions


class Shrinking(RecoveryStrategy):
    """Base of strategies that go on with fewer nodes, as long as what is lost is also held elsewhere.

    A node that comes back gets ready beside the training and is taken in at the end of a step. When the state is lost, all
    stages run and the newest checkpoint is loaded; nodes are waited for only when the job cannot run without them.
    """

    reconfigure: Stage | None = None
    """What stands between a loss and the next step; null: ``communicators``, as for a full restart."""
    rejoining: Stage | None = None
    """What the others wait for when places are taken back in; null: ``communicators``."""
    ready: Distribution | None = None
    """What a node that comes back needs before it can join; null: ``start`` and ``warm_up``."""
    replicated: bool = True
    """Replicas hold the whole state each (replica groups, hybrid sharding), or peers hold a copy of what is sharded; false: a
    layout with ZeRO loses what its lost nodes held, and goes back to the newest checkpoint."""

    @property
    def rejoins(self) -> bool:
        """Nodes that come back are taken in."""
        return True

    def prepare(self) -> Distribution:
        return super().prepare() if self.ready is None else self.ready

    def rejoin(self, job: JobView) -> StageGraph:
        if self.rejoining is None:
            return super().rejoin(job)
        stage = self.rejoining.model_copy(update={"books": "communicators"})
        return self.made("rejoin", job.ground.gpus, lambda: {"rejoin": stage}, reads=False)

    def keeps(self, job: JobView) -> bool:
        """Whether the job can run without what is lost, and what was lost is held elsewhere."""
        loss, ground = job.loss, job.ground
        if loss.everywhere or Severity.CLUSTER in loss.severities or (ground.zero and not self.replicated):
            return False
        return ground.under(self, job.away | loss.places) is not None

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """Regroup without what is lost; a full restart where the state is gone."""
        ground = job.ground
        if cause is not None and job.kept:
            away = job.away | job.vacancies | job.loss.places
            if ground.under(self, away) is not None:
                return Comeback(self._regroup(ground), waits=False, away=away, path=self.kind)
        runs = ground.under(self, job.vacancies) is not None
        return Comeback(self.full(ground.gpus), waits=not runs, path="restart")

    def _regroup(self, ground: Ground) -> StageGraph:
        return self.made("regroup", ground.gpus, self._own, reads=False)

    def _own(self) -> dict[str, Stage]:
        if self.reconfigure is None:
            return self.picked("diagnose", "communicators")
        own = self.reconfigure.model_copy(update={"books": "communicators"})
        return self.picked("diagnose") | {"reconfigure": own}


class Elastic(Shrinking, kind="elastic", aliases=("drop-replica", "torchft")):
    """Replicas with a lost node drop out; the others go on at the next quorum, and the replica joins again when it is whole.

    By default the step lasts as long and trains fewer tokens; with ``keep_batch`` the others take the whole batch over.
    """

    least: float = Field(default=0.5, ge=0, le=1)
    """Share of the replicas that is needed (the quorum); with fewer the job waits for nodes."""
    keep_batch: bool = False

    def conditions(self, away: frozenset[int], ground: Ground) -> Conditions | None:
        """So many replicas fewer."""
        from clustersim.pipeline.conditions import Conditions

        lost = len(ground.replicas(away))
        if ground.dp - lost < max(1, math.ceil(self.least * ground.dp)):
            return None
        return Conditions(lost_replicas=lost, keep_batch=self.keep_batch and lost > 0)

    def idle(self, place: int, away: frozenset[int], ground: Ground) -> bool:
        """The other nodes of a replica that has dropped out stand idle."""
        return place in away or ground.replicas(frozenset((place,))) <= ground.replicas(away)


class Reroute(Shrinking, kind="reroute", aliases=("recycle", "slipstream")):
    """The microbatches of a lost node go to the nodes of the same stage in other replicas (ReCycle, SlipStream, arXiv
    2405.14009).

    A stage with f of d replicas lost has d ÷ (d − f) times the work; the step model says how much of that the bubbles hide.
    The whole batch is trained. Throughput cannot exceed (N − F) ÷ N of N nodes.
    """

    def conditions(self, away: frozenset[int], ground: Ground) -> Conditions | None:
        """The stages that do the work of lost nodes are slower by their share."""
        factors = {}
        for stage, replicas in sorted(ground.missing(away).items()):
            if len(replicas) >= ground.dp:
                return None
            factors[stage] = ground.dp / (ground.dp - len(replicas))
        return slow_stages(ground, factors)


class Oobleck(Shrinking, kind="oobleck"):
    """A pipeline that has lost nodes is built anew from a template with fewer of them, and gets fewer microbatches (Oobleck,
    arXiv 2309.08125).

    Templates exist for up to ``faults`` nodes fewer; a pipeline that has lost more drops out. Layers are whole: the longest
    stage of n nodes has ⌈layers ÷ n⌉. The whole batch is spread by speed over the pipelines.
    """

    faults: int = Field(default=1, gt=0)
    reconfigure: Stage | None = Stage(time=Constant(value=57.0))
    """Removing a machine: 57 s on 32 GPUs with 6.7B (TrainMover, arXiv 2412.12636, figure 1)."""
    rejoining: Stage | None = Stage(time=Constant(value=100.0))
    """Adding one: over 100 s, there."""

    def keeps(self, job: JobView) -> bool:
        """Another pipeline must hold the layers that are lost: a template says who computes them, not where their state is."""
        return job.ground.copied(job.loss.places) and super().keeps(job)

    def conditions(self, away: frozenset[int], ground: Ground) -> Conditions | None:
        """All pipelines together are slower by the ratio of their speeds."""
        lost: dict[int, int] = {}
        for place in away:
            for replica in ground.replicas(frozenset((place,))):
                lost[replica] = lost.get(replica, 0) + 1
        speeds = [self._speed(count, ground) for count in lost.values()]
        speed = ground.dp - len(lost) + math.fsum(sorted(speeds))
        if speed <= 0:
            return None
        factor = ground.dp / speed
        return slow_stages(ground, dict.fromkeys(range(ground.pp), factor) if away else {})

    def _speed(self, lost: int, ground: Ground) -> float:
        """Speed of a pipeline without ``lost`` of its nodes, relative to a whole one."""
        nodes = min(ground.replica_nodes, ground.layers)
        left = nodes - lost
        if lost > self.faults or left < 1:
            return 0.0
        return math.ceil(ground.layers / nodes) / math.ceil(ground.layers / left)

    def costs(self, ground: Ground) -> Costs:
        """Layers are copied to the nodes that hold them from now on."""
        return Costs(per_recovery=ground.node_state)


class Bamboo(Shrinking, kind="bamboo"):
    """Each node also holds the next stage and computes its forward pass, in bubbles as far as they reach; when that node is
    lost it does both stages (Bamboo, arXiv 2204.12013).

    Neighbours lost together cannot be made up for. Forward : backward = 1 : 2; of 1F1B's bubble of 3 (p − 1) forward times
    what m redundant forward passes do not fit into is added to every step.
    """

    def conditions(self, away: frozenset[int], ground: Ground) -> Conditions | None:
        """Stages that do two stages' work."""
        gone = {seat for place in away for seat in ground.seats(place)}
        factors: dict[int, float] = {}
        for replica, stage in sorted(gone):
            before = (stage - 1) % ground.pp
            if ground.pp == 1 or (replica, before) in gone:
                return None
            factors[before] = 2.0
        return slow_stages(ground, factors)

    def overhead_s(self, ground: Ground) -> float:
        """Redundant forward passes that no bubble takes, seconds a step."""
        bubble, work = 3 * (ground.pp - 1), 3 * ground.microbatches
        return max(0, ground.microbatches - bubble) / (work + bubble) * ground.step_s if ground.pp > 1 else 0.0

    def costs(self, ground: Ground) -> Costs:
        """The next stage's state, held twice."""
        return Costs(memory=ground.node_state, per_step=ground.node_state)


class Stacked(Shrinking, kind="stacked", aliases=("spare-stacking", "replicated-shards")):
    """Each shard of the data may be computed by ``redundancy`` neighbouring replicas; those that are left reorder their stacks
    so that every shard is done once (after SPARe, arXiv 2603.00357).

    Without losses every replica computes its own shard. With some, the busiest computes s of them, and the step's computation
    takes s times as long: 2 to 3 in the paper. When all holders of a shard are lost, the job waits for nodes.
    """

    redundancy: int = Field(default=3, gt=1)

    def conditions(self, away: frozenset[int], ground: Ground) -> Conditions | None:
        """All stages slower by the number of shards that the busiest replica computes."""
        if not away:
            return slow_stages(ground, {})
        stacks = busiest(ground.dp, self.redundancy, ground.replicas(away))
        return None if stacks is None else slow_stages(ground, dict.fromkeys(range(ground.pp), float(stacks)))

    def idle(self, place: int, away: frozenset[int], ground: Ground) -> bool:
        """The other nodes of a replica that has dropped out stand idle."""
        return place in away or ground.replicas(frozenset((place,))) <= ground.replicas(away)


def busiest(count: int, redundancy: int, lost: frozenset[int]) -> int | None:
    """Shards that the busiest replica computes, when shard i may be done by replicas i … i + redundancy − 1 of a ring.

    Earliest deadline first from behind a lost replica; None: a shard has no holder left.
    """
    if not lost:
        return 1
    if len(lost) >= count:
        return None
    if not any((replica + 1) % count in lost for replica in lost):
        return 2  # the next one does it beside its own
    width = min(redundancy, count)
    start = (min(lost) + 1) % count
    return next((stacks for stacks in range(2, width + 1) if _fits(count, width, lost, start, stacks)), None)


def _fits(count: int, width: int, lost: frozenset[int], start: int, stacks: int) -> bool:
    """Whether every shard finds a holder with less than ``stacks`` shards, dealt out in order around the ring."""
    load = [0] * count
    for offset in range(count):
        shard = (start + offset) % count
        holders = [(shard + step) % count for step in range(width)]
        free = next((holder for holder in holders if holder not in lost and load[holder] < stacks), None)
        if free is None:
            return False
        load[free] += 1
    return True


def slow_stages(ground: Ground, factors: dict[int, float]) -> Conditions:
    """Conditions under which pipeline ranks compute so much longer; replicas are alike, so the first stands for all."""
    from clustersim.pipeline.conditions import Conditions

    slow: dict[int, float] = {}
    for stage, factor in sorted(factors.items()):
        if factor > 1:
            slow[ground.gpu_of(0, stage)] = factor
    return Conditions(slow_gpus=tuple(sorted(slow.items())))
