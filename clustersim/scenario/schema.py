"""The scenario: every block that a YAML file may hold."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator

from clustersim.checkpoint.engine import CheckpointEngine, NoCheckpoint
from clustersim.faults.failure import FailureModel
from clustersim.faults.repair import Repair
from clustersim.hardware.cluster import Cluster
from clustersim.part import Block, expand_preset
from clustersim.recovery.strategy import RecoveryStrategy, Restart
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.training import Training


class Parallelism(Layout):
    """The layout and its pipeline schedule."""

    schedule: Any = "1f1b"


class Simulation(Block):
    """How often the run is repeated, and from which seed."""

    replicas: int = Field(default=20, gt=0)
    seed: int = Field(default=0, ge=0)


class Scenario(Block):
    """One training job on one cluster: the input of every command."""

    version: Literal[1] = 1
    name: str = "scenario"
    description: str = ""
    model: TransformerModel
    cluster: Cluster
    training: Training
    parallelism: Parallelism = Parallelism()
    checkpoint: CheckpointEngine = NoCheckpoint()
    failures: tuple[FailureModel, ...] = ()
    recovery: RecoveryStrategy = Restart()
    repair: Repair = Repair()
    calibration: Any = None
    simulation: Simulation = Simulation()

    @field_validator("failures", mode="before")
    @classmethod
    def _named_failures(cls, value: Any, info: ValidationInfo) -> Any:
        """A preset's name, or ``{preset: name}``, stands for its list."""
        if isinstance(value, str) or (isinstance(value, dict) and "preset" in value):
            return expand_preset("failures", value)["failures"]
        return () if value is None else value

    def replace(self, path: str, value: Any) -> Self:
        """A copy with the value at a dotted path changed, validated anew (``replace("checkpoint.interval", "20 min")``)."""
        data = self.model_dump(mode="json")
        *parents, last = path.split(".")
        target = data
        for key in parents:
            target = target[key]
        target[last] = value
        return type(self).model_validate(data)
