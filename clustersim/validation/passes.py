"""The zero-bubble suite's profile: pass times of one stage, measured by its authors, as a profile of a layer."""

from __future__ import annotations

import functools

from clustersim.validation.job import Job
from clustersim.validation.rows import Row, packaged
from clustersim.workload.profile import PassTimes, Profile


@functools.cache
def _profiles() -> tuple[Row, ...]:
    return tuple(packaged("zero-bubble-profile"))


def profile_of(job: Job) -> Profile | None:
    """Pass times of the row's model and pipeline; another microbatch than the profiled one scales them linearly."""
    rows = [row for row in _profiles() if row.whole("hidden") == job.model.hidden and row.whole("pp") == job.layout.pp]
    if not rows:
        rows = [row for row in _profiles() if row.whole("hidden") == job.model.hidden]
    if not rows:
        return None
    row = min(rows, key=lambda one: abs((one.whole("n_micro_batches") or 0) - _microbatches(job)))
    scale = job.training.micro_batch / (row.whole("micro_batch") or 1)
    layers = row.whole("layers_per_stage_middle") or 1
    job.assumed["profile"] = (
        f"pass times of {layers} layers at microbatch {row.text('micro_batch')}, scaled by {scale:g}"
    )
    times = [scale * _milliseconds(row, name) / layers for name in ("forward", "backward_input", "backward_weight")]
    send = scale * _milliseconds(row, "comm")
    return Profile(name=f"{row.text('model')} profile", layer=PassTimes(
        forward=times[0], input_gradient=times[1], weight_gradient=times[2], send=send))  # fmt: skip


def _microbatches(job: Job) -> int:
    return job.training.global_batch // (job.training.micro_batch * (job.layout.dp or 1))


def _milliseconds(row: Row, name: str) -> float:
    return 1e-3 * (row.number(f"t_{name}_ms") or 0.0)
