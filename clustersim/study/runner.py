"""Run many replicas of many scenarios: skip what the store has, hand the rest to an executor, keep what comes back.

Replica r of every scenario uses the same named random streams of one seed, so that scenarios are compared on the same
failures. What comes out depends on nothing else: not on the executor, the number of workers, or how often it was resumed.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from clustersim.errors import InputError, KeyedError, Problem, nearest
from clustersim.scenario.places import at_its_place
from clustersim.scenario.tree import Origin
from clustersim.study.axes import Point
from clustersim.study.executors import Executor, Failure, Serial, results_of
from clustersim.study.statistics import Target, summary
from clustersim.study.store import Contents, Record, Row, Store, record_key

Metrics = Mapping[str, float | None]
Progress = Callable[[int, int], None]
"""Called with (finished replicas, all replicas)."""

LARGEST_TASK = 64
"""Replicas a task at most: large enough to hide a task's overhead (about 2 ms on Dask), small enough to lose little."""


class Job(NamedTuple):
    """One scenario to run: its resolved form as JSON, the hash of that, what to call it, and where it was written."""

    label: str
    scenario: str
    hash: str
    origin: Origin | None = None


class Task(NamedTuple):
    """Replicas ``first`` … ``last − 1`` of one job."""

    job: int
    first: int
    last: int


class Shared(NamedTuple):
    """What every task needs; sent once a worker."""

    jobs: tuple[str, ...]
    seed: int


