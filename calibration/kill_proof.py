"""Runs killed by SIGKILL at seeded times and restarted by torchrun: wall time against what clustersim predicts.

Kill times are a Poisson process in wall time from the moment the job is up, also while it restarts. The prediction gets
the same kill times (a ``trace`` failure), the step and save times of an undisturbed run and restart times of kills that
are no part of the test; both are measured again between the test runs, since the machine's load moves.
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from calibration.launch import command, environment
from calibration.pipeline_proof import Prediction
from calibration.scenario import scenario_of
from clustersim.run.simulate import simulate

STEPS, INTERVAL = 450, 15
RESTARTS = 1000
EARLY = 0.1
"""Seconds after which a calibration run is killed."""
REPLICAS = 40


def children(pid: int) -> list[int]:
    """Processes whose parent is ``pid``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(entry.name))
    return found


@dataclass
class Killed:
    """One run: seconds since the job was up. ``kills``: when SIGKILL was sent; ``ready``: when a worker could step."""

    wall: float
    kills: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=dict)

    @property
    def down(self) -> list[float]:
        """Seconds from each kill that hit a training worker to its successor's readiness (until the next kill)."""
        found = []
        for kill in self.kills:
            after = [moment for moment in self.ready if moment > kill]
            if after and not any(kill < other < after[0] for other in self.kills):
                found.append(after[0] - kill)
        return found


