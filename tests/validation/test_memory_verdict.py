"""The verdict on memory against what is known to have run, and what its authors could not go beyond.

Whether a job fits is a sharper question than how many bytes it takes: these rows print no memory, but they ran.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.errors import InputError
from clustersim.pipeline.step_memory import memory_report
from clustersim.validation.job import job_of
from clustersim.validation.rows import Row, packaged
from clustersim.validation.sequence_pipeline import _step
from clustersim.validation.shapes import SkipRow
from clustersim.workload.memory import MemoryReport

RAN = ("megatron-papers", "vtrain-multi", "dgxc", "mlperf-llm", "llmfoundry-mpt", "zero-bubble", "internevo", "megascale", "bloom")
"""Tables that print what memory depends on; Megatron-Bridge's print neither recomputation nor offload."""


def verdict_of(row: Row, micro_batch: int | None = None) -> MemoryReport:
    if micro_batch is not None:
        each = micro_batch * (row.whole("n_gpus") or 1)
        row = replace(row, cells={**row.cells, "micro_batch": str(micro_batch), "global_batch": str(each)})
    return memory_report(job_of(row).step())


@pytest.mark.parametrize("table", RAN)
def test_what_ran_is_not_refused(table: str) -> None:
    """At most two rows in a hundred, or one of a table; that they are tight is no refusal."""
    reports = []
    for row in packaged(table):
        try:
            reports.append(verdict_of(row))
        except (SkipRow, InputError):  # rows that cannot be run have a test of their own
            continue
    assert len(reports) > 8
    refused = sum(not report.fits for report in reports)
    assert refused <= max(1, 0.02 * len(reports))


def test_microbatches_twice_as_large_as_the_largest_that_ran_are_refused() -> None:
    """MPT's tables go up to the largest microbatch of each length and number of GPUs. All of them fit; of those that
    need more than 0.6 of a card nine in ten do not with twice as much (the rest hold weights, not activations)."""
    largest: dict[tuple[str | None, ...], tuple[int, Row]] = {}
    for row in packaged("llmfoundry-mpt"):
        key = tuple(map(row.text, ("model_name", "gpu", "n_gpus", "seq_len", "precision", "activation_recompute")))
        size = row.whole("micro_batch") or 1
        if key not in largest or size > largest[key][0]:
            largest[key] = size, row
    ran = [(verdict_of(row), verdict_of(row, 2 * size)) for size, row in largest.values()]
    assert all(once.fits for once, _ in ran)
    full = [(once, twice) for once, twice in ran if once.stages[0].needed > 0.6 * once.limit_bytes]
    assert len(full) > 80
    refused = sum(not twice.fits for _, twice in full)
    assert refused >= 0.9 * len(full)


def test_runs_out_of_memory_are_foreseen_or_said_to_be_tight() -> None:
    """Seq1F1B's three: two are refused, one has no room for fragmentation."""
    out = [row for row in packaged("seq1f1b") if not row.number("throughput_tokens_per_s_total")]
    reports = [memory_report(_step(row)) for row in out]
    assert len(reports) == 3
    assert sum(not report.fits for report in reports) == 2
    assert not any(report.roomy for report in reports)
