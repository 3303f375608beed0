"""A precision that the GPU has not is computed in a wider one, and that is told."""

from __future__ import annotations

import pytest

from clustersim.scenario.load import load
from clustersim.study.step import step


def warnings(gpu: str, precision: str) -> list[str]:
    scenario = load({
        "model": {"name": "tiny", "layers": 8, "hidden": 1024, "ffn_hidden": 4096, "heads": 8, "vocab": 32000},
        "cluster": {"nodes": 1, "node": {"preset": "dgx-h100", "gpu": gpu}, "storage": "tectonic"},
        "training": {"seq_len": 2048, "global_batch": 64, "duration": "1 d", "precision": precision},
    })  # fmt: skip
    return list(step(scenario).to_dict()["warnings"])


@pytest.mark.parametrize(
    ("gpu", "precision", "native"),
    [("v100-32g", "bf16", "fp16"), ("a100-80g", "fp8", "bf16"), ("h100-sxm", "nvfp4", "fp8"), ("p100", "nvfp4", "fp16")],
)
def test_told_where_it_is_wider(gpu: str, precision: str, native: str) -> None:
    (told,) = warnings(gpu, precision)
    assert told.startswith("training.precision: ")
    assert told.endswith(f" has no {precision}: it computes in {native}, and MFU is a share of that peak")


@pytest.mark.parametrize(
    ("gpu", "precision"), [("v100-32g", "fp16"), ("a100-80g", "bf16"), ("h100-sxm", "mxfp8"), ("b200", "nvfp4")]
)
def test_not_where_the_gpu_has_it(gpu: str, precision: str) -> None:
    assert warnings(gpu, precision) == []
