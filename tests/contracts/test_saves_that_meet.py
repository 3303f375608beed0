"""Saves that are under way together: by arithmetic and by events the same, for every engine and all that makes them meet."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.checkpoint.played import PlayedPattern, PlayedStretch
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.scenario.schema import Scenario
from tests.contracts.test_engines import KINDS, assert_same, instants, run, scenario
from tests.run.synthetic import counted, planted

MEETING: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "copies beside copies": ("checkfreq", {"snapshots": 2, "copy_bandwidth": 200e3, "interval": {"steps": 1}, "overlap": True}, {}),
    "copies at once": ("byterobust", {"snapshots": 3, "queued": False, "copy_bandwidth": 100e3, "stall": 0.25, "copies": 1,
                                       "interval": {"steps": 2}}, {}),
    "uploads at once": ("megascale", {"snapshots": 3, "queued": False}, {}),
    "uploads at once, skipping": ("async", {"snapshots": 2, "queued": False, "when_busy": "skip", "interval": {"steps": 2}}, {}),
    "uploads at once, waiting": ("async", {"snapshots": 3, "queued": False, "when_busy": "wait"}, {}),
    "streams behind each other": ("datastates", {"staging": None, "snapshots": 3, "copy_bandwidth": 400e3}, {}),
    "streams at once": ("datastates", {"staging": None, "snapshots": 2, "queued": False, "interference": 0.25}, {}),
    "disks at once": ("gockpt", {"target": "disk", "snapshots": 2, "queued": False}, {"cluster.node.local_disk_write": 100e3}),
    "uploads left out": ("just-in-time", {"base_every": 4, "interval": {"steps": 1}}, {}),
    "peers beside uploads": ("gemini", {"uplink": "training"}, {"cluster.node.nic_bandwidth": 250e3}),
    "peers beside uploads, slower": ("transom", {"uplink": "training", "slowdown": 1.25}, {"cluster.node.nic_bandwidth": 1e6}),
    "bases beside uploads": ("tiercheck", {"uplink": "training"}, {"cluster.node.nic_bandwidth": 250e3}),
    "host memory": ("gemini", {"interval": {"steps": 2}}, {"cluster.node.host_memory_bandwidth": 400e3}),
    "host memory, levels": ("multi-level", {"local_stall": None}, {"cluster.node.host_memory_bandwidth": 300e3}),
}  # fmt: skip
"""Engine, its keys, and keys of the scenario: each makes moves of saves share what they cross, or wait for each other."""


def meeting(name: str, *times: float, severity: str = "node", **keys: Any) -> Scenario:
    kind, engine, others = MEETING[name]
    made = scenario(kind, *times, severity=severity, **{**engine, **keys})
    return made.replace(others) if others else made


@pytest.mark.parametrize("name", MEETING)
def test_these_meet(name: str) -> None:
    assert isinstance(Prepared(meeting(name), 1.0).pattern, PlayedPattern)


@pytest.mark.parametrize("severity", ["process", "node", "storage"])
@pytest.mark.parametrize("name", MEETING)
def test_by_arithmetic_and_by_events(name: str, severity: str) -> None:
    for first in (3.2, 11.7, 19.05):
        made = meeting(name, first, first + 6.125, severity=severity)
        assert_same(run(made), run(made, jump=False))


@pytest.mark.prove
@pytest.mark.parametrize("severity", ["process", "node", "cluster", "storage"])
@pytest.mark.parametrize("name", MEETING)
def test_a_failure_after_every_event(name: str, severity: str) -> None:
    # At the very instant the rounding of two ways to add up decides whether a flow has ended.
    for instant in instants(run(meeting(name, 23.5))):
        made = meeting(name, instant + 1e-5, severity=severity)
        assert_same(run(made), run(made, jump=False))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(MEETING)), st.floats(0.3, 3.0), st.lists(st.floats(0.0, 90.0), max_size=3),
       st.lists(st.floats(0.0, 90.0), max_size=2), st.sampled_from(["wait", "skip", "block"]))  # fmt: skip
def test_any_disturbances(name: str, step: float, failures: list[float], outages: list[float], busy: str) -> None:
    made = meeting(name, when_busy=busy).replace("failures", [
        planted(*failures, detection=0.5), planted(*outages, severity="storage", lasting=7.0)])  # fmt: skip
    assert_same(*(Job(Prepared(made, step, jump=jump), 0, 0).run() for jump in (True, False)))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 4), st.integers(1, 4), st.booleans(), st.sampled_from(["own", "training"]),
       st.sampled_from([None, 200e3, 1e6]), st.sampled_from([None, 150e3, 600e3]), st.sampled_from(["wait", "skip", "block"]),
       st.lists(st.floats(0.0, 60.0), max_size=2), st.sampled_from([1.0, 1.25]))  # fmt: skip
def test_any_engine_with_any_depth(kind: str, depth: int, steps: int, queued: bool, uplink: str, copies: float | None,
                                   memory: float | None, busy: str, failures: list[float], slowdown: float) -> None:  # fmt: skip
    keys = {"snapshots": depth, "staging": None, "interval": {"steps": steps}, "queued": queued, "uplink": uplink,
            "copy_bandwidth": copies, "when_busy": busy, "slowdown": slowdown}  # fmt: skip
    made = scenario(kind, *failures, **keys).replace({
        "cluster.node.host_memory_bandwidth": memory, "cluster.node.nic_bandwidth": 1e6})  # fmt: skip
    assert_same(run(made), run(made, jump=False))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["async", "checkfreq", "datastates", "gockpt", "megascale", "transom"]), st.floats(0.4, 9.0),
       st.floats(0.4, 3.0), st.integers(1, 3), st.sampled_from([1.0, 1.25, 1.5]))  # fmt: skip
def test_saves_are_left_out_at_any_interval(kind: str, interval: float, step: float, depth: int, slowdown: float) -> None:
    # An interval that is no whole number of steps: the saves that fall due meanwhile are counted in time, not in steps.
    made = scenario(kind, steps=60, snapshots=depth, staging=None, interval=interval, when_busy="skip", slowdown=slowdown)
    assert_same(*(Job(Prepared(made, step, jump=jump), 0, 0).run() for jump in (True, False)))


@pytest.mark.parametrize("name", MEETING)
def test_the_cost_of_a_run_does_not_grow_with_its_saves(name: str) -> None:
    result, events = counted(Prepared(meeting(name, steps=10**6), 1.0))
    assert result.steps == 10**6
    assert events < 10


@pytest.mark.parametrize(
    "name", ["uploads at once", "streams behind each other", "peers beside uploads", "host memory"]
)
def test_after_an_outage_the_arithmetic_takes_over_again(name: str) -> None:
    # A million steps with an outage in their midst: some tens of saves are played event by event, then none.
    made = meeting(name, 501_000.3, severity="storage", steps=10**6)
    result, events = counted(Prepared(made, 1.0))
    assert result.steps == 10**6
    assert events < 3000


def test_a_stretch_that_is_joined_knows_the_saves_before_it() -> None:
    made = meeting("uploads at once")
    pattern = Prepared(made, 1.0).pattern
    assert isinstance(pattern, PlayedPattern)
    place = next(place for place, state in enumerate(pattern.states) if len(state.under) > 1)
    joined = PlayedStretch(pattern, 1000.0, 500, place, number=pattern.before + place)
    whole = PlayedStretch(pattern, 0.0, 0)
    leg = pattern.before + place + 8 * len(pattern.cycle)
    shift, steps = 1000.0 - whole.leg_start(leg), 500 - whole.steps_before(leg)
    assert joined.flying > 1
    for save in range(-joined.flying, 12):
        for tier, _ in pattern.tiers:
            durable = (whole.durable_s(leg + save, tier) or 0.0) + shift
            if save < 0 and durable < 1000.0:
                assert joined.durable_s(save, tier) is None  # known already
            else:
                assert joined.durable_s(save, tier) == pytest.approx(durable)
        assert 500 + joined.steps_before(save) == whole.steps_before(leg + save) + steps
    for tier, _ in pattern.tiers:  # copies of saves before it count from the moment at which they become durable
        waiting = [save for save in range(-joined.flying, 0) if joined.durable_s(save, tier) is not None]
        for save in waiting:
            durable = joined.durable_s(save, tier)
            assert durable is not None
            newest = joined.copies(durable + 1e-6, joined.locate(durable + 1e-6).leg)[-1]
            assert (newest.step, newest.durable_s) == (500 + joined.steps_before(save + 1), pytest.approx(durable))
        assert waiting
