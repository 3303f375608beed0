"""The measured step time of a row: printed, or from its tokens a second, or from its FLOP rate by the source's own count."""

from __future__ import annotations

from clustersim.validation.job import Job
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
    printed = row.number("step_time_s")
    if printed is not None:
        return printed
    gpus = row.whole("n_gpus") or 1
    tokens = row.number("tokens_per_s_per_gpu")
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
    teraflops = row.number("tflops_per_gpu")
    if teraflops:
        return teraflops * 1e12, "tflops_per_gpu"
    for column in ("mfu_pct", "hfu_pct"):
        share = row.number(column)
        if share:
            return share / 100 * peak_flop(job), column
    return None, ""


def measured_memory(job: Job) -> float:
    """Measured bytes of the fullest GPU.

    Tools divide by 1,024 (``nvidia-smi``, ``torch.cuda``), so figures count in GiB, whatever they are called.

    Raises:
        SkipRow: the row holds none.
    """
    value = job.row.number("memory_gb")
    if value is None:
        raise SkipRow("no measurement: memory is blank")
    job.assumed["memory_gb"] = "counted in GiB, as nvidia-smi and torch.cuda do"
    return value * GIB
