"""Every failure model keeps the contract of arrivals, whatever it models."""

from __future__ import annotations

import functools
import math
from importlib import resources
from typing import Any

import pytest

from clustersim.distributions import Constant
from clustersim.faults.failure import FailureModel
from clustersim.faults.process import Hit, Site
from clustersim.hardware.cluster import Cluster
from clustersim.rng import stream
from clustersim.scenario.parts import import_parts

import_parts()
DAY = 86400.0
KEYS: dict[str, dict[str, Any]] = {
    "component": {"mtbf": 20 * DAY},
    "fleet": {"mtbf": 20 * DAY, "frailty": {"shape": 1.0}, "lifetime": {"kind": "weibull", "shape": 0.7}},
    "trace": {"file": str(resources.files("clustersim.faults") / "data" / "infinitehbd.csv"), "nodes_watched": 400},
    "maintenance": {"first": DAY, "every": 3 * DAY, "length": 3600.0},
    "preemption": {"mtbf": 5 * DAY, "nodes": 3, "length": 3600.0},
    "fail-slow": {"mtbf": 20 * DAY, "depth": 1.5, "length": 3600.0},
    "false-alarm": {"mtbf": 5 * DAY},
    "link-flap": {"mtbf": 100 * DAY, "outage": {"kind": "exponential", "mean": 300.0}},
    "loss-spike": {"mtbf": 5 * DAY, "latency": {"kind": "exponential", "mean": 3600.0}, "passes": 0.2},
    "silent-corruption": {"mtbf": 20 * DAY},
    "lemons": {"mtbf": 5 * DAY, "share": 0.3},
}
KINDS = sorted({part.kind for part in FailureModel.kinds.values() if part.__module__.startswith("clustersim.faults.")})


def take(kind: str, replica: int = 0, spares: int = 4) -> list[Hit]:
    cluster = Cluster.model_validate({"nodes": 24, "spare_nodes": spares, "node": "dgx-h100", "storage": "tectonic"})
    cause = FailureModel.build({"kind": kind, "name": "x", **KEYS[kind]})
    site = Site(cluster, 24, functools.partial(stream, 3, replica), Constant(value=DAY), None, 100 * DAY)
    source = cause.arrivals(site)
    assert source is not None
    found = []
    while source.next_s <= 100 * DAY and len(found) < 500:
        expected = source.next_s
        found.append(source.pop())
        assert found[-1].time_s == expected
    return found


def test_every_kind_is_tried() -> None:
    assert set(KINDS) == set(KEYS)


@pytest.mark.parametrize("kind", KINDS)
def test_hits_come_in_order_and_aim_at_what_exists(kind: str) -> None:
    found = take(kind)
    assert found
    assert [hit.time_s for hit in found] == sorted(hit.time_s for hit in found)
    for hit in found:
        assert 0 <= hit.detection_s < math.inf
        assert 0 <= hit.repair_s < math.inf
        if hit.node is None:
            assert 0 <= hit.first < hit.last <= 24
        else:
            assert 0 <= hit.node < 28


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_one_story(kind: str) -> None:
    assert take(kind) == take(kind)
    if kind not in ("trace", "maintenance"):
        assert take(kind) != take(kind, replica=1)


@pytest.mark.parametrize("kind", KINDS)
def test_written_and_read_back_it_is_the_same(kind: str) -> None:
    cause = FailureModel.build({"kind": kind, **KEYS[kind]})
    assert FailureModel.build(cause.dump()) == cause
