"""The figures of a step: MFU, bubbles, breakdown, memory; as an object and as the contract's JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from clustersim.errors import Problem
from clustersim.hardware.collectives import domain_gpus
from clustersim.units import about
from clustersim.workload.device import Device
from clustersim.workload.flops import StepFlop, step_flop
from clustersim.workload.training import nothing_to_recompute

if TYPE_CHECKING:
    from clustersim.pipeline.conditions import StepTime
    from clustersim.pipeline.step import StepModel

CONVENTIONS = {
    "causal-half": "model FLOP of forward and backward, causal attention counted at half, no recompute",
    "full-attention": "model FLOP of forward and backward, attention counted over the full square, no recompute",
}


@dataclass(frozen=True)
class StepReport:
    """The nominal step of one job. Times in seconds, memory in bytes, rates a second."""

    step_time_s: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    tflops_per_gpu: float
    mfu: float
    hfu: float
    convention: str
    bubble_fraction: float
    bubbles: dict[str, float]
    """The three definitions in use: idle ÷ step, idle ÷ longest span of one rank, idle ÷ work (average rank each)."""
    model_flops_per_step: float
    microbatches: int
    critical_rank: int
    breakdown_s: dict[str, float]
    memory: dict[str, Any]
    stack: str
    gpus: int
    warnings: tuple[str, ...] = field(default=())
    cautions: tuple[Problem, ...] = field(default=())
    """What is legal and can hardly be meant, each at a key."""
    interval_s: tuple[float, float] | None = None
    """Where 95 % of such predictions lie, seconds; null without a profile that states its uncertainty."""
    modelled_s: float | None = None
    """The step that the model says, where ``training.step_time`` gives another; null: ``step_time_s`` is modelled."""

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        from clustersim.shown import shown

        parts = [(f"… {name}", f"{seconds / self.step_time_s:.1%}") for name, seconds in self.breakdown_s.items() if seconds]
        memory = f"{self.memory['peak_bytes'] / 2**30:.1f} of {self.memory['limit_bytes'] / 2**30:.1f} GiB"
        rows = [("step time", f"{self.step_time_s:.4g} s"), *parts, ("tokens a second", self.tokens_per_s),
                ("TFLOP/s a GPU", self.tflops_per_gpu), ("MFU", f"{self.mfu:.1%}"), ("HFU", f"{self.hfu:.1%}"),
                ("bubble", f"{self.bubble_fraction:.1%}"), ("memory, fullest rank", memory)]  # fmt: skip
        return shown(f"One step on {self.gpus:,} GPUs", rows)

    def to_dict(self) -> dict[str, Any]:
        """The ``step`` object of the JSON output."""
        interval = {} if self.interval_s is None else {"step_time_interval_s": list(self.interval_s)}
        given = {} if self.modelled_s is None else {"step_time_modelled_s": self.modelled_s}
        return {
            "step_time_s": self.step_time_s,
            **given,
            **interval,
            "tokens_per_s": self.tokens_per_s,
            "tokens_per_s_per_gpu": self.tokens_per_s_per_gpu,
            "tflops_per_gpu": self.tflops_per_gpu,
            "mfu": self.mfu,
            "hfu": self.hfu,
            "convention": self.convention,
            "bubble_fraction": self.bubble_fraction,
            "bubbles": dict(self.bubbles),
            "model_flops_per_step": self.model_flops_per_step,
            "microbatches": self.microbatches,
            "critical_rank": self.critical_rank,
            "breakdown_s": dict(self.breakdown_s),
            "memory": self.memory,
            "stack": self.stack,
            "gpus": self.gpus,
            "warnings": [*self.warnings, *map(str, self.cautions)],
        }


def report_of(step: StepModel) -> StepReport:
    """The report of a step model's nominal step."""
    time, plan = step.step_time(), step.plan
    gpus = plan.dp * plan.layout.tp * plan.layout.cp * plan.layout.pp
    flop = step_flop(plan.model, plan.training, plan.shape.per_chain)
    peak = peak_of(step)
    rate = flop.model / time.seconds / gpus
    modelled = time.seconds / step.scale
    bubbles, memory = bubbles_of(step, modelled), memory_of(step)
    return StepReport(
        step_time_s=time.seconds,
        tokens_per_s=time.tokens / time.seconds,
        tokens_per_s_per_gpu=time.tokens / time.seconds / gpus,
        tflops_per_gpu=rate / 1e12,
        mfu=rate / peak,
        hfu=flop.hardware / time.seconds / gpus / peak,
        convention=CONVENTIONS[plan.training.mfu],
        bubble_fraction=bubbles["step"],
        bubbles=bubbles,
        model_flops_per_step=flop.model,
        microbatches=plan.microbatches,
        critical_rank=time.critical_rank,
        breakdown_s=dict(time.breakdown),
        memory=memory,
        stack=step.stack.name,
        gpus=gpus,
        warnings=warnings_of(step),
        cautions=tuple(cautions_of(step, flop, gpus, memory)),
        interval_s=interval_of(step, time),
        modelled_s=None if plan.training.step_time is None else modelled,
    )


