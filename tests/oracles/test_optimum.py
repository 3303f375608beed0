"""The searched checkpoint interval against closed forms, and where those are wrong.

Young, Daly and the exact optimum take failures as exponential and saves as synchronous. The search knows nothing of
either: it must find the exact optimum where the assumptions hold, and leave it where they do not.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from clustersim.scenario.load import load
from clustersim.scenario.schema import Scenario
from clustersim.study.optimal import Optimum, optimum
from clustersim.study.ranges import Range
from clustersim.study.references import references_of

JOB: dict[str, Any] = {
    "name": "optimum",
    "model": {"name": "tiny", "layers": 8, "hidden": 1024, "ffn_hidden": 4096, "heads": 8, "vocab": 32000},
    "cluster": {"nodes": 64, "spare_nodes": 64, "node": "dgx-h100",
                "storage": {"kind": "shared-filesystem", "write_bandwidth": "100 MB/s", "read_bandwidth": "1 TB/s",
                            "latency": "0 s"}},
    "training": {"seq_len": 2048, "global_batch": 512, "duration": "10 d"},
    "checkpoint": {"engine": "sync", "interval": "20 min"},
    "failures": [{"name": "node", "component": "job", "mtbf": "3 h", "severity": "process", "detection": "1 min"}],
    "recovery": {"strategy": "restart", "stages": {"start": "5 min"}},
    "simulation": {"replicas": 60, "seed": 5},
}  # fmt: skip


def job(**changes: Any) -> Scenario:
    return load({**JOB, **changes})


def searched(scenario: Scenario, metric: str = "goodput_tokens_per_s") -> Optimum:
    return optimum(scenario, Range.parse("checkpoint.interval=1 min..2 h"), metric=metric,
                   references=references_of(scenario, "checkpoint.interval"))  # fmt: skip


EXACT = "exact (exponential failures)"


@pytest.mark.prove
@pytest.mark.parametrize("mtbf", ["1 h", "3 h", "12 h"])
def test_exponential_failures_and_synchronous_saves(mtbf: str) -> None:
    """The exact optimum lies in the interval of the searched one, stretched from 95 % to 99.7 % (3 instead of 1.96
    standard errors, in the logarithm): at 95 % one of seven runs of three cases would be a false alarm."""
    found = searched(job(failures=[{**JOB["failures"][0], "mtbf": mtbf}]))
    below, above = (math.log(end / found.value) * 3 / 1.96 for end in found.ci95)
    assert below <= math.log(found.references[EXACT] / found.value) <= above
    assert not found.at_edge


@pytest.mark.prove
def test_daly_is_wrong_on_weibull_failures() -> None:
    """A decreasing hazard (shape 0.5, as fleets show): failures come in runs, and between runs saving less often pays."""
    weibull = {**JOB["failures"][0], "distribution": "weibull", "shape": 0.5}
    found = searched(job(failures=[weibull]))
    assert found.ci95[0] > found.references["Daly 2006"]


@pytest.mark.prove
def test_daly_is_wrong_on_asynchronous_saves() -> None:
    """The formula takes the stall as the cost, which is next to nothing; a save that lasts cannot come more often."""
    found = searched(job(checkpoint={"engine": "async", "interval": "20 min"}))
    assert found.references["Daly 2006"] < 5.0
    assert found.value > 5 * found.references["Daly 2006"]
