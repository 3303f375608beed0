"""A fault log played again: as it was, or resampled in blocks of time to another number of nodes or another length."""

from __future__ import annotations

import functools
import math
import os
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field, model_validator

from clustersim.block import line_errors, problem
from clustersim.distributions import Constant, Distribution
from clustersim.errors import InputError
from clustersim.faults.failure import FailureModel
from clustersim.faults.fit.log import FaultLog, read_log
from clustersim.faults.process import Arrivals, Hit, Site
from clustersim.part import Block
from clustersim.paths import InputPath
from clustersim.units import PositiveSeconds

if TYPE_CHECKING:
    from collections.abc import Iterator


_SHOWN = 3
"""Problems of a log that are spelt out in one line."""


class Resample(Block):
    """Blocks of time drawn with replacement: what happened within a block stays together, blocks are independent."""

    block: PositiveSeconds = 7 * 86400.0


class TraceFailure(FailureModel, kind="trace"):
    """The faults of a log: node i of the log (in order of first appearance) is machine i.

    As it was: faults on nodes that the cluster does not have do not happen, and nothing happens after the log's window.
    Resampled: each machine plays a node of the log drawn at random (as many as the log watched before any is drawn again;
    such a further set has blocks of its own), over as many blocks as the run is long.
    """

    replays: ClassVar[bool] = True

    file: InputPath
    """A CSV as ``clustersim fit failures`` reads it."""
    nodes_watched: int | None = Field(default=None, gt=0)
    """Nodes that the log watched; null: those that it names."""
    window: PositiveSeconds | None = None
    """Length of the log; null: up to its last time."""
    resample: Resample | None = None
    detection: Distribution = Constant(value=0.0)
    """From the fault to the moment that somebody notices: part of the down time that the log tells."""

    @model_validator(mode="after")
    def _readable(self) -> TraceFailure:
        """A log that cannot be read is an error of the scenario, found before anything runs."""
        try:
            _ = self.log
        except InputError as error:
            first = "; ".join(str(found) for found in error.problems[:_SHOWN])
            more = len(error.problems) - _SHOWN
            text = f"{first}; and {more} more" if more > 0 else first
            raise line_errors(type(self).__name__, [problem(("file",), "{text}", self.file, text=text)]) from None
        return self

    @property
    def log(self) -> FaultLog:
        """The log."""
        return _read(self.file, _stamp(self.file), self.nodes_watched, self.window)

    def rate(self, site: Site) -> float:
        """Faults ÷ window, for as many nodes as the job has."""
        if site.block is not None:
            return 0.0
        log = self.log
        share = 1.0 if self.resample is None and site.nodes >= len(log.nodes) else site.nodes / log.population
        return len(log) / log.window_s * share

    def arrivals(self, site: Site) -> Arrivals | None:
        """One process for the job's machines and all spares."""
        return None if site.block is not None else TraceArrivals(self, site)


def _stamp(file: str) -> tuple[int, int]:
    """Tells one content of a file from the next, so that a log which is written anew is read anew."""
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@functools.lru_cache(maxsize=16)
def _read(file: str, stamp: tuple[int, int], population: int | None, window_s: float | None) -> FaultLog:
    return read_log(file, population=population, window_s=window_s)


class TraceArrivals(Arrivals):
    """Faults in order of time; ties keep the order of the log."""

    def __init__(self, cause: TraceFailure, site: Site) -> None:
        self._cause, self._log = cause, cause.log
        self._nodes = site.nodes + site.cluster.all_spare_nodes
        self._detection = site.streams(f"detection/{cause.name}")
        self._rng = site.streams(f"failure/{cause.name}")
        self._causes: dict[str, FailureModel] = {}
        self._faults = self._as_it_was() if cause.resample is None else self._resampled(cause.resample.block)
        self._next: tuple[float, int, float, str] | None = None
        self._advance()

    def _advance(self) -> None:
        self._next = next(self._faults, None)
        self.next_s = math.inf if self._next is None else self._next[0]

    def _as_it_was(self) -> Iterator[tuple[float, int, float, str]]:
        log = self._log
        for row in range(len(log)):
            if log.node[row] < self._nodes:
                yield float(log.start_s[row]), int(log.node[row]), self._down_s(row), log.classes[row]

    def _down_s(self, row: int) -> float:
        """Down time of a fault; to the window's end where its end was not seen."""
        return float(min(self._log.end_s[row], self._log.window_s) - self._log.start_s[row])

    def _resampled(self, block_s: float) -> Iterator[tuple[float, int, float, str]]:
        log = self._log
        blocks = max(1, int(log.window_s // block_s))
        length = log.window_s / blocks
        sets = math.ceil(self._nodes / log.population)
        roles = [self._roles(index * log.population) for index in range(sets)]
        number = 0
        while True:
            found: list[tuple[float, int, float, str]] = []
            for role in roles:
                begin = float(self._rng.integers(blocks)) * length
                low, high = np.searchsorted(log.start_s, [begin, begin + length])
                shift = number * length - begin
                found += [(float(log.start_s[row]) + shift, machine, self._down_s(row), log.classes[row])
                          for row in range(low, high) if (machine := role.get(int(log.node[row]))) is not None]  # fmt: skip
            yield from sorted(found, key=lambda fault: fault[0])
            number += 1

    def _roles(self, first: int) -> dict[int, int]:
        """Node of the log → the machine that plays it, of the set that starts with machine ``first``."""
        drawn = self._rng.permutation(self._log.population)[: self._nodes - first]
        return {int(node): first + index for index, node in enumerate(drawn)}

    def pop(self) -> Hit:
        assert self._next is not None
        time, node, down_s, label = self._next
        detection = min(self._cause.detection.sample(self._detection), down_s)
        self._advance()
        return Hit(time, self._named(label), node, node + 1, detection, down_s - detection, node=node)

    def _named(self, label: str) -> FailureModel:
        if label not in self._causes:
            name = f"{self._cause.name}/{label}" if label else self._cause.name
            self._causes[label] = self._cause.model_copy(update={"name": name})
        return self._causes[label]
