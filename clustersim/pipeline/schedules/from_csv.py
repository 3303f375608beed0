"""``csv``: the user's own op list."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from clustersim.errors import InputError, Problem
from clustersim.paths import FileText, absolute
from clustersim.pipeline.ops import Action, Kind, Program, parts_of
from clustersim.pipeline.schedule import Pipeline, Schedule, schedule
from clustersim.pipeline.text import load_program


@lru_cache(maxsize=16)
def _read(file: str, changed_ns: int, slices: int, chains: int) -> Program:
    return load_program(file, slices=slices, chains=chains)


def _load(file: str, slices: int, chains: int) -> Program:
    try:
        changed_ns = Path(file).stat().st_mtime_ns
    except OSError:
        changed_ns = 0
    return _read(file, changed_ns, slices, chains)


class CsvSchedule(Schedule):
    """Placement, messages and activations are read off the list."""

    @field_validator("file", mode="before", check_fields=False)
    @classmethod
    def beside_its_file(cls, value: Any, info: ValidationInfo) -> Any:
        """Paths are relative to the file that names them (``clustersim.paths``; or ``folder`` in the validation context)."""
        folder = (info.context or {}).get("folder")
        if folder is not None:
            return str(Path(folder) / value)
        return absolute(value) if isinstance(value, FileText) else value

    def slices_for(self, ranks: int) -> int:
        """Whole sequences, unless the user says what the list's units are."""
        return getattr(self, "slices", None) or 1

    @property
    def listed(self) -> Program:
        """The program in the file."""
        options: dict[str, Any] = self.own_options
        return _load(options["file"], getattr(self, "slices", None) or 1, options["independent_chains"])

    def stage_rank(self, pipe: Pipeline) -> list[int]:
        """The rank of every stage name, read off the list."""
        table = self.listed.stage_rank
        return [table.get(stage, 0) for stage in range(self.listed.stages)]

    def _sized(self, pipe: Pipeline) -> Pipeline:
        chunks = -(-self.listed.stages_per_chain // max(1, len(self.listed.ranks)))
        return super()._sized(pipe)._replace(chunks=chunks)

    @property
    def splits_backward(self) -> bool:
        """Whether the list has W."""
        return any(op.kind is Kind.W for rank in self.listed.ranks for action in rank for op in parts_of(action))


def rules(pipe: Pipeline, file: str, independent_chains: int) -> list[str]:
    """The list is made for as many ranks and microbatches as the pipeline has."""
    listed = _load(file, pipe.slices, independent_chains)
    broken = []
    if len(listed.ranks) != pipe.ranks:
        broken.append(f"list {file} is for pp={len(listed.ranks)}, got pp={pipe.ranks}")
    if listed.microbatches != pipe.microbatches:
        broken.append(f"list {file} is for {listed.microbatches} microbatches, got {pipe.microbatches}")
    return broken


def held(pipe: Pipeline, rank: int, file: str, independent_chains: int) -> float:
    """Most activations held in list order, in A."""
    now = peak = 0
    splits = {op.stage for action in _load(file, pipe.slices, independent_chains).ranks[rank]
              for op in parts_of(action) if op.kind is Kind.W}  # fmt: skip
    for action in _load(file, pipe.slices, independent_chains).ranks[rank]:
        ops = list(parts_of(action))
        now += sum(op.kind is Kind.F for op in ops)
        peak = max(peak, now)
        now -= sum(op.kind in (Kind.B, Kind.W) or (op.kind is Kind.I and op.stage not in splits) for op in ops)
    return peak / (pipe.chunks * pipe.slices)


@schedule(
    "csv",
    defined="the list's own size",
    in_flight=held,
    formula="read off the list",
    rules=rules,
    chunks=None,
    default_chunks=1,
    chains=lambda independent_chains=1: independent_chains,
    sliced=True,
    source="the user's file, format of torch.distributed.pipelining",
    verified=False,
    base=CsvSchedule,
)
def from_csv(
    pipe: Pipeline,
    *,
    file: Annotated[str, Field(min_length=1, description="CSV file: a row a rank, a cell an op")],
    independent_chains: Annotated[
        int, Field(ge=1, description="pipelines that share the ranks (Chimera, DualPipe: 2)")
    ] = 1,
) -> Sequence[Sequence[Action]]:
    """The op list in a CSV file."""
    listed = _load(file, pipe.slices, independent_chains)
    if not listed.ranks:
        raise InputError(Problem("schedule.file", "the list is empty", file))
    return listed.ranks
