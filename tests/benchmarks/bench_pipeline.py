"""How fast pipelines are built, compiled and replayed: medians beside their targets.

``python -m tests.benchmarks.bench_pipeline`` or ``make bench``.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from clustersim.pipeline import kernel
from clustersim.pipeline.des import simulate
from clustersim.pipeline.evaluate import evaluate
from clustersim.pipeline.graph import Graph, compile
from clustersim.pipeline.replay import Costs, replay, replay_many, replay_speeds
from clustersim.pipeline.schedule import Pipeline, get_schedule

RANKS, MICROBATCHES = 64, 512


class Result(NamedTuple):
    """One measurement: ``good`` says whether the median meets its target."""

    name: str
    value: float
    unit: str
    target: str
    good: bool

    def __str__(self) -> str:
        return (
            f"{self.name:<58} {self.value:>10.4g} {self.unit:<10} {self.target:<10} {'ok' if self.good else 'MISSED'}"
        )


def median(work: Callable[[], object], times: int) -> float:
    """Median CPU seconds of a call, after one that does not count: targets are for one core, however busy the rest."""
    work()
    taken = []
    for _ in range(times):
        begin = time.process_time()
        work()
        taken.append(time.process_time() - begin)
    return statistics.median(taken)


def at_most(name: str, seconds: float, target: float) -> Result:
    """A duration against an upper bound."""
    return Result(name, seconds, "CPU s", f"<= {target:g}", seconds <= target)


def at_least(name: str, ops: int, seconds: float, target: float) -> Result:
    """A rate against a lower bound, ops per second."""
    return Result(name, ops / seconds / 1e6, "M ops/s", f">= {target / 1e6:g}", ops / seconds >= target)


def one_f_one_b() -> Graph:
    """1F1B on 64 stages with 512 microbatches: 65,536 ops."""
    return compile(get_schedule("1f1b").program(Pipeline(RANKS, MICROBATCHES)))


def results() -> Iterator[Result]:
    """Every measurement."""
    yield at_most("1F1B 64 x 512: build and compile", median(one_f_one_b, 7), 0.4)
    graph = one_f_one_b()
    costs = Costs.of(latency=0.1)
    durations, delays = graph.durations(costs), graph.delays(costs)
    many = durations * np.random.default_rng(0).uniform(0.9, 1.1, (64, graph.ops))
    if kernel.has_numba():
        seconds = median(lambda: replay(graph, durations, delays, engine="numba"), 51)
        yield at_least("replay, numba", graph.ops, seconds, 100e6)
        seconds = median(lambda: replay_many(graph, many, delays, engine="numba"), 7)
        yield at_least("replay of 64 replicas, numba", many.size, seconds, 100e6)
    seconds = median(lambda: replay(graph, durations, delays, engine="numpy"), 11)
    yield at_least("replay without numba (numpy)", graph.ops, seconds, 2.5e6)
    seconds = median(lambda: replay_many(graph, many, delays, engine="numpy"), 5)
    yield at_least("replay of 64 replicas, numpy", many.size, seconds, 40e6)
    seconds = median(lambda: replay(graph, durations, delays, engine="python"), 5)
    yield at_least("replay, pure Python", graph.ops, seconds, 1e6)
    yield at_least("replay in SimPy", graph.ops, median(lambda: simulate(graph, durations, delays), 5), 150e3)
    timeline = replay(graph, durations, delays)
    yield at_most("evaluate (bubbles, idle by cause, memory)", median(lambda: evaluate(timeline), 3), 1.5)
    yield from llama()
    yield bytes_per_op()


def llama() -> Iterator[Result]:
    """2,048 pipeline ranks: 16 ranks x 128 replicas, 8 chunks, 16 microbatches, a random speed for each rank."""
    graph = compile(get_schedule("interleaved-1f1b").program(Pipeline(16, 16, 8)))
    costs = Costs.of(latency=0.01)
    durations, delays = graph.durations(costs), graph.delays(costs)
    factors = np.random.default_rng(1).uniform(1.0, 1.1, (128, 16))
    for engine in (*(("numba",) if kernel.has_numba() else ()), "numpy"):
        seconds = median(lambda engine=engine: replay_speeds(graph, durations, factors, delays, engine=engine), 11)
        yield at_most(f"2,048 pipeline ranks with random speeds, {engine}", seconds, 0.05)


def bytes_per_op() -> Result:
    """Memory of a compiled graph; the same a op at twice the ops if it is linear."""
    sizes = []
    for microbatches in (MICROBATCHES // 2, MICROBATCHES):
        program = get_schedule("1f1b").program(Pipeline(RANKS, microbatches))
        tracemalloc.start()
        graph = compile(program)
        sizes.append(tracemalloc.get_traced_memory()[0] / graph.ops)
        tracemalloc.stop()
    linear = abs(sizes[1] / sizes[0] - 1) < 0.1
    return Result("memory of a compiled graph, linear in ops", sizes[1], "bytes/op", "linear", linear)


def main() -> int:
    """Print every measurement; 1 if a target was missed."""
    found = []
    for result in results():
        print(result, flush=True)
        found.append(result.good)
    return 0 if all(found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
