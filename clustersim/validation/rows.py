"""Rows of measurement tables: CSV with blank cells, numbers that may be blank, and a name for each."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from clustersim.errors import InputError, Problem

NEEDED = ("n_gpus",)
LARGEST = 64 * 2**20
"""Bytes of the largest table that is read."""


@dataclass(frozen=True)
class Row:
    """One row of a table. Blank cells read as None."""

    cells: Mapping[str, str]
    file: str = ""
    line: int = 0

    def text(self, column: str) -> str | None:
        """The cell as text."""
        value = (self.cells.get(column) or "").strip()
        return value or None

    def number(self, column: str) -> float | None:
        """The cell as a number.

        Raises:
            InputError: the cell holds something else.
        """
        value = self.text(column)
        if value is None:
            return None
        try:
            number = float(value.replace(",", ""))
        except ValueError:
            raise InputError(Problem(column, f"'{value}' is no number", self.file, self.line)) from None
        if number != number or number in (float("inf"), float("-inf")):
            raise InputError(Problem(column, f"'{value}' is not finite", self.file, self.line))
        return number

    def whole(self, column: str) -> int | None:
        """The cell as a whole number.

        Raises:
            InputError: the cell holds something else.
        """
        number = self.number(column)
        if number is None:
            return None
        if number != int(number) or number < 0:
            raise InputError(Problem(column, f"'{self.text(column)}' is no whole number", self.file, self.line))
        return int(number)

    @property
    def row_id(self) -> str:
        """Its own name, else its line."""
        return self.text("row_id") or f"line {self.line}"

    @property
    def source(self) -> str:
        """What defaults are chosen by: source, system, model and note."""
        return " | ".join(self.text(column) or "" for column in ("source", "system", "model_name", "note"))


def parse(text: str, name: str) -> list[Row]:
    """Rows of CSV text; lines count from 1, the heading's."""
    reader = csv.DictReader(io.StringIO(text))
    return [Row({key: value or "" for key, value in cells.items() if key}, name, reader.line_num) for cells in reader]


def packaged(name: str) -> list[Row]:
    """Rows of a table that comes with the package."""
    data = resources.files("clustersim.validation").joinpath("data", f"{name}.csv.gz").read_bytes()
    return parse(gzip.decompress(data).decode(), f"{name}.csv")


def load_file(path: str) -> list[Row]:
    """Rows of a user's table.

    Raises:
        InputError: there is no such file, it is no CSV in UTF-8, too large, or lacks the columns.
    """
    file = Path(path)
    try:
        if file.stat().st_size > LARGEST:
            raise InputError(Problem("", f"is larger than {LARGEST // 2**20} MiB", path))
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(Problem("", "is not UTF-8 text", path)) from None
    except OSError as error:
        raise InputError(Problem("", f"cannot be read: {error.strerror or error}", path)) from None
    try:
        rows = parse(text, path)
    except csv.Error as error:
        raise InputError(Problem("", f"is no CSV: {error}", path)) from None
    if not rows:
        raise InputError(Problem("", "holds no rows (a heading and one line a measurement are needed)", path))
    missing = [column for column in NEEDED if column not in rows[0].cells]
    if missing:
        raise InputError(
            Problem("", f"has no column {', '.join(missing)}; columns are those of the training tables", path, 1)
        )
    return rows
