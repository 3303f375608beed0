"""Compare designs on the same bad days: paired differences, verdicts, and what more replicas would decide."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from clustersim.errors import InputError, Problem
from clustersim.shown import cut
from clustersim.study.executors import Executor
from clustersim.study.replicas import refuse_unready
from clustersim.study.runner import Outcome, Progress, Runner, job_of
from clustersim.study.statistics import Difference, Target, difference
from clustersim.study.store import Store

if TYPE_CHECKING:
    import pandas as pd

HEADLINE = ("goodput_tokens_per_s", "ettr", "effective_mfu", "wall_s", "interruptions", "lost_work_s")
"""Metrics that the text speaks of, the most decisive first."""
LONGEST = 60
"""Characters of a label in a sentence."""


@dataclass
class Comparison:
    """What ``compare`` found; ``outcomes`` in the order given, ``differences`` for every pair and metric."""

    outcomes: list[Outcome]
    differences: list[Difference]
    seed: int

    def of(self, metric: str) -> list[Difference]:
        """The differences of one metric, a pair each."""
        return [found for found in self.differences if found.metric == metric]

    def to_dict(self) -> dict[str, Any]:
        """The contract's ``compare`` document."""
        return {
            "scenarios": [outcome.label for outcome in self.outcomes],
            "seed": self.seed,
            "runs": [outcome.summaries() for outcome in self.outcomes],
            "errors": [outcome.error for outcome in self.outcomes],
            "differences": [found.to_dict() for found in self.differences],
        }

    def to_frame(self) -> pd.DataFrame:
        """One row a difference."""
        import pandas as pd

        rows = []
        for found in self.differences:
            row = found.to_dict()
            low, high = row.pop("ci95") or (None, None)
            rows.append({**row, "ci95_low": low, "ci95_high": high})
        return pd.DataFrame(rows)

    def replicas_frame(self) -> pd.DataFrame:
        """One row a replica of a scenario, one column a metric."""
        import pandas as pd

        return pd.DataFrame(
            [{"scenario": outcome.label, "replica": number, **replica}
             for outcome in self.outcomes for number, replica in enumerate(outcome.replicas) if replica is not None]
        )  # fmt: skip

    def _repr_html_(self) -> str:
        """The verdicts and a table of means for notebooks."""
        from html import escape

        from clustersim.shown import shown, with_interval

        told = [outcome.summaries() for outcome in self.outcomes]
        rows = [(metric, *(with_interval(item.get(metric)) for item in told)) for metric in HEADLINE]
        said = "".join(f"<p>{escape(text)}</p>" for text in self.sentences())
        return said + shown("Means over replicas", rows, ("", *(outcome.label for outcome in self.outcomes)))

    def sentences(self) -> list[str]:
        """What the data say, a sentence a pair, about the most decisive metric that both have."""
        pairs = dict.fromkeys((found.a, found.b) for found in self.differences)
        headlines = (self._headline(a, b) for a, b in pairs)
        return [sentence(replace(one, a=cut(one.a, LONGEST), b=cut(one.b, LONGEST))) for one in headlines]

    def _headline(self, a: str, b: str) -> Difference:
        known = {found.metric: found for found in self.differences if (found.a, found.b) == (a, b)}
        for metric in HEADLINE:
            if metric in known and (known[metric].ci95 or (0, 0)) != (0.0, 0.0):
                return known[metric]
        return next(known[metric] for metric in (*HEADLINE, *known) if metric in known)


def sentence(found: Difference) -> str:
    """A difference in words: the words follow the statistics."""
    name = found.metric.replace("_tokens_per_s", "").replace("_s", "").replace("_", " ")
    low, high = found.ci95 or (found.mean, found.mean)
    half = (high - low) / 2
    if found.mean == 0 and half == 0:
        return f"{found.a} and {found.b} have the same {name} in every replica."
    if found.relative is not None:
        scale = abs(found.relative / found.mean) if found.mean else 0.0
        digits = max(2, min(3, 1 - math.floor(math.log10(100 * half * scale)))) if half * scale > 0 else 2
        size = f"{abs(found.relative):.{digits}%} ± {half * scale:.{digits}%}"
    else:
        size = f"{abs(found.mean):.4g} ± {half:.2g}"
    if found.verdict == "undecided":
        if low > 0 or high < 0:
            return f"{found.a} has {'more' if found.mean > 0 else 'less'} {name} than {found.b} by {size}."
        more = (
            f"{found.replicas_needed:,} more replicas would"
            if found.replicas_needed
            else "more replicas may not either"
        )
        pair = f"{found.a} and {found.b} ({name} differs by {size})"
        return f"These {found.replicas} replicas do not decide between {pair}; {more}."
    better, worse = (found.a, found.b) if found.verdict == "a" else (found.b, found.a)
    return f"{better} is better than {worse}: {name} by {size} (95 % interval, {found.replicas} paired replicas)."


def labels_of(scenarios: Sequence[Any], names: Sequence[str] | None = None) -> list[str]:
    """A label a scenario: its name, or the given one, numbered where two are alike."""
    plain = list(names) if names is not None else [scenario.name for scenario in scenarios]
    return [f"{name} ({plain[:place].count(name) + 1})" if plain.count(name) > 1 else name
            for place, name in enumerate(plain)]  # fmt: skip


def compare(scenarios: Sequence[Any], *, names: Sequence[str] | None = None, replicas: int | None = None,
            seed: int | None = None, until: Target | None = None, limit: int = 10_000, executor: Executor | None = None,
            store: Store | None = None, progress: Progress | None = None) -> Comparison:  # fmt: skip
    """Run each scenario with the same failures and compare every pair.

    Args:
        scenarios: two or more scenarios.
        names: what to call them; default: their own names.
        replicas: replicas each; default: the first scenario's ``simulation.replicas``.
        seed: seed of all; default: the first scenario's.
        until: add replicas until every scenario's interval of that metric is narrow enough, at most ``limit``.
        executor: where to run; default: here, one after the other.
        store: remembers finished replicas.

    Raises:
        InputError: fewer than two scenarios, or a key of them is wrong.
        ImpossibleError: one of them does not fit in memory, or its run cannot be set up.
    """
    if len(scenarios) < 2:
        raise InputError(Problem("compare", "needs at least two scenarios"))
    first = scenarios[0].simulation
    seed = first.seed if seed is None else seed
    labels = labels_of(scenarios, names)
    refuse_unready(scenarios, labels)
    jobs = [job_of(label, scenario) for label, scenario in zip(labels, scenarios, strict=True)]
    runner = Runner(seed, executor, store, progress)
    outcomes = runner.run_until(jobs, replicas or first.replicas, until, limit)
    return Comparison(outcomes, differences_of(outcomes), seed)


def differences_of(outcomes: Sequence[Outcome]) -> list[Difference]:
    """The paired difference of every metric that both have, for every pair of outcomes without errors."""
    found = []
    for a, b in itertools.combinations([outcome for outcome in outcomes if outcome.error is None], 2):
        shared = [metric for metric in a.metrics if metric in set(b.metrics)]
        for metric in shared:
            one = difference(a.label, b.label, metric, a.column(metric), b.column(metric))
            if one is not None:
                found.append(one)
    return found