def given_of(step: StepModel) -> list[str]:
    """What a step time that is given means for the figures."""
    given = step.plan.training.step_time
    if given is None:
        return []
    modelled = given / step.scale
    return [
        f"the step of {given:.4g} s is given (training.step_time), not modelled: the model says {modelled:.4g} s; "
        "its breakdown, and steps under other conditions, are scaled to what is given"
    ]


def cautions_of(step: StepModel, flop: StepFlop, gpus: int, memory: dict[str, Any]) -> Iterator[Problem]:
    """Memory without room for usual fragmentation; recomputation of what the model has not; a precision that the GPU has not;
    and a step time that is given and that no GPU could reach: its model FLOP ÷ (time × GPUs × peak) is above 1."""
    if memory["tight"]:
        yield Problem("parallelism", memory["verdict"])
    if lacking := nothing_to_recompute(step.plan.model, step.plan.training.recompute):
        yield Problem("training.recompute.ops", "part of it recomputes nothing: " + "; ".join(lacking))
    for told in _lacking_precision(step):
        yield Problem("training.precision", told)
    given = step.plan.training.step_time
    if given is None:
        return
    least = flop.model / gpus / peak_of(step)
    if least > given:
        mfu = 100 * least / given
        share = f"{mfu:.4g} %" if mfu < 1000 else f"{mfu:,.0f} %"
        told = f"{about(given)} a step is faster than the GPUs' peak, an MFU of {share}; there it takes {about(least)}"
        yield Problem("training.step_time", told)


def _lacking_precision(step: StepModel) -> Iterator[str]:
    """GPU types that compute in a wider precision than is asked for; mxfp8 is fp8 with scales of its own."""
    asked = step.plan.training.precision
    for gpu in {gpu.name: gpu for gpu in step.costs.gpus}.values():
        native = Device(gpu).native(asked)
        if native != asked and (asked, native) != ("mxfp8", "fp8"):
            yield f"{gpu.name} has no {asked}: it computes in {native}, and MFU is a share of that peak"


def interval_of(step: StepModel, time: StepTime) -> tuple[float, float] | None:
    """Where 95 % of predictions of this step lie, by the profile's errors of computation and of messages."""
    if step.profile is None or step.plan.training.step_time is not None:
        return None
    messages = math.fsum(time.breakdown[name] for name in ("tp", "pp", "dp", "cp", "ep") if name in time.breakdown)
    return step.profile.interval(time.seconds, messages / time.seconds if time.seconds else 0.0)


def peak_of(step: StepModel) -> float:
    """Datasheet peak of a GPU in the training precision, FLOP/s (mean over the pipeline's GPU types)."""
    gpus = step.costs.gpus
    return math.fsum(Device(gpu).peak(step.plan.training.precision) for gpu in gpus) / len(gpus)


def bubbles_of(step: StepModel, seconds: float) -> dict[str, float]:
    """Idle time of the average rank under the three definitions. A rank is idle while its stream waits; exposed
    messages are work."""
    shape, timeline = step.plan.shape, step.timeline(gathers=False)
    work = np.einsum("rks,ksc->r", shape.counts, step.costs.table)
    whole, span = timeline.makespan, timeline.rank_span
    if len(step.replayers) > 1:  # without flush: from one step to the next of the steady state
        whole = step.pipeline_seconds
        span = np.full_like(span, whole)
    idle = np.maximum(whole - work, 0.0)
    inside = np.maximum(span - work, 0.0)
    return {
        "step": float(idle.mean() / seconds),
        "span": float(inside.mean() / span.max()),
        "work": float(idle.mean() / work.mean()),
    }


def memory_of(step: StepModel) -> dict[str, Any]:
    """Peak memory of the fullest rank, the limit, each pipeline rank's parts, in bytes, and the verdict."""
    from clustersim.pipeline.step_memory import step_memory
    from clustersim.workload.fit import verdict

    memory = step_memory(step)
    report = memory.report()
    return {**report.dump(), "fits": report.fits, "tight": report.tight, "verdict": verdict(memory, report)}


def warnings_of(step: StepModel) -> tuple[str, ...]:
    """Sentences on what makes the prediction less certain, or the layout wasteful."""
    plan, found = step.plan, list(step.plan.schedule.notes(step.plan.pipe))
    domain = domain_gpus(plan.cluster.node)
    if plan.layout.tp > domain:
        found.append(
            f"tensor parallelism over {plan.layout.tp} GPUs leaves the fast domain of {domain}: "
            "every layer waits for the network"
        )
    used = plan.dp * plan.layout.tp * plan.layout.cp * plan.layout.pp
    if used < plan.cluster.gpus:
        found.append(f"the layout uses {used} of the cluster's {plan.cluster.gpus} GPUs")
    found += given_of(step)
    if not plan.schedule.traits.synchronous:
        found.append(f"{plan.schedule.kind} never flushes: its step is the steady state, and weights are stale")
    return (*found, *(step.measured.notes() if step.measured is not None else ()))
