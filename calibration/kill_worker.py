"""A trainer that is killed and started again by torchrun; it writes down when it was ready, and when it was done.

Events are JSON lines with ``time.time()``: ``ready`` (state loaded, about to step), ``done``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist

from calibration.gpt import GptSize
from calibration.trainer import SIZE, Trainer


def main() -> None:
    """Train one run after the other, each to its steps with a synchronous save every ``--interval`` steps.

    ``--plan``: JSON list of steps, one a run; run i lives in ``folder/i``. What is done stays done after a restart.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--plan", required=True)
    parser.add_argument("--interval", type=int, required=True)
    parser.add_argument("--size", default="{}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size = GptSize(**{**vars(SIZE), **json.loads(options.size)})
    for index, steps in enumerate(json.loads(options.plan)):
        folder = Path(options.folder) / str(index)
        if not (folder / "times.json").exists():
            train(Trainer(size, folder), steps, options.interval)
    dist.destroy_process_group()


def train(trainer: Trainer, steps: int, interval: int) -> None:
    """One run, from its newest durable state to its end."""
    trainer.restore()
    with (trainer.folder / "events.jsonl").open("a", encoding="utf-8") as log:

        def say(event: str) -> None:
            log.write(json.dumps({"event": event, "t": time.time(), "step": trainer.step_number}) + "\n")
            log.flush()

        say("ready")
        since, spent, saved = 0, [], []
        while trainer.step_number < steps:
            spent.append(trainer.step())
            since += 1
            if since >= interval and trainer.step_number < steps:
                saved.append(trainer.save())
                since = 0
        say("done")
    part = trainer.folder / "times.part"
    part.write_text(json.dumps({"steps": spent, "saves": saved}), encoding="utf-8")
    part.replace(trainer.folder / "times.json")


if __name__ == "__main__":
    main()
