"""``clustersim results``: put the shards of a study together, check them, export them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clustersim.cli.options import Json, Quiet
from clustersim.cli.talk import Talk, print_json, say
from clustersim.errors import InputError, NegativeAnswer, Problem

if TYPE_CHECKING:
    from clustersim.study.merging import Merged

Folder = Annotated[str, typer.Argument(metavar="DIR", help="The folder given to -o.", show_default=False)]
Export = Annotated[
    str | None,
    typer.Option(
        "--export",
        metavar="FILE",
        show_default=False,
        help="A row a replica, as .csv or .parquet (DuckDB and pandas read both).",
    ),
]


def command(folder: Folder, export: Export = None, json: Json = False, quiet: Quiet = False) -> None:
    """Merge and check the records of a study; write its table once all replicas are there."""
    from clustersim.study.merging import merge

    talk = Talk(quiet)
    merged = merge(folder)
    if export is not None:
        _export(merged, Path(export))
        talk.remark(f"written to {export}")
    if json:
        print_json(merged.to_dict())
    else:
        say(merged.text())
    if merged.conflicts:
        raise NegativeAnswer(
            f"{merged.conflicts} records disagree under one key: they come from different versions of the code"
        )


def _export(merged: Merged, path: Path) -> None:
    from clustersim.study.store import write_atomically

    frame: Any = merged.frame()
    if path.suffix == ".csv":
        write_atomically(path, frame.to_csv(index=False, lineterminator="\n"))
    elif path.suffix == ".parquet":
        part = path.with_name(f".{path.name}.part")
        frame.to_parquet(part, index=False)
        part.replace(path)
    else:
        raise InputError(Problem("--export", f"'{path.name}' must end in .csv or .parquet"))
