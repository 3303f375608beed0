"""What one replica of a study gives: the run's metrics, flat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clustersim.run.simulate import prepare, run_replica

if TYPE_CHECKING:
    from clustersim.run.prepared import Prepared

__all__ = ["prepare", "replica_metrics"]


def flat(metrics: dict[str, Any]) -> dict[str, float | None]:
    """Metrics with the ledger's categories as ``ledger_s.train`` and so on."""
    out: dict[str, float | None] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            out.update({f"{name}.{key}": item for key, item in value.items()})
        else:
            out[name] = value
    return out


def replica_metrics(prepared: Prepared, seed: int, replica: int) -> dict[str, float | None]:
    """Flat metrics of one replica."""
    return flat(run_replica(prepared, seed, replica, events=False).metrics())
