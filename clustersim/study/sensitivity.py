"""What to change first: single changes of a scenario, each run on the same failures as the scenario itself.

Few replicas are enough because they are paired: replica r of the changed scenario sees the failures of replica r of the
scenario. Changes that leave the step alone reuse its step model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clustersim.distributions import Constant
from clustersim.errors import ClusterSimError
from clustersim.run.job import Job
from clustersim.run.simulate import prepare, run_replica
from clustersim.study.statistics import Difference, difference

if TYPE_CHECKING:
    from clustersim.pipeline.step import StepModel
    from clustersim.run.prepared import Prepared
    from clustersim.scenario.schema import Scenario

REPLICAS = (6, 40)
"""Pairs of replicas a change: at least and at most."""
STRIKES = 250
"""Failures that the pairs should see in all. A small change moves a save past a failure only now and then, and then by a
whole interval: few failures would show no gain in most samples and an interval far too narrow."""
MOST_EVENTS = 4_000_000
"""Events that all pairs of all changes may take together: half a minute. Counted, not timed, so that what is told does not
depend on the machine."""
SPARES = 4
METRIC = "goodput_tokens_per_s"
SCHEDULES = ("interleaved-1f1b", "zb-v", "zb-h1", "1f1b")
"""Schedules that are tried in place of the scenario's, with its layout."""


@dataclass(frozen=True)
class Change:
    """A change by name: the values that it sets, and whether a step takes as long as before."""

    name: str
    values: dict[str, Any]
    same_step: bool = True


@dataclass(frozen=True)
class Gain:
    """What a change brings: the paired difference of goodput, changed − as is, relative to as is.

    Attributes:
        relative: mean gain as a share of the goodput as is.
        ci95: its 95 % interval; None: too few replicas.
        replicas: pairs.
    """

    change: Change
    relative: float
    ci95: tuple[float, float] | None
    replicas: int

    @property
    def decided(self) -> bool:
        """Whether the interval excludes no gain at all."""
        return self.ci95 is not None and (self.ci95[0] > 0 or self.ci95[1] < 0)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "change": self.change.name,
            "set": self.change.values,
            "relative": self.relative,
            "ci95": None if self.ci95 is None else list(self.ci95),
            "replicas": self.replicas,
        }


def changes_of(scenario: Scenario) -> list[Change]:
    """The changes that make sense for a scenario, the next-best schedule apart."""
    changes = []
    failures = scenario.failures
    rarer = {f"failures.{i}.mtbf": cause.mtbf * 1.1 for i, cause in enumerate(failures) if hasattr(cause, "mtbf")}
    if rarer:
        changes.append(Change("failures 10 % rarer (MTBF + 10 %)", rarer))
    sooner = {
        f"failures.{i}.detection": cause.detection.value / 2
        for i, cause in enumerate(failures)
        if isinstance(cause.detection, Constant) and cause.detection.value > 0
    }
    if sooner:
        changes.append(Change("failures noticed in half the time", sooner))
    interval = getattr(scenario.checkpoint, "interval", None)
    if failures and interval is not None and interval.kind != "auto":
        changes.append(Change("best checkpoint interval (by formula)", {"checkpoint.interval": "auto"}))
    if any(cause.severity.takes_nodes for cause in failures):
        spares = scenario.cluster.spare_nodes + SPARES
        changes.append(Change(f"{SPARES} more spare nodes", {"cluster.spare_nodes": spares}))
    return changes


def next_schedule(scenario: Scenario, step_time_s: float) -> tuple[Change, StepModel] | None:
    """The best other schedule that fits the layout and the memory, with its step model.

    None where the step's time is given: each would take it.
    Tried are those of ``SCHEDULES``, with the layout's chunks and, where these do not suit, with their own.
    """
    from clustersim.pipeline.step import StepModel
    from clustersim.pipeline.step_memory import checked_memory

    if scenario.parallelism.pp == 1 or scenario.training.step_time is not None:
        return None
    best: tuple[float, Change, StepModel] | None = None
    for kind in SCHEDULES:
        if kind == scenario.parallelism.schedule.kind:
            continue
        for extra in ({}, {"parallelism.chunks": None}):
            values = {"parallelism.schedule": kind, **extra}
            try:
                model = StepModel.of(scenario.replace(values))
                checked_memory(model)
            except ClusterSimError:
                continue
            seconds = model.step_time().seconds
            if best is None or seconds < best[0]:
                faster = step_time_s / seconds - 1
                name = f"schedule {kind} (its step is {abs(faster):.1%} {'faster' if faster > 0 else 'slower'})"
                best = seconds, Change(name, values, same_step=False), model
            break
    return None if best is None else (best[1], best[2])


def pairs_for(prepared: Prepared) -> int:
    """Pairs of replicas that see ``STRIKES`` failures in all, within ``REPLICAS``."""
    wall_s = min(prepared.horizon_s, prepared.nominal_s)
    least, most = REPLICAS
    strikes = wall_s / prepared.mtbf_s
    return max(least, min(most, math.ceil(STRIKES / strikes) if strikes > 0 else least))


def too_long(scenario: Scenario, prepared: Prepared, seed: int) -> str | None:
    """Why the gains are not worth waiting for: what they would take in events, by replica 0; None where they are."""
    job = Job(prepared, seed, 0, events=False)
    job.run()
    events = job.clock.played * pairs_for(prepared) * (len(changes_of(scenario)) + 1)
    if events <= MOST_EVENTS:
        return None
    return (
        f"What to change first is left out: a replica takes {job.clock.played:,} events, and single changes would take "
        f"{events:,} in all (at most {MOST_EVENTS:,} are played). `clustersim compare` runs the changes that you name."
    )


def sensitivities(
    scenario: Scenario, prepared: Prepared, seed: int, goodput: Sequence[float] = (), replicas: int | None = None
) -> list[Gain]:
    """Gains of single changes, the largest first.

    Args:
        scenario: as it is.
        prepared: the same, ready to run.
        seed: of the replicas.
        goodput: tokens a second of replicas 0, 1, … that were run already.
        replicas: pairs; None: see ``pairs_for``.
    """
    replicas = pairs_for(prepared) if replicas is None else replicas
    known = list(goodput[:replicas])
    known += [_goodput(prepared, seed, replica) for replica in range(len(known), replicas)]
    from clustersim.pipeline.step import StepModel

    same = StepModel.of(scenario)
    jobs: list[tuple[Change, Any]] = [(change, same) for change in changes_of(scenario)]
    other = next_schedule(scenario, prepared.pace.nominal_s)
    jobs += [other] if other is not None else []
    gains = [gain for change, step in jobs if (gain := _gain(scenario, change, step, seed, known)) is not None]
    return sorted(gains, key=lambda gain: (-gain.relative, gain.change.name))


def _goodput(prepared: Prepared, seed: int, replica: int) -> float:
    return run_replica(prepared, seed, replica, events=False).goodput_tokens_per_s


def _gain(scenario: Scenario, change: Change, step: Any, seed: int, known: Sequence[float]) -> Gain | None:
    """The gain of one change; None where the changed scenario is no valid one."""
    try:
        changed = prepare(scenario.replace(change.values), step)
    except ClusterSimError:
        return None
    found: Difference | None = difference(
        "changed", "as is", METRIC, [_goodput(changed, seed, replica) for replica in range(len(known))], known
    )
    if found is None or (not found.relative and found.mean):
        return None
    base = found.mean / found.relative if found.relative else 1.0
    interval = None if found.ci95 is None else (found.ci95[0] / base, found.ci95[1] / base)
    return Gain(change, found.relative or 0.0, interval, found.replicas)
