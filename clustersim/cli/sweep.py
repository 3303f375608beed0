"""``clustersim sweep``: a table, a figure and the best point over a grid; resumable, on any executor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clustersim.cli.options import (
    Address,
    ExecutorName,
    Json,
    OutDir,
    Quiet,
    Replicas,
    ScenarioFile,
    Seed,
    Set,
    Verbose,
    Workers,
)
from clustersim.cli.resuming import ROUND, resumable
from clustersim.cli.study_options import Limit, Metric, Until, executor_of, shard_of, target_of
from clustersim.cli.talk import Talk, print_json, say, to_json
from clustersim.errors import InputError, NegativeAnswer, Problem

if TYPE_CHECKING:
    from clustersim.study.axes import Point

Over = Annotated[
    list[str] | None,
    typer.Option("--over", metavar="PATH=VALUES", show_default=False,
                 help="An axis: 'checkpoint.interval=1min,5min', 'cluster.spare_nodes=0..64:8', '…=1min..2h:log9'. "
                      "Several multiply."),
]  # fmt: skip
Zip = Annotated[
    list[str] | None,
    typer.Option(
        "--zip", metavar="PATH=VALUES", show_default=False, help="Axes that advance together rather than multiply."
    ),
]
Points = Annotated[
    str | None,
    typer.Option(
        "--points", metavar="FILE.csv", show_default=False, help="The points: a column a path, a row a point."
    ),
]
Optimum = Annotated[
    str | None,
    typer.Option("--optimum", metavar="PATH=LOW..HIGH", show_default=False,
                 help="Search the best value of one path between two ends, with its interval."),
]  # fmt: skip
Shard = Annotated[
    str | None,
    typer.Option(
        "--shard", metavar="i/n", show_default=False, help="Run the i-th of n parts only (job arrays); needs -o."
    ),
]


def command(
    scenario: ScenarioFile,
    over: Over = None,
    zipped: Zip = None,
    points: Points = None,
    optimum: Optimum = None,
    metric: Metric = "goodput_tokens_per_s",
    sets: Set = None,
    seed: Seed = None,
    replicas: Replicas = None,
    until: Until = None,
    limit: Limit = 2000,
    workers: Workers = None,
    executor: ExecutorName = None,
    address: Address = None,
    shard: Shard = None,
    out: OutDir = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run a scenario at many points, each with the same failures; the same command resumes what was cut off."""
    from clustersim.study.points import Template
    from clustersim.study.runner import require_metric

    talk = Talk(quiet, verbose)
    require_metric("--metric", metric)
    place, target, part = executor_of(executor, workers, address), target_of(until), shard_of(shard)
    if part is not None and out is None:
        raise InputError(Problem("--shard", "needs -o DIR: the shards meet in that folder"))
    template = Template.read(scenario, tuple(sets or ()))
    base = template({})
    with resumable(out, "replicas" if target is None else ROUND) as kept, talk.progress("replicas") as progress:
        common: dict[str, Any] = {"replicas": replicas, "seed": seed, "executor": place, "progress": kept.counting(progress)}
        if optimum is not None:
            _optimum(base, optimum, metric, out, json, talk, common, bool(over or zipped or points))
            return
        _sweep(base, template, _points(over, zipped, points), metric, out, json, talk,
               {**common, "until": target, "limit": limit, "shard": part})  # fmt: skip


def _points(over: list[str] | None, zipped: list[str] | None, file: str | None) -> list[Point]:
    from clustersim.study.axes import grid, parse_axis, points_from_csv

    if file is not None:
        if over or zipped:
            raise InputError(Problem("--points", "holds all points; leave out --over and --zip"))
        return points_from_csv(Path(file))
    if not over and not zipped:
        raise InputError(Problem("--over", "needs an axis, such as --over 'checkpoint.interval=1 min,5 min,20 min'"))
    return grid([parse_axis(text) for text in over or ()], [parse_axis(text, "--zip") for text in zipped or ()])


def _sweep(base: Any, template: Any, points: list[Point], metric: str, out: str | None, json: bool, talk: Talk,
           common: dict[str, Any]) -> None:  # fmt: skip
    from clustersim.report.documents import study_cautions
    from clustersim.report.study_text import sweep_text
    from clustersim.study.sweeping import sweep

    talk.warn(study_cautions(base, {path for point in points for path in point}))
    found = sweep(base, points=points, at=template, store=out, **common)
    if metric not in found.metrics and found.metrics:
        raise InputError(Problem("--metric", f"there is no '{metric}'; known: {', '.join(found.metrics)}"))
    if out is not None and found.complete:
        _write(Path(out), found, metric, base.name)
        talk.remark(f"written to {out}")
    if json:
        print_json(found.to_dict(metric))
    else:
        say(sweep_text(found, metric))
    failed = sum(outcome.error is not None for outcome in found.outcomes)
    if failed:
        raise NegativeAnswer(f"{failed} of {len(found.outcomes)} points have an error; the others are complete")


def _write(folder: Path, found: Any, metric: str, name: str) -> None:
    from clustersim.report.sweep_figure import sweep_figure
    from clustersim.report.sweep_page import sweep_page
    from clustersim.study.store import write_atomically

    write_atomically(folder / "sweep.json", to_json(found.to_dict(metric)) + "\n")
    sweep_figure(found, metric, folder / "sweep.png")
    write_atomically(folder / "report.html", sweep_page(found, metric, f"{name}: sweep"))


def _optimum(base: Any, text: str, metric: str, out: str | None, json: bool, talk: Talk, common: dict[str, Any],
             other: bool) -> None:  # fmt: skip
    from clustersim.report.documents import study_cautions
    from clustersim.report.study_text import optimum_text
    from clustersim.study.optimal import optimum
    from clustersim.study.ranges import Range
    from clustersim.study.references import references_of
    from clustersim.study.store import write_atomically

    if other:
        raise InputError(Problem("--optimum", "searches one path; leave out --over, --zip and --points"))
    span = Range.parse(text, "--optimum")
    talk.warn(study_cautions(base, [span.path]))
    found = optimum(base, span, metric=metric, references=references_of(base, span.path), store=out, **common)
    if out is not None:
        write_atomically(Path(out) / "optimum.json", to_json(found.to_dict()) + "\n")
    if json:
        print_json(found.to_dict())
    else:
        say(optimum_text(found))