class Session:
    """A trainer under torchrun that does one run after the other; ``plan`` holds the steps of each."""

    def __init__(self, folder: Path, plan: Sequence[int], interval: int, size: str = "{}") -> None:
        self.folder, self.next = folder, 0
        arguments = ["--folder", str(folder), "--plan", json.dumps(list(plan)), "--interval", str(interval), "--size", size]
        line = command("calibration.kill_worker", 1, arguments, RESTARTS)
        self.process = subprocess.Popen(
            line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def run(self, kill_at: Sequence[float], limit_s: float = 600.0) -> Killed:
        """The next run, killed at these seconds after it was first ready.

        Raises:
            RuntimeError: it took longer than ``limit_s``, or torchrun gave up.
        """
        place = self.folder / str(self.next)
        self.next += 1
        end = time.time() + limit_s
        while not (events := events_of(place)):
            self._pause(end)
        up, sent, waiting = float(events[0]["t"]), [], list(kill_at)
        while not (place / "times.json").exists():
            if waiting and time.time() - up >= waiting[0]:
                waiting.pop(0)
                sent += [self._kill(child, up) for child in children(self.process.pid)]
            self._pause(end)
        events = events_of(place)
        done = next(event["t"] for event in events if event["event"] == "done") - up
        ready = [event["t"] - up for event in events if event["event"] == "ready"]
        times = json.loads((place / "times.json").read_text(encoding="utf-8"))
        return Killed(done, [moment for moment in sent if moment < done], ready[1:], times)

    def _kill(self, child: int, up: float) -> float:
        os.kill(child, signal.SIGKILL)
        return time.time() - up

    def _pause(self, end: float) -> None:
        if time.time() > end:
            raise RuntimeError("the killed run took too long")
        if self.process.poll() not in (None, 0):
            raise RuntimeError(f"torchrun ended with {self.process.returncode}")
        time.sleep(0.005)

    def close(self) -> None:
        """End torchrun and its worker."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def events_of(folder: Path) -> list[dict[str, Any]]:
    """Complete lines of a run's event log."""
    path = folder / "events.jsonl"
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def kill_times(seed: int, mtbf_s: float, horizon_s: float) -> list[float]:
    """Arrivals of a Poisson process up to ``horizon_s``."""
    rng = np.random.default_rng(seed)
    moments = np.cumsum(rng.exponential(mtbf_s, size=int(4 * horizon_s / mtbf_s) + 20))
    return [float(moment) for moment in moments if moment < horizon_s]


def predict(kill_at: Sequence[float], calibration: Killed, steps: int, interval: int, replicas: int) -> np.ndarray:
    """(replicas,) predicted wall seconds: restart times drawn from those measured, step times from blocks of those."""
    spent, saves = calibration.times["steps"], calibration.times["saves"]
    rng = np.random.default_rng(0)
    walls = []
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "kills.csv"
        rows = [f"worker,{moment:.6f},{moment + 0.001:.6f},kill" for moment in kill_at]
        log.write_text("\n".join(["node,start_s,end_s,class", *rows]) + "\n", encoding="utf-8")
        for replica in range(replicas):
            step = float(np.mean(rng.choice(spent, size=len(spent))))
            checkpoint = {"engine": "sync", "interval": {"steps": interval}, "stall": statistics.fmean(saves)}
            scenario = scenario_of(steps, checkpoint, log if kill_at else None, calibration.down)
            walls.append(simulate(scenario, seed=replica, step=step).wall_s)
    return np.array(walls)


def proof(runs: int, steps: int = STEPS, size: str = "{}", limit_s: float = math.inf) -> dict[str, Any]:
    """``runs`` killed runs (as many as begin within ``limit_s``, at least one).

    A short calibration run, killed once at its start, stands before each and after the last.
    A run is predicted from the two calibrations before and the two after it. The mean time between kills is the length of a
    run as calibrated first (at least twice a restart), so that a run meets about one.
    """
    short = 5 * INTERVAL  # so that steps and saves are left behind the kill
    plan = [short, *[item for _ in range(runs) for item in (short, steps)], short, short]
    calibrations: list[Killed] = []
    tested: list[tuple[int, list[float], Killed, float]] = []
    end = time.monotonic() + limit_s
    with tempfile.TemporaryDirectory() as name:
        session = Session(Path(name), plan, INTERVAL, size)
        try:
            calibrations.append(session.run([EARLY]))
            mtbf = mtbf_of(calibrations[0], steps)
            for seed in range(runs):
                if tested and time.monotonic() > end:
                    break
                calibrations.append(session.run([EARLY]))
                kills = kill_times(seed, mtbf, 600)
                tested.append((seed, kills, session.run(kills), os.getloadavg()[0]))
            if len(tested) == runs:
                calibrations += [session.run([EARLY]), session.run([EARLY])]
        finally:
            session.close()
    rows = [_row(run, calibrations[index : index + 4], steps) for index, run in enumerate(tested)]
    measured, predicted = (float(np.mean([getattr(row, key) for row in rows])) for key in ("measured", "predicted"))
    loads = [run[3] for run in tested]
    return {"rows": [row.row() for row in rows], "mean_measured_s": measured, "mean_predicted_s": predicted,
            "mean_error_pct": 100 * (predicted / measured - 1), "inside_interval": sum(row.inside for row in rows),
            "runs": len(rows), "mtbf_s": mtbf, "load_average": [min(loads), max(loads)]}  # fmt: skip


def mtbf_of(seen: Killed, steps: int) -> float:
    """Mean time between kills that a run of ``steps`` steps meets about once."""
    length = steps * (statistics.fmean(seen.times["steps"]) + statistics.fmean(seen.times["saves"]) / INTERVAL)
    return max(length, 2 * statistics.fmean(seen.down))


def _row(run: tuple[int, list[float], Killed, float], near: list[Killed], steps: int) -> Prediction:
    seed, kills, seen, _ = run
    walls = predict(kills, pooled(near), steps, INTERVAL, REPLICAS)
    low, high = interval_of(walls, near)
    return Prediction(f"seed {seed}: {len(seen.kills)} kills", seen.wall, float(np.mean(walls)), low, high, 0.0, 1)


def pooled(near: Sequence[Killed]) -> Killed:
    """Restarts, steps and saves of several calibrations together."""
    shift = 1e6
    return Killed(
        0.0,
        [shift * index + moment for index, one in enumerate(near) for moment in one.kills],
        [shift * index + moment for index, one in enumerate(near) for moment in one.ready],
        {key: [value for one in near for value in one.times[key]] for key in ("steps", "saves")},
    )


def interval_of(walls: np.ndarray, near: Sequence[Killed]) -> tuple[float, float]:
    """95 % interval: spread of the replicas (restart times), widened by how far step times differ between calibrations."""
    steps = [math.log(statistics.fmean(one.times["steps"])) for one in near]
    drift = 1.96 * statistics.stdev(steps)
    low, high = np.quantile(walls, [0.025, 0.975])
    return float(low * math.exp(-drift)), float(high * math.exp(drift))
