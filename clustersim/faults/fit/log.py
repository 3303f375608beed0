"""A fault log: which node was down from when to when, seen through a window.

Columns of the CSV (any order, further ones are kept out):

=============== ========= ==============================================================================
column          needed    meaning
=============== ========= ==============================================================================
``node``        yes       name of the node
``start``       yes       when it went down; also ``start_s``, ``start_h``, ``start_d`` (a number since the
                          window's begin), or an ISO 8601 time under ``start``
``end``         yes       when it was back; likewise; empty = still down when the window closed
``class``       no        what was wrong (``GPU``, ``NIC`` …)
=============== ========= ==============================================================================

Rows whose node has a fault with the same or an overlapping down time are kept: they are further faults.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from clustersim.errors import InputError, Problem, nearest
from clustersim.faults.fit.families import Array

_SUFFIX = {"_s": 1.0, "_min": 60.0, "_h": 3600.0, "_d": 86400.0}
MAXIMUM_BYTES = 512 * 2**20


@dataclass(frozen=True)
class FaultLog:
    """Faults of a fleet, sorted by start (ties keep the order of the file).

    Attributes:
        nodes: names, index = number used in ``node``; those without a fault are not named.
        node: index of the node of each fault, shape ``(n,)``.
        start_s: seconds since the window's begin.
        end_s: likewise; infinity where the node was still down when the window closed.
        classes: what was wrong, "" where the log does not say.
        window_s: length of the window in seconds.
        population: nodes that were watched, those without a fault included.
        resolution_s: times of the log are multiples of this, 0 if they look continuous.
    """

    nodes: tuple[str, ...]
    node: np.ndarray
    start_s: Array
    end_s: Array
    classes: tuple[str, ...]
    window_s: float
    population: int
    resolution_s: float = 0.0

    @classmethod
    def of(cls, names: Sequence[str], start_s: Sequence[float] | Array, end_s: Sequence[float] | Array,
           classes: Sequence[str] = (), *, window_s: float, population: int | None = None) -> FaultLog:  # fmt: skip
        """A log from columns; sorts them, and numbers the nodes by first appearance."""
        starts, ends = np.asarray(start_s, dtype=np.float64), np.asarray(end_s, dtype=np.float64)
        order = np.argsort(starts, kind="stable")
        index: dict[str, int] = {}
        node = np.array([index.setdefault(names[row], len(index)) for row in order], dtype=np.int64)
        labels = tuple(classes[row] for row in order) if len(classes) else ("",) * len(starts)
        size = max(population or len(index), len(index))
        return cls(tuple(index), node, starts[order], ends[order], labels, float(window_s), size)

    def __len__(self) -> int:
        return len(self.node)

    @property
    def closed(self) -> np.ndarray:
        """True where the end of the down time was seen."""
        closed: np.ndarray = self.end_s <= self.window_s * (1 + 1e-12)
        return closed

    @property
    def down_s(self) -> Array:
        """Down time of each fault, cut at the window's end."""
        return np.minimum(self.end_s, self.window_s) - self.start_s


def read_log(path: str | Path, *, population: int | None = None, window_s: float | None = None) -> FaultLog:
    """The fault log in a CSV file, or in pipe-separated ``sacct`` output (told apart by the header).

    Args:
        path: the file.
        population: nodes watched; default: as many as the log names, which overstates the rate if others had no fault.
        window_s: length of the window; default: up to the last time in the file.

    Raises:
        InputError: listing every row that cannot be read.
    """
    file = Path(path)
    rows, columns = _rows(file)
    if "JobID" in columns or "JobIDRaw" in columns:
        from clustersim.faults.fit.sacct import log_of_jobs

        return log_of_jobs(rows, columns, str(file), population=population, window_s=window_s)
    return _log_of_rows(rows, columns, str(file), population, window_s)


