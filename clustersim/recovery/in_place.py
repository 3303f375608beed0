"""Coming back without the scheduler: launchers, or even processes, stay where they are."""

from __future__ import annotations

from clustersim.distributions import Constant
from clustersim.faults.failure import FailureModel
from clustersim.recovery.stages import Stage
from clustersim.recovery.strategy import Comeback, JobView, RecoveryStrategy
from clustersim.units import Seconds


class InJob(RecoveryStrategy, kind="in-job", aliases=("ft-launcher",)):
    """The launchers stay and start all processes again in the same allocation; spares in it take the place of lost nodes.

    ``rendezvous`` takes the place of ``reschedule``. The launcher of place 0 is a single point of failure: without it, or
    without enough spares, the job is queued again and all stages run (NVIDIA resiliency extension, ``ft_launcher``).
    """

    rendezvous: Stage = Stage(time=Constant(value=0.0), per_doubling=46 / 11)
    """Stop, and all launchers meet again. ByteRobust's in-place update takes 46 s on 2,048 GPUs (arXiv 2509.16293, table 7):
    46 ÷ log₂ 2,048 s for each doubling, which gives 50, 54 and 59 s where 51, 54 and 65 s were measured."""

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """Everything but ``reschedule``, unless place 0 or too many nodes are lost."""
        gpus = job.ground.gpus
        if cause is None or job.spares < job.vacant or 0 in job.vacancies:
            return Comeback(self.full(gpus), path="restart")
        return Comeback(self.made("in-job", gpus, self._own), path="in-job")

    def _own(self) -> dict[str, Stage]:
        rendezvous = {"rendezvous": self.rendezvous.model_copy(update={"books": "reschedule"})}
        return self.picked("diagnose") | rendezvous | self.picked("start", "communicators", "load", "warm_up")


class InProcess(RecoveryStrategy, kind="in-process", aliases=("nvrx",)):
    """Processes, and what they have warmed up, stay: the communicators are destroyed, ranks dealt out anew, the state loaded.

    Times as the NVIDIA resiliency extension documents them. Nodes that are lost are replaced by spares that stand in
    reserve with their processes running; without enough of them, or without place 0 (its rank holds the store), the job is
    queued again and all stages run.
    """

    drain_steps: float = 1.0
    """Steps until all ranks have come to a halt."""
    abort: Stage = Stage(time=Constant(value=0.5))
    """Destroy the process groups: 0.5 s, and 10 ms for each kernel that is pending."""
    last_call: Stage = Stage(time=Constant(value=1.0))
    """Wait for other ranks that may be failing too."""
    assign: Stage = Stage(time=Constant(value=0.5))
    """Deal out ranks."""
    barrier: Stage = Stage(time=Constant(value=0.0), per_gpu=0.5 / 16384)
    """Barrier over all ranks: 0.5 s for 16,384."""
    hangs: tuple[str, ...] = ()
    """Names of the causes in which ranks hang instead of failing."""
    hang: Seconds = 66.0
    """What these take longer: soft time-out 60 s (hard: 90 s), 1 s between checks, 5 s of grace."""

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """Abort, last call, assignment, barrier, communicators, load."""
        gpus = job.ground.gpus
        if cause is None or job.spares < job.vacant or 0 in job.vacancies:
            return Comeback(self.full(gpus), path="restart")
        hung = cause.name in self.hangs
        name = "in-process, hung" if hung else "in-process"
        return Comeback(self.made(name, gpus, lambda: self._own(job, hung)), path=name)

    def _own(self, job: JobView, hung: bool) -> dict[str, Stage]:
        drain = self.drain_steps * job.ground.step_s + (self.hang if hung else 0.0)
        own = {"drain": Stage(time=Constant(value=drain)), "abort": self.abort, "last_call": self.last_call,
               "assign": self.assign, "barrier": self.barrier}  # fmt: skip
        booked = {name: stage.model_copy(update={"books": "reschedule"}) for name, stage in own.items()}
        return booked | self.picked("communicators", "load")
