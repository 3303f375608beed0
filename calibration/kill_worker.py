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
    """Train to ``--steps`` with a synchronous save every ``--interval`` steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--interval", type=int, required=True)
    parser.add_argument("--size", default="{}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder = Path(options.folder)
    trainer = Trainer(GptSize(**{**vars(SIZE), **json.loads(options.size)}), folder)
    trainer.restore()
    with (folder / "events.jsonl").open("a", encoding="utf-8") as log:

        def say(event: str) -> None:
            log.write(json.dumps({"event": event, "t": time.time(), "step": trainer.step_number}) + "\n")
            log.flush()

        say("ready")
        since, spent, saved = 0, [], []
        while trainer.step_number < options.steps:
            spent.append(trainer.step())
            since += 1
            if since >= options.interval and trainer.step_number < options.steps:
                saved.append(trainer.save())
                since = 0
        say("done")
    (folder / "times.json").write_text(json.dumps({"steps": spent, "saves": saved}), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
