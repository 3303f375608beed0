"""Axes of a sweep: ``path=values`` on the command line, mappings in Python, rows of a CSV.

Values are a list (``1 min,5 min,20 min``), a range (``0..64:8`` by steps of 8, ``1..8``), points spread evenly
(``0 s..2 h:lin9``) or by equal factors (``1 min..2 h:log9``). Several axes multiply; zipped axes advance together.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clustersim.errors import InputError, Problem
from clustersim.units import BANDWIDTH, DURATION, JOULE, SIZE, SPEED, WATT, WORK, Dimension

Point = dict[str, Any]
Axis = tuple[str, list[Any]]
LARGEST_GRID = 1_000_000

_RANGE = re.compile(r"^(?P<low>.+?)\.\.(?P<high>.+?)(?::(?P<how>log|lin)?(?P<number>[^:]+))?$")
_DIMENSIONS: tuple[Dimension, ...] = (DURATION, SIZE, BANDWIDTH, WORK, SPEED, WATT, JOULE)


def _problem(option: str, text: str) -> InputError:
    return InputError(Problem(option, text))


def yaml_value(text: str) -> Any:
    """``text`` read as YAML, so that ``3``, ``true``, ``null`` and ``{kind: async}`` mean what they mean in a file."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ValueError(f"'{text}' is no YAML value ({str(error).splitlines()[0]})") from None


