"""Options that several commands share, as annotations; one place for their names and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersim.errors import InputError, Problem

Scenarios = Annotated[
    list[str], typer.Argument(metavar="SCENARIO", help="YAML files; `-` reads standard input.", show_default=False)
]
ScenarioFile = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A YAML file; `-` reads standard input.", show_default=False)
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", show_default=False,
                 help="Change one value, read as YAML: checkpoint.interval=20min. Repeatable."),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Nothing but one JSON document on standard output.")]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, show_default=False, help="Seed of all random numbers; default: the scenario's."),
]
Replicas = Annotated[
    int | None, typer.Option("--replicas", min=1, show_default=False, help="Runs to simulate; default: the scenario's.")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, show_default=False,
                 help="Processes; default: as many as pay. Results are the same for any number."),
]  # fmt: skip
ExecutorName = Annotated[
    str | None, typer.Option("--executor", metavar="NAME", show_default=False, help="serial, processes or dask.")
]
Address = Annotated[
    str | None, typer.Option("--address", metavar="tcp://…", show_default=False, help="A running Dask scheduler.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks.")]
Verbose = Annotated[int, typer.Option("--verbose", "-v", count=True, help="Say more; twice: still more.")]


def _named(folder: str | None) -> str | None:
    """Refuse an empty name (a shell variable that is not set), which would mean the working folder, and what cannot become a
    folder since a file stands there: before anything runs."""
    if folder is None:
        return None
    if not folder.strip():
        raise typer.BadParameter("the name of a folder is empty; '.' is the working folder")
    path = Path(folder)
    found = next((place for place in (path, *path.parents) if place.exists()), None)
    if found is not None and not found.is_dir():
        told = "is a file; -o needs the name of a folder" if found == path else "cannot be written to: Not a directory"
        raise InputError(Problem("", told).at(folder))
    return folder


OutDir = Annotated[
    str | None,
    typer.Option("--out", "-o", metavar="DIR", show_default=False, callback=_named,
                 help="Also write all results into a folder."),
]  # fmt: skip
