"""What a report tells of the replicas beyond their metrics: gathered one replica after another.

Of the first replica everything is kept (its course is drawn); of the others only curves, counts and times by cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

    from clustersim.run.result import RunResult

CURVES = 64
"""Replicas whose progress is kept as a curve."""


class Row(NamedTuple):
    """One event as a report reads it; ``None`` where a column does not apply."""

    time_s: float
    event: str
    subject: str
    step: int | None
    place: int | None
    seconds: float | None
    node: int | None = None


@dataclass
class Cause:
    """Totals of one cause of failures over all replicas."""

    strikes: int = 0
    down_s: float = 0.0
    """From the failures that stopped training to the next resumption."""
    lost_steps: int = 0
    """Steps done again."""


@dataclass
class Story:
    """Gathers replicas; see the module.

    Attributes:
        rows: the event log of the first replica.
        wall_s: wall time of the first replica.
        curves: of each replica (times in seconds, steps kept) at which progress bends.
        causes: totals by cause.
        down_s: seconds with so many nodes down, over all replicas.
        saves, durable: saves begun, and those that became durable (on the tier that most saves reach).
        metrics: of each replica its goodput and wall time.
    """

    rows: list[Row] = field(default_factory=list)
    wall_s: float = 0.0
    replicas: int = 0
    curves: list[tuple[list[float], list[float]]] = field(default_factory=list)
    causes: dict[str, Cause] = field(default_factory=dict)
    down_s: dict[int, float] = field(default_factory=dict)
    saves: int = 0
    durable: int = 0
    goodput: list[float] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)

    def add(self, result: RunResult, events: pd.DataFrame) -> None:
        """Take one replica in."""
        kinds = events["event"].to_numpy(dtype=object)
        told = events[(kinds == "failure") | (kinds == "resume")]
        if self.replicas == 0:
            self.rows = list(rows_of(events))
            self.wall_s = result.wall_s
        self.replicas += 1
        self.goodput.append(result.goodput_tokens_per_s)
        self.walls.append(result.wall_s)
        self.saves += int((kinds == "save_start").sum())
        tiers = events["subject"][kinds == "save_durable"].value_counts()
        self.durable += int(tiers.max()) if len(tiers) else 0
        for nodes, seconds in result.down_s.items():
            self.down_s[nodes] = self.down_s.get(nodes, 0.0) + seconds
        curve = self._followed(rows_of(told), result)
        if len(self.curves) < CURVES:
            self.curves.append(curve)

    def _followed(self, rows: Iterator[Row], result: RunResult) -> tuple[list[float], list[float]]:
        """Follow failures and resumptions: the bends of progress, and what each cause costs."""
        times, steps = [0.0], [0.0]
        struck: Row | None = None
        for row in rows:
            if row.event == "failure":
                cause = self.causes.setdefault(row.subject, Cause())
                cause.strikes += 1
                struck = struck or row
                continue
            if struck is not None:
                cause = self.causes[struck.subject]
                cause.down_s += row.time_s - struck.time_s
                cause.lost_steps += max((struck.step or 0) - (row.step or 0), 0)
                times.append(struck.time_s)
                steps.append(float(row.step or 0))
            times.append(row.time_s)
            steps.append(float(row.step or 0))
            struck = None
        if struck is not None:
            cause = self.causes[struck.subject]
            cause.down_s += result.wall_s - struck.time_s
            times.append(struck.time_s)
            steps.append(float(result.steps))
        times.append(result.wall_s)
        steps.append(float(result.steps))
        return times, steps


def rows_of(events: pd.DataFrame) -> Iterator[Row]:
    """The log's rows as plain Python values."""
    columns = []
    for name in Row._fields:
        column = events[name]
        values = column.tolist()
        if name in ("step", "place", "seconds", "node"):
            missing = column.isna().tolist()
            values = [None if gone else value for value, gone in zip(values, missing, strict=True)]
        columns.append(values)
    return (Row(*values) for values in zip(*columns, strict=True))
