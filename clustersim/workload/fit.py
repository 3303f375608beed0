"""The verdict on memory: which rank does not fit, by how much, what takes the space, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.errors import DoesNotFit, Problem
from clustersim.units import SIZE
from clustersim.workload.memory import PARTS, Memory, MemoryReport, RankMemory
from clustersim.workload.training import FullRecompute, NoRecompute, SelectiveRecompute


def gib(size: float) -> str:
    """Bytes as a short text in GiB."""
    return f"{size / SIZE.units['GiB']:.1f} GiB"


def contributors(rank: RankMemory, most: int = 3) -> str:
    """The largest parts of a rank's memory, largest first."""
    parts = sorted(((getattr(rank, part), part) for part in PARTS), key=lambda pair: -pair[0])
    return ", ".join(f"{part} {gib(size)}" for size, part in parts[:most])


def remedies(memory: Memory) -> Iterator[tuple[str, Memory]]:
    """Single changes that save memory without another layout, the cheapest in time first."""
    layout, training = memory.layout, memory.training
    if layout.tp > 1 and not memory.unit.cut.sequence_parallel:
        yield "parallelism.sequence_parallel: true", memory.changed(sequence_parallel=True)
    replicas = memory.dp * layout.cp
    for zero in (1, 2, 3):
        if layout.zero < zero and replicas > 1:
            yield f"parallelism.zero: {zero}", memory.changed(layout={"zero": zero})
    if isinstance(training.recompute, NoRecompute):
        selective = SelectiveRecompute(ops=("norm", "activation", "attention-core"))
        yield (
            "training.recompute: {kind: selective, ops: [norm, activation, attention-core]}",
            memory.changed(training={"recompute": selective}),
        )
    if not isinstance(training.recompute, FullRecompute) or training.recompute.layers is not None:
        yield "training.recompute: full", memory.changed(training={"recompute": FullRecompute()})
    if training.micro_batch > 1:
        yield "training.micro_batch: 1", memory.changed(micro_batch=1)
    if training.offload.optimizer == "none":
        offload = training.offload.model_copy(update={"optimizer": "cpu"})
        yield "training.offload.optimizer: cpu", memory.changed(training={"offload": offload})


def verdict(memory: Memory, report: MemoryReport) -> str:
    """One paragraph: fits, with how much to spare or tightly; or which rank is over, by how much, and what would help."""
    rank, limit = report.stages[report.peak_rank], report.limit_bytes
    where = f"pipeline rank {report.peak_rank} of {len(report.stages)}"
    if report.roomy:
        return f"fits: {where} takes {gib(rank.total)} of {gib(limit)} ({contributors(rank)})"
    if report.fits:
        return f"fits tightly: {tightness(report)} ({contributors(rank)}). {_advice(memory, 'give it room')}"
    over = sum(stage.total > most for stage, most in zip(report.stages, report.limits, strict=True))
    others = f"; {over} of {len(report.stages)} ranks are over" if over > 1 else ""
    return (
        f"does not fit: {where} needs {gib(rank.total)}, {rank.total - limit:,.0f} bytes ({gib(rank.total - limit)}) more "
        f"than the {gib(limit)} of its GPU{others}. Largest: {contributors(rank)}, {report.when}. "
        f"{_advice(memory, 'make it fit')}"
    )


def tightness(report: MemoryReport) -> str:
    """A sentence, without its full stop, on a job that fits only if its allocator loses less than usual."""
    rank, limit = report.stages[report.peak_rank], report.limit_bytes
    return (
        f"pipeline rank {report.peak_rank} of {len(report.stages)} takes {gib(rank.total)} of {gib(limit)} with what its "
        f"allocator usually loses to fragmentation, {gib(rank.needed)} without: near the limit some of that comes back, so "
        "that such a job runs, perhaps slower"
    )


def _advice(memory: Memory, aim: str) -> str:
    tried = [(text, changed.report()) for text, changed in remedies(memory)]
    enough = [text for text, report in tried if report.roomy]
    if enough:
        return f"Any one of these would {aim}: {'; '.join(enough)}"
    closest = sorted(tried, key=lambda pair: pair[1].peak_bytes)[:2]
    best = "; ".join(f"{text} ({gib(report.peak_bytes)})" for text, report in closest)
    return (
        f"No single change is enough (closest: {best}); more tensor or pipeline parallelism, or more memory, is needed; "
        "`clustersim plan` searches layouts that fit"
    )


def check(memory: Memory) -> MemoryReport:
    """The report of a job that fits.

    Raises:
        DoesNotFit: with the verdict.
    """
    report = memory.report()
    if not report.fits:
        raise DoesNotFit(Problem("parallelism", verdict(memory, report)))
    return report
