"""`clustersim check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from clustersim.cli.options import Json, Quiet, Scenarios, Set
from clustersim.cli.talk import say

if TYPE_CHECKING:
    from clustersim.scenario.schema import Scenario


def command(scenarios: Scenarios, set_: Set = None, json: Json = False, quiet: Quiet = False) -> None:
    """Find every mistake in scenarios, and say whether they fit in memory. Simulates nothing."""
    from clustersim.cli.talk import Talk, print_json

    results = [_checked(name, set_ or []) for name in scenarios]
    if json:
        print_json({"scenarios": results})
    for result in results:
        for line in result["problems"]:
            say(line["text"], err=True)
        Talk(quiet).warn(result["warnings"])
        if not result["problems"] and not json and not quiet:
            say(f"{result['file']}: ok: {result['about']}")
    code = max((result["exit_code"] for result in results), default=0)
    if code:
        raise typer.Exit(code)


def _checked(name: str, overrides: list[str]) -> dict[str, Any]:
    from clustersim.errors import KeyedError
    from clustersim.scenario.load import load

    result: dict[str, Any] = {"file": name, "exit_code": 0, "about": None, "problems": [], "warnings": []}
    try:
        scenario = load(name, overrides)
        result["about"], result["warnings"] = _about(scenario)
    except KeyedError as error:
        result["exit_code"] = error.exit_code
        placed = [item if item.file is not None else item.at(name) for item in error.problems]
        result["problems"] = [
            {"file": item.file, "line": item.line, "column": item.column, "path": item.path, "message": item.message,
             "text": str(item)}
            for item in placed
        ]  # fmt: skip
    return result


def _about(scenario: Scenario) -> tuple[str, list[str]]:
    """The sizes that follow from the scenario, and how full the fullest GPU is; and what can hardly be meant.

    Raises:
        InputError: a key is wrong, which shows only in the step or as the run is set up.
        ImpossibleError: a stage needs more memory than a GPU has, or the run cannot be set up.
    """
    from clustersim.run.cautions import cautions
    from clustersim.run.prepared import Prepared
    from clustersim.scenario.places import places_of, told
    from clustersim.study.step import fitting_step

    layout = scenario.parallelism
    sizes = (f"{scenario.model.name}, {scenario.cluster.gpus:,} GPUs = tp {layout.tp} × pp {layout.pp} × cp {layout.cp} × "
             f"dp {scenario.dp}, {scenario.microbatches} microbatches")  # fmt: skip
    report = fitting_step(scenario)
    with places_of(scenario):
        prepared = Prepared(scenario)
    memory, gib = report.memory, 2.0**30
    text = f"{sizes}; the fullest GPU holds {memory['peak_bytes'] / gib:.1f} of {memory['limit_bytes'] / gib:.1f} GiB"
    return text, [*map(str, report.cautions), *told(cautions(prepared), scenario.origin)]
