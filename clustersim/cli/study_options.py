"""Options that the study commands share, and the making of executors and stopping rules from them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated

import typer

from clustersim.errors import InputError, Problem

if TYPE_CHECKING:
    from clustersim.study.executors import Executor
    from clustersim.study.statistics import Target

Until = Annotated[
    str | None,
    typer.Option("--until", metavar="METRIC=WIDTH", show_default=False,
                 help="Add replicas until the 95 % interval is this narrow: ettr=0.2% (of the mean) or wall_s=3600."),
]  # fmt: skip
Limit = Annotated[int, typer.Option("--limit", min=20, help="Replicas at most with --until.")]
Metric = Annotated[str, typer.Option("--metric", help="What is judged.")]


def executor_of(name: str | None, workers: int | None, address: str | None) -> Executor:
    """The executor that the options ask for; by default a process a core.

    Raises:
        InputError: for an unknown executor, or an address without Dask.
    """
    from clustersim.study.executors import executor

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return executor(name or "auto", workers=workers or cores, address=address)


def target_of(text: str | None) -> Target | None:
    """The stopping rule in ``--until``.

    Raises:
        InputError: saying the form.
    """
    from clustersim.study.statistics import Target

    if text is None:
        return None
    matched = re.fullmatch(r"\s*([A-Za-z_.]+)\s*=\s*([0-9.eE+-]+)\s*(%?)\s*", text)
    try:
        width = float(matched[2]) if matched else 0.0
    except ValueError:
        width = 0.0
    if matched is None or not width > 0:
        raise InputError(Problem("--until", f"'{text}' is no rule; write metric=width, such as ettr=0.2%"))
    return Target(matched[1], width / 100 if matched[3] else width, bool(matched[3]))


def shard_of(text: str | None) -> tuple[int, int] | None:
    """``i/n`` as (i, n), counted from 0.

    Raises:
        InputError: for another form or i outside 0 … n − 1.
    """
    if text is None:
        return None
    matched = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if matched is None or not int(matched[1]) < int(matched[2]):
        raise InputError(Problem("--shard", f"'{text}' must be i/n with 0 <= i < n, such as 0/16 (i counts from 0)"))
    return int(matched[1]), int(matched[2])
