"""A training loop with checkpoints: what the proofs of saving and of restarting run."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from calibration.gpt import GptSize, batch_of, loss_of, whole
from calibration.transfer import write_durably

SIZE = GptSize(hidden=128, heads=4, layers=4, length=32, vocabulary=256, batch=2)
"""About 0.9 million parameters and 7 MB of state; a step takes some ten milliseconds on one core."""


class Momentum:
    """Gradient descent with momentum. (torch.optim imports its compiler: two more seconds of every restart.)"""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], rate: float = 0.01, keep: float = 0.9) -> None:
        self.parameters = list(parameters)
        self.rate, self.keep = rate, keep
        self.moments = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Update, and forget the gradients."""
        for parameter, moment in zip(self.parameters, self.moments, strict=True):
            assert parameter.grad is not None
            moment.mul_(self.keep).add_(parameter.grad)
            parameter.sub_(moment, alpha=self.rate)
            parameter.grad = None

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The moments by place."""
        return {str(index): moment for index, moment in enumerate(self.moments)}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take the moments over."""
        for index, moment in enumerate(self.moments):
            moment.copy_(state[str(index)])


class Trainer:
    """A small GPT, its optimizer and its checkpoints in ``folder``."""

    def __init__(self, size: GptSize, folder: Path) -> None:
        self.model = whole(size)
        self.optimizer = Momentum(self.model.parameters())
        self.tokens, self.targets = batch_of(size, size.batch)
        self.folder, self.step_number = folder, 0
        self.flight: Any = None
        self.saves = 0
        self.durable_s = 0.0
        """``time.perf_counter()`` at which the last save became durable."""
        folder.mkdir(parents=True, exist_ok=True)

    def step(self) -> float:
        """One training step; its seconds."""
        start = time.perf_counter()
        loss_of(self.model(self.tokens), self.targets).backward()
        self.optimizer.step()
        self.step_number += 1
        return time.perf_counter() - start

    def state(self) -> dict[str, Any]:
        """All that a restart needs."""
        return {"step": self.step_number, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def save(self) -> float:
        """A synchronous save, on disk under its name when this returns; its seconds."""
        start = time.perf_counter()
        buffer = io.BytesIO()
        torch.save(self.state(), buffer)
        data = buffer.getvalue()
        part = self.folder / "state.part"
        write_durably(part, data, len(data))
        os.replace(part, self.folder / "state.pt")
        return time.perf_counter() - start

    def restore(self) -> bool:
        """Load the newest durable state, if there is one."""
        path = self.folder / "state.pt"
        if not path.exists():
            return False
        found = torch.load(path, weights_only=True)
        self.model.load_state_dict(found["model"])
        self.optimizer.load_state_dict(found["optimizer"])
        self.step_number = found["step"]
        return True

    @property
    def saving(self) -> bool:
        """Whether an asynchronous save is in flight."""
        return self.flight is not None and not self.flight.done()

    def save_async(self) -> float:
        """Start a save with torch.distributed.checkpoint's ``async_save``; seconds that it blocks."""
        import torch.distributed.checkpoint as dcp

        start = time.perf_counter()
        self.saves += 1
        shutil.rmtree(self.folder / f"async-{self.saves - 2}", ignore_errors=True)
        self.flight = dcp.async_save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
                                     checkpoint_id=str(self.folder / f"async-{self.saves}"))  # fmt: skip
        self.flight.add_done_callback(self._landed)
        return time.perf_counter() - start

    def _landed(self, _: Any) -> None:
        self.durable_s = time.perf_counter()

    def settle(self) -> None:
        """Wait for the save in flight."""
        if self.flight is not None:
            self.flight.result()
            while self.saving:
                time.sleep(1e-3)


def run(trainer: Trainer, steps: int, interval: int, save: Callable[[], float] | None) -> float:
    """Wall seconds of ``steps`` steps with a save every ``interval`` steps, none at the end.

    A save that is due while one is in flight starts at the first step's end after it has landed.
    """
    start = time.perf_counter()
    since = 0
    for number in range(steps):
        trainer.step()
        since += 1
        if save is not None and since >= interval and number + 1 < steps and not trainer.saving:
            save()
            since = 0
    return time.perf_counter() - start
