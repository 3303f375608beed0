"""The measured step time of a row: printed, or from its tokens a second, or from its FLOP rate by the source's own count."""

from __future__ import annotations

from clustersim.validation.job import Job
from clustersim.validation.rows import Row
from clustersim.validation.shapes import SkipRow
from clustersim.workload.flops import step_flop

GB, GIB = 1e9, 2.0**30


def peak_flop(job: Job) -> float:
    """FLOP/s that the source's MFU refers to: the datasheet's dense peak in the training precision."""
    peaks = job.cluster.node.gpu.peak
    precision = job.training.precision
    if precision not in peaks:
        precision = "fp16" if "fp16" in peaks else "bf16"
    return peaks[precision]


def measured_step(job: Job) -> float:
    """Measured seconds of a step.

    Raises:
        SkipRow: the row holds no time and no rate.
    """
    row = job.row
    printed = _above_zero(row, "step_time_s")
    if printed is not None:
        return printed
    gpus = row.whole("n_gpus") or 1
    tokens = _above_zero(row, "tokens_per_s_per_gpu")
    if tokens:
        job.assumed["step_time_s"] = "tokens a step ÷ printed tokens/s"
        return job.training.tokens_per_step / (tokens * gpus)
    rate, name = _rate(job)
    if rate is None:
        raise SkipRow("no measurement: step time, tokens/s, TFLOP/s and MFU are all blank")
    flop = step_flop(job.model, job.training, job.layout.pp * (job.layout.chunks or 1))
    counted = flop.hardware if job.source.value("flop_recompute") or name == "hfu_pct" else flop.model
    job.assumed["step_time_s"] = f"model FLOP ÷ printed {name} ({job.training.mfu})"
    return counted / (rate * gpus)


def _rate(job: Job) -> tuple[float | None, str]:
    """FLOP/s a GPU that the row prints, and the column."""
    row = job.row
    teraflops = _above_zero(row, "tflops_per_gpu")
    if teraflops:
        return teraflops * 1e12, "tflops_per_gpu"
    for column in ("mfu_pct", "hfu_pct"):
        share = _above_zero(row, column)
        if share:
            return share / 100 * peak_flop(job), column
    return None, ""


def _above_zero(row: Row, column: str) -> float | None:
    """A measured value; None where the cell is blank.

    Raises:
        SkipRow: it is zero or below, which nothing that ran can measure.
    """
    value = row.number(column)
    if value is not None and value <= 0:
        raise SkipRow(f"no measurement: {column} {value:g} is not above 0")
    return value


def measured_memory(job: Job) -> float:
    """Measured bytes of the fullest GPU.

    Tools divide by 1,024 (``nvidia-smi``, ``torch.cuda``), so figures count in GiB, whatever they are called.

    Raises:
        SkipRow: the row holds none.
    """
    value = _above_zero(job.row, "memory_gb")
    if value is None:
        raise SkipRow("no measurement: memory is blank")
    job.assumed["memory_gb"] = "counted in GiB, as nvidia-smi and torch.cuda do"
    return value * GIB