def split_top_level(text: str) -> list[str]:
    """Split at commas that stand outside brackets, braces and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for place, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "[{(":
            depth += 1
        elif char in "]})":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in (*parts, text[start:])]


def parse_axis(text: str, option: str = "--over") -> Axis:
    """``path=values`` as a path and its list of values.

    Raises:
        InputError: no ``=``, an empty list, a range that runs nowhere, values that are no YAML.
    """
    path, equals, values = text.partition("=")
    if not equals or not path.strip():
        raise _problem(
            option, f"'{text}' is no axis; write path=values, such as checkpoint.interval='1 min,5 min,20 min'"
        )
    try:
        expanded = list(_expand(values.strip()))
    except ValueError as error:
        raise _problem(f"{option} {path.strip()}", str(error)) from None
    if len({repr(value) for value in expanded}) != len(expanded):
        raise _problem(f"{option} {path.strip()}", "names the same value twice")
    return path.strip(), expanded


def _expand(values: str) -> Iterable[Any]:
    for part in split_top_level(values):
        if not part:
            raise ValueError("has an empty value; write values separated by single commas")
        matched = _RANGE.match(part)
        if matched:
            yield from _range(matched["low"].strip(), matched["high"].strip(), matched["how"], matched["number"])
        else:
            yield yaml_value(part)


def _range(low: str, high: str, how: str | None, number: str | None) -> list[Any]:
    dimension, start = _quantity(low)
    other, stop = _quantity(high)
    if dimension is not other:
        raise ValueError(f"'{low}' and '{high}' are of different kinds")
    if how:
        values = _spread(start, stop, how, number or "")
    else:
        if number is None and dimension is not None:
            raise ValueError(f"'{low}..{high}' needs a step or a number of points, such as '{low}..{high}:log9'")
        step_of, step = _quantity(number) if number else (dimension, 1.0)
        if step_of is not dimension:
            raise ValueError(f"the step '{number}' is of another kind than '{low}'")
        values = _steps(start, stop, step)
    if dimension is not None:
        return [dimension.format(float(f"{value:.12g}")) for value in values]
    whole = all(value == int(value) for value in values)
    return [int(value) if whole else float(f"{value:.12g}") for value in values]


def _spread(start: float, stop: float, how: str, number: str) -> list[float]:
    if not number.isdigit() or int(number) < 2:
        raise ValueError(f"'{how}{number}' must say how many points, at least 2, such as '{how}9'")
    if how == "log" and (start <= 0 or stop <= 0):
        raise ValueError("a log range needs both ends greater than 0")
    count = int(number)
    if count > LARGEST_GRID:
        raise ValueError(f"{count} points are more than {LARGEST_GRID}")
    shares = [k / (count - 1) for k in range(count)]
    if how == "lin":
        inner = [start + (stop - start) * share for share in shares]
    else:
        inner = [start * (stop / start) ** share for share in shares]
    return [start, *(float(f"{value:.4g}") for value in inner[1:-1]), stop]  # digits that a person would write


def _steps(start: float, stop: float, step: float) -> list[float]:
    if step <= 0 or stop < start:
        raise ValueError("a range runs upwards: low..high with a step greater than 0")
    count = math.floor((stop - start) / step + 1e-9) + 1
    if count > LARGEST_GRID:
        raise ValueError(f"{count} points are more than {LARGEST_GRID}")
    return [start + k * step for k in range(count)]


def _quantity(text: str) -> tuple[Dimension | None, float]:
    """A bare number (no dimension) or a quantity of the first dimension that knows its unit."""
    try:
        number: float | None = float(text)
    except ValueError:
        number = None
    if number is not None:
        if not math.isfinite(number):
            raise ValueError(f"'{text}' is not a finite number")
        return None, number
    for dimension in _DIMENSIONS:
        try:
            return dimension, dimension.parse(text)
        except ValueError:
            continue
    raise ValueError(f"'{text}' is neither a number nor a quantity with a unit")


def grid(axes: Sequence[Axis], zipped: Sequence[Axis] = ()) -> list[Point]:
    """Every combination of ``axes``; ``zipped`` axes together count as one.

    Raises:
        InputError: an axis named twice, zipped axes of different lengths, too large a grid.
    """
    names = [path for path, _ in (*axes, *zipped)]
    for path in names:
        if names.count(path) > 1:
            raise _problem(f"--over {path}", "is given twice")
    lengths = {len(values) for _, values in zipped}
    if len(lengths) > 1:
        shown = ", ".join(f"{path} has {len(values)}" for path, values in zipped)
        raise _problem("--zip", f"zipped axes must have the same number of values: {shown}")
    blocks: list[list[Point]] = [[{path: value} for value in values] for path, values in axes]
    if zipped:
        blocks.append([{path: values[k] for path, values in zipped} for k in range(lengths.pop())])
    if math.prod(len(block) for block in blocks) > LARGEST_GRID:
        raise _problem("--over", f"the grid has more than {LARGEST_GRID} points")
    return [{key: value for part in combination for key, value in part.items()}
            for combination in itertools.product(*blocks)]  # fmt: skip


def points_from_csv(path: Path) -> list[Point]:
    """One point a row; the header names the paths; cells are YAML values, empty cells leave the scenario's value.

    Raises:
        InputError: with file, line and column.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except UnicodeDecodeError as error:
        raise InputError(Problem("--points", f"byte {error.start} is no UTF-8; save it as UTF-8", str(path))) from None
    except (OSError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(Problem("--points", f"cannot be read: {reason}", str(path))) from None
    if len(rows) < 2:
        raise InputError(Problem("--points", "needs a header of paths and at least one row", str(path), 1))
    header = [name.strip() for name in rows[0]]
    for column, name in enumerate(header, start=1):
        if not name or header.index(name) + 1 < column:
            told = f"'{name}' heads two columns" if name else "names no path of keys, such as checkpoint.interval"
            raise InputError(Problem("--points", told, str(path), 1, column))
    points = []
    for line, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise InputError(Problem("--points", f"has {len(row)} cells, the header {len(header)}", str(path), line))
        points.append(_point(header, row, path, line))
    return points


def _point(header: list[str], row: list[str], path: Path, line: int) -> Point:
    point: Point = {}
    for column, (name, cell) in enumerate(zip(header, row, strict=True), start=1):
        if cell.strip():
            try:
                point[name] = yaml_value(cell.strip())
            except ValueError as error:
                raise InputError(Problem(name, str(error), str(path), line, column)) from None
    return point


def points_of(
    over: Mapping[str, Iterable[Any]] | None, zipped: Mapping[str, Iterable[Any]] | None = None
) -> list[Point]:
    """The grid of Python mappings (``{"checkpoint.interval": ["1 min", "5 min"]}``)."""
    return grid([(path, list(values)) for path, values in (over or {}).items()],
                [(path, list(values)) for path, values in (zipped or {}).items()])  # fmt: skip
