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
RESTARTS = 1000
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


def calibrated(session: Session) -> Killed:
    """Two short runs, each killed once early: restart times, and the steps and saves of what came after."""
    one, two = (session.run([0.3]) for _ in range(2))
    return pooled(one, two)


def proof(runs: int, every: int = 4, steps: int = STEPS, size: str = "{}") -> dict[str, Any]:
    """``runs`` killed runs; a calibration before every ``every`` of them and one at the end, pooled pairwise.

    The mean time between kills is the length of a run as calibrated first (at least twice a restart), so that a run meets
    one or two.
    """
    short = max(steps // 3, 2 * INTERVAL)
    plan = [item for first in range(0, runs, every) for item in [short, short] + [steps] * min(every, runs - first)]
    rows: list[Prediction] = []
    loads: list[float] = []
    waiting: list[tuple[int, list[float], Killed]] = []
    before: Killed | None = None
    with tempfile.TemporaryDirectory() as name:
        session = Session(Path(name), [*plan, short, short], INTERVAL, size)
        try:
            mtbf = 0.0
            for seed in range(runs):
                if seed % every == 0:
                    now = calibrated(session)
                    rows += _settled(waiting, before, now, steps)
                    waiting, before = [], now
                    mtbf = mtbf or mtbf_of(now, steps)
                loads.append(os.getloadavg()[0])
                kills = kill_times(seed, mtbf, 600)
                waiting.append((seed, kills, session.run(kills)))
            rows += _settled(waiting, before, calibrated(session), steps)
        finally:
            session.close()
    measured, predicted = (float(np.mean([getattr(row, key) for row in rows])) for key in ("measured", "predicted"))
    return {"rows": [row.row() for row in rows], "mean_measured_s": measured, "mean_predicted_s": predicted,
            "mean_error_pct": 100 * (predicted / measured - 1), "inside_interval": sum(row.inside for row in rows),
            "runs": len(rows), "mtbf_s": mtbf, "load_average": [min(loads), max(loads)]}  # fmt: skip


def mtbf_of(seen: Killed, steps: int) -> float:
    """Mean time between kills that a run of ``steps`` steps meets about once."""
    length = steps * (statistics.fmean(seen.times["steps"]) + statistics.fmean(seen.times["saves"]) / INTERVAL)
    return max(length, 2 * statistics.fmean(seen.down))


def _settled(
    waiting: list[tuple[int, list[float], Killed]], before: Killed | None, after: Killed, steps: int
) -> list[Prediction]:
    """Predictions of the runs between two calibrations, from both together."""
    if before is None:
        return []
    both = pooled(before, after)
    found = []
    for seed, kills, seen in waiting:
        walls = predict(kills, both, steps, INTERVAL, REPLICAS)
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
