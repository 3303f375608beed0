"""Runs killed by SIGKILL at seeded times and restarted by torchrun: wall time against what clustersim predicts.

Kill times are a Poisson process in wall time from the moment the job is up, also while it restarts. The prediction gets
the same kill times (a ``trace`` failure), the step and save times of an undisturbed run and restart times of kills that
are no part of the test; both are measured again between the test runs, since the machine's load moves.
"""

from __future__ import annotations

import json
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

STEPS, INTERVAL = 240, 20
MTBF_S = 6.0
RESTARTS = 100
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


def killed_run(kill_at: Sequence[float], steps: int, interval: int, limit_s: float, size: str = "{}") -> Killed:
    """Train under torchrun and kill the worker at the given seconds after it was first ready.

    Raises:
        RuntimeError: the run did not end in ``limit_s``, or failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = ["--folder", name, "--steps", str(steps), "--interval", str(interval), "--size", size]
        process = subprocess.Popen(command("calibration.kill_worker", 1, arguments, RESTARTS), env=environment(),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        try:
            up = _first_ready(folder, process, limit_s)
            sent = _kill_along(process, up, kill_at, limit_s)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(timeout=30)
        if process.returncode != 0:
            raise RuntimeError(f"the killed run ended with {process.returncode}")
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
        done = next(event["t"] for event in events if event["event"] == "done")
        ready = [event["t"] - up for event in events if event["event"] == "ready"]
        times = json.loads((folder / "times.json").read_text(encoding="utf-8"))
        return Killed(done - up, [moment for moment in sent if moment < done - up], ready[1:], times)


def _first_ready(folder: Path, process: subprocess.Popen[bytes], limit_s: float) -> float:
    end = time.time() + limit_s
    while time.time() < end and process.poll() is None:
        path = folder / "events.jsonl"
        if path.exists() and (lines := path.read_text(encoding="utf-8").splitlines()):
            return float(json.loads(lines[0])["t"])
        time.sleep(0.01)
    raise RuntimeError("the trainer never came up")


def _kill_along(process: subprocess.Popen[bytes], up: float, kill_at: Sequence[float], limit_s: float) -> list[float]:
    """Send the kills until the run is over; when each was sent, seconds since ``up``."""
    sent, waiting = [], list(kill_at)
    while process.poll() is None:
        now = time.time() - up
        if now > limit_s:
            raise RuntimeError(f"the killed run took longer than {limit_s:.0f} s")
        if waiting and now >= waiting[0]:
            waiting.pop(0)
            for child in children(process.pid):
                os.kill(child, signal.SIGKILL)
                sent.append(time.time() - up)
        time.sleep(0.005)
    return sent


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


def calibration_run(kills: int, steps: int, interval: int, limit_s: float, size: str = "{}") -> Killed:
    """Restart times of ``kills`` kills one after the other, step and save times of what runs undisturbed after them."""
    with_kills = killed_run([1.0 + 1e-3 * index for index in range(1)], steps, interval, limit_s, size)
    for _ in range(kills - 1):
        more = killed_run([1.0], steps, interval, limit_s, size)
        with_kills.kills += [100 * len(with_kills.kills) + moment for moment in more.kills]
        with_kills.ready += [100 * (len(with_kills.kills) - 1) + moment for moment in more.ready]
        with_kills.times = {key: with_kills.times[key] + more.times[key] for key in more.times}
    return with_kills


def proof(runs: int, limit_s: float, every: int = 4) -> dict[str, Any]:
    """``runs`` killed runs; a calibration before every ``every`` of them and one at the end, pooled pairwise."""
    rows: list[Prediction] = []
    loads: list[float] = []
    begun = time.monotonic()
    waiting: list[tuple[int, list[float], Killed]] = []
    before: Killed | None = None
    for seed in range(runs):
        if time.monotonic() - begun > limit_s:
            break
        if seed % every == 0:
            now = calibration_run(2, STEPS // 2, INTERVAL, 120)
            rows += _settled(waiting, before, now)
            waiting, before = [], now
        loads.append(os.getloadavg()[0])
        kills = kill_times(seed, MTBF_S, 600)
        waiting.append((seed, kills, killed_run(kills, STEPS, INTERVAL, 600)))
    rows += _settled(waiting, before, calibration_run(2, STEPS // 2, INTERVAL, 120))
    measured, predicted = (np.mean([getattr(row, name) for row in rows]) for name in ("measured", "predicted"))
    return {"rows": [row.row() for row in rows], "mean_measured_s": float(measured), "mean_predicted_s": float(predicted),
            "mean_error_pct": 100 * float(predicted / measured - 1), "inside_interval": sum(row.inside for row in rows),
            "runs": len(rows), "load_average": [min(loads), max(loads)]}  # fmt: skip


def _settled(waiting: list[tuple[int, list[float], Killed]], before: Killed | None, after: Killed) -> list[Prediction]:
    """Predictions of the runs between two calibrations, from both together."""
    if before is None:
        return []
    both = pooled(before, after)
    found = []
    for seed, kills, seen in waiting:
        walls = predict(kills, both, STEPS, INTERVAL, REPLICAS)
        low, high = interval_of(walls, before, after)
        name = f"seed {seed}: {len(seen.kills)} kills"
        found.append(Prediction(name, seen.wall, float(np.mean(walls)), low, high, 0.0, 1))
    return found


def pooled(a: Killed, b: Killed) -> Killed:
    """Both calibrations' restarts, steps and saves."""
    shift = 1e6
    return Killed(0.0, a.kills + [shift + moment for moment in b.kills], a.ready + [shift + moment for moment in b.ready],
                  {key: a.times[key] + b.times[key] for key in a.times})  # fmt: skip


def interval_of(walls: np.ndarray, before: Killed, after: Killed) -> tuple[float, float]:
    """95 % interval: spread of the replicas, widened by how far the two calibrations' step times lie apart."""
    drift = abs(np.log(statistics.fmean(before.times["steps"]) / statistics.fmean(after.times["steps"]))) / 2
    low, high = np.quantile(walls, [0.025, 0.975])
    return float(low * np.exp(-drift)), float(high * np.exp(drift))
