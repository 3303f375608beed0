"""From the words of published tables to the names of presets, precisions and schedules."""

from __future__ import annotations

import re

from clustersim.part import preset_names

GPUS = (
    (r"mi355", "mi355x"), (r"mi325", "mi325x"), (r"mi300", "mi300x"), (r"mi250", "mi250x"),
    (r"gb300", "gb300"), (r"gb200", "gb200"), (r"b300", "b300"), (r"b200", "b200"),
    (r"h200", "h200"), (r"h800|hopper.*h800", "h800"), (r"h100.*(96|500 ?w)", "h100-96g"), (r"h100.*pcie", "h100-pcie"),
    (r"h100|hopper", "h100-sxm"), (r"a800", "a800-80g"), (r"a100.*40", "a100-40g"), (r"a100", "a100-80g"),
    (r"v100.*16", "v100-16g"), (r"v100", "v100-32g"), (r"p100", "p100"), (r"3090", "rtx-3090"), (r"4090", "rtx-4090"),
    (r"\bl20\b", "l20"),
)  # fmt: skip

NODES = {
    "a100-40g": "dgx-a100-40g", "a100-80g": "dgx-a100", "a800-80g": "hgx-a800", "h100-sxm": "hgx-h100",
    "h100-96g": "hgx-h100-96g", "h100-pcie": "h100-pcie-8", "h800": "hgx-h800", "h200": "hgx-h200", "b200": "hgx-b200",
    "b300": "dgx-b300", "gb200": "gb200-nvl72", "gb300": "gb300-nvl72", "v100-32g": "jean-zay-v100", "p100": "piz-daint-p100",
    "v100-16g": "dgx-1-v100-16g", "rtx-3090": "rtx-3090-8", "rtx-4090": "rtx-4090-8", "mi250x": "frontier-mi250x",
    "mi300x": "mi300x-8", "mi325x": "mi325x-8", "mi355x": "mi355x-8",
}  # fmt: skip

PRECISIONS = (
    (r"nvfp4|fp4", "nvfp4"), (r"mx-?fp8|fp8-mx|finer", "mxfp8"), (r"fp8", "fp8"), (r"bf16|bfloat", "bf16"),
    (r"fp16|half", "fp16"), (r"tf32", "tf32"), (r"fp32|float32", "fp32"),
)  # fmt: skip

SCHEDULES: tuple[tuple[str, str | dict[str, object]], ...] = (
    (r"zb-?2p", {"kind": "zb-auto", "memory": 2.0}), (r"zb-?1p", "zb-auto"), (r"zb-?v", "zb-v"), (r"zb-?h2", "zb-h2"),
    (r"zb-?h1", "zb-h1"), (r"zbb", "interleaved-zb"), (r"v-?half", "v-half"), (r"v-?min", "v-min"),
    (r"dualpipe-?v", "dualpipe-v"), (r"dualpipe", "dualpipe"), (r"inter", "interleaved-1f1b"), (r"gpipe", "gpipe"),
    (r"1f1b", "1f1b"),
)  # fmt: skip

MODELS = (
    (r"^gpt3?-?175b", "megatron-175b"), (r"gptoss120b", "gpt-oss-120b"), (r"mixtral8x22bg8t8", "mixtral-8x22b-g8t8"),
    (r"mixtral8x22b", "mixtral-8x22b"), (r"mixtral8x7b", "mixtral-8x7b"), (r"qwen257ba14b", "qwen2-57b-a14b"),
    (r"qwen330ba3b", "qwen3-30b-a3b"), (r"qwen3235ba22b", "qwen3-235b-a22b"), (r"deepseekv3", "deepseek-v3"),
    (r"deepseekv2lite", "deepseek-v2-lite"), (r"deepseekv2", "deepseek-v2"), (r"kimik2", "kimi-k2"), (r"grok1", "grok-1"),
    (r"llama31?(405b|70b|8b)", r"llama3-\1"), (r"llama2(70b|34b|13b|7b)", r"llama2-\1"), (r"codellama34b", "llama2-34b"),
    (r"llama32(1b|3b)", r"llama3.2-\1"), (r"nemotron4?(340b|15b)$", r"nemotron4-\1"), (r"bloom176b", "bloom-176b"),
    (r"opt175b", "opt-175b"), (r"palm540b", "palm-540b"), (r"internlm(7b|20b)", r"internlm-\1"),
    (r"mpt(125m|350m|760m|1b|3b|7b|13b|30b|70b)$", r"mpt-\1"), (r"megatron(22b|175b|530b|1t)$", r"megatron-\1"),
    (r"turing530b", "megatron-530b"), (r"^llama(7b|13b|33b|65b)$", r"llama-\1"), (r"maverick", "llama4-maverick"),
    (r"^gpt3?5b$", "gpt-5b"), (r"nemotron8b", "nemotron3-8b"),
)  # fmt: skip


def first_match(table: tuple[tuple[str, object], ...], word: str) -> object | None:
    """The value of the first pattern found in ``word``, case ignored."""
    for pattern, value in table:
        if re.search(pattern, word, re.IGNORECASE):
            return value
    return None


def gpu_preset(words: str) -> str | None:
    """Preset of the GPU that a table names, or None (a TPU, a Gaudi, an unnamed one)."""
    plain = words.lower().replace("_", "-")
    if plain in preset_names("gpus"):
        return plain
    if re.search(r"tpu|gaudi|trainium|ascend", plain):
        return None
    found = first_match(GPUS, plain)
    return found if isinstance(found, str) else None


def precision_of_words(words: str) -> str | None:
    """A precision from ``amp_bf16``, ``FP8-CS`` and the like."""
    found = first_match(PRECISIONS, words)
    return found if isinstance(found, str) else None


def schedule_of_words(words: str) -> str | dict[str, object] | None:
    """A schedule from ``ZB-2p``, ``interleaved 1F1B`` and the like."""
    found = first_match(SCHEDULES, words)
    return found if isinstance(found, (str, dict)) else None


def model_preset(words: str) -> str | None:
    """Preset of a model that a table names in its own way (``LLAMA3.1_405B``, ``Llama2-7b``)."""
    plain = words.lower()
    if plain in preset_names("models"):
        return plain
    squeezed = re.sub(r"[^a-z0-9]", "", plain)
    for pattern, value in MODELS:
        match = re.search(pattern, squeezed)
        if match:
            return match.expand(value) if value is not None else None
    return None
