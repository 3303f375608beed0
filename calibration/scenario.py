"""The machine at hand as a clustersim scenario whose step, saves and restarts were measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clustersim.run.simulate import simulate
from clustersim.scenario.schema import Scenario

LAYOUT = {
    "model": {"layers": 2, "hidden": 128, "ffn_hidden": 512, "heads": 4, "vocab": 256},
    "cluster": {"nodes": 1, "spare_nodes": 0, "node": {"preset": "dgx-h100", "gpus": 1}, "network": "infiniband-ndr",
                "storage": {"kind": "shared-filesystem", "write_bandwidth": 1e9, "read_bandwidth": 1e9}},
}  # fmt: skip
"""Stands for the machine; no number of it enters: step, saves and restarts are given in seconds."""


def scenario_of(steps: int, checkpoint: dict[str, Any], kills: Path | None = None, down_s: Sequence[float] = ()) -> Scenario:
    """A run of ``steps`` steps on one worker.

    Args:
        steps: until it ends.
        checkpoint: the scenario's block.
        kills: CSV of the seconds at which the worker is killed; None: never.
        down_s: measured seconds from a kill to the first step of the worker's successor, state loaded.
    """
    data: dict[str, Any] = {
        **LAYOUT,
        "training": {"seq_len": 64, "global_batch": 1, "steps": steps},
        "checkpoint": checkpoint,
    }
    if kills is not None:
        data["failures"] = [{"kind": "trace", "file": str(kills), "severity": "process", "nodes_watched": 1}]
        data["recovery"] = {"strategy": "restart", "stages": {
            "start": {"kind": "empirical", "values": [float(value) for value in down_s]}, "load": 0.0}}  # fmt: skip
    return Scenario.model_validate(data)


def predicted_wall(steps: int, step_s: float, checkpoint: dict[str, Any]) -> float:
    """Wall seconds of an undisturbed run with checkpoints."""
    return simulate(scenario_of(steps, checkpoint), step=step_s).wall_s
