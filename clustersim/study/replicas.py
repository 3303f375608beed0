"""Replicas of one run: independent runs under named random streams, summarised metric by metric.

A replica leaves a row of floats behind and nothing else, so memory does not grow with what happens in it. Rows are placed
by the replica's index: the result is the same, to the last byte, for any number of workers.
"""

from __future__ import annotations

import functools
import json
import math
import os
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clustersim.errors import ClusterSimError, InputError, KeyedError, PluginError, Problem
from clustersim.scenario.places import tells_places
from clustersim.study.executors import Executor, Failure, Processes, results_of
from clustersim.study.statistics import summary

if TYPE_CHECKING:
    import pandas as pd

    from clustersim.run.prepared import Prepared
    from clustersim.run.result import RunResult
    from clustersim.scenario.schema import Scenario

Progress = Callable[[int, int], None]
"""Called with (finished replicas, all replicas)."""
Row = tuple[dict[str, float | None], dict[str, float], str | None, bool]
"""Metrics, ledger in seconds, verdict, hopeless."""

PROBE_S = 0.4
"""Replicas run here for so long before processes are considered: starting them costs about as much."""
WORTH_S = 1.0
"""Processes start when at least this much work is left."""
CHUNK = 16
"""Replicas a task at most."""


@dataclass
class ReplicaTable:
    """What all replicas gave, as columns of floats (NaN where a metric is undefined; none leaves this class).

    Attributes:
        scenario: its name.
        seed: seed of all streams.
        columns: a metric's value in each replica.
        ledger: seconds by category in each replica.
        verdicts: reason of a replica that made no progress or was given up, by replica.
        hopeless: replicas that ended before they reached their steps or tokens.
        interrupted: Ctrl-C came before all were done; the columns hold the finished ones.
    """

    scenario: str
    seed: int
    columns: dict[str, array[float]] = field(default_factory=dict)
    ledger: dict[str, array[float]] = field(default_factory=dict)
    verdicts: dict[int, str] = field(default_factory=dict)
    hopeless: int = 0
    interrupted: bool = False
    replicas: int = 0

    def add(self, row: Row) -> None:
        """Append the next replica."""
        metrics, ledger, verdict, hopeless = row
        for name, value in metrics.items():
            self._column(self.columns, name).append(math.nan if value is None else float(value))
        for name, value in ledger.items():
            self._column(self.ledger, name, 0.0).append(value)
        self.hopeless += hopeless
        if verdict is not None:
            self.verdicts[self.replicas] = verdict
        self.replicas += 1
        for column in self.ledger.values():
            if len(column) < self.replicas:
                column.append(0.0)

    def _column(self, columns: dict[str, array[float]], name: str, missing: float = math.nan) -> array[float]:
        if name not in columns:
            columns[name] = array("d", [missing] * self.replicas)
        return columns[name]

    def values(self, metric: str) -> list[float | None]:
        """One metric, None where undefined."""
        return [None if math.isnan(value) else value for value in self.columns[metric]]

    def to_dict(self) -> dict[str, Any]:
        """The ``run`` object of the JSON output: each metric ``{"mean","sd","p05","p50","p95","ci95"}`` or null."""
        metrics = {name: summary(self.values(name)) for name in self.columns}
        return {**metrics, "ledger_s": {name: summary(list(column)) for name, column in self.ledger.items()}}

    def _repr_html_(self) -> str:
        """A table for notebooks: means with half a 95 % interval."""
        from clustersim.shown import shown, with_interval

        rows = [(name, with_interval(item)) for name, item in self.to_dict().items() if name != "ledger_s"]
        return shown(f"{self.scenario}: {self.replicas} replicas, seed {self.seed}", rows, ("metric", "mean"))

    def to_frame(self) -> pd.DataFrame:
        """A row a replica: its metrics, then ``ledger_<category>_s``."""
        import pandas as pd

        ledger = {f"ledger_{name}_s": list(column) for name, column in self.ledger.items()}
        return pd.DataFrame(
            {"replica": range(self.replicas), **{k: list(v) for k, v in self.columns.items()}, **ledger}
        )


@tells_places
def run_replicas(
    scenario: Scenario,
    *,
    seed: int | None = None,
    replicas: int | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    on_result: Callable[[int, RunResult], None] | None = None,
) -> ReplicaTable:
    """Run a scenario many times.

    Args:
        scenario: what to run.
        seed: seed of all streams; None: the scenario's.
        replicas: how many; None: the scenario's.
        workers: processes; None: as many as pay, 1: all here.
        executor: where tasks run, instead of ``workers``.
        progress: called as replicas finish.
        on_result: called with each replica and its full result, in order; replicas then run in this process.

    Returns:
        The table of all replicas; after Ctrl-C of those that were finished, marked as ``interrupted``.
    """
    seed = scenario.simulation.seed if seed is None else seed
    count = scenario.simulation.replicas if replicas is None else replicas
    table = ReplicaTable(scenario.name, seed)
    rows: dict[int, Row] = {}
    try:
        for replica, row in _rows(scenario, seed, count, workers, executor, on_result):
            rows[replica] = row
            while table.replicas in rows:
                table.add(rows.pop(table.replicas))
            if progress is not None:
                progress(table.replicas + len(rows), count)
    except KeyboardInterrupt:
        table.interrupted = True
        for replica in sorted(rows):
            table.add(rows[replica])
    return table


