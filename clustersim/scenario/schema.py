"""The scenario: every block that a YAML file may hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from clustersim.checkpoint.engine import CheckpointEngine
from clustersim.faults.failure import FailureModel, FailuresDuring
from clustersim.faults.repair import Repair
from clustersim.hardware.cluster import Cluster
from clustersim.part import Block, expand_preset, line_errors
from clustersim.pipeline.schedule import Schedule
from clustersim.recovery.strategy import RecoveryStrategy
from clustersim.scenario.checks import Pieces, cross_check
from clustersim.scenario.parts import import_parts
from clustersim.scenario.tree import Origin
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.profile import Profile
from clustersim.workload.training import Training

if TYPE_CHECKING:
    from pathlib import Path

import_parts()


class Parallelism(Layout):
    """The layout and its pipeline schedule."""

    schedule: Schedule = Field(default_factory=lambda: Schedule.build("1f1b"))

    @property
    def virtual_stages(self) -> int:
        """Chunks a rank: as written, else what the schedule takes."""
        return self.chunks if self.chunks is not None else self.schedule.default_chunks()


class Simulation(Block):
    """How often the run is repeated, and from which seed."""

    replicas: int = Field(default=20, gt=0)
    seed: int = Field(default=0, ge=0)


class Scenario(Block):
    """One training job on one cluster: the input of every command.

    ``clustersim.load`` reads one from YAML. From Python bare numbers are SI (seconds, bytes, bytes/s, FLOP).
    """

    version: Literal[1] = 1
    name: str = "scenario"
    description: str = ""
    plugins: tuple[str, ...] = ()
    """Python modules whose parts may be named here."""
    model: TransformerModel
    cluster: Cluster
    training: Training
    parallelism: Parallelism = Field(default_factory=Parallelism)
    checkpoint: CheckpointEngine = Field(default_factory=lambda: CheckpointEngine.build("none"))
    failures: tuple[FailureModel, ...] = ()
    recovery: RecoveryStrategy = Field(default_factory=lambda: RecoveryStrategy.build("restart"))
    repair: Repair = Repair()
    failures_during: FailuresDuring = FailuresDuring()
    """When failures may strike: an assumption in which closed forms differ."""
    calibration: Profile | None = None
    """A profile measured on real hardware: a file's name, or its content; null: the presets' published efficiencies."""
    simulation: Simulation = Simulation()

    _origin: Origin = PrivateAttr(default_factory=Origin)

    @model_validator(mode="before")
    @classmethod
    def _no_failures(cls, value: Any) -> Any:
        """No failures at all may be written as null."""
        if isinstance(value, dict) and "failures" in value and value["failures"] is None:
            return {**value, "failures": ()}
        return value

    @model_validator(mode="before")
    @classmethod
    def _measured(cls, value: Any, info: ValidationInfo) -> Any:
        """What the profile measured, where the scenario states nothing itself."""
        if not isinstance(value, dict) or value.get("calibration") is None:
            return value
        from clustersim.scenario.measured import with_measured
        from clustersim.scenario.profile import profile_data

        return with_measured(value, profile_data, info.context)

    @field_validator("failures", mode="before")
    @classmethod
    def _named_failures(cls, value: Any) -> Any:
        """A preset's name, or ``{preset: name}``, stands for its list of failures."""
        if isinstance(value, str) or (isinstance(value, dict) and "preset" in value):
            return expand_preset("failures", value)["failures"]
        return value

    @field_validator("calibration", mode="before")
    @classmethod
    def _profile(cls, value: Any) -> Any:
        """A file's name stands for the profile in it."""
        if not isinstance(value, str):
            return value
        from clustersim.scenario.profile import profile_data

        return profile_data(value)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        wrong = cross_check(Pieces(self.model, self.cluster, self.training, self.parallelism, self.checkpoint, self.failures))
        if wrong:
            raise line_errors("Scenario", wrong)
        return self

    @property
    def origin(self) -> Origin:
        """Where its values were written (see ``clustersim.scenario.places``)."""
        return self._origin

    @property
    def dp(self) -> int:
        """Data-parallel replicas: as written, else gpus ÷ (tp · pp · cp)."""
        layout = self.parallelism
        return layout.dp if layout.dp is not None else self.cluster.gpus // (layout.tp * layout.pp * layout.cp)

    @property
    def microbatches(self) -> int:
        """Microbatches a step of one replica."""
        return self.training.global_batch // (self.training.micro_batch * self.dp)

    def data(self) -> dict[str, Any]:
        """The scenario as plain data: presets expanded, defaults written out, quantities as text with their units."""
        return self.model_dump(mode="json")

    def resolved(self) -> str:
        """The scenario as YAML that says everything: it needs no preset and loads back to an equal scenario."""
        from clustersim.scenario.dump import to_yaml

        return to_yaml(self.data())

    @property
    def sha256(self) -> str:
        """Hash of the resolved scenario: the same for the same job, however it was written."""
        from clustersim.scenario.dump import canonical

        return hashlib.sha256(canonical(self.data()).encode()).hexdigest()

    def replace(self, path: str | Mapping[str, Any], value: Any = None) -> Self:
        """A copy with the value at a dotted path changed, validated anew.

        Args:
            path: keys and list indices, such as ``"checkpoint.interval"`` or ``"failures.0.mtbf"``; or a mapping of
                several paths to values, for changes that are valid only together.
            value: what YAML could hold there (``"20 min"``), or a bare number in SI.

        Raises:
            InputError: naming the path and what would be right.
        """
        from clustersim.scenario.load import changed

        found: Self = changed(self, {path: value} if isinstance(path, str) else path)
        return found

    @classmethod
    def load(cls, source: str | Path | dict[str, Any], overrides: tuple[str, ...] = ()) -> Scenario:
        """See :func:`clustersim.scenario.load.load`."""
        from clustersim.scenario.load import load

        return load(source, overrides)

    def _repr_html_(self) -> str:
        """The resolved YAML, for notebooks."""
        from html import escape

        head = f"<summary><b>{escape(self.name)}</b> {escape(self.description)}</summary>"
        return f"<details>{head}<pre>{escape(self.resolved())}</pre></details>"
