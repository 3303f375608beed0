"""Sweep a scenario over points: a table (a row a point), the best point with its interval, a figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersim.errors import ClusterSimError, InputError, KeyedError, Problem
from clustersim.study.axes import Point, points_of
from clustersim.study.executors import Executor
from clustersim.study.points import Template
from clustersim.study.replicas import prepared_for
from clustersim.study.runner import Job, Outcome, Progress, Runner, fitting_job, in_order, refuse_if_all_wrong
from clustersim.study.statistics import BETTER, Difference, Target, difference
from clustersim.study.store import Store, write_atomically

if TYPE_CHECKING:
    import pandas as pd

STATISTICS = ("mean", "sd", "p05", "p50", "p95", "ci95_low", "ci95_high")


@dataclass
class Sweep:
    """What a sweep found: an outcome a point, in the order of the grid."""

    paths: list[str]
    outcomes: list[Outcome]
    seed: int
    complete: bool = True
    """False when only a shard of the tasks was run."""

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics that any point has."""
        return in_order({name for outcome in self.outcomes for name in outcome.metrics})

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a point: the axes' values, replicas, error, and each statistic of each metric."""
        metrics, rows = self.metrics, []
        for outcome in self.outcomes:
            row: dict[str, Any] = {path: outcome.point.get(path) for path in self.paths}
            row["replicas"] = sum(replica is not None for replica in outcome.replicas)
            row["error"] = outcome.error
            summaries = outcome.summaries()
            for metric in metrics:
                told = summaries.get(metric) or {}
                low, high = told.get("ci95") or (None, None)
                told = {**told, "ci95_low": low, "ci95_high": high}
                row.update({f"{statistic}_{metric}": told.get(statistic) for statistic in STATISTICS})
            rows.append(row)
        return rows

    def to_frame(self) -> pd.DataFrame:
        """The rows as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def to_csv(self) -> str:
        """The table as CSV text: the same bytes however the sweep was run."""
        rows = self.rows()
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: _cell(value) for key, value in row.items()})
        return out.getvalue()

    def _repr_html_(self) -> str:
        """A row a point for notebooks."""
        from clustersim.shown import shown, with_interval

        names = ("goodput_tokens_per_s", "ettr", "interruptions")
        rows = []
        for outcome in self.outcomes:
            told = outcome.summaries()
            rows.append((outcome.label, *(with_interval(told.get(name)) for name in names), outcome.error or ""))
        return shown("Sweep", rows, ("point", *names, "error"))

    def best(self, metric: str = "goodput_tokens_per_s") -> Outcome | None:
        """The point with the best mean of a metric; the first of equals; None when no point has it."""
        scored = [(told["mean"], outcome) for outcome in self.outcomes
                  if outcome.error is None and (told := outcome.summaries().get(metric))]  # fmt: skip
        if not scored:
            return None
        choose = max if BETTER.get(metric, "high") == "high" else min
        return choose(scored, key=lambda pair: pair[0])[1]

    def rivals(self, metric: str = "goodput_tokens_per_s") -> list[Difference]:
        """Paired difference of the best point against each other point: which of them are really worse."""
        best = self.best(metric)
        if best is None:
            return []
        found = (difference(best.label, other.label, metric, best.column(metric), other.column(metric))
                 for other in self.outcomes if other is not best and other.error is None)  # fmt: skip
        return [one for one in found if one is not None]

    def to_dict(self, metric: str = "goodput_tokens_per_s") -> dict[str, Any]:
        """One JSON document: points with summaries, the best, and its rivals."""
        best = self.best(metric)
        return {
            "paths": self.paths, "seed": self.seed, "complete": self.complete, "metric": metric,
            "points": [{"point": outcome.point, "label": outcome.label, "error": outcome.error,
                        "replicas": sum(replica is not None for replica in outcome.replicas),
                        "run": outcome.summaries()} for outcome in self.outcomes],
            "best": None if best is None else {"point": best.point, "run": best.summaries()},
            "rivals": [found.to_dict() for found in self.rivals(metric)],
        }  # fmt: skip


def _cell(value: Any) -> Any:
    """A CSV cell: floats so that they read back to the same float, mappings as JSON."""
    import json

    if isinstance(value, float):
        return repr(value)
    return json.dumps(value) if isinstance(value, (dict, list)) else value


def label_of(point: Point) -> str:
    """``checkpoint.interval=5 min, cluster.spare_nodes=16``."""
    return ", ".join(f"{path}={value}" for path, value in point.items()) or "as written"


def sweep(scenario: Any, *, over: Mapping[str, Iterable[Any]] | None = None,
          zipped: Mapping[str, Iterable[Any]] | None = None, points: Sequence[Point] | None = None,
          replicas: int | None = None, seed: int | None = None, until: Target | None = None, limit: int = 10_000,
          executor: Executor | None = None, store: Store | Path | str | None = None, progress: Progress | None = None,
          shard: tuple[int, int] | None = None, at: Callable[[Point], Any] | None = None,
          option: str = "--over") -> Sweep:  # fmt: skip
    """Run ``scenario`` at every point, each with the same failures.

    A point whose scenario is wrong or impossible gets its error text in its row; the rest completes.

    Args:
        over: axes that multiply, path → values.
        zipped: axes that advance together.
        points: the points themselves, instead of axes.
        store: a folder or store that remembers finished replicas; the same call resumes.
        shard: ``(i, n)``: run the i-th part of n only.
        at: makes the scenario of a point; default: ``scenario`` with the point's values.
        option: what errors say that a point's values come from.

    Raises:
        InputError: no points, a path named twice, every point wrong, a store that holds another study.
        ImpossibleError: no point fits in memory.
    """
    grid = list(points) if points is not None else points_of(over, zipped)
    if not grid:
        raise InputError(Problem("--over", "a sweep needs at least one point"))
    seed = scenario.simulation.seed if seed is None else seed
    make = at or Template.of(scenario, option)
    paths = list(dict.fromkeys(path for point in grid for path in point))
    kept = Store(store) if isinstance(store, (str, Path)) else store
    count = replicas or scenario.simulation.replicas
    _refuse_shared(paths)
    prepared = _jobs(make, grid)
    jobs = [job for job in prepared if isinstance(job, Job)]
    if kept is not None:
        kept.open_study(manifest(prepared, seed, paths, grid, None if until else count))
    try:
        runner = Runner(seed, executor, kept, progress, shard)
        ran = iter(runner.run_until(jobs, count, until, limit))
        outcomes = [next(ran) if isinstance(job, Job) else job for job in prepared]
    finally:
        if kept is not None:
            kept.close()
    refuse_if_all_wrong(outcomes)
    for outcome, point in zip(outcomes, grid, strict=True):
        outcome.point = point
    result = Sweep(paths, outcomes, seed, complete=shard is None)
    if kept is not None and result.complete:
        write_atomically(kept.folder / "table.csv", result.to_csv())
    return result


def manifest(jobs: Sequence[Job | Outcome], seed: int, paths: list[str], points: Sequence[Point],
             replicas: int | None) -> dict[str, Any]:  # fmt: skip
    """What a sweep's folder is about: enough to tell another study apart, and to make the table from the shards alone.

    ``replicas`` is None where a stopping rule decides how many there are.
    """
    from clustersim import __version__

    return {"study": "sweep", "version": __version__, "seed": seed, "paths": paths, "points": list(points),
            "replicas": replicas, "hashes": [job.hash for job in jobs if isinstance(job, Job)],
            "errors": [None if isinstance(job, Job) else job.error for job in jobs]}  # fmt: skip


def _refuse_shared(paths: Sequence[str]) -> None:
    """Seed and number of replicas are the study's: an axis of them would change nothing."""
    for path in paths:
        if path.split(".")[0] == "simulation":
            raise InputError(Problem(f"--over {path}", "is the same for all points of a study: give --seed or --replicas"))


