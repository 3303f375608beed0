"""The model of a row: from its columns, else from the preset that its name means."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError

from clustersim.validation.defaults import Source
from clustersim.validation.names import model_preset
from clustersim.validation.rows import Row
from clustersim.workload.model import TransformerModel
from clustersim.workload.parameters import model_parameters

GPT: dict[str, Any] = {"gated_mlp": False, "tied_embeddings": True, "biases": True, "norm": "layernorm"}
LLAMA: dict[str, Any] = {"gated_mlp": True, "tied_embeddings": False}
LATER: dict[str, Any] = {"gated_mlp": False, "tied_embeddings": False, "norm": "layernorm"}
STYLES = (
    (r"mpt", {**GPT, "biases": False}), (r"nemotron", LATER),
    (r"llama|mixtral|mistral|qwen|internlm|deepseek|grok|internal-352b", LLAMA),
    (r"gpt|megatron|bloom|opt|turing", GPT),
)  # fmt: skip
CELLS = {"n_layers": "layers", "hidden": "hidden", "ffn_hidden": "ffn_hidden", "n_heads": "heads", "n_kv_heads": "kv_heads",
         "vocab": "vocab"}  # fmt: skip


class SkipRow(Exception):
    """A row that cannot be run; the text says why."""


def model_of(row: Row, source: Source, assumed: dict[str, str]) -> TransformerModel:
    """The row's model; every cell that is not blank overrides the preset of the same name.

    Raises:
        SkipRow: no shape in the row, and no preset of its name.
    """
    name = row.text("model_name") or "model"
    if re.search(r"mamba|nemotron[-_ ]?(h|3)", name, re.IGNORECASE):
        raise SkipRow("a hybrid of attention and state-space layers, which the model does not have")
    shape = {key: row.whole(cell) for cell, key in CELLS.items()}
    given = {key: value for key, value in shape.items() if value}
    preset = model_preset(name)
    if preset is not None:
        data = _from_preset(preset, given, assumed)
    elif {"layers", "hidden", "heads"} <= given.keys():
        data = _from_columns(row, source, given, name, assumed)
    else:
        raise SkipRow("no model shape: layers, hidden size or heads are blank, and no preset has this name")
    data["name"] = name
    if source.value("dropout"):
        data["dropout"] = True
    if source.value("parallel_block") and "parallel block" in name:
        data["parallel_block"] = True
    if source.value("attention_window") and "sliding" in name:
        data["attention"] = {"kind": "sliding-window", "window": source.value("attention_window")}
        assumed["attention.window"] = f"{source.value('attention_window')} ({source.reason('attention_window')})"
    if data.get("kv_heads") and data["heads"] % data["kv_heads"]:
        assumed["model.kv_heads"] = f"{data['heads']} (the row's {data['kv_heads']} do not divide its heads)"
        data["kv_heads"] = None
    try:
        return TransformerModel.model_validate(_with_capacity(data, source))
    except ValidationError as error:
        raise SkipRow(f"no model of this shape: {error.errors()[0]['msg']}") from error


def _with_capacity(data: dict[str, Any], source: Source) -> dict[str, Any]:
    if data.get("moe") and source.value("capacity_factor"):
        data["moe"] = {**data["moe"], "capacity_factor": source.value("capacity_factor")}
    return data


def _from_preset(preset: str, given: dict[str, Any], assumed: dict[str, str]) -> dict[str, Any]:
    model = TransformerModel.preset(preset)
    data = model.model_dump()
    if given.get("layers") not in (None, model.layers) and data.get("mtp_layers"):
        data["mtp_layers"] = 0
    if "layers" not in given:
        assumed["model"] = f"preset {preset} (the row gives only the name)"
    for key, value in given.items():
        data[key] = value
    if given.get("hidden") not in (None, model.hidden) or given.get("heads") not in (None, model.heads):
        data["head_dim"] = None
    return data


def _from_columns(
    row: Row, source: Source, given: dict[str, Any], name: str, assumed: dict[str, str]
) -> dict[str, Any]:
    style = next((values for pattern, values in STYLES if re.search(pattern, name, re.IGNORECASE)), None)
    if style is None:
        style = _style_of_count(row, given, assumed)
    if style is None:
        gated = given.get("ffn_hidden") not in (None, 4 * given["hidden"])
        style = LLAMA if gated else GPT
        assumed["model.gated_mlp"] = f"{'true' if gated else 'false'} (from the MLP's width; the name tells nothing)"
    data = {**style, **given}
    if "ffn_hidden" not in given:
        data["ffn_hidden"] = _mlp_width(given["hidden"], style["gated_mlp"])
        assumed["model.ffn_hidden"] = f"{data['ffn_hidden']} (four times the hidden size, 8/3 where gated)"
    if "vocab" not in given:
        data["vocab"] = source.value("vocab", 50304 if not style["gated_mlp"] else 32000)
        assumed["model.vocab"] = f"{data['vocab']} ({source.reason('vocab')})"
    if style is GPT and source.value("positions", 1):
        data["positions"] = row.whole("seq_len") or source.value("seq_len", 0)
    if row.whole("n_experts"):
        data["moe"] = {"experts": row.whole("n_experts"), "top_k": row.whole("top_k") or 2,
                       "expert_ffn_hidden": data["ffn_hidden"]}  # fmt: skip
    return data


def _style_of_count(row: Row, given: dict[str, Any], assumed: dict[str, str]) -> dict[str, Any] | None:
    """The style whose number of parameters is the printed one, to 2 %; None where none is, or nothing is printed."""
    billions = row.number("params_b")
    if not billions or not {"ffn_hidden", "vocab"} <= given.keys():
        return None
    styles = [{**style, "tied_embeddings": tied} for style in (LLAMA, GPT) for tied in (False, True)]
    counts = [model_parameters(TransformerModel.model_validate({**style, **given})).total for style in styles]
    off, style = min(((abs(count / (billions * 1e9) - 1), index) for index, count in enumerate(counts)))
    if off > 0.02:
        return None
    chosen = styles[style]
    kinds = (
        f"{'gated' if chosen['gated_mlp'] else 'plain'} MLP, head {'tied' if chosen['tied_embeddings'] else 'apart'}"
    )
    assumed["model.style"] = f"{kinds} ({billions:g} billion parameters; the name tells nothing)"
    return chosen


def _mlp_width(hidden: int, gated: bool) -> int:
    """4h, or 8/3·h rounded up to a multiple of 256 (LLaMA's rule)."""
    return -(-(8 * hidden // 3) // 256) * 256 if gated else 4 * hidden
