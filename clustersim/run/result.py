"""What one replica of a run gives: metrics, ledger, event log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clustersim.run.log import Log

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RunResult:
    """One replica of a run. Seconds are wall time; ``None`` stands for what is undefined.

    Attributes:
        wall_s: from the start to the end of training (or of the given duration).
        ettr: effective training time ratio, train ÷ wall.
        goodput_tokens_per_s: tokens kept ÷ wall.
        interruptions: failures that stopped the job or its recovery, planned ones apart.
        interruptions_planned: the planned ones.
        effective_mfu: MFU of an undisturbed step × ettr; None where the step has none.
        gpu_hours: of the job's places, spares apart.
        steps: steps kept.
        tokens: tokens kept.
        lost_work_s: the ledger's ``rework``.
        nodes_down_p99: nodes down at once, not exceeded for 99 % of the time.
        mtti_s: wall ÷ interruptions; None at none.
        ledger_s: seconds by category; their sum is ``wall_s``.
        steps_lost: steps done that were rolled back.
        down_s: seconds with so many nodes down at once.
        verdict: why the run was given up, or that it made no progress; None: all is well.
        hopeless: the run ended before it reached its steps or tokens.
    """

    wall_s: float
    ettr: float
    goodput_tokens_per_s: float
    interruptions: int
    interruptions_planned: int
    effective_mfu: float | None
    gpu_hours: float
    steps: int
    tokens: float
    lost_work_s: float
    nodes_down_p99: float
    mtti_s: float | None
    ledger_s: dict[str, float]
    down_s: dict[int, float] = field(default_factory=dict)
    steps_lost: int = 0
    verdict: str | None = None
    hopeless: bool = False
    log: Log = field(default_factory=lambda: Log(False), repr=False, compare=False)

    METRICS = ("wall_s", "ettr", "goodput_tokens_per_s", "interruptions", "interruptions_planned", "effective_mfu",
               "gpu_hours", "steps", "tokens", "lost_work_s", "steps_lost", "nodes_down_p99", "mtti_s")  # fmt: skip

    def metrics(self) -> dict[str, Any]:
        """The metrics by name, with ``ledger_s`` as a mapping by category."""
        return {**{name: getattr(self, name) for name in self.METRICS}, "ledger_s": dict(self.ledger_s)}

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        from clustersim.shown import shown

        told = [(name, getattr(self, name)) for name in self.METRICS]
        spent = [(f"… {name}", f"{seconds / self.wall_s:.3%}") for name, seconds in self.ledger_s.items() if seconds > 0]
        return shown("One replica of a run", [*told, *spent])

    @property
    def events(self) -> pd.DataFrame:
        """The event log, a row an event (see ``clustersim.run.log.Entry``); empty if the run kept none."""
        return self.log.frame()

    @property
    def ledger(self) -> pd.DataFrame:
        """The ledger, a row a category: seconds and share of the wall time."""
        import pandas as pd

        seconds = list(self.ledger_s.values())
        shares = [value / self.wall_s if self.wall_s > 0 else 0.0 for value in seconds]
        return pd.DataFrame({"category": list(self.ledger_s), "seconds": seconds, "share": shares})
