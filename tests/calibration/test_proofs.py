"""The arithmetic of the proofs on made-up measurements, where the right answer is known."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from calibration.kill_proof import Killed, predict
from calibration.pipeline_proof import graph_of, order_check, predictions
from calibration.scenario import predicted_wall
from clustersim.pipeline.costs import Costs
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.replay import replay

TIMES = {"F": 2e-3, "B": 4e-3, "I": 2.5e-3, "W": 1.5e-3}
MESSAGE = 1e-4


def step_of(name: str, microbatches: int) -> float:
    graph = graph_of(name, 2, microbatches)
    costs = Costs({kind: TIMES[kind.value] for kind in (Kind.F, Kind.B, Kind.I, Kind.W)}, latency=MESSAGE)
    return replay(graph, graph.durations(costs), graph.delays(costs)).makespan


def made_up(rounds: int = 4, noise: float = 0.0) -> dict[str, Any]:
    """What the worker would write on a machine that takes just these times."""
    rng = np.random.default_rng(0)
    kinds = {"gpipe": "FB", "1f1b": "FB", "interleaved-1f1b": "FB", "interleaved-zb": "FIW", "zb-v": "FIW"}

    def sample(kind: str) -> list[float]:
        return [TIMES[kind] * float(np.exp(rng.normal(0, noise))) for _ in range(6)]

    def fit(rank: int) -> list[dict[str, Any]]:
        found = []
        for name, letters in kinds.items():
            graph = graph_of(name, 2, 6)
            stages = sorted({int(graph.stage[op]) for op in graph.rank_ops[rank]})
            ops = {f"{stage}:{kind}": sample(kind) for stage in stages for kind in letters}
            found.append({"name": name, "microbatches": 6, "step_s": [step_of(name, 6), 0.0], "ops": ops})
        return found

    tests = [{"name": name, "microbatches": m, "step_s": [step_of(name, m), 0.0]}
             for m in (4, 8) for name in ("gpipe", "1f1b", "interleaved-1f1b", "interleaved-zb", "zb-v")]  # fmt: skip
    one = {"message_s": MESSAGE, "load": 0.0, "fits": [fit(0), fit(1)], "tests": [tests, tests]}
    return {"ranks": 2, "size": {}, "rounds": [json.loads(json.dumps(one)) for _ in range(rounds)]}


def test_pipeline_predictions_are_exact_without_noise() -> None:
    found = predictions(made_up())
    assert len(found) == 10
    for row in found:
        assert row.error == pytest.approx(0, abs=1e-9), row.name
        assert row.inside or row.low == pytest.approx(row.measured)
    right, decided = order_check(found)
    assert right == decided > 0


def test_pipeline_predictions_under_noise_stay_near() -> None:
    # 5 % an op: the makespan takes the later of two ranks, so it lies above the noiseless one, by no more than 5 %.
    for row in predictions(made_up(noise=0.05)):
        assert -0.02 < row.error < 0.08, row.name


def test_checkpointed_runs_by_hand() -> None:
    sync = {"engine": "sync", "interval": {"steps": 10}, "stall": 0.5}
    assert predicted_wall(40, 0.1, sync) == pytest.approx(4.0 + 3 * 0.5)  # none at the end
    free = {"engine": "async", "interval": {"steps": 10}, "stall": 0.1, "persist": 0.35, "slowdown": 2.0}
    # Steps that start while a save is in flight take 0.2 s: 0, 0.2 of the 0.35 s, so two of them after each save.
    assert predicted_wall(40, 0.1, free) == pytest.approx(4.0 + 3 * (0.1 + 2 * 0.1))


class Clockwork:
    """A trainer in virtual time: every save takes 30 ms from the step after its stall, however long the disk then takes."""

    STEP, STALL, LOST = 0.01, 0.008, 0.03

    def __init__(self, disk_s: list[float]) -> None:
        self.now, self.owed, self.durable_s = 0.0, 0.0, 0.0
        self.disk = itertools.cycle(disk_s)

    def perf_counter(self) -> float:
        return self.now

    def _spend(self, seconds: float) -> float:
        self.now += seconds
        return seconds

    def step(self) -> float:
        owed, self.owed = self.owed, 0.0
        return self._spend(self.STEP + owed)

    def save(self) -> float:
        return self._spend(0.05)

    def save_async(self) -> float:
        self._spend(self.STALL)
        self.owed, self.durable_s = self.LOST, self.now + self.LOST + next(self.disk)
        return self.STALL

    @property
    def saving(self) -> bool:
        return self.now < self.durable_s

    def settle(self) -> None:
        self.now = max(self.now, self.durable_s)


@pytest.mark.parametrize("interval", [12, 15, 20, 30])
def test_what_a_save_takes_beside_its_stall_is_no_share_of_its_flight(
    interval: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes 20 to 80 ms changes nothing of the time that training loses: predicted from other saves, to 1e-9."""
    from calibration import checkpoint_proof, trainer

    calibrated, run = Clockwork([0.08, 0.03, 0.05]), Clockwork([0.02, 0.06])
    monkeypatch.setattr(checkpoint_proof, "time", calibrated)
    seen = checkpoint_proof.calibrate(calibrated)  # type: ignore[arg-type]
    assert seen["step"] == pytest.approx(0.01)
    assert seen["lost"] == pytest.approx(0.03)
    monkeypatch.setattr(trainer, "time", run)
    wall = trainer.run(run, 60, interval, run.save_async)  # type: ignore[arg-type]
    assert predicted_wall(60, seen["step"], checkpoint_proof.engine_of("async", interval, seen)) == pytest.approx(
        wall, rel=1e-9
    )


def test_a_killed_run_by_hand(tmp_path: Path) -> None:
    seen = Killed(0.0, kills=[1.0], ready=[3.0], times={"steps": [0.1], "saves": [0.0]})
    # Killed at 2.55: saved at 2.0 (20 steps), back after 2 s, 20 of 40 steps left.
    walls = predict([2.55], seen, steps=40, interval=10, replicas=3)
    assert walls == pytest.approx(2.55 + 2.0 + 2.0)
    assert predict([], seen, steps=40, interval=10, replicas=1) == pytest.approx([4.0])


def test_a_budget_of_nothing_leaves_one_killed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from calibration import kill_proof

    class Undisturbed:
        """Runs of 10 ms a step and a save; a run that is killed is back half a second later."""

        def __init__(self, *_: object) -> None:
            self.closed = False

        def run(self, kill_at: list[float]) -> Killed:
            killed = kill_at == [kill_proof.EARLY]
            kills, ready = ([0.1], [0.6]) if killed else ([], [])
            return Killed(0.9, kills=kills, ready=ready, times={"steps": [0.01], "saves": [0.01]})

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(kill_proof, "Session", Undisturbed)
    monkeypatch.setattr(kill_proof, "kill_times", lambda *_: [])
    found = kill_proof.proof(5, steps=60, limit_s=0.0)
    assert found["runs"] == 1
    assert found["mean_predicted_s"] == pytest.approx(60 * 0.01 + 3 * 0.01)  # a save every 15 steps, none at the end