def _rows(scenario: Scenario, seed: int, count: int, workers: int | None, executor: Executor | None,
          on_result: Callable[[int, RunResult], None] | None) -> Iterator[tuple[int, Row]]:  # fmt: skip
    text = json.dumps(scenario.data())
    if on_result is not None:
        yield from _watched(text, seed, count, on_result)
        return
    done = 0
    if executor is None:
        for replica in _probed(text, seed, count, workers):
            done = replica[0] + 1
            yield replica
    if done < count:
        pool = executor or Processes(affordable(workers))
        yield from _pooled(pool, (text, seed), range(done, count))


def _watched(
    text: str, seed: int, count: int, on_result: Callable[[int, RunResult], None]
) -> Iterator[tuple[int, Row]]:
    from clustersim.run.simulate import run_replica

    for replica in range(count):
        result = run_replica(_prepared(text), seed, replica)
        on_result(replica, result)
        yield replica, _row(result)


def _probed(text: str, seed: int, count: int, workers: int | None) -> Iterator[tuple[int, Row]]:
    """Replicas run here: all of them unless enough work is left to pay for processes."""
    from clustersim.run.simulate import run_replica

    prepared = _prepared(text)
    spare = affordable(workers) > 1
    start = time.perf_counter()
    for replica in range(count):
        yield replica, _row(run_replica(prepared, seed, replica, events=False))
        spent = time.perf_counter() - start
        left = spent / (replica + 1) * (count - replica - 1)
        if spare and spent > PROBE_S and left > WORTH_S:
            return


def affordable(workers: int | None) -> int:
    """Worker processes: as many as asked for, else one a core that this process may use."""
    if workers is not None:
        return workers
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pooled(executor: Executor, shared: tuple[str, int], replicas: Sequence[int]) -> Iterator[tuple[int, Row]]:
    size = max(1, min(CHUNK, math.ceil(len(replicas) / (8 * executor.workers))))
    tasks = [(replicas[at], replicas[min(at + size, len(replicas)) - 1] + 1) for at in range(0, len(replicas), size)]
    with results_of(executor, _task, shared, tasks) as results:
        for task, result in results:
            if isinstance(result, Failure):
                if result.plugin:
                    raise PluginError.of(result.message, result.details)
                if result.error is not None:
                    raise result.error
                raise ClusterSimError(f"replicas {task[0]} to {task[1] - 1}: {result.message}\n{result.details}".rstrip())
            yield from zip(range(*task), result, strict=True)


def _task(shared: tuple[str, int], task: tuple[int, int]) -> list[Row]:
    """Rows of the replicas of a task; runs in a worker."""
    from clustersim.run.simulate import run_replica

    text, seed = shared
    prepared = _prepared(text)
    return [_row(run_replica(prepared, seed, replica, events=False)) for replica in range(*task)]


@tells_places
def prepared_for(scenario: Scenario) -> Prepared:
    """What all replicas of ``scenario`` share (step time, save costs, resolved interval); built once a process."""
    prepared: Prepared = _prepared(json.dumps(scenario.data()))
    return prepared


def refuse_unready(scenarios: Sequence[Scenario], labels: Sequence[str] | None = None) -> None:
    """Refuse scenarios of which one cannot be run, before any is.

    Args:
        labels: what to call them where no file tells which is meant; None: nothing.

    Raises:
        InputError: with what is wrong in all of them.
        ImpossibleError: the first that does not fit in memory, or whose run cannot be set up.
    """
    from clustersim.study.step import fitting_model

    problems: list[Problem] = []
    for place, scenario in enumerate(scenarios):
        label = labels[place] if labels is not None else ""
        try:
            fitting_model(scenario)
            prepared_for(scenario)
        except KeyedError as error:
            error.retell(lambda problem, label=label: _labelled(problem, label))  # type: ignore[misc]
            if not isinstance(error, InputError):
                raise
            problems += error.problems
    if problems:
        raise InputError(list(dict.fromkeys(problems)))


def _labelled(problem: Problem, label: str) -> Problem:
    """The problem of the scenario with a label; a file's name says it as well."""
    return problem.at(label) if problem.file is None and label else problem


@functools.lru_cache(maxsize=4)
def _prepared(text: str) -> Any:
    """A scenario made ready to run, once a process (a forked worker finds its parent's)."""
    from clustersim.run.simulate import prepare
    from clustersim.scenario.load import load

    return prepare(load(json.loads(text)))


def _row(result: RunResult) -> Row:
    metrics = result.metrics()
    ledger = metrics.pop("ledger_s")
    return metrics, ledger, result.verdict, result.hopeless
