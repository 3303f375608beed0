"""One row: its prediction beside its measurement."""

from __future__ import annotations

from collections.abc import Callable

from clustersim.errors import ClusterSimError, InputError
from clustersim.pipeline.step_memory import memory_report
from clustersim.validation.job import Job, job_of
from clustersim.validation.measured import measured_memory, measured_step
from clustersim.validation.results import Result, skip
from clustersim.validation.rows import Row
from clustersim.validation.shapes import SkipRow
from clustersim.workload.profile import Profile

ProfileOf = Callable[[Job], Profile | None]

COUNTERS = {
    "allocated": "the framework's tensors",
    "reserved": "what the framework's allocator holds",
    "total": "what the driver shows",
}


def predicted_step(job: Job, profile: Profile | None = None) -> float:
    """Predicted seconds of a step."""
    return job.step(profile).step_time().seconds


def predicted_memory(job: Job) -> float:
    """Predicted bytes of the fullest GPU that the source looked at, as its tool counts them (allocator or driver).

    A source that looked at the first node (``memory_of``) saw the pipeline's first ranks: they lie node after node.
    """
    stages = memory_report(job.step()).stages
    counter = job.source.value("memory", "reserved")
    job.assumed["memory"] = f"{counter} ({COUNTERS[counter]})"
    if job.source.value("memory_of") == "first-node":
        each = job.cluster.gpus // len(stages)
        stages = stages[: -(-job.cluster.node.gpus // each)]
        job.assumed["memory_of"] = f"first-node ({job.source.reason('memory_of')})"
    return max(float(getattr(stage, counter)) for stage in stages)


def step_result(row: Row, profile: ProfileOf | None = None) -> Result:
    """Step time of a row."""
    return _result(
        row, "step_time_s", measured_step, lambda job: predicted_step(job, profile(job) if profile else None)
    )


def memory_result(row: Row) -> Result:
    """Peak memory of a row."""
    return _result(row, "memory_bytes", measured_memory, predicted_memory)


def _result(row: Row, metric: str, measure: Callable[[Job], float], predict: Callable[[Job], float]) -> Result:
    try:
        job = job_of(row)
        measured = measure(job)
        predicted = predict(job)
    except SkipRow as reason:
        return skip(row, metric, str(reason))
    except InputError as error:
        unreadable = any(problem.file for problem in error.problems)
        return skip(row, metric, f"cannot be {'read' if unreadable else 'run'}: {error}")
    except ClusterSimError as error:
        return skip(row, metric, f"cannot be run: {error}")
    group = f"{job.model.name} on {job.row.text('n_gpus')} x {job.gpu}"
    return Result(row.row_id, metric, measured, predicted, dict(job.assumed), None, group, job.source.name)
