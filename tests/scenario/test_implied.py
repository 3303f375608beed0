"""A mapping that leaves out which kind it is means the default where there is one, and short names stand for mappings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clustersim.errors import InputError
from clustersim.scenario.load import load
from clustersim.scenario.schema import Scenario

JOB: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"nodes": 1, "node": "dgx-h100", "storage": "tectonic"},
    "training": {"seq_len": 4096, "global_batch": 64, "duration": "1 d"},
}


def job(**changes: Any) -> Scenario:
    return load({**JOB, **changes})


def test_the_default_kind_is_meant() -> None:
    assert job(recovery={"stages": {"start": "1 min"}}) == job(recovery={"strategy": "restart", "stages": {"start": "1 min"}})
    short = job(training=JOB["training"] | {"optimizer": {"state_bytes_per_param": 10}})
    assert short == job(training=JOB["training"] | {"optimizer": {"kind": "adam", "state_bytes_per_param": 10}})
    short = job(cluster=JOB["cluster"] | {"network": {"oversubscription": 3}})
    assert short == job(cluster=JOB["cluster"] | {"network": {"kind": "fat-tree", "oversubscription": 3}})


def test_not_where_the_default_takes_no_heed_of_the_keys() -> None:
    with pytest.raises(InputError, match="checkpoint: needs the key 'engine'"):
        job(checkpoint={"interval": "10 min"})


def test_a_file_on_top_keeps_the_kind_below(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("recovery: hot-spare\ncluster: {network: rail-optimized}\n")
    (tmp_path / "job.yaml").write_text(
        "extends: base.yaml\nmodel: llama3-8b\ncluster: {nodes: 1, node: dgx-h100, storage: tectonic, network: {latency: 9 us}}\n"
        "training: {seq_len: 4096, global_batch: 64, duration: 1 d}\nrecovery: {stages: {start: 30 s}}\n"
    )
    scenario = load(tmp_path / "job.yaml")
    assert (scenario.recovery.kind, scenario.cluster.network.kind) == ("hot-spare", "rail-optimized")


def test_a_distribution_may_be_a_mapping() -> None:
    cause = {"name": "gpu", "mtbf": "100 h"}
    for spread in ({"shape": 0.7}, {"shape": 0.7, "age": "new"}):
        written = job(failures=[{**cause, "distribution": {"kind": "weibull", **spread}}])
        assert written == job(failures=[{**cause, "distribution": "weibull", **spread}])
    assert job(failures=[{**cause, "distribution": {"kind": "exponential"}}]) == job(failures=[cause])


@pytest.mark.parametrize(
    ("written", "beside"),
    [({"kind": "weibul", "shape": 1.0}, {}), ({"kind": "weibull"}, {}), ({"kind": "weibull", "shap": 1.0}, {}),
     ({"shape": 1.0}, {}), ({"kind": "weibull", "shape": 1.0}, {"shape": 2.0})],
)  # fmt: skip
def test_a_wrong_mapping_is_told(written: dict[str, Any], beside: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"failures\.0"):
        job(failures=[{"name": "gpu", "mtbf": "100 h", "distribution": written, **beside}])
