"""Node faults from Slurm accounting: ``sacct -a -X -P -o JobID,State,Start,End,NodeList,FailedNode``.

A job that ended in ``NODE_FAIL`` names the node that failed (``FailedNode``; with one node in ``NodeList``, that one). Slurm
does not say when the node was back: the end of a fault is taken as the start of the next job that ran on the node, which
overstates the down time of idle nodes, and is left open when no such job follows. Job steps (``123.batch``) are left out.
"""

from __future__ import annotations

import re

from clustersim.errors import InputError, Problem
from clustersim.faults.fit.log import FaultLog, timestamp

FAULT_STATES = ("NODE_FAIL",)
_UNKNOWN = ("", "Unknown", "None", "None assigned", "N/A")


def log_of_jobs(rows: list[dict[str, str]], columns: list[str], file: str, *, population: int | None = None,
                window_s: float | None = None) -> FaultLog:  # fmt: skip
    """The fault log behind rows of ``sacct`` output.

    Raises:
        InputError: when a column is missing, a time cannot be read, or no job ended in NODE_FAIL.
    """
    _need(columns, file)
    jobs, problems = [], []
    for line, row in enumerate(rows, start=2):
        if "." in row.get("JobID", row.get("JobIDRaw", "")) or row["Start"].strip() in _UNKNOWN:
            continue
        try:
            end = None if row["End"].strip() in _UNKNOWN else timestamp(row["End"].strip())
            jobs.append((timestamp(row["Start"].strip()), end, line, row))
        except ValueError:
            problems.append(Problem("Start", f"'{row['Start']}' or '{row['End']}' is not an ISO 8601 time", file, line))
    if problems:
        raise InputError(problems)
    if not jobs:
        raise InputError(Problem("", "holds no job that started", file))
    return _faults(sorted(jobs, key=lambda job: job[0]), file, population, window_s)


def _need(columns: list[str], file: str) -> None:
    missing = [name for name in ("State", "Start", "End", "NodeList") if name not in columns]
    if missing:
        raise InputError([Problem(name, "column is missing: ask sacct for it with -o", file, 1) for name in missing])


def _faults(jobs: list[tuple[float, float | None, int, dict[str, str]]], file: str, population: int | None,
            window_s: float | None) -> FaultLog:  # fmt: skip
    begin = jobs[0][0]
    last = max(end if end is not None else start for start, end, _, _ in jobs)
    starts_on: dict[str, list[float]] = {}
    for start, _, _, row in jobs:
        for node in hostlist(row["NodeList"]):
            starts_on.setdefault(node, []).append(start)
    names, starts, ends, problems = [], [], [], []
    for _, end, line, row in jobs:
        if row["State"].split(" ")[0] not in FAULT_STATES or end is None:
            continue
        failed = hostlist(row.get("FailedNode", "")) or hostlist(row["NodeList"])
        if len(failed) != 1 and not row.get("FailedNode", "").strip():
            problems.append(Problem("FailedNode", f"one of {len(failed)} nodes failed; ask sacct for FailedNode", file, line))
            continue
        for node in failed:
            later = [start for start in starts_on.get(node, ()) if start >= end]
            names.append(node)
            starts.append(end - begin)
            ends.append(min(later) - begin if later else float("inf"))
    if problems:
        raise InputError(problems)
    if not names:
        raise InputError(Problem("State", f"no job ended in {' or '.join(FAULT_STATES)}", file))
    size = population if population is not None else len(starts_on)
    return FaultLog.of(names, starts, ends, ["NODE_FAIL"] * len(names), window_s=window_s or last - begin, population=size)


def hostlist(text: str) -> list[str]:
    """Names of a Slurm host list: ``gpu[001-003,7],cpu1`` → gpu001 gpu002 gpu003 gpu7 cpu1."""
    text = text.strip()
    if text in _UNKNOWN:
        return []
    names = []
    for item in re.findall(r"[^,\[\]]+(?:\[[^\]]*\][^,\[\]]*)*", text):
        names += _expand(item)
    return names


def _expand(item: str) -> list[str]:
    match = re.search(r"\[([^\]]*)\]", item)
    if match is None:
        return [item]
    head, tail = item[: match.start()], item[match.end() :]
    names = []
    for part in match.group(1).split(","):
        low, _, high = part.partition("-")
        numbers = [low] if not high else [str(n).zfill(len(low)) for n in range(int(low), int(high) + 1)]
        for number in numbers:
            names += _expand(head + number + tail)
    return names
