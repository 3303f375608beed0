"""A job small enough to run many times: 64 nodes, a day, a failure every three hours."""

from __future__ import annotations

from typing import Any

import pytest

from clustersim.scenario.load import load
from clustersim.scenario.schema import Scenario

SMALL: dict[str, Any] = {
    "name": "small",
    "model": {"name": "tiny", "layers": 8, "hidden": 1024, "ffn_hidden": 4096, "heads": 8, "vocab": 32000},
    "cluster": {"nodes": 64, "spare_nodes": 4, "node": "dgx-h100",
                "storage": {"kind": "shared-filesystem", "write_bandwidth": "20 GB/s", "read_bandwidth": "20 GB/s"}},
    "training": {"seq_len": 2048, "global_batch": 512, "duration": "1 d"},
    "checkpoint": {"engine": "sync", "interval": "20 min"},
    "failures": [{"name": "node", "component": "node", "mtbf": "192 h"}],
    "recovery": {"strategy": "restart", "stages": {"start": "5 min"}},
    "repair": {"time": "4 h"},
    "simulation": {"replicas": 8, "seed": 3},
}  # fmt: skip


@pytest.fixture(scope="session")
def small() -> Scenario:
    return load(SMALL)


@pytest.fixture(scope="session")
def small_yaml(small: Scenario, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("scenario") / "small.yaml"
    path.write_text(small.resolved(), encoding="utf-8")
    return str(path)
