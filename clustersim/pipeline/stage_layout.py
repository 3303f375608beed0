"""What a layout string of the scenario (``parallelism.stage_layout``) means for the step model."""

from __future__ import annotations

from clustersim.errors import InputError, Problem
from clustersim.pipeline.stages import StageLayers, parse_layout
from clustersim.workload.model import TransformerModel

_PATH = "parallelism.stage_layout"


def layer_counts(text: str, model: TransformerModel, stages: int) -> list[int]:
    """Transformer layers of each of ``stages`` virtual stages; the notation is that of ``pipeline.stages``.

    Raises:
        InputError: no layout; other stages or layers than the model and the schedule have; embedding not first, head or
            prediction layers not in the last stage (where this model of a step puts them).
    """
    try:
        held = parse_layout(text)
    except InputError as error:
        raise InputError([Problem(_PATH, problem.message) for problem in error.problems]) from None
    wrong = _disagreement(held, model, stages)
    if wrong is not None:
        raise InputError(Problem(_PATH, f"'{text}' {wrong}"))
    return [stage.layers for stage in held]


def _disagreement(held: tuple[StageLayers, ...], model: TransformerModel, stages: int) -> str | None:
    """The first thing in which the layout is not this model on this pipeline; None: all is well."""
    if len(held) != stages:
        return f"has {len(held)} stages, but pp x chunks is {stages}"
    layers = sum(stage.layers for stage in held)
    if layers != model.layers:
        return f"has {layers} layers, but the model has {model.layers}"
    if any(stage.embedding for stage in held[1:]) or any(stage.losses or stage.mtp for stage in held[:-1]):
        return "must have E in the first stage, and m and L in the last"
    if held[-1].mtp not in (0, model.mtp_layers):
        return f"has {held[-1].mtp} prediction layers, but the model has {model.mtp_layers}"
    return None
