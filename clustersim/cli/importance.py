"""``clustersim importance``: which inputs matter, and how much of the spread is luck."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from clustersim.cli.options import Address, ExecutorName, Json, Quiet, ScenarioFile, Seed, Set, Workers
from clustersim.cli.study_options import Metric, executor_of
from clustersim.cli.talk import Talk, print_json, say

Ranges = Annotated[
    list[str],
    typer.Option("--range", metavar="PATH=LOW..HIGH[:SHAPE]", show_default=False,
                 help="An uncertain input; shapes: uniform, log, normal, log-normal, triangular. Repeatable."),
]  # fmt: skip
Method = Annotated[
    Literal["spread", "sobol", "morris"],
    typer.Option(
        "--method", help="spread: luck against ignorance; sobol: shares of variance; morris: cheap screening."
    ),
]


def command(
    scenario: ScenarioFile,
    ranges: Ranges,
    method: Method = "spread",
    metric: Metric = "goodput_tokens_per_s",
    draws: Annotated[
        int, typer.Option("--draws", min=2, help="Scenarios drawn (spread), base (sobol), paths (morris).")
    ] = 32,
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="Replicas of each.")] = 4,
    sets: Set = None,
    seed: Seed = None,
    workers: Workers = None,
    executor: ExecutorName = None,
    address: Address = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Carry uncertain inputs to the answer, or rank inputs by how much they matter."""
    from clustersim.cli.scenarios import load_one
    from clustersim.study import importance
    from clustersim.study.ranges import Range
    from clustersim.study.runner import require_metric

    require_metric("--metric", metric)
    spans = [Range.parse(text) for text in ranges]
    base = load_one(scenario, sets)
    with Talk(quiet).progress("replicas") as progress:
        common: dict[str, Any] = {"metric": metric, "replicas": replicas, "seed": seed, "progress": progress,
                                  "executor": executor_of(executor, workers, address)}  # fmt: skip
        found: Any
        if method == "spread":
            found = importance.spread(base, spans, draws=draws, **common)
        elif method == "sobol":
            found = importance.sobol(base, spans, base=draws, **common)
        else:
            found = importance.morris(base, spans, paths=draws, **common)
    if json:
        print_json(found.to_dict())
    else:
        from clustersim.report.study_text import importance_text, spread_text

        say(spread_text(found) if method == "spread" else importance_text(found))