def _rows(file: Path) -> tuple[list[dict[str, str]], list[str]]:
    if not file.is_file():
        raise InputError(Problem("", "there is no such file" if not file.exists() else "is not a file", file=str(file)))
    if file.stat().st_size > MAXIMUM_BYTES:
        raise InputError(Problem("", f"is larger than {MAXIMUM_BYTES // 2**20} MiB", file=str(file)))
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(Problem("", f"is not UTF-8 text (byte {error.start})", file=str(file))) from None
    header = text.split("\n", 1)[0]
    reader = csv.DictReader(text.splitlines(), delimiter="|" if "|" in header else ",", strict=False)
    rows = [{key: (value or "") for key, value in row.items() if key is not None} for row in reader]
    columns = [name.strip() for name in (reader.fieldnames or [])]
    if not rows:
        raise InputError(Problem("", "holds no rows; needs a header and a row a fault", file=str(file)))
    return rows, columns


def _log_of_rows(rows: list[dict[str, str]], columns: list[str], file: str, population: int | None,
                 window_s: float | None) -> FaultLog:  # fmt: skip
    _need(columns, file)
    problems: list[Problem] = []
    starts = _times(rows, columns, "start", file, problems)
    ends = _times(rows, columns, "end", file, problems)
    origin = 0.0
    if _column(columns, "start") == "start":  # calendar times: the window begins with the first fault
        origin = min((value for value in starts if math.isfinite(value)), default=0.0)
    for line, (begin, end) in enumerate(zip(starts, ends, strict=True), start=2):
        if end < begin:
            problems.append(Problem("end", f"ends {begin - end:.6g} s before its start", file, line))
    if problems:
        raise InputError(problems)
    begins, until = np.array(starts) - origin, np.array(ends) - origin
    seen = np.concatenate([begins, until[np.isfinite(until)]])
    window = float(seen.max()) if window_s is None else window_s
    if window <= 0:
        raise InputError(Problem("end", "every fault is at one instant: the log watches no time", file))
    if begins.min() < 0 or begins.max() > window:
        raise InputError(Problem("start", f"lies outside of the window of {window:.6g} s", file))
    log = FaultLog.of([row["node"] for row in rows], begins, until, [row.get("class", "") for row in rows],
                      window_s=window, population=population)  # fmt: skip
    return replace(log, resolution_s=resolution(seen))


def _need(columns: list[str], file: str) -> None:
    problems = []
    for name in ("node", "start", "end"):
        if name != "node" and _column(columns, name):
            continue
        if name not in columns:
            hint = nearest(name, columns)
            problems.append(Problem(name, f"column is missing{hint}; has: {', '.join(columns)}", file, 1))
    if problems:
        raise InputError(problems)


def _column(columns: Sequence[str], name: str) -> str | None:
    return next((name + suffix for suffix in ("", *_SUFFIX) if name + suffix in columns), None)


def _times(rows: list[dict[str, str]], columns: list[str], name: str, file: str, problems: list[Problem]) -> list[float]:
    column = _column(columns, name)
    assert column is not None
    factor = _SUFFIX.get(column.removeprefix(name), 0.0)
    values = []
    for line, row in enumerate(rows, start=2):
        text = row[column].strip()
        if not text and name == "end":
            values.append(math.inf)
            continue
        try:
            value = float(text) * factor if factor else timestamp(text)
        except ValueError:
            value = math.nan
        if math.isnan(value) or (math.isinf(value) and name == "start"):
            example = "a number" if factor else "an ISO 8601 time such as 2024-03-30T12:00:00"
            problems.append(Problem(column, f"'{text}' is not {example}", file, line))
            value = math.inf if name == "end" else 0.0
        values.append(value)
    return values


def timestamp(text: str) -> float:
    """Seconds since 1970 of an ISO 8601 time; without a zone it is taken as UTC.

    Raises:
        ValueError: when the text is no such time.
    """
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def resolution(times_s: Array) -> float:
    """The coarsest of some usual steps that every time is a multiple of; 0 if none."""
    for step in (86400.0, 3600.0, 60.0, 8.64, 1.0):  # 8.64 s: four decimals of a day
        if np.all(np.abs(times_s / step - np.round(times_s / step)) < 1e-4):
            return step
    return 0.0


def counts(labels: Sequence[str]) -> Mapping[str, int]:
    """How often each label occurs, the most frequent first (ties by name)."""
    found: dict[str, int] = {}
    for label in labels:
        found[label] = found.get(label, 0) + 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