def _jobs(make: Callable[[Point], Any], points: Sequence[Point]) -> list[Job | Outcome]:
    """Each point's job, or why it has none.

    Raises:
        InputError: every point is wrong: then the axis is, and not a point.
        ImpossibleError: no point is possible.
    """
    found = [_job(make, point) for point in points]
    tried: list[Outcome] = []
    for job, point in zip(found, points, strict=True):
        tried.append(job if isinstance(job, Outcome) else _set_up(make, point))
        if tried[-1].fault is None:
            return found  # one can be run, as a rule the first: the others show as they run
    refuse_if_all_wrong(tried)
    return found


def _job(make: Callable[[Point], Any], point: Point) -> Job | Outcome:
    """The point's job, or the outcome without a result that says why it has none."""
    try:
        return fitting_job(label_of(point), make(point))
    except ClusterSimError as error:
        return _without(point, error)


def _set_up(make: Callable[[Point], Any], point: Point) -> Outcome:
    """An outcome that says why a run of the point cannot be set up; without an error where it can."""
    try:
        prepared_for(make(point))
    except ClusterSimError as error:
        return _without(point, error)
    return Outcome(label_of(point))


def _without(point: Point, error: ClusterSimError) -> Outcome:
    return Outcome(label_of(point), error=str(error), fault=error if isinstance(error, KeyedError) else None)
