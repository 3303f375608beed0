"""Logs that say how long checkpoints took, and Lustre client counters.

*Checkpoint logs*: torchtitan's lines around torch.distributed.checkpoint (``Finished saving the checkpoint (or staging
if async is enabled)in 1.23 seconds.``, ``Finished loading the checkpoint in 4.56 seconds.``). They do not say how many
bytes: a line ``# bytes: 12 GiB`` (of all ranks together) must be added.

*Lustre*: ``lctl get_param llite.*.stats``, at least twice; each snapshot has ``snapshot_time`` and the rows ``read_bytes``
and ``write_bytes`` (``name samples [bytes] min max sum``: Lustre manual, "llite stats").
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from clustersim.calibrate.records import Measurements
from clustersim.errors import InputError, Problem
from clustersim.units import SIZE

_DONE = re.compile(
    r"Finished (saving|loading) the checkpoint\s*(\(or staging if async is enabled\))?\s*in ([0-9.]+) seconds"
)
_BYTES = re.compile(r"^#\s*bytes:\s*(.+)$", re.MULTILINE)
_TIME = re.compile(r"^snapshot_time:?\s+([0-9.]+)")
_COUNT = re.compile(r"^(read|write)_bytes\s+\d+\s+samples\s+\[bytes\]\s+\d+\s+\d+\s+(\d+)")


def looks_like_checkpoints(text: str) -> bool:
    """Whether a text has torchtitan's lines about checkpoints."""
    return "the checkpoint" in text and ("Finished saving" in text or "Finished loading" in text or "Saving the" in text)


def looks_like_lustre(text: str) -> bool:
    """Whether a text has Lustre's counters."""
    return "snapshot_time" in text


def parse_checkpoints(text: str, name: str) -> Measurements:
    """Seconds of every save and load in a log.

    Raises:
        InputError: nothing finished, or the size is missing.
    """
    size = _BYTES.search(text)
    if size is None:
        raise InputError(Problem("", "says no size: add a line '# bytes: 12 GiB' (all ranks together)", name))
    try:
        total = SIZE.parse(size[1])
    except ValueError as error:
        raise InputError(Problem("", str(error), name)) from None
    records: list[dict[str, Any]] = []
    for match in _DONE.finditer(text):
        op = {"loading": "checkpoint-load", "saving": "checkpoint-save"}[match[1]]
        records.append({"key": {"op": op, "bytes": total, "index": len(records)}, "median_s": float(match[3])})
    if not records:
        raise InputError(Problem("", "no checkpoint finished in this log ('Finished saving the checkpoint … seconds')", name))
    for record in records:
        record["key"].pop("index")
    return Measurements(name, "checkpoint", {}, records)


def parse_lustre(text: str, name: str) -> Measurements:
    """Bytes and seconds between snapshots of a client's counters.

    Raises:
        InputError: fewer than two snapshots, a clock that runs backwards, or no bytes between any two.
    """
    snapshots: list[tuple[float, dict[str, int]]] = []
    for line in text.splitlines():
        moment, count = _TIME.match(line.strip()), _COUNT.match(line.strip())
        if moment:
            snapshots.append((float(moment[1]), {}))
        elif count and snapshots:
            snapshots[-1][1][count[1]] = int(count[2])
    if len(snapshots) < 2:
        raise InputError(Problem("", f"holds {len(snapshots)} snapshot of the counters; a rate needs two", name))
    records: list[dict[str, Any]] = []
    for (start, before), (end, after) in itertools.pairwise(snapshots):
        if end <= start:
            raise InputError(Problem("", f"snapshot_time goes from {start} to {end}: not two snapshots in order", name))
        for op in ("read", "write"):
            moved = after.get(op, 0) - before.get(op, 0)
            if moved > 0:
                records.append({"key": {"op": f"storage-{op}", "from": "lustre", "bytes": moved}, "median_s": end - start})
    if not records:
        raise InputError(Problem("", "no bytes were read or written between the snapshots", name))
    return Measurements(name, "storage", {}, records)
