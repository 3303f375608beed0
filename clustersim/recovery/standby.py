"""Coming back on nodes that stand ready: warm spares, TrainMover, FFTrainer, live migration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from clustersim.distributions import Constant
from clustersim.faults.failure import FailureModel, Severity
from clustersim.recovery.ground import Ground
from clustersim.recovery.stages import Stage, StageGraph
from clustersim.recovery.strategy import Comeback, Costs, JobView, Migration, RecoveryStrategy
from clustersim.units import PositiveBytesPerSecond, Seconds


def fixed(seconds: float, after: tuple[str, ...] | None = None, books: str | None = None) -> Stage:
    """A stage of a given time."""
    return Stage(time=Constant(value=seconds), after=after, books=books)


def standbys(nodes: int, probability: float, share: float = 0.99) -> int:
    """Standby nodes that are enough with probability ``share``, when each node fails with ``probability`` before they are
    replenished: the quantile of a binomial (ByteRobust, arXiv 2509.16293)."""
    term, passed, count = (1 - probability) ** nodes, 0.0, 0
    while True:
        passed += term
        if passed >= share or count >= nodes:
            return count
        term *= (nodes - count) / (count + 1) * probability / (1 - probability)
        count += 1


class HotSpare(RecoveryStrategy, kind="hot-spare", aliases=("warm-standby", "standby")):
    """Spares stand with image, processes and kernels ready: no queue, no start, no warm-up; then communicators and load.

    When the processes alone have failed they are started again in their places. Without enough spares all stages run, and
    the missing nodes are waited for.
    """

    swap: Stage = fixed(0.0)
    """Give the standby its rank."""

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """Swap, communicators and load where spares reach."""
        gpus = job.ground.gpus
        if cause is None or job.spares < job.vacant:
            return Comeback(self.full(gpus), path="restart")
        if not job.vacant:
            return Comeback(self.made("in place", gpus, self._again), path="in place")
        return Comeback(self.made("hot-spare", gpus, self._swapped), path="hot-spare")

    def _again(self) -> dict[str, Stage]:
        return self.picked("diagnose", "start", "communicators", "load", "warm_up")

    def _swapped(self) -> dict[str, Stage]:
        swap = {"swap": self.swap.model_copy(update={"books": "migrate"})}
        return self.picked("diagnose") | swap | self.picked("communicators", "load")


class LiveMigration(RecoveryStrategy, kind="migration", aliases=("planned-eviction",)):
    """Full restarts after failures; nodes that are to leave (maintenance, stragglers that were found) are swapped at a step's
    end, while they still work."""

    migration: Migration | None = Migration(stages={"communicators": fixed(7.0), "migrate": fixed(6.15, after=())})
    """CCL 7 s on the critical path, moving of 4 to 33 % of the GPUs 6.15 s at most, in parallel (TrainMover, arXiv
    2412.12636, sections 8.3 and 8.5)."""

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """All stages, whatever failed."""
        return Comeback(self.full(job.ground.gpus), path="restart")


class TrainMover(RecoveryStrategy, kind="trainmover", aliases=("general-standby",)):
    """One general standby takes any role: warmed by shadow iterations, connected in two phases, its state moved beside that.

    Critical path of an expected event: phase two (the leaver's connections alone) beside the transfer of one node's state,
    then the switch-over. Of an unexpected one: the same, the switch-over longer. The state comes from another replica; with
    an optimizer whose state is held once (ZeRO) from storage, unless ``copies`` says that peers hold it. Constants:
    TrainMover, arXiv 2412.12636. Its detection is assumed to be instant; ours is the failure's.
    """

    phase_two: Stage = fixed(7.0)
    """Connections of the leaver's neighbours: 7 s of 51 s stay on the critical path at 1,024 GPUs (section 8.5)."""
    switch: Stage = Stage(time=Constant(value=11.1), per_doubling=0.3)
    """After an unexpected event: what is left of 19.6 s at 32 and 21.1 s at 1,024 GPUs (figure 8)."""
    transfer: PositiveBytesPerSecond | None = None
    """Bytes/s at which a joiner's state comes in; null: the node's network."""
    copies: Literal["auto", "replica", "peer", "storage"] = "auto"
    """Where the state of a lost node is found: ``auto``: in another replica without ZeRO, else in storage; ``peer``: the next
    node holds a copy of each step."""
    migration: Migration | None = Migration(
        stages={"communicators": fixed(7.0), "migrate": fixed(0.0, after=()),
                "switch": Stage(time=Constant(value=0.0), per_doubling=0.96, after=("communicators", "migrate"),
                                books="migrate")})  # fmt: skip
    """Expected event; the switch-over: what is left of 16.6 s at 1,024 GPUs (figure 8), for each doubling."""

    def keeps(self, job: JobView) -> bool:
        """Whether every lost part is held by another replica, or by a peer."""
        loss, ground = job.loss, job.ground
        if loss.everywhere or Severity.CLUSTER in loss.severities:
            return False
        copies = self.copies if self.copies != "auto" else ("storage" if ground.zero else "replica")
        if copies == "peer":
            return ring_survives(loss.places, ground.nodes)
        return copies == "replica" and ground.copied(loss.places)

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """Phase two beside the state, then the switch, where standbys reach."""
        if cause is None or job.loss.everywhere or job.spares < max(job.vacant, 1):
            return Comeback(self.full(job.ground.gpus), path="restart")
        return Comeback(self._swap(job.ground, job.kept), path="standby")

    def _swap(self, ground: Ground, kept: bool) -> StageGraph:
        begin = tuple(name for name in self.stages if name == "diagnose")
        return self.made("standby", ground.gpus, lambda: self._own(ground, kept, begin), reads=not kept,
                         load_after=begin[0] if begin else "")  # fmt: skip

    def _own(self, ground: Ground, kept: bool, begin: tuple[str, ...]) -> dict[str, Stage]:
        stages = self.picked("diagnose")
        stages["communicators"] = self.phase_two.model_copy(update={"after": begin})
        if kept:
            stages["migrate"] = fixed(ground.node_state / (self.transfer or ground.network), after=begin)
        elif "load" in self.stages:
            stages["load"] = self.stages["load"].model_copy(update={"after": begin})
        ends = ("communicators", "migrate" if kept else "load")
        stages["switch"] = self.switch.model_copy(update={"after": ends, "books": "migrate"})
        return stages

    def costs(self, ground: Ground) -> Costs:
        """No memory: the leaver's gradient buffer is the channel; a peer copy where one is kept."""
        held = ground.state.total / ground.nodes if self.copies == "peer" else 0.0
        return Costs(memory=held, per_step=held, per_recovery=ground.node_state)


class FFTrainer(RecoveryStrategy, kind="fftrainer"):
    """Every step the state that only one rank holds goes to the next node's host memory; role and rank are apart, so that
    state and connections are restored in parallel.

    FFTrainer, arXiv 2512.03644 (a third party's summary of it): detection 6 s, pod 7 s, state and connections 13 s on 16 GPUs;
    connections grow by 27 % from 16 to 128. Lost are the step under way, and all since the newest checkpoint when a node
    and its neighbour are lost together.
    """

    heartbeat: Seconds | None = 6.0
    pod: Stage = fixed(7.0)
    """A place for the lost node's role."""
    connect: Stage = Stage(time=Constant(value=8.32), per_doubling=1.17)
    """Only the peers that are needed are connected: 13 s at 16 GPUs, 27 % more at 128 (two points: they do not tell the
    shape of the growth; a doubling is taken to add the same each time)."""
    free: float = Field(default=0.97, ge=0, le=1)
    """Share of a step in which the network is free (utilisation 1 to 3 %)."""

    def keeps(self, job: JobView) -> bool:
        """Whether no node is lost together with the one that holds its copy."""
        return Severity.CLUSTER not in job.loss.severities and ring_survives(job.loss.places, job.ground.nodes)

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """Pod, then state beside connections."""
        ground = job.ground
        if cause is None or not job.kept:
            return Comeback(self.full(ground.gpus), path="restart")
        graph = self.made("neighbour", ground.gpus, lambda: self._own(ground), reads=False)
        return Comeback(graph, path="neighbour")

    def _own(self, ground: Ground) -> dict[str, Stage]:
        return {"pod": self.pod.model_copy(update={"needs": "nodes", "books": "reschedule"}),
                "communicators": self.connect.model_copy(update={"after": ("pod",)}),
                "migrate": fixed(self._copy_s(ground), after=("pod",))}  # fmt: skip

    def _copy_s(self, ground: Ground) -> float:
        """Seconds in which a node's share of the state crosses the network."""
        return ground.state.total / ground.nodes / ground.network

    def overhead_s(self, ground: Ground) -> float:
        """What the copy of a step takes beyond the time in which the network is free."""
        return max(0.0, self._copy_s(ground) - self.free * ground.step_s)

    def costs(self, ground: Ground) -> Costs:
        """One copy of each node's own state in the next node's memory, sent every step."""
        share = ground.state.total / ground.nodes
        return Costs(memory=share, per_step=share, per_recovery=share)


def ring_survives(places: frozenset[int], nodes: int) -> bool:
    """Whether each lost node's copy, on the next node of the ring, is left."""
    return nodes > 1 and not any((place + 1) % nodes in places for place in places)
