"""The memory tables of Korthikanti et al.: first pipeline stage, layers only, by the paper's own terms."""

from __future__ import annotations

from clustersim.pipeline.activations import in_flight_at_peak
from clustersim.pipeline.schedule import Pipeline, get_schedule
from clustersim.pipeline.step_graph import shape_of
from clustersim.validation.results import Result
from clustersim.validation.rows import Row, packaged
from clustersim.workload.kept import stage_kept_bytes, unit_of
from clustersim.workload.layers import Slice
from clustersim.workload.model import TransformerModel
from clustersim.workload.parameters import local_parameters
from clustersim.workload.stack import Stack
from clustersim.workload.stages import StageContent
from clustersim.workload.training import FullRecompute, NoRecompute, Recompute, SelectiveRecompute

GIB = 2.0**30
MODELS = {"megatron-22b": "megatron-22b", "gpt3-175b": "megatron-175b", "turing-530b": "megatron-530b",
          "megatron-1t": "megatron-1t"}  # fmt: skip
ASSUMED = {"stage": "layers only: the table leaves embedding and head out", "stack": "megatron-2021"}


def korthikanti_memory() -> list[Result]:
    """States, activations, and activations as a share of the tensor-parallel baseline."""
    return [
        result for index, row in enumerate(packaged("korthikanti-memory"), start=1) for result in _results(index, row)
    ]


def _results(index: int, row: Row) -> list[Result]:
    found = []
    for column, metric in (("param_grad_opt_gib", "states_bytes"), ("activation_gib", "activations_bytes"),
                           ("activation_pct_of_tensor_parallel_baseline", "activations_pct")):  # fmt: skip
        measured = row.number(column)
        if measured is None:
            continue
        share = metric == "activations_pct"
        value = 100.0 * _activations(row, row.text("case")) / _activations(row, "no recompute, no SP") if share else (
            _states(row) if metric == "states_bytes" else _activations(row, row.text("case")))  # fmt: skip
        found.append(Result(f"korthikanti_memory_{index:04d}", metric, measured if share else measured * GIB, value,
                            dict(ASSUMED)))  # fmt: skip
    return found


def _model(row: Row) -> TransformerModel:
    return TransformerModel.preset(MODELS[(row.text("model") or "").lower()])


def _states(row: Row) -> float:
    """16-bit weights, fp32 gradients, Adam: 18 bytes a parameter of the stage's layers."""
    model = _model(row)
    return (
        18.0
        * local_parameters(model, StageContent(model.layers // (row.whole("pp") or 1)), tp=row.whole("tp") or 1).total
    )


def _activations(row: Row, case: str | None) -> float:
    """Bytes of rank 0 at its peak, by the schedule's own units in flight."""
    words = (case or "").lower()
    recompute: Recompute = NoRecompute()
    if "full recompute" in words:
        recompute = FullRecompute()
    elif "selective" in words:
        recompute = SelectiveRecompute()
    parallel = "sp" in words.replace("no sp", "").split() or words == "sp"
    pp, chunks, micro = row.whole("pp") or 1, row.whole("vp") or 1, row.whole("micro_batch") or 1
    model, tp = _model(row), row.whole("tp") or 1
    cut = Slice(micro, 2048, 2048 * micro, tp, 1, 1, 1, parallel)
    unit = unit_of(cut, Stack.preset("megatron-2021"), "bf16")
    size = stage_kept_bytes(model, unit, recompute, StageContent(model.layers // (pp * chunks)))
    count = (row.whole("global_batch") or 1) // micro
    schedule = get_schedule("interleaved-1f1b" if chunks > 1 else "1f1b")
    graph = shape_of(schedule, Pipeline(pp, count, chunks)).graph
    return size * sum(in_flight_at_peak(graph, [size] * graph.stages)[0].values())