@dataclass
class Outcome:
    """All replicas of one scenario that are known: ``replicas[r]`` holds the metrics of replica r, or None."""

    label: str
    point: Point = field(default_factory=dict)
    replicas: list[Metrics | None] = field(default_factory=list)
    error: str | None = None
    fault: KeyedError | None = field(default=None, compare=False)
    """The error itself, where keys are at fault."""

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that any replica has, in the order of ``in_order``."""
        seen: dict[int, Iterable[str]] = {}
        for replica in self.replicas:
            names = replica.columns if isinstance(replica, Row) else replica or {}
            seen.setdefault(id(names), names)  # rows of one shard share their names
        return in_order({name for names in seen.values() for name in names})

    def column(self, metric: str) -> list[float | None]:
        """One metric over the replicas, None where a replica is missing or the metric undefined."""
        return [None if replica is None else replica.get(metric) for replica in self.replicas]

    def columns(self) -> dict[str, Sequence[float | None]]:
        """Every metric over the replicas; rows that share their names are transposed at once."""
        first = self.replicas[0] if self.replicas else None
        if isinstance(first, Row):
            names = first.columns
            if all(isinstance(row, Row) and row.columns is names for row in self.replicas):
                whole = dict(zip(names, zip(*(row.values_ for row in self.replicas), strict=True), strict=True))  # type: ignore[union-attr]
                return {metric: whole[metric] for metric in in_order(names)}
        return {metric: self.column(metric) for metric in self.metrics}

    def summaries(self) -> dict[str, dict[str, Any] | None]:
        """Summary of each metric over the finished replicas."""
        return {metric: summary(values) for metric, values in self.columns().items()}


def in_order(names: Iterable[str]) -> list[str]:
    """Metrics in the order of ``RunResult.METRICS``, then all others by name: the same whatever order they were found in."""
    from clustersim.run.result import RunResult

    known = {name: place for place, name in enumerate(RunResult.METRICS)}
    return sorted(names, key=lambda name: (known.get(name, len(known)), name))


@functools.lru_cache(maxsize=8)
def _prepared(scenario: str) -> Any:
    from clustersim.scenario.schema import Scenario
    from clustersim.study.work import prepare

    return prepare(Scenario.model_validate(json.loads(scenario)))


def run_task(shared: Shared, task: Task) -> list[Metrics]:
    """Metrics of each replica of a task; runs in a worker."""
    from clustersim.study.work import replica_metrics

    prepared = _prepared(shared.jobs[task.job])
    return [replica_metrics(prepared, shared.seed, replica) for replica in range(task.first, task.last)]


def job_of(label: str, scenario: Any) -> Job:
    """A job from a scenario: the hash covers every value that can change a replica's result, and not the name.

    How many replicas are run, from which seed, and what the scenario is called do not change what one replica gives.
    """
    import hashlib

    from clustersim.scenario.dump import canonical

    data = scenario.data()
    told = {key: item for key, item in data.items() if key not in ("simulation", "name", "description")}
    body = canonical(told)
    # As written, not sorted: stages of recovery run in the order of their keys.
    text = json.dumps(data, separators=(",", ":"))
    return Job(label, text, hashlib.sha256(body.encode()).hexdigest(), scenario.origin)


def fitting_job(label: str, scenario: Any) -> Job:
    """Like ``job_of``, for a scenario that fits in memory.

    Raises:
        DoesNotFit: a stage needs more memory than its GPU has.
        InputError: the layout or the schedule does not fit.
    """
    from clustersim.study.step import fitting_model

    fitting_model(scenario)
    return job_of(label, scenario)


def require_metric(option: str, metric: str) -> None:
    """Refuse a metric that no run has, before anything runs.

    Raises:
        InputError: naming the nearest.
    """
    from clustersim.run.result import RunResult

    if metric not in RunResult.METRICS and not metric.startswith("ledger_s."):
        known = [*RunResult.METRICS, "ledger_s.<category>"]
        hint = nearest(metric, known) or f"; known: {', '.join(known)}"
        raise InputError(Problem(option, f"there is no metric '{metric}'{hint}"))


class Runner:
    """Runs jobs under one seed, with an executor and, if given, a store that remembers.

    ``shard = (i, n)`` runs only the i-th of every n tasks (a job array without a daemon); its outcomes are incomplete.
    """

    def __init__(self, seed: int, executor: Executor | None = None, store: Store | None = None,
                 progress: Progress | None = None, shard: tuple[int, int] | None = None) -> None:  # fmt: skip
        from clustersim import __version__

        self.seed, self.version = seed, __version__
        self.executor = executor or Serial()
        self.store, self.progress, self.shard = store, progress, shard
        self.known = store.load() if store is not None else Contents()
        if self.known.conflicts:
            raise InputError(Problem("", f"{store.folder if store else ''} holds different results under one key "
                                         f"({len(self.known.conflicts)}): it mixes versions; name another folder"))  # fmt: skip
        self.found = 0

    def run(self, jobs: Sequence[Job], replicas: int) -> list[Outcome]:
        """Outcomes of the jobs, in their order, each with ``replicas`` replicas (fewer in a shard or on errors)."""
        outcomes = [Outcome(job.label, replicas=[None] * replicas) for job in jobs]
        missing = self._fill(jobs, outcomes)
        self.found = sum(replica is not None for outcome in outcomes for replica in outcome.replicas)
        total = len(jobs) * replicas
        done = self.found
        self._tell(done, total)
        shared = Shared(tuple(job.scenario for job in jobs), self.seed)
        with results_of(self.executor, run_task, shared, missing) as results:
            for task, result in results:
                done += self._keep(jobs[task.job], outcomes[task.job], task, result)
                self._tell(done, total)
        return outcomes

    def run_until(self, jobs: Sequence[Job], replicas: int, target: Target | None, limit: int) -> list[Outcome]:
        """Like ``run``; with a target, add replicas (half as many again a round) until every job reaches it.

        Decisions fall at round ends, which do not depend on the executor.
        """
        from clustersim.study.statistics import MINIMUM_REPLICAS

        if target is None:
            return self.run(jobs, replicas)
        require_metric("--until", target.metric)
        count = min(max(replicas, MINIMUM_REPLICAS), limit)
        outcomes = self.run(jobs, count)
        if all(target.metric not in outcome.metrics for outcome in outcomes if outcome.error is None):
            raise InputError(Problem("--until", f"no run has '{target.metric}'"))
        while count < limit and not all(o.error or target.reached(o.column(target.metric)) for o in outcomes):
            self.remember(jobs, outcomes)
            count = min(count + count // 2, limit)
            outcomes = self.run(jobs, count)
        return outcomes

    def _key(self, job: Job, replica: int) -> str:
        return record_key(job.hash, self.seed, replica, self.version)

    def _fill(self, jobs: Sequence[Job], outcomes: list[Outcome]) -> list[Task]:
        """Take what is known into the outcomes; the tasks that remain."""
        holes: list[tuple[int, list[int]]] = []
        for number, (job, outcome) in enumerate(zip(jobs, outcomes, strict=True)):
            for replica in range(len(outcome.replicas)):
                record = self.known.records.get(self._key(job, replica))
                outcome.replicas[replica] = None if record is None else record.metrics
            holes.append((number, [r for r, known in enumerate(outcome.replicas) if known is None]))
        size = task_size(sum(len(missing) for _, missing in holes), self.executor.workers)
        tasks = [task for number, missing in holes for task in _tasks(number, missing, size)]
        if self.shard is not None:
            index, count = self.shard
            tasks = [Task(job, r, r + 1) for job, first, last in tasks for r in range(first, last)
                     if (job * len(outcomes[job].replicas) + r) % count == index]  # fmt: skip
        return tasks

    def _keep(self, job: Job, outcome: Outcome, task: Task, result: Any) -> int:
        if isinstance(result, Failure):
            if outcome.error is None:
                outcome.error, outcome.fault = _told(result, job.origin)
            return 0
        outcome.replicas[task.first : task.last] = result
        if self.store is not None:
            self.store.append((self._key(job, replica), replica, metrics)
                              for replica, metrics in zip(range(task.first, task.last), result, strict=True))  # fmt: skip
        return len(result)

    def remember(self, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
        """Keep finished replicas, so that a later call with more replicas runs only the new ones."""
        for job, outcome in zip(jobs, outcomes, strict=True):
            for replica, metrics in enumerate(outcome.replicas):
                if metrics is not None:
                    key = self._key(job, replica)
                    self.known.records[key] = Record(key, replica, Row.of(metrics))

    def _tell(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)


def _told(failure: Failure, origin: Origin | None) -> tuple[str, KeyedError | None]:
    """Why a task failed, at the places of the scenario that it ran."""
    if not isinstance(failure.error, KeyedError):
        return failure.message, None
    if origin is not None:
        failure.error.retell(lambda problem: at_its_place(problem, origin))
    return str(failure.error), failure.error


def refuse_if_all_wrong(outcomes: Sequence[Outcome]) -> None:
    """Raise what is wrong where no outcome has a result and keys are at fault in each: the input is, and not a point.

    Raises:
        InputError: with what is wrong, or impossible, in any of them, where one is wrong.
        ImpossibleError: that of the first, where all are impossible.
    """
    faults = [outcome.fault for outcome in outcomes if outcome.fault is not None]
    if not faults or len(faults) < len(outcomes):
        return
    if any(isinstance(fault, InputError) for fault in faults):
        raise InputError(list(dict.fromkeys(problem for fault in faults for problem in fault.problems)))
    raise faults[0]


def task_size(replicas: int, workers: int) -> int:
    """Replicas a task: some 16 tasks a worker, so that the last worker to finish is not waited for long."""
    return max(1, min(LARGEST_TASK, math.ceil(replicas / (16 * max(1, workers)))))


def _tasks(job: int, missing: list[int], size: int) -> Iterator[Task]:
    """Runs of consecutive missing replicas, cut to at most ``size``."""
    start = 0
    while start < len(missing):
        stop = start + 1
        while stop < len(missing) and missing[stop] == missing[stop - 1] + 1 and stop - start < size:
            stop += 1
        yield Task(job, missing[start], missing[stop - 1] + 1)
        start = stop
