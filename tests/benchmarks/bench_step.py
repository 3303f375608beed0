"""How fast one step is evaluated: CPU medians beside their targets.

``python -m tests.benchmarks step`` or ``make bench ARGS=step``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from clustersim.pipeline import step_graph
from clustersim.pipeline.conditions import Conditions
from clustersim.pipeline.kernel import has_numba
from clustersim.pipeline.step import StepModel
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from tests.benchmarks.bench_pipeline import Result
from tests.workload.jobs import cluster, training

TIMES = 21


def median(run: Callable[[int], Any], times: int = TIMES) -> float:
    """Median CPU milliseconds of ``run(i)``, after one that does not count."""
    run(-1)
    taken = []
    for index in range(times):
        start = time.process_time()
        run(index)
        taken.append(time.process_time() - start)
    return 1e3 * statistics.median(taken)


def job(**more: Any) -> StepModel:
    """Llama 3 405B on 16,384 H100: 16 ranks, 16 microbatches, 8 chunks."""
    layout = {"tp": 8, "pp": 16, "dp": 128, "chunks": 8, "zero": 2, "sequence_parallel": True}
    return StepModel(
        model=TransformerModel.preset("llama3-405b"),
        cluster=NODES,
        schedule="interleaved-1f1b",
        training=training(**{"seq_len": 8192, "global_batch": 2048, **more}),
        layout=Layout.model_validate(layout),
    )


NODES = cluster(2048)


def new_shape(_: int) -> None:
    """A step whose schedule was never compiled."""
    step_graph._shape.cache_clear()
    job().step_time()


def results() -> Iterator[Result]:
    """All measurements."""
    built = job()
    built.step_time()
    if has_numba():
        from clustersim.pipeline import machine  # noqa: F401 - the compiled replay takes over once it is there

    warm = median(lambda index: job(clock=1 - 1e-4 * index).step_time())
    yield Result("step, 16 x 16 x 8, shape seen before, all costs anew", warm, "CPU ms", "<= 5", warm <= 5)
    constant = median(lambda index: built.step_time(Conditions(slow=((index + 1, 1.1 + 1e-3 * index),))))
    yield Result("step, one condition changed", constant, "CPU ms", "<= 1", constant <= 1)
    cold = median(new_shape, 7)
    yield Result("step, new shape", cold, "CPU ms", "<= 30", cold <= 30)
