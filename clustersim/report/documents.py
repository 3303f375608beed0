"""The JSON documents of the commands, and what they were made with."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustersim.scenario.schema import Scenario
    from clustersim.study.replicas import ReplicaTable

_LIBRARIES = ("numpy", "scipy", "simpy", "pydantic")


def run_document(scenario: Scenario, step: dict[str, Any], table: ReplicaTable) -> dict[str, Any]:
    """The ``--json`` object of ``clustersim run`` for one scenario."""
    from clustersim import __version__

    return {
        "scenario": scenario.name,
        "version": __version__,
        "seed": table.seed,
        "replicas": table.replicas,
        "step": step,
        "run": table.to_dict(),
    }


def provenance(scenario: Scenario) -> dict[str, Any]:
    """What a result rests on: the same wherever and whenever it is computed with these versions."""
    from clustersim import __version__

    return {
        "scenario_sha256": scenario.sha256,
        "clustersim": __version__,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        **{name: metadata.version(name) for name in _LIBRARIES},
    }
