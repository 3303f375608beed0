"""Questions about saving that need no run: short answers with their arithmetic.

What a run tells (an interval against a crash loop, a straggling writer, a save that outlives the watchdog, storage that
other tenants use) is a matter of the scenario's keys; see ``docs/checkpoints.md``.
"""

from __future__ import annotations

import math


def saves_until_full(memory: float, resident: float, leak: float) -> float:
    """How many saves a job survives whose every save leaves ``leak`` bytes behind in host memory; inf: all.

    Args:
        memory: host memory of a node.
        resident: what the job holds after its first save.
        leak: bytes left behind a save.
    """
    if leak <= 0:
        return math.inf
    return max(0, math.floor((memory - resident) / leak))


def crash_interval(saves: float, interval: float) -> float:
    """Training time from a start to the crash by full memory: what to give as the ``mtbf`` of a job failure, constant."""
    return saves * interval


def file_fits(size: float, targets: int, free: float, files: int = 1, stripes: int = 1) -> bool:
    """Whether ``files`` files of ``size`` bytes in all fit on storage targets that have ``free`` bytes each.

    A file lies on ``stripes`` targets in equal parts; files are dealt out in turn. One full target fails the write,
    whatever the sum of all free space says.

    Raises:
        ValueError: more stripes than targets.
    """
    if stripes > targets:
        raise ValueError(f"{stripes} stripes need as many targets, and there are {targets}")
    pieces = math.ceil(files * stripes / targets)
    return pieces * size / files / stripes <= free


def staging_peak(resident: float, copy: float, copies: int = 1) -> float:
    """Host memory at the height of a save that stages ``copies`` copies beside what is resident."""
    return resident + copies * copy


def replay_after(lifetime: float, interval: float, first_save: float | None = None) -> float:
    """Work lost by an attempt that dies after ``lifetime`` of training with free saves every ``interval``, the first
    after ``first_save`` (None: ``interval``)."""
    first = interval if first_save is None else first_save
    if lifetime < first:
        return lifetime
    return (lifetime - first) % interval
