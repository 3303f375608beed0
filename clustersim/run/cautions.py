"""What is legal and can hardly be meant: an interval, a margin or a repair that outlasts the run, failures faster than a step.

A run of such a scenario answers; what it answers is that nothing was saved, seen or repaired. That is told once, at the key.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from clustersim.checkpoint.interval import Predicted
from clustersim.distributions import Distribution
from clustersim.errors import Problem
from clustersim.faults.failure import Severity
from clustersim.faults.fleet import FleetFailure
from clustersim.faults.planned import Maintenance, Preemption
from clustersim.faults.silent import SilentCorruption
from clustersim.faults.slow import FailSlow
from clustersim.faults.spike import LossSpike
from clustersim.units import about

if TYPE_CHECKING:
    from clustersim.run.prepared import Prepared

DRAWS = 256
"""A duration outlasts a run if so many draws of it all do: then about one in a hundred at most ends within it."""


def cautions(prepared: Prepared) -> list[Problem]:
    """A problem for each key whose value makes no sense in a run as long, or with steps as long, as this one's."""
    length = min(prepared.horizon_s, prepared.nominal_s)
    if length < prepared.pace.step_s:
        return [Problem("training.duration", f"the run is over after {about(length)}, before its first step of "
                                             f"{about(prepared.pace.step_s)} has ended")]  # fmt: skip
    return [*_saves(prepared, length), *_frequent(prepared), *_failures(prepared, length), *_ways_back(prepared, length)]


def _saves(prepared: Prepared, length: float) -> Iterator[Problem]:
    """An interval that ends after the run, where something could be lost; one that follows from costs is meant."""
    engine = prepared.scenario.checkpoint
    interval = engine.interval.about_s(prepared.pace.step_s)
    if prepared.save is not None and interval is not None and interval >= length and math.isfinite(prepared.mtbf_s):
        when = "before its end" if engine.final else "in it"
        yield Problem("checkpoint.interval", f"the first save is due after {about(interval)} of training, and the run is over "
                                             f"after {about(length)}: nothing is saved {when}")  # fmt: skip
    if isinstance(engine.interval, Predicted) and engine.interval.lead >= length:
        yield Problem("checkpoint.interval.lead", f"failures are foreseen {about(engine.interval.lead)} ahead, and the run is "
                                                  f"over after {about(length)}: every alarm comes at its start")  # fmt: skip


def _frequent(prepared: Prepared) -> Iterator[Problem]:
    """Failures that leave hardly a step whole: those of one cause, or of all together."""
    site, step, alone = prepared.job_site(), prepared.pace.step_s, False
    for index, cause in enumerate(prepared.causes):
        rate = 0.0 if cause.severity == Severity.STORAGE else cause.rate(site)
        if rate * step > 1:
            alone = True
            text = f"'{cause.name}' interrupts the job every {about(1 / rate)}, and a step takes {about(step)}: hardly one ends"
            yield Problem(f"failures.{index}{cause.rate_key}", text)
    if not alone and prepared.mtbf_s < step:
        yield Problem("failures", f"all causes together interrupt the job every {about(prepared.mtbf_s)}, and a step takes "
                                  f"{about(step)}: hardly one ends")  # fmt: skip


def _failures(prepared: Prepared, length: float) -> Iterator[Problem]:
    """Keys of single causes."""
    noticed, site = prepared.scenario.recovery.heartbeat, prepared.job_site()
    for index, cause in enumerate(prepared.causes):
        at = f"failures.{index}"
        stops = cause.severity != Severity.STORAGE and cause.rate(site) > 0 and not isinstance(cause, FailSlow)
        if stops and (noticed is None or noticed >= length):
            yield from outlasting(f"{at}.detection", cause.detection, length, "the job stands still to the end")
        yield from outlasting(f"{at}.repair", cause.repair, length, _unrepaired(cause.severity))
        if isinstance(cause, Maintenance | Preemption):
            yield from outlasting(f"{at}.length", cause.length, length, "what is taken does not come back in it")
        if isinstance(cause, FleetFailure):
            for number, kind in enumerate(cause.classes):
                severity = kind.severity or cause.severity
                yield from outlasting(f"{at}.classes.{number}.repair", kind.repair, length, _unrepaired(severity))
        if isinstance(cause, LossSpike | SilentCorruption):
            yield from _unseen(at, cause, length)
        if isinstance(cause, LossSpike):
            yield from _too_far_back(at, cause, prepared, length)
        if isinstance(cause, FailSlow) and cause.watch is not None and cause.watch.every * (cause.watch.rounds - 1) >= length:
            yield Problem(f"{at}.watch", f"{cause.watch.rounds} looks, one every {about(cause.watch.every)}, outlast the run "
                                         f"of {about(length)}: nothing slow is found in it")  # fmt: skip


