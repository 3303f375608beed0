"""CheckFree: a lost stage is put together from its neighbours instead of being loaded."""

from __future__ import annotations

from pydantic import Field

from clustersim.faults.failure import FailureModel, Severity
from clustersim.recovery.ground import Ground
from clustersim.recovery.stages import Stage
from clustersim.recovery.standby import fixed
from clustersim.recovery.strategy import Comeback, Costs, JobView, RecoveryStrategy


class CheckFree(RecoveryStrategy, kind="checkfree"):
    """A stage of which no replica is left becomes the mean of its two neighbours: nothing is rolled back, but training then
    converges more slowly (CheckFree, arXiv 2506.15461).

    Lost nodes are replaced, so the replacement is waited for. A stage that another replica still holds is copied, at no
    penalty. Neighbours lost together, and without ``ends`` the first and last stage, call for a checkpoint.
    """

    penalty: float = Field(default=0.05, ge=0)
    """After a first averaging, tokens to the same loss are 1 + penalty times as many: a step counts for 1 ÷ (1 + penalty). An
    assumption: it depends on the model and on how often stages are lost. Measure yours."""
    ends: bool = True
    """First and last stage are copied from their neighbour, trained to stand in for them (CheckFree+)."""

    def _averaged(self, job: JobView) -> list[int] | None:
        """Stages to be averaged; None: that does not work."""
        ground, places = job.ground, job.loss.places
        gone = sorted(stage for stage, replicas in ground.missing(places).items() if len(replicas) >= ground.dp)
        last = ground.pp - 1
        for stage in gone:
            inner = 0 < stage < last
            if ground.pp < 2 or stage + 1 in gone or not (inner or self.ends):
                return None
        return gone

    def keeps(self, job: JobView) -> bool:
        """Whether what is lost can be copied or averaged."""
        loss = job.loss
        return not loss.everywhere and Severity.CLUSTER not in loss.severities and self._averaged(job) is not None

    def comeback(self, cause: FailureModel | None, job: JobView) -> Comeback:
        """Replace the nodes, then fetch the neighbours' weights."""
        ground = job.ground
        if cause is None or not job.kept:
            return Comeback(self.full(ground.gpus), path="restart")
        graph = self.made("averaged", ground.gpus, lambda: self._own(ground), reads=False)
        mends = bool(self._averaged(job))
        return Comeback(graph, path="averaged" if mends else "copied", mends=mends)

    def _own(self, ground: Ground) -> dict[str, Stage]:
        fetch = {"migrate": fixed(2 * ground.node_state / ground.network)}
        return self.picked("diagnose", "start", "communicators", "warm_up") | fetch

    def progress(self, mended: int) -> float:
        return 1.0 / (1.0 + self.penalty) if mended else 1.0

    def costs(self, ground: Ground) -> Costs:
        """Nothing is held ready."""
        return Costs()
