"""`clustersim init`."""

from __future__ import annotations

from typing import Annotated

import typer

from clustersim.cli.options import Json, Quiet
from clustersim.cli.talk import Talk, print_json, say


def command(
    path: Annotated[str, typer.Argument(metavar="PATH", help="File to write; `-` prints it.")] = "scenario.yaml",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented scenario that runs as it is. An existing file is left alone."""
    from pathlib import Path

    from clustersim.errors import InputError, Problem
    from clustersim.scenario.starter import starter_text

    text = starter_text()
    if path == "-":
        if json:
            print_json({"file": None, "scenario": text})
        else:
            say(text, end="")
        return
    target = Path(path)
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(Problem("", "exists already and is left alone; name another file").at(path)) from None
    except FileNotFoundError:
        raise InputError(Problem("", f"there is no folder '{target.parent}'").at(path)) from None
    if json:
        print_json({"file": path, "scenario": text})
    Talk(quiet).remark(f"wrote {path}; next: clustersim run {path}")
