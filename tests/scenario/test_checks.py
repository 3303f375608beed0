"""Rules between blocks: each is reported at the value to change, several at once, with what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.errors import InputError
from clustersim.scenario.load import load

BASE = {
    "model": "{layers: 32, hidden: 4096, ffn_hidden: 14336, heads: 32, kv_heads: 8, vocab: 128256}",
    "cluster": "{nodes: 4, node: dgx-h100, storage: tectonic}",
    "training": "{seq_len: 4096, global_batch: 64, steps: 10}",
    "parallelism": "{tp: 2, pp: 2}",
}
MOE = "{layers: 8, hidden: 4096, ffn_hidden: 14336, heads: 32, vocab: 32000, moe: {experts: 8, top_k: 2, expert_ffn_hidden: 14336}}"


def problems(tmp_path: Path, **blocks: str) -> list[tuple[str, str]]:
    path = tmp_path / "f.yaml"
    path.write_text("".join(f"{name}: {text}\n" for name, text in (BASE | blocks).items()))
    try:
        load(path)
    except InputError as error:
        assert all(problem.line is not None for problem in error.problems)
        return [(problem.path, problem.message) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("blocks", "path", "words"),
    [
        ({"parallelism": "{tp: 2, pp: 2, dp: 9}"}, "parallelism.dp", "tp 2 × pp 2 × cp 1 × dp 9 = 36, and the job has 32 GPUs (nodes 4 × 8); dp 8 would be right"),
        ({"parallelism": "{pp: 3}"}, "parallelism", "tp 1 × pp 3 × cp 1 = 3 does not divide the GPUs"),
        ({"training": "{seq_len: 4096, global_batch: 63, steps: 10}"}, "training.global_batch", "must be a multiple of micro_batch 1 × dp 8 = 8; nearest: 56 or 64"),
        ({"training": "{seq_len: 4096, global_batch: 4, steps: 10}"}, "training.global_batch", "nearest: 8"),
        ({"parallelism": "{pp: 2, chunks: 18, schedule: interleaved-1f1b}"}, "parallelism.chunks", "= 36 stages are too many for 32 layers, the embedding and the output layer (at most 34)"),
        ({"parallelism": "{tp: 3}", "cluster": "{nodes: 3, node: dgx-h100, storage: tectonic}"}, "parallelism.tp", "3 must divide the 32 attention heads"),
        ({"parallelism": "{cp: 4}", "training": "{seq_len: 4098, global_batch: 64, steps: 10}"}, "training.seq_len", "4,098 must be a multiple of cp 4"),
        ({"parallelism": "{tp: 4, sequence_parallel: true}", "training": "{seq_len: 4098, global_batch: 64, steps: 10}"}, "training.seq_len", "cp 1 × tp 4 (sequence_parallel)"),
        ({"parallelism": "{ep: 2}"}, "parallelism.ep", "spreads experts, and model has none"),
        ({"model": MOE, "parallelism": "{ep: 16}"}, "parallelism.ep", "16 must divide the 8 experts"),
        ({"model": MOE.replace("experts: 8", "experts: 64"), "parallelism": "{ep: 64}"}, "parallelism.ep", "64 must divide tp 1 × cp 1 × dp 32"),
        ({"parallelism": "{schedule: dualpipe, pp: 8}", "training": "{seq_len: 4096, global_batch: 16, steps: 10}"}, "parallelism.schedule", "dualpipe"),
        ({"parallelism": "{schedule: 1f1b, chunks: 2, pp: 4}"}, "parallelism.schedule", "runs one chunk a rank, got 2"),
        ({"model": BASE["model"].replace("vocab: 128256", "vocab: 128256, positions: 2048")}, "training.seq_len", "is longer than the model's 2,048 learned positions"),
        ({"training": "{seq_len: 4096, global_batch: 64}"}, "training", "needs exactly one of duration, steps and tokens (given: none)"),
        ({"training": "{seq_len: 4096, global_batch: 64, steps: 1, duration: 1 d}"}, "training", "(given: duration, steps)"),
        ({"parallelism": "{tp: 2, pp: 2, stage_layout: balance}"}, "parallelism.stage_layout", "did you mean 'balanced'?"),
        ({"parallelism": "{tp: 2, pp: 2, stage_layout: ''}"}, "parallelism.stage_layout", "is empty"),
        ({"parallelism": "{tp: 2, pp: 2, stage_layout: 'Et*3|t*3L'}"}, "parallelism.stage_layout", "32"),
        ({"parallelism": "{tp: 2, pp: 2, stage_layout: balanced}", "training": "{seq_len: 4096, global_batch: 64, steps: 10, frozen_layers: 33}"}, "training.frozen_layers", "33 is more than the 32 layers"),
        ({"model": BASE["model"].replace("kv_heads: 8", "kv_heads: 5")}, "model", "must be a multiple of kv_heads 5"),
    ],
)  # fmt: skip
def test_each_rule(tmp_path: Path, blocks: dict[str, str], path: str, words: str) -> None:
    found = problems(tmp_path, **blocks)
    assert path in [item[0] for item in found]
    assert any(words in message for where, message in found if where == path), found


@pytest.mark.parametrize(
    "blocks",
    [
        {},
        {"parallelism": "{tp: 16, pp: 2}"},  # 8 key/value heads are copied on 16 ranks
        {"parallelism": "{pp: 2, chunks: 17, schedule: interleaved-1f1b}"},  # 34 stages: embedding and output layer alone at the ends
        {"parallelism": "{pp: 2, dp: 16}"},
        {"model": MOE, "parallelism": "{ep: 8}"},
    ],
)
def test_what_is_allowed(tmp_path: Path, blocks: dict[str, str]) -> None:
    assert problems(tmp_path, **blocks) == []


def test_several_rules_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, training="{seq_len: 4097, global_batch: 63, steps: 10}", parallelism="{tp: 4, pp: 2, dp: 8, ep: 2, sequence_parallel: true}")  # fmt: skip
    assert {path for path, _ in found} == {"training.seq_len", "training.global_batch", "parallelism.dp", "parallelism.ep"}


def test_rules_are_checked_though_other_blocks_are_wrong(tmp_path: Path) -> None:
    found = problems(tmp_path, parallelism="{tp: 2, pp: 2, dp: 9}", simulation="{replicas: 0}", checkpoint="asinc")
    assert {path for path, _ in found} == {"training.global_batch", "parallelism.dp", "simulation.replicas", "checkpoint"}
