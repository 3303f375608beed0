"""The family of recovery strategies: what happens between the detection of a failure and the next step."""

from __future__ import annotations

from typing import Any

from clustersim.distributions import Distribution
from clustersim.part import Block, Part


class Stage(Block):
    """One named stage: how long it takes, what must end before it, which resource it needs."""

    time: Distribution
    after: tuple[str, ...] | None = None
    """Names of the stages that must have ended; null: the one written before."""
    needs: str | None = None


class RecoveryStrategy(Part, family="recovery strategy"):
    """How the job comes back."""

    stages: dict[str, Any] = {}
    cold_start: bool = False

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """``strategy`` names the kind in the scenario (``recovery: {strategy: restart, stages: …}``)."""
        if isinstance(value, dict) and "strategy" in value:
            strategy = value["strategy"]
            rest = {key: item for key, item in value.items() if key != "strategy"}
            return {**rest, **strategy} if isinstance(strategy, dict) else {**rest, "kind": strategy}
        return super().short_form(value)


class Restart(RecoveryStrategy, kind="restart"):
    """Stop all, replace the failed nodes, start all again from the newest durable checkpoint."""
