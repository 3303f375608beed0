"""Tables in, words to presets."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.errors import InputError
from clustersim.part import preset_names
from clustersim.validation.defaults import source_of, sources
from clustersim.validation.names import (
    GPUS,
    MODELS,
    NODES,
    gpu_preset,
    model_preset,
    precision_of_words,
    schedule_of_words,
)
from clustersim.validation.rows import Row, load_file, packaged, parse


def test_blank_cells_read_as_none_and_numbers_with_commas() -> None:
    row = parse('n_gpus,step_time_s,tp\n"1,024", 2.5 ,\n', "t.csv")[0]
    assert (row.whole("n_gpus"), row.number("step_time_s"), row.text("tp"), row.text("pp")) == (1024, 2.5, None, None)
    assert row.row_id == "line 2"


@pytest.mark.parametrize("cell", ["many", "1.5", "-3", "nan", "inf"])
def test_wrong_numbers_name_file_line_and_column(cell: str) -> None:
    row = parse(f"n_gpus,tp\n{cell},1\n", "mine.csv")[0]
    with pytest.raises(InputError, match=r"mine\.csv:2: n_gpus: "):
        row.whole("n_gpus")


@pytest.mark.parametrize(("content", "message"), [
    (b"", "holds no rows"), (b"n_gpus\n", "holds no rows"), (b"a,b\n1,2\n", "has no column n_gpus"),
    (b"n_gpus\n\xff\xfe\n", "is not UTF-8"),
])  # fmt: skip
def test_files_that_are_no_tables(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_file(str(file))
    assert caught.value.exit_code == 2


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            load_file(str(path))


@pytest.mark.parametrize(("words", "preset"), [
    ("NVIDIA H100-SXM5-80GB", "h100-sxm"), ("H100-96GB HBM2e 500W", "h100-96g"), ("A100-80GB SXM4", "a100-80g"),
    ("A100-40GB", "a100-40g"), ("A100 (DGX A100)", "a100-80g"), ("V100-32GB (DGX-2)", "v100-32g"), ("V100-16GB", "v100-16g"),
    ("NVIDIA Blackwell GPU (B200-SXM-180GB)", "b200"), ("GB200", "gb200"), ("MI300X", "mi300x"), ("H800", "h800"),
    ("NVIDIA H200-SXM5-141GB", "h200"), ("gb300", "gb300"), ("TPU v5p", None), ("Intel Gaudi 3", None),
])  # fmt: skip
def test_gpu_words(words: str, preset: str | None) -> None:
    assert gpu_preset(words) == preset


@pytest.mark.parametrize(("words", "preset"), [
    ("Llama-3.1-405B", "llama3-405b"), ("LLAMA3.1_405B", "llama3-405b"), ("Llama2-7b", "llama2-7b"), ("DeepSeekV3", "deepseek-v3"),
    ("DeepSeek-V3-671B", "deepseek-v3"), ("Qwen3_30B_a3B", "qwen3-30b-a3b"), ("Mixtral-8x22B", "mixtral-8x22b"),
    ("Mixtral-8x22B-G8T8", "mixtral-8x22b-g8t8"), ("Grok1-314B", "grok-1"), ("Kimi_K2", "kimi-k2"), ("GPT OSS 120B", "gpt-oss-120b"),
    ("MPT-30b", "mpt-30b"), ("llama3-8b", "llama3-8b"), ("GPT 39.1B", None), ("Nemotron_3_Super", None),
])  # fmt: skip
def test_model_words(words: str, preset: str | None) -> None:
    assert model_preset(words) == preset


@pytest.mark.parametrize(("words", "precision"), [
    ("amp_bf16", "bf16"), ("BF16", "bf16"), ("FP8-CS", "fp8"), ("FP8-MX", "mxfp8"), ("MXFP8", "mxfp8"), ("NVFP4", "nvfp4"),
    ("fp8 rowwise", "fp8"), ("fp16", "fp16"), ("what", None),
])  # fmt: skip
def test_precision_words(words: str, precision: str | None) -> None:
    assert precision_of_words(words) == precision


def test_schedule_words() -> None:
    assert schedule_of_words("interleaved 1F1B") == "interleaved-1f1b"
    assert schedule_of_words("ZB-2p") == {"kind": "zb-auto", "memory": 2.0}
    assert schedule_of_words("1F1B") == "1f1b"
    assert schedule_of_words("DualPipe") == "dualpipe"
    assert schedule_of_words("by hand") is None


def test_all_names_are_presets() -> None:
    gpus = {preset for _, preset in GPUS}
    assert gpus <= set(preset_names("gpus"))
    assert gpus - {"l20"} == NODES.keys() & gpus
    assert set(NODES.values()) <= set(preset_names("nodes"))
    assert {name for _, name in MODELS if name and "\\" not in name} <= set(preset_names("models"))


def test_every_source_has_a_known_stack_and_a_reason_for_what_it_takes() -> None:
    for entry in sources():
        stack = entry.stack if isinstance(entry.stack, str) else (entry.stack or {}).get("preset")
        assert stack is None or stack in preset_names("stacks"), entry.name
        assert entry.skip or entry.values, entry.name
        assert entry.why.keys() <= {*entry.values, "stack"}, entry.name
    assert sources()[-1].match == ""


@pytest.mark.parametrize(
    "table", ["dgxc", "mlperf-llm", "vtrain-multi", "bloom", "torchtitan", "zero-bubble", "llama3"]
)
def test_packaged_rows_have_a_source_of_their_own(table: str) -> None:
    rows = packaged(table)
    assert rows
    assert all(row.text("source_address") for row in rows)
    assert all(source_of(row).name != "generic" for row in rows)


def test_an_unknown_source_takes_the_general_defaults() -> None:
    assert source_of(Row({"source": "our own cluster"})).name == "generic"