def _unrepaired(severity: Severity) -> str | None:
    """What a repair without end within the run means; None: nothing is repaired."""
    if severity == Severity.STORAGE:
        return "storage stands still to the end"
    return "no node that failed comes back in it" if severity.takes_nodes else None


def _unseen(at: str, cause: LossSpike | SilentCorruption, length: float) -> Iterator[Problem]:
    check = cause.check if isinstance(cause, SilentCorruption) else None
    if check is None:
        yield from outlasting(f"{at}.latency", cause.latency, length, "none is seen in it")
    elif check.every >= length:
        yield Problem(f"{at}.check.every", f"a check comes every {about(check.every)}, and the run is over after "
                                           f"{about(length)}: hardly one falls into it")  # fmt: skip


def _too_far_back(at: str, cause: LossSpike, prepared: Prepared, length: float) -> Iterator[Problem]:
    steps, engine = length / prepared.pace.step_s, prepared.scenario.checkpoint
    interval = engine.interval.about_s(prepared.pace.step_s)
    kept = math.inf if interval is None else engine.keep * max(interval / prepared.pace.step_s, 1.0)
    oldest = "every spike goes back to the oldest copy that is kept"
    if cause.margin >= steps:
        yield Problem(f"{at}.margin", f"{cause.margin:,} steps is no shorter than the run of {steps:,.0f}: {oldest}")
    elif cause.margin > kept:
        reach = f"checkpoint.keep {engine.keep} and the interval reach ({kept:,.0f} steps)"
        yield Problem(f"{at}.margin", f"{cause.margin:,} steps is further back than {reach}: {oldest}")
    if cause.skip >= steps:
        yield Problem(f"{at}.skip", f"{cause.skip:,} batches are left out after a spike, and the run has {steps:,.0f} steps")


def _ways_back(prepared: Prepared, length: float) -> Iterator[Problem]:
    """Repair and recovery, where something makes use of them."""
    scenario = prepared.scenario
    repair, recovery, cluster = scenario.repair, scenario.recovery, scenario.cluster
    if any(cause.severity.takes_nodes and cause.repair is None for cause in prepared.causes):
        yield from outlasting("repair.time", repair.time, length, "no node that failed comes back in it")
    if prepared.causes and repair.quarantine is not None:
        yield from outlasting("repair.quarantine.time", repair.quarantine.time, length, "no node that failed comes back in it")
    if repair.retire_after is not None or repair.exclude is not None:
        yield from outlasting("repair.replacement", repair.replacement, length, "no node that retired is replaced in it")
    if math.isfinite(prepared.mtbf_s):
        for name, stage in recovery.stages.items():
            yield from outlasting(f"recovery.stages.{name}", stage.time, length, "the job does not come back from a failure")
    if cluster.cold_spare_nodes:
        yield from outlasting("cluster.power_up", cluster.power_up, length, "no cold spare is ready in it")


def outlasting(path: str, duration: Distribution | None, length: float, meaning: str | None) -> Iterator[Problem]:
    """A problem where a duration practically never ends within a run of ``length`` seconds; ``meaning``: what follows."""
    if duration is None or meaning is None:
        return
    draws = np.asarray(duration.draw(np.random.default_rng(0), DRAWS))
    if float(draws.min()) >= length:
        yield Problem(path, f"takes {about(float(np.median(draws)))}, and the run is over after {about(length)}: {meaning}")
