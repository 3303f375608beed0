"""What a layout string of the scenario (``parallelism.stage_layout``) means for the step model."""

from __future__ import annotations

from clustersim.errors import InputError, Problem, nearest
from clustersim.pipeline.stages import StageLayers, parse_layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.parameters import attention_parameters, mlp_parameters
from clustersim.workload.parameters import layer_counts as kinds

BALANCED = "balanced"
_PATH = "parallelism.stage_layout"


def layer_counts(text: str, model: TransformerModel, stages: int) -> list[int]:
    """Transformer layers of each of ``stages`` virtual stages; the notation is that of ``pipeline.stages``, or
    ``balanced``.

    Raises:
        InputError: no layout; other stages or layers than the model and the schedule have; embedding not first, head or
            prediction layers not in the last stage (where this model of a step puts them).
    """
    if text == BALANCED:
        return balanced_counts(model, stages)
    try:
        held = parse_layout(text)
    except InputError as error:
        close = nearest(text, [BALANCED])
        raise InputError([Problem(_PATH, problem.message + close) for problem in error.problems]) from None
    wrong = _disagreement(held, model, stages)
    if wrong is not None:
        raise InputError(Problem(_PATH, f"'{text}' {wrong}"))
    return [stage.layers for stage in held]


def balanced_counts(model: TransformerModel, stages: int) -> list[int]:
    """Layers of each stage by nanotron's rule (``models/base.py``, ``build_model``): layers, then the head, are dealt out
    in order; a stage takes blocks until the sum of their costs passes its share of the whole.

    The cost of a block is what one token multiplies in it: the parameters of a layer's matrices (of the experts that it is
    routed to), vocabulary × hidden for the head. Prediction layers go with the head.

    Raises:
        InputError: a stage is left with nothing.
    """
    costs = _costs(model)
    total, counts, done = sum(costs), [0], 0.0
    for index, cost in enumerate(costs):
        counts[-1] += index < model.layers
        done += cost
        if done > total * len(counts) / stages and index < len(costs) - 1:
            counts.append(0)
    if len(counts) != stages:
        raise InputError(Problem(_PATH, f"'{BALANCED}' leaves nothing for the last of {stages} stages"))
    return counts


def _costs(model: TransformerModel) -> list[float]:
    """What one token multiplies in each layer, and in the head with the prediction layers."""
    attention = attention_parameters(model)
    dense, sparse = kinds(model)
    layers = [float(attention + mlp_parameters(model, model.ffn_hidden))] * dense
    if model.moe is not None:
        each = mlp_parameters(model, model.moe.expert_ffn_hidden) * (model.moe.top_k + model.moe.shared_experts)
        layers += [float(attention + each)] * sparse
    return [*layers, model.vocab * model.hidden + model.mtp_layers * layers[-1]]


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
