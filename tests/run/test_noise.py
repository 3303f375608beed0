"""Run-to-run noise of a step: one factor a run, mean 1, stated spread."""

from __future__ import annotations

import math

import pytest

from clustersim.pipeline.step import StepModel
from clustersim.run.simulate import prepare, run_replica
from clustersim.scenario.load import load
from tests.run.synthetic import build

REPLICAS = 400


def test_steps_of_a_run_share_one_factor() -> None:
    """Wall time of 100 steps over 400 runs: mean and spread of the stated lognormal within 4 standard errors."""
    scenario = build(steps=100).replace("training.step_noise", {"sd": 0.02})
    ready = prepare(scenario, 10.0)
    walls = [run_replica(ready, 0, r, events=False).wall_s / 1000 for r in range(REPLICAS)]
    mean = math.fsum(walls) / REPLICAS
    sd = math.sqrt(math.fsum((wall - mean) ** 2 for wall in walls) / (REPLICAS - 1))
    assert abs(mean - 1) < 4 * 0.02 / math.sqrt(REPLICAS)
    assert abs(sd - 0.02) < 4 * 0.02 / math.sqrt(2 * REPLICAS)


def test_no_noise_draws_nothing_and_a_run_is_reproducible() -> None:
    plain = build(steps=100)
    assert run_replica(prepare(plain, 10.0), 0, 0).wall_s == 1000.0
    noisy = prepare(plain.replace("training.step_noise", {"sd": 0.02}), 10.0)
    assert run_replica(noisy, 0, 3).wall_s == run_replica(noisy, 0, 3).wall_s != run_replica(noisy, 0, 4).wall_s


def test_utilisation_follows_the_factor() -> None:
    scenario = load("scenarios/8-gpus-8b.yaml", ("training.step_noise={sd: 0.05}",))
    ready = prepare(scenario)
    found = run_replica(ready, 0, 1, events=False)
    assert ready.mfu is not None
    assert found.effective_mfu is not None
    seconds = StepModel.of(scenario).step_time().seconds
    factor = found.ledger_s["train"] / found.steps / seconds
    assert factor != pytest.approx(1.0, rel=1e-4)
    assert found.effective_mfu == pytest.approx(ready.mfu / factor * found.ettr, rel=1e-6)
