"""Why the best candidate of a search is best: where the runner-up loses, and what each single change would cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from clustersim.errors import InputError
from clustersim.pipeline.conditions import StepTime
from clustersim.pipeline.search import Candidate, SearchResult
from clustersim.pipeline.search_space import Choice

DECIDED = ("tp", "pp", "cp", "ep", "chunks", "slices", "micro_batch", "recompute", "schedule", "zero")
"""Fields that a search decides; dp and microbatches follow from them."""
FOLLOWS = {"schedule": ("chunks", "slices"), "pp": ("chunks", "schedule", "slices")}
"""Fields that may have to move along with another."""
SMALL = 0.001
"""Differences below this share of the step are left out of sentences."""


@dataclass(frozen=True)
class Change:
    """One change of the best candidate, everything else kept as far as it can be."""

    field: str
    value: object
    choice: Choice | None
    loss: float | None
    """Share by which the step is longer; None where there is no such step."""
    reason: str
    """Where the time goes (``bubble +0.41 s, tp -0.20 s``), or why it is ruled out."""


@dataclass(frozen=True)
class Explanation:
    """The best candidate against the runner-up and against its neighbours."""

    best: Candidate
    runner_up: Candidate | None
    difference_s: dict[str, float]
    """Runner-up minus best, seconds by category."""
    changes: tuple[Change, ...]

    def lines(self) -> list[str]:
        """Plain sentences, the most important first."""
        said = [f"Best: {_named(self.best)}; step {self.best.seconds:.3f} s, {_spent(self.best.step)}."]
        if self.runner_up is not None:
            share = self.runner_up.seconds / self.best.seconds - 1
            said.append(f"Runner-up: {_changed(self.best.choice, self.runner_up)}: {100 * share:+.1f} % "
                        f"({_parts(self.difference_s, self.best.seconds)}).")  # fmt: skip
        for change in self.changes:
            cost = "ruled out" if change.loss is None else f"{100 * change.loss:+.1f} %"
            said.append(f"With {change.field} {change.value}: {cost} ({change.reason}).")
        return said


def explain(result: SearchResult, most: int = 3) -> Explanation:
    """Compare the best with the runner-up, and evaluate up to ``most`` single changes of each decided field."""
    best = result.best
    runner = result.candidates[1] if len(result.candidates) > 1 else None
    difference = _difference(best.step, runner.step) if runner is not None else {}
    changes = [change for field in DECIDED for change in _changes(result, field, most)]
    changes.sort(key=lambda change: (change.loss is None, change.loss or 0.0, DECIDED.index(change.field)))
    return Explanation(best, runner, difference, tuple(changes))


def _changes(result: SearchResult, field: str, most: int) -> Iterator[Change]:
    best, evaluator = result.best.choice, result.evaluator
    for choice in _neighbours(result, field)[:most]:
        value = _value(result, choice, field)
        fit = evaluator.fit(choice)
        if not fit.fits:
            over = fit.over_bytes / 2**30
            yield Change(
                field, value, choice, None, f"{fit.verdict}: {over:.1f} GiB over the {fit.limit_bytes / 2**30:.0f} GiB"
            )
            continue
        try:
            step = evaluator.time(choice)
        except InputError as error:
            yield Change(field, value, choice, None, str(error))
            continue
        loss = step.seconds / result.best.seconds - 1
        moved = [name for name in FOLLOWS.get(field, ()) if getattr(choice, name) != getattr(best, name)]
        along = "".join(f", with {name} {_value(result, choice, name)}" for name in moved)
        yield Change(
            field, value, choice, loss, _parts(_difference(result.best.step, step), result.best.seconds) + along
        )


def _neighbours(result: SearchResult, field: str) -> list[Choice]:
    """Candidates that differ from the best in ``field`` (and in what has to follow), the nearest values first.

    Of several that differ in what follows, the one with the lowest bound stands for the value.
    """
    best, bounds = result.best.choice, result.evaluator.bounds
    free = {field, "dp", "microbatches", *FOLLOWS.get(field, ())}
    by_value: dict[object, Choice] = {}
    for choice in result.choices:
        value = getattr(choice, field)
        if value == getattr(best, field) or any(
            getattr(choice, name) != getattr(best, name) for name in Choice._fields if name not in free
        ):
            continue
        known = by_value.get(value)
        if known is None or (bounds.bound(choice), choice) < (bounds.bound(known), known):
            by_value[value] = choice
    return sorted(
        by_value.values(), key=lambda choice: (_distance(getattr(choice, field), getattr(best, field)), choice)
    )


def _distance(value: object, other: object) -> float:
    if isinstance(value, int) and isinstance(other, int):
        return abs(value - other)
    return 0.0


def _difference(best: StepTime, other: StepTime) -> dict[str, float]:
    return {name: other.breakdown[name] - best.breakdown[name] for name in best.breakdown}


def _parts(difference: dict[str, float], whole: float) -> str:
    large = sorted(((name, seconds) for name, seconds in difference.items() if abs(seconds) > SMALL * whole),
                   key=lambda pair: -abs(pair[1]))  # fmt: skip
    return ", ".join(f"{name} {seconds:+.3f} s" for name, seconds in large) or "no category differs by 0.1 %"


def _spent(step: StepTime) -> str:
    large = sorted(
        ((name, s) for name, s in step.breakdown.items() if s > 0.01 * step.seconds), key=lambda pair: -pair[1]
    )
    return ", ".join(f"{name} {100 * seconds / step.seconds:.0f} %" for name, seconds in large)


def _value(result: SearchResult, choice: Choice, field: str) -> object:
    if field == "recompute":
        part = result.evaluator.space.recompute[choice.recompute]
        ops = getattr(part, "ops", None)
        return f"{part.kind} ({', '.join(ops)})" if ops else part.kind
    return getattr(choice, field)


def _named(candidate: Candidate) -> str:
    described = candidate.describe()
    recompute = candidate.training.recompute
    ops = getattr(recompute, "ops", None)
    described["recompute"] = f"{recompute.kind} ({', '.join(ops)})" if ops else recompute.kind
    return ", ".join(
        f"{name} {value}" for name, value in described.items() if (name, value) not in (("ep", 1), ("slices", 1))
    )


def _changed(best: Choice, other: Candidate) -> str:
    described = other.describe()
    names = [name for name in ("dp", *DECIDED) if getattr(other.choice, name) != getattr(best, name)]
    shown = {**described, "recompute": other.training.recompute.kind}
    return ", ".join(f"{name} {shown[name]}" for name in names) or "equal keys"
