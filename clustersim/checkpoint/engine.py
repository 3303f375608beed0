"""The family of checkpoint engines: what is saved where, what stalls, and what survives which loss."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from clustersim.part import Block, Part
from clustersim.units import DURATION, PositiveSeconds, Unit


class Interval(Block):
    """Training time between saves: a duration, ``{steps: n}``, or ``auto``."""

    seconds: PositiveSeconds | None = None
    steps: int | None = Field(default=None, gt=0)


class CheckpointEngine(Part, family="checkpoint engine"):
    """How training state is saved and restored."""

    interval: Any = "auto"
    restore: Literal["all-read", "broadcast", "peer"] = "all-read"
    final: bool = False
    """Save once more at the end of training."""

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """``engine`` names the kind in the scenario (``checkpoint: {engine: async, interval: 10 min}``)."""
        if isinstance(value, dict) and "engine" in value:
            engine = value["engine"]
            rest = {key: item for key, item in value.items() if key != "engine"}
            return {**rest, **engine} if isinstance(engine, dict) else {**rest, "kind": engine}
        return super().short_form(value)


class NoCheckpoint(CheckpointEngine, kind="none"):
    """Never saves: a failure starts the job from its beginning."""


class Sync(CheckpointEngine, kind="sync"):
    """Training stands still until the state is durable on shared storage."""


class Async(CheckpointEngine, kind="async"):
    """Training stands still for the copy to host memory; the write to shared storage runs in the background."""


__all__ = ["DURATION", "Async", "CheckpointEngine", "Interval", "NoCheckpoint", "Sync", "Unit"]
