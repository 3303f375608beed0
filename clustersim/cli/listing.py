"""`clustersim list KIND`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clustersim.cli.options import Json, Verbose
from clustersim.cli.talk import say

if TYPE_CHECKING:
    from clustersim.scenario.catalogue import Entry


def command(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="gpus, nodes, models, schedules, …; none: all kinds.")
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="NAME", help="This one alone, with all its values.")
    ] = None,
    job: Annotated[
        str | None, typer.Option("--for", metavar="SCENARIO", help="Engines alone: what each would do in this job.")
    ] = None,
    json: Json = False,
    verbose: Verbose = 0,
) -> None:
    """Show what may be named in a scenario: presets with the source of each value, and parts with their keys."""
    from clustersim.cli.scenarios import import_plugins
    from clustersim.cli.talk import print_json
    from clustersim.scenario import catalogue

    import_plugins()
    if kind is None:
        about = {name: line for name, (_, _, line) in catalogue.KINDS.items()}
        print_json(about) if json else _columns(list(about.items()))
        return
    found = catalogue.entries(kind)
    if job is not None:
        _engines(job, kind, only, json)
        return
    if only is not None:
        found, verbose = _only(found, only, kind), max(verbose, 1)
    if json:
        print_json([entry.to_dict() for entry in found])
    elif verbose:
        for entry in found:
            _show(entry)
    else:
        _columns([(entry.name, entry.about) for entry in found])
        if kind == "engines":
            say("Stall, durable lag, memory and interval of each for your job: clustersim list engines --for JOB.yaml")


def _engines(job: str, kind: str, only: str | None, json: bool) -> None:
    """What engines would do in a job, in numbers."""
    from clustersim.cli.scenarios import load_all
    from clustersim.cli.talk import print_json
    from clustersim.errors import InputError, Problem
    from clustersim.report.engines import engines_text, every_engine
    from clustersim.scenario import catalogue

    if kind != "engines":
        raise InputError(Problem("--for", f"tells of engines (clustersim list engines --for {job}), not of {kind}"))
    names = None if only is None else {entry.name for entry in _only(catalogue.entries(kind), only, kind)}
    told = [document for document in every_engine(load_all([job], None)[0]) if names is None or document["engine"] in names]
    if json:
        print_json(told)
    else:
        say(engines_text([document["engine"] for document in told], told))


def _only(found: list[Entry], name: str, kind: str) -> list[Entry]:
    from clustersim.errors import InputError, Problem, nearest

    chosen = [entry for entry in found if entry.name == name or name in entry.aliases]
    if not chosen:
        raise InputError(Problem("", f"there is no '{name}' among the {kind}{nearest(name, [e.name for e in found])}"))
    return chosen


def _columns(rows: list[tuple[str, str]]) -> None:
    """Names and one line each, cut to the width of a terminal (whole where the output is no terminal)."""
    import shutil
    import sys

    width = max((len(name) for name, _ in rows), default=0)
    room = shutil.get_terminal_size((80, 24)).columns - width - 2
    for name, line in rows:
        cut = line if not sys.stdout.isatty() or len(line) <= room else f"{line[: max(10, room - 1)]}…"
        say(f"{name:<{width}}  {cut}")


def _show(entry: Entry) -> None:
    aliases = f" (also {', '.join(entry.aliases)})" if entry.aliases else ""
    say(f"{entry.name}{aliases}\n  {entry.about}")
    for note in filter(None, entry.notes.split("\n")):
        say(f"  {note}")
    for key, value in entry.values.items():
        say(f"    {key}: {_short(value)}")
    for key, about in entry.keys.items():
        say(f"    {key}: {'(required)' if about['required'] else _short(about['default'])}")
    for key, source in entry.sources.items():
        say(f"    source of {key}: {source}")
    say("")


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_short(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_short(item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)
