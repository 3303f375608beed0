"""Two processes that train data parallel: DDP and FSDP2 steps in turns with steps that do not communicate.

Rank 0 writes, by model size and round, the seconds of: the local step (forward and backward, both ranks busy), its
optimizer, DDP's and FSDP2's steps; and the times of collectives at sizes that are none of the models'.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from calibration.gpt import Block, GptSize, batch_of, loss_of, whole

SIZES = [GptSize(hidden=h, heads=4, layers=n, length=32, vocabulary=256, batch=b) for h, n, b in
         ((64, 2, 2), (192, 4, 2), (96, 3, 2), (128, 2, 4), (128, 5, 2), (160, 3, 4))]  # fmt: skip
CALIBRATING = 2
"""The first two sizes calibrate what DDP and FSDP2 do around their messages; the others are predicted."""
MESSAGES = [2**p for p in range(12, 24, 2)]
OPS = ("all-reduce", "all-gather", "reduce-scatter")


class Way:
    """One way to train one size: ``local``, ``ddp`` or ``fsdp2``."""

    def __init__(self, kind: str, size: GptSize) -> None:
        model: nn.Module = whole(size)
        if kind == "ddp":
            model = nn.parallel.DistributedDataParallel(model)
        if kind == "fsdp2":
            for layer in model.modules():
                if isinstance(layer, Block):
                    fully_shard(layer)
            fully_shard(model)
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), fused=kind != "fsdp2", foreach=False)
        self.tokens, self.targets = batch_of(size, size.batch, seed=dist.get_rank())

    def step(self) -> tuple[float, float]:
        """Seconds of forward and backward, and of the optimizer, from a common start."""
        dist.barrier()
        start = time.perf_counter()
        loss_of(self.model(self.tokens), self.targets).backward()
        middle = time.perf_counter()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return middle - start, time.perf_counter() - middle


def message(op: str, size: int) -> Callable[[], Any]:
    """One collective of ``size`` bytes."""
    whole_, part = torch.randn(size // 4), torch.randn(size // 8)
    if op == "all-reduce":
        return lambda: dist.all_reduce(whole_)
    if op == "all-gather":
        return lambda: dist.all_gather_into_tensor(whole_, part)
    return lambda: dist.reduce_scatter_tensor(part, whole_)


def timed(call: Callable[[], Any]) -> float:
    """Seconds from a common start."""
    dist.barrier()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def slowest(value: float) -> float:
    """The largest of all ranks."""
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return float(tensor)


def main() -> None:
    """Measure rounds until the time is over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ways = [(index, kind, Way(kind, size)) for index, size in enumerate(SIZES) for kind in ("local", "ddp", "fsdp2")]
    calls = {(op, size): message(op, size) for op in OPS for size in MESSAGES}
    rounds: list[dict[str, Any]] = []
    begun = time.monotonic()
    while len(rounds) < options.rounds + 1:
        over = torch.tensor(float(len(rounds) >= 4 and time.monotonic() - begun > options.seconds))
        dist.broadcast(over, 0)
        if over:
            break
        steps = {f"{kind} {index}": [slowest(value) for value in way.step()] for index, kind, way in ways}
        messages = {f"{op} {size}": slowest(timed(call)) for (op, size), call in calls.items()}
        rounds.append({"steps": steps, "messages": messages, "load": os.getloadavg()[0]})
    if dist.get_rank() == 0:
        Path(options.out).write_text(json.dumps(rounds[1:]), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
