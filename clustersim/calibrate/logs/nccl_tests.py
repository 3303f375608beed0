"""nccl-tests logs: one row a size, times in microseconds, out of place then in place.

Format: https://github.com/NVIDIA/nccl-tests (doc/PERFORMANCE.md): ``size count type redop root time algbw busbw #wrong``
twice; sizes in bytes as nccl-tests counts them, which is also this project's convention.
"""

from __future__ import annotations

import re
from typing import Any

from clustersim.calibrate.records import Measurements
from clustersim.errors import InputError, Problem

OPS = {"all_reduce": "all-reduce", "all_gather": "all-gather", "reduce_scatter": "reduce-scatter",
       "alltoall": "all-to-all", "broadcast": "broadcast", "sendrecv": "send"}  # fmt: skip
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\b.*?\bon\s+(\S+)\s+device\s+\d+\s+\[\S+\]\s*(.*)$")
_ROW = re.compile(r"^\s*\d+\s+\d+\s+\w+\s")


def looks_like(text: str) -> bool:
    """Whether a text is a log of nccl-tests."""
    return "nccl-tests" in text or bool(re.search(r"^#\s+size\s+count\s+type", text, re.MULTILINE))


def parse(text: str, name: str) -> Measurements:
    """The sizes and out-of-place times of one log.

    Raises:
        InputError: no op can be told, no ranks are listed, a result was wrong, or the log ends before its summary.
    """
    op = _op(text, name)
    lines = text.splitlines()
    ranks = [match for match in map(_RANK.match, lines) if match]
    if not ranks:
        raise InputError(Problem("", "lists no ranks ('# Rank 0 … device 0 …'): keep the head of the log", name))
    hosts = {match[2] for match in ranks}
    place = "inside" if len(hosts) == 1 else "across"
    key = {"op": op, "group": len(ranks), "place": place}
    records = [_record(line, number, key, name) for number, line in enumerate(lines, start=1) if _ROW.match(line)]
    if not records:
        raise InputError(Problem("", "holds no rows of times", name))
    if "Avg bus bandwidth" not in text:
        sentence = "ends before '# Avg bus bandwidth': the run did not finish, its last sizes are missing"
        raise InputError(Problem("", sentence, name, len(lines)))
    device = ranks[0][3].strip()
    return Measurements(name, "collective", {"device": {"name": device} if device else {}}, records)


def _op(text: str, name: str) -> str:
    for where in (text, name):
        for word, op in OPS.items():
            if re.search(rf"{word}(_perf)?\b", where):
                return op
    sentence = f"does not say which collective ran; name the file after it ({', '.join(f'{word}.log' for word in OPS)})"
    raise InputError(Problem("", sentence, name))


def _record(line: str, number: int, key: dict[str, Any], name: str) -> dict[str, Any]:
    cells = line.split()
    try:
        numbers = next(i for i in range(3, len(cells)) if re.fullmatch(r"\d+\.\d+|\d+e[-+]\d+", cells[i]))
        size, microseconds, wrong = int(cells[0]), float(cells[numbers]), cells[numbers + 3]
    except (StopIteration, ValueError, IndexError):
        sentence = "this row is cut off: it needs size, type, time, algbw, busbw, #wrong"
        raise InputError(Problem("", sentence, name, number)) from None
    if wrong not in ("0", "N/A"):
        raise InputError(Problem("", f"{wrong} wrong values: results of a broken run are not fitted", name, number))
    return {"key": {**key, "bytes": size}, "median_s": microseconds * 1e-6}
