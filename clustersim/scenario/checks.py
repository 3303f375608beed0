"""Rules that hold between blocks of a scenario: sizes that must divide one another. All that are broken are reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import InitErrorDetails, PydanticCustomError

from clustersim.checkpoint.engine import CheckpointEngine
from clustersim.errors import InputError
from clustersim.faults.failure import FailureModel
from clustersim.faults.spike import LossSpike
from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.schedule import MOST_UNITS, Pipeline
from clustersim.pipeline.stage_layout import layer_counts
from clustersim.workload.model import TransformerModel
from clustersim.workload.training import Training

if TYPE_CHECKING:
    from clustersim.scenario.schema import Parallelism

Broken = Iterator[tuple[tuple[str | int, ...], str]]
"""Path of the value that a broken rule is about, and a sentence."""


class Pieces(NamedTuple):
    """The blocks that the rules are about; None where a block itself is wrong and reported already."""

    model: TransformerModel | None
    cluster: Cluster | None
    training: Training | None
    parallelism: Parallelism | None
    checkpoint: CheckpointEngine | None
    failures: tuple[FailureModel, ...] | None

    @property
    def dp(self) -> int | None:
        """Data-parallel replicas, None where they cannot be told."""
        layout = self.parallelism
        if layout is None:
            return None
        if layout.dp is not None:
            return layout.dp
        if self.cluster is None:
            return None
        rest, left = divmod(self.cluster.gpus, layout.tp * layout.pp * layout.cp)
        return rest if not left and rest else None

    @property
    def microbatches(self) -> int | None:
        """Microbatches a step, None where they cannot be told."""
        if self.training is None or self.dp is None:
            return None
        count, left = divmod(self.training.global_batch, self.training.micro_batch * self.dp)
        return count if not left and count else None


def cross_check(pieces: Pieces) -> list[InitErrorDetails]:
    """Every rule that is broken, as errors at the values to change."""
    rules = (_gpus, _batch, _length, _layers, _tensor_parallel, _sequence, _experts, _schedule, _saves_back)
    return [
        InitErrorDetails(type=PydanticCustomError("check", "{text}", {"text": sentence}), loc=path, input=None)
        for rule in rules
        for path, sentence in rule(pieces)
    ]


def _gpus(pieces: Pieces) -> Broken:
    layout, cluster = pieces.parallelism, pieces.cluster
    if layout is None or cluster is None:
        return
    gpus, inner = cluster.gpus, layout.tp * layout.pp * layout.cp
    job = f"the job has {gpus:,} GPUs (nodes {cluster.nodes} × {cluster.node.gpus})"
    product = f"tp {layout.tp} × pp {layout.pp} × cp {layout.cp}"
    if layout.dp is None and gpus % inner:
        yield ("parallelism",), f"{product} = {inner:,} does not divide the GPUs: {job}"
    elif layout.dp is not None and layout.dp * inner != gpus:
        right = f"dp {gpus // inner:,} would be right" if gpus % inner == 0 else f"{product} does not divide them"
        yield ("parallelism", "dp"), f"{product} × dp {layout.dp} = {inner * layout.dp:,}, and {job}; {right}"


def _saves_back(pieces: Pieces) -> Broken:
    if pieces.checkpoint is None:
        return
    keep = pieces.checkpoint.keep
    for number, cause in enumerate(pieces.failures or ()):
        if isinstance(cause, LossSpike) and cause.saves_back >= keep:
            yield (("failures", number, "saves_back"),
                   f"goes back {cause.saves_back} saves beyond the newest one before the spike, and checkpoint.keep {keep} "
                   f"leaves {keep - 1}: keep {cause.saves_back + 1} or more")  # fmt: skip


def _batch(pieces: Pieces) -> Broken:
    training, dp = pieces.training, pieces.dp
    if training is None or dp is None:
        return
    unit = training.micro_batch * dp
    if training.global_batch % unit:
        below, above = training.global_batch // unit * unit, (training.global_batch // unit + 1) * unit
        near = f"{below:,} or {above:,}" if below else f"{above:,}"
        yield (("training", "global_batch"),
               f"{training.global_batch:,} must be a multiple of micro_batch {training.micro_batch} × dp {dp} = {unit:,}; "
               f"nearest: {near}")  # fmt: skip


def _length(pieces: Pieces) -> Broken:
    layout, microbatches = pieces.parallelism, pieces.microbatches
    if layout is None or microbatches is None:
        return
    stages, slices = layout.pp * layout.virtual_stages, layout.schedule.slices_for(layout.pp)
    if microbatches * stages * slices > MOST_UNITS:
        sliced = f" and {slices:,} slices" if slices > 1 else ""
        many = microbatches * stages > MOST_UNITS
        yield (("training", "global_batch") if many else ("parallelism", "schedule"),
               f"makes {microbatches:,} microbatches for {stages:,} stages{sliced}: a step of more than {MOST_UNITS:,} "
               f"microbatches × stages{' × slices' if slices > 1 else ''} is not replayed")  # fmt: skip


def _layers(pieces: Pieces) -> Broken:
    model, layout = pieces.model, pieces.parallelism
    if model is None or layout is None:
        return
    chunks = layout.virtual_stages
    stages = layout.pp * chunks
    if layout.stage_layout is not None:
        yield from _stage_layout(layout.stage_layout, model, stages)
    elif stages > model.layers + model.mtp_layers + 2:
        # A stage without a layer makes sense at the ends alone, where the embedding and the output layer are its work.
        key = "chunks" if chunks > 1 and layout.chunks is not None else "pp"
        yield (("parallelism", key),
               f"pp {layout.pp} × chunks {chunks} = {stages} stages are too many for {model.layers} layers, the embedding "
               f"and the output layer (at most {model.layers + model.mtp_layers + 2})")  # fmt: skip
    if pieces.training is not None and pieces.training.frozen_layers > model.layers:
        text = f"{pieces.training.frozen_layers} is more than the {model.layers} layers"
        yield ("training", "frozen_layers"), text
    if model.moe is not None and model.moe.dense_layers > model.layers:
        yield ("model", "moe", "dense_layers"), f"{model.moe.dense_layers} is more than the {model.layers} layers"


def _stage_layout(text: str, model: TransformerModel, stages: int) -> Broken:
    try:
        layer_counts(text, model, stages)
    except InputError as error:
        for found in error.problems:
            yield ("parallelism", "stage_layout"), found.message


def _tensor_parallel(pieces: Pieces) -> Broken:
    model, layout = pieces.model, pieces.parallelism
    if model is None or layout is None or layout.tp == 1:
        return
    path = ("parallelism", "tp")
    if model.heads % layout.tp:
        yield path, f"{layout.tp} must divide the {model.heads} attention heads"
    elif model.latent is None and max(model.kv, layout.tp) % min(model.kv, layout.tp):
        yield path, f"{layout.tp} must divide the {model.kv} key/value heads, or be a multiple of them (copies)"
    if model.ffn_hidden % layout.tp:
        yield path, f"{layout.tp} must divide ffn_hidden {model.ffn_hidden:,}"


def _sequence(pieces: Pieces) -> Broken:
    model, training, layout = pieces.model, pieces.training, pieces.parallelism
    if training is not None and layout is not None:
        pieces_of_sequence = layout.cp * (layout.tp if layout.sequence_parallel else 1)
        if training.seq_len % pieces_of_sequence:
            what = f"cp {layout.cp}" + (f" × tp {layout.tp} (sequence_parallel)" if layout.sequence_parallel else "")
            yield ("training", "seq_len"), f"{training.seq_len:,} must be a multiple of {what}"
    if training is not None and model is not None and 0 < model.positions < training.seq_len:
        yield (
            ("training", "seq_len"),
            f"{training.seq_len:,} is longer than the model's {model.positions:,} learned positions",
        )


def _experts(pieces: Pieces) -> Broken:
    model, layout, dp = pieces.model, pieces.parallelism, pieces.dp
    if model is None or layout is None or layout.ep == 1:
        return
    path = ("parallelism", "ep")
    if model.moe is None:
        yield path, f"{layout.ep} spreads experts, and {model.name} has none; 1 is right for a dense model"
        return
    if model.moe.experts % layout.ep:
        yield path, f"{layout.ep} must divide the {model.moe.experts} experts"
    if dp is not None and (dp * layout.cp * layout.tp) % layout.ep:
        yield path, f"{layout.ep} must divide tp {layout.tp} × cp {layout.cp} × dp {dp}, the GPUs of one pipeline stage"


def _schedule(pieces: Pieces) -> Broken:
    layout, microbatches = pieces.parallelism, pieces.microbatches
    if layout is None or microbatches is None or any(_length(pieces)):
        return
    try:
        slices = layout.schedule.slices_for(layout.pp)
        layout.schedule.resolve(Pipeline(layout.pp, microbatches, layout.virtual_stages, slices))
        if layout.schedule.fsdp and not layout.cuts.parameters:
            yield (
                ("parallelism", "schedule"),
                f"{layout.schedule.kind} with fsdp gathers sharded parameters: zero 3 would be right, not {layout.zero}",
            )
    except InputError as error:
        for found in error.problems:
            yield ("parallelism", "schedule"), str(replace(found, path="")) if found.file else found.message
