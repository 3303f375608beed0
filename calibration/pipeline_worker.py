"""Two processes that measure op times and run pipeline steps in turns; started by ``calibration.verify`` under torchrun.

Rounds alternate: a ping-pong of the message, one step of each calibration schedule (op by op), one step of each schedule
under test (wall time only). Whatever else the machine does then meets both alike. Rank 0 writes what was seen as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules

from calibration.gpt import GptSize, batch_of, loss_of, stages_of

CLASSES: dict[str, tuple[Any, int]] = {
    # clustersim's name: (torch's class, stages a rank)
    "gpipe": (schedules.ScheduleGPipe, 1),
    "1f1b": (schedules.Schedule1F1B, 1),
    "interleaved-1f1b": (schedules.ScheduleInterleaved1F1B, 2),
    "interleaved-zb": (schedules.ScheduleInterleavedZeroBubble, 2),
    "zb-v": (schedules.ScheduleZBVZeroBubble, 2),
}
FITTED = ("gpipe", "1f1b", "interleaved-1f1b", "interleaved-zb", "zb-v")
"""Schedules whose ops are timed, at a number of microbatches that no test has."""


def held(name: str, rank: int, ranks: int) -> list[int]:
    """Stages of a rank: V-shaped for zb-v, else round robin."""
    chunks = CLASSES[name][1]
    if name == "zb-v":
        return [rank, 2 * ranks - 1 - rank]
    return [rank + ranks * chunk for chunk in range(chunks)]


class OpTimes:
    """Seconds of every op of the stages it is put on: ``seen[(stage, kind)]``."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, str], list[float]] = defaultdict(list)

    def watch(self, schedule: Any, stages: list[Any]) -> None:
        """Time the ops of ``stages`` as ``schedule`` runs them; the loss counts to the last forward."""
        for stage in stages:
            index = stage.stage_index
            stage.forward_one_chunk = self._timed(stage.forward_one_chunk, lambda _, i=index: (i, "F"))
            stage.backward_one_chunk = self._timed(
                stage.backward_one_chunk, lambda kw, i=index: (i, "B" if kw.get("full_backward", True) else "I")
            )
            stage.backward_weight_one_chunk = self._timed(stage.backward_weight_one_chunk, lambda _, i=index: (i, "W"))
        inner = schedule._maybe_compute_loss

        def with_loss(stage: Any, *args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = inner(stage, *args, **kwargs)
            if stage.is_last:
                self.seen[(stage.stage_index, "F")][-1] += time.perf_counter() - start
            return result

        schedule._maybe_compute_loss = with_loss

    def _timed(self, function: Any, key: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **kwargs)
            self.seen[key(kwargs)].append(time.perf_counter() - start)
            return result

        return run

    def taken(self) -> dict[str, list[float]]:
        """What was seen since the last call, by ``stage:kind``."""
        found = {f"{stage}:{kind}": times for (stage, kind), times in sorted(self.seen.items())}
        self.seen = defaultdict(list)
        return found


class Job:
    """One schedule at one number of microbatches, ready to step."""

    def __init__(self, name: str, microbatches: int, size: GptSize, modules: dict[int, list[Any]], watch: bool) -> None:
        self.name, self.microbatches = name, microbatches
        rank, ranks = dist.get_rank(), dist.get_world_size()
        kind, chunks = CLASSES[name]
        count = chunks * ranks
        stages = [
            PipelineStage(modules[count][index], index, count, torch.device("cpu")) for index in held(name, rank, ranks)
        ]
        self.schedule = kind(stages if chunks > 1 else stages[0], microbatches, loss_fn=loss_of)
        self.first, self.last = 0 in held(name, rank, ranks), count - 1 in held(name, rank, ranks)
        self.tokens, self.targets = batch_of(size, microbatches * size.batch)
        self.times = OpTimes()
        self.optimizer = torch.optim.AdamW([p for stage in stages for p in stage.submod.parameters()], fused=True)
        self.step()
        if watch:
            self.times.watch(self.schedule, stages)

    def step(self) -> tuple[float, float]:
        """One training step: (seconds of the pipeline, seconds of the optimizer), from a common start."""
        dist.barrier()
        start = time.perf_counter()
        kwargs: dict[str, Any] = {"return_outputs": False}
        if self.last:
            kwargs["target"] = self.targets
        if self.first:
            self.schedule.step(self.tokens, **kwargs)
        else:
            self.schedule.step(**kwargs)
        middle = time.perf_counter()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return middle - start, time.perf_counter() - middle


def ping_pong(numbers: int, turns: int = 10) -> float:
    """Seconds of one message of ``numbers`` fp32 numbers, half of a round trip, median."""
    data, other, seen = torch.zeros(numbers), 1 - dist.get_rank(), []
    for _ in range(turns):
        dist.barrier()
        start = time.perf_counter()
        for sending in (dist.get_rank() == 0, dist.get_rank() == 1):
            work = dist.batch_isend_irecv([dist.P2POp(dist.isend if sending else dist.irecv, data, other)])
            for item in work:
                item.wait()
        seen.append((time.perf_counter() - start) / 2)
    return sorted(seen)[turns // 2]


def load() -> float:
    """Load average of the last minute."""
    return os.getloadavg()[0]


def gathered(mine: Any) -> list[Any]:
    """What every rank says, on every rank."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found


def one_round(fitted: list[Job], tested: list[Job], size: GptSize) -> dict[str, Any]:
    """One round; what both ranks saw."""
    message = ping_pong(size.tokens * size.hidden)
    fits, tests = [], []
    rounds_apart = max(1, len(tested) // max(1, len(fitted)))
    for index, job in enumerate(tested):
        if index % rounds_apart == 0 and index // rounds_apart < len(fitted):
            watched = fitted[index // rounds_apart]
            seconds = watched.step()
            fits.append({"name": watched.name, "microbatches": watched.microbatches, "step_s": seconds,
                         "ops": watched.times.taken()})  # fmt: skip
        tests.append({"name": job.name, "microbatches": job.microbatches, "step_s": job.step()})
    return {"message_s": message, "load": load(), "fits": gathered(fits), "tests": gathered(tests)}


def main() -> None:
    """Measure rounds until the time is over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--fit-microbatches", type=int, default=6)
    parser.add_argument("--microbatches", default="4,8,12")
    parser.add_argument("--schedules", default=",".join(CLASSES))
    parser.add_argument("--size", default="{}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size, ranks = GptSize(**json.loads(options.size)), dist.get_world_size()
    modules = {count: stages_of(size, count) for count in (ranks, 2 * ranks)}
    names = options.schedules.split(",")
    fitted = [Job(name, options.fit_microbatches, size, modules, True) for name in FITTED if name in names]
    tested = [Job(name, int(m), size, modules, False) for m in options.microbatches.split(",") for name in names]
    rounds: list[dict[str, Any]] = []
    start = time.monotonic()
    one_round(fitted, tested, size)
    while len(rounds) < options.rounds:
        enough = torch.tensor(float(time.monotonic() - start > options.seconds and len(rounds) >= 3))
        dist.broadcast(enough, 0)
        if enough:
            break
        rounds.append(one_round(fitted, tested, size))
    if dist.get_rank() == 0:
        seen = {"size": vars(size), "ranks": ranks, "rounds": rounds}
        Path(options.out).write_text(json.dumps(seen), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
