"""A row of the replayed cases, and what their modules share: scenarios, replicas, means."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import clustersim
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.run.simulate import run_replica
from clustersim.scenario.load import load


@dataclass(frozen=True)
class Case:
    """One published figure and ours.

    Attributes:
        suite: which of the cases.
        case: what was measured.
        published: the figure, or the nearest end of a published range.
        ours: what clustersim gives.
        low, high: within these ours must lie; both None: told only.
        source: where the published figure stands.
        note: what ours rests on.
    """

    suite: str
    case: str
    published: float
    ours: float
    low: float | None
    high: float | None
    source: str
    note: str = ""

    @property
    def deviation(self) -> float | None:
        """Ours ÷ published − 1."""
        return self.ours / self.published - 1 if self.published else None

    @property
    def scored(self) -> bool:
        """Whether it has a bound."""
        return self.low is not None or self.high is not None

    @property
    def holds(self) -> bool:
        """Within its bound."""
        above = self.low is None or self.ours >= self.low * (1 - 1e-12)
        return above and (self.high is None or self.ours <= self.high * (1 + 1e-12))


def within(suite: str, case: str, published: float, ours: float, bound: float, source: str, note: str = "") -> Case:
    """A row whose deviation may be ``bound`` either way."""
    return Case(suite, case, published, ours, published * (1 - bound), published * (1 + bound), source, note)


def told(suite: str, case: str, published: float, ours: float, source: str, note: str = "") -> Case:
    """A row without a bound."""
    return Case(suite, case, published, ours, None, None, source, note)


def folder() -> Path | None:
    """Where the scenarios lie: beside the package (a checkout), or in it; None: they are not installed."""
    package = Path(clustersim.__file__).parent
    found = [place for place in (package.parent / "scenarios", package / "scenarios") if (place / "papers").is_dir()]
    return found[0] if found else None


@functools.cache
def prepared(file: str, *overrides: str) -> Prepared:
    """A scenario of the folder as it stands there, but for ``overrides``."""
    place = folder()
    if place is None:
        raise FileNotFoundError("the scenarios are not installed; run from a checkout")
    return Prepared(load(str(place / file), overrides))


def runs(file: str, *overrides: str, replicas: int | None = None) -> list[RunResult]:
    """Its replicas, the first ones of its own seed: what ``clustersim run`` gives of the file."""
    ready = prepared(file, *overrides)
    simulation = ready.scenario.simulation
    return [
        run_replica(ready, simulation.seed, index, events=False) for index in range(replicas or simulation.replicas)
    ]


def mean(results: Iterable[RunResult], value: Callable[[RunResult], float]) -> float:
    """Mean over replicas."""
    return statistics.fmean(value(result) for result in results)


def ettr(results: Iterable[RunResult]) -> float:
    """Mean effective training time ratio."""
    return mean(results, lambda result: result.ettr)


def quantile(result: RunResult, share: float) -> float:
    """Nodes down at once that are not exceeded for ``share`` of the time."""
    total, passed = sum(result.down_s.values()), 0.0
    for count in sorted(result.down_s):
        passed += result.down_s[count]
        if passed >= share * total:
            return float(count)
    return math.nan
