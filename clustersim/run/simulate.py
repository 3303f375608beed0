"""One replica of a run, from the scenario to its result."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from clustersim.rng import stream
from clustersim.run.job import Job
from clustersim.run.pace import Step
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.scenario.places import tells_places

if TYPE_CHECKING:
    from clustersim.scenario.schema import Scenario


@tells_places
def prepare(scenario: Scenario, step: Step | None = None) -> Prepared:
    """Make a scenario ready to be run many times."""
    return Prepared(scenario, step)


def _with_noise(prepared: Prepared, seed: int, replica: int) -> Prepared:
    """The scenario as this run finds it: its steps longer or shorter by one factor of ``training.step_noise``."""
    noise = prepared.scenario.training.step_noise
    if noise is None or noise.sd == 0:
        return prepared
    factor = float(noise.factors(stream(seed, replica, "step/noise"), 1)[0])
    return Prepared(prepared.scenario, prepared.paces.noisy(factor), prepared.jump)


def run_replica(prepared: Prepared, seed: int, replica: int = 0, events: bool = True) -> RunResult:
    """One replica of a prepared scenario; ``events``: keep the event log.

    Garbage of reference cycles waits until the replica is over: looking for it meanwhile costs a fifth of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        prepared = _with_noise(prepared, seed, replica)
        return Job(prepared, seed, replica, events).run()
    finally:
        if collecting:
            gc.enable()


@tells_places
def simulate(scenario: Scenario, *, seed: int | None = None, replica: int = 0, step: Step | None = None) -> RunResult:
    """Simulate one replica of a run.

    Args:
        scenario: what to simulate.
        seed: seed of the random streams; None: the scenario's.
        replica: index of the replica, which has streams of its own.
        step: seconds of every step, or something that has ``step_time(conditions)``; None: the step model says.

    Returns:
        Metrics, ledger and event log of the replica.
    """
    return run_replica(prepare(scenario, step), scenario.simulation.seed if seed is None else seed, replica)
