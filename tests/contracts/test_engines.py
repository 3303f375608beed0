"""What every checkpoint engine keeps to with all its levels in use, with luck and without; failures at every event."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim.checkpoint  # noqa: F401  (registers the engines)
from clustersim.checkpoint.engine import CheckpointEngine
from clustersim.run.describe import describe
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.scenario.schema import Scenario
from tests.run.synthetic import build, counted, job_failure, planted

KINDS = sorted(name for name, part in CheckpointEngine.kinds.items() if part.kind == name)
LEVELS: dict[str, dict[str, Any]] = {
    "gemini": {"persist_every": 4},
    "byterobust": {"persist_every": 4, "planning": 0.25},
    "fftrainer": {"persist_every": 4},
    "tiercheck": {"persist_every": 4, "interval": {"steps": 2}},
    "transom": {"persist_every": 2, "interval": {"steps": 3}},
    "multi-level": {"partner_every": 2, "flush_every": 4, "interval": {"steps": 2}, "local_stall": 0.25},
    "just-in-time": {"base_every": 7},
    "sync": {"planning": 0.5},
    "peer-rebuild": {"base_every": 7},
    "datastates": {"interval": {"steps": 2}, "staging": 3e6},
    "checkfreq": {"interval": {"steps": 3}, "overlap": False},
    "gockpt": {"interval": {"steps": 3}, "target": "storage"},
    "megascale": {"interval": {"steps": 3}, "snapshots": 2, "when_busy": "block"},
    "async": {"interval": {"steps": 3}, "snapshots": 3, "when_busy": "block", "slowdown": 1.25},
}
"""Settings that use every level of an engine on the small job below; others run as they are, every 5 steps."""
SLOW = {"write_bandwidth": 600_000.0, "read_bandwidth": 900_000.0, "latency": 0.25}


def scenario(kind: str, *times: float, severity: str = "node", steps: int = 40, place: int = 0, **keys: Any) -> Scenario:
    causes = [planted(*times, severity=severity, detection=0.5, lasting=7.0, place=place)] if times else []
    engine = {"kind": kind, "interval": {"steps": 5}, **LEVELS.get(kind, {}), **keys}
    return build(nodes=4, gpus=2, spares=3, nodes_per_rack=2, stages={"start": 2.0, "communicators": 1.0}, storage=SLOW,
                 checkpoint=engine, steps=steps, failures=causes)  # fmt: skip


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "scr": ("multi-level", {"flush": "blocking", "flush_stall": 1.5, "flush_every": 2}),
    "gemini that waits": ("gemini", {"interleave": False, "copy_bandwidth": 200_000.0, "persist_every": 3}),
    "tiercheck with slow copies": ("tiercheck", {"copy_bandwidth": 100_000.0}),
    "in flight three at once": ("async", {"snapshots": 3, "when_busy": "wait", "interval": {"steps": 1}}),
}
"""Other ways of the same engines: copies on one tier while training still stands still for the next."""


def run(made: Scenario, jump: bool = True, seed: int = 0) -> RunResult:
    """A run of which everything holds that must hold of any."""
    job = Job(Prepared(made, 1.0, jump=jump), seed, 0)
    result = job.run()
    assert math.fsum(result.ledger_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    assert min(result.ledger_s.values()) >= -1e-6
    assert sum(job.fleet.counts) == made.cluster.nodes + made.cluster.spare_nodes
    durable = {(0, "shared")}
    for entry in sorted(result.log.entries(), key=lambda e: (e.time_s, e.event != "save_durable")):
        if entry.event == "save_durable":
            durable.add((entry.step or 0, entry.subject))
        if entry.event == "rollback":
            assert (entry.step, entry.subject) in durable  # never restores what was not durable on that tier
    return result


def assert_same(left: RunResult, right: RunResult) -> None:
    """Wall time, ledger, copies and rollbacks agree."""
    assert left.wall_s == pytest.approx(right.wall_s, rel=1e-9)
    assert left.ledger_s == pytest.approx(right.ledger_s, abs=1e-6)
    logs = []
    for result in (left, right):
        kept = (e for e in result.log.entries() if e.event in ("save_durable", "rollback", "resume"))
        logs.append(sorted((e.event, e.subject, e.step or 0, e.time_s) for e in kept))
    assert [entry[:3] for entry in logs[0]] == [entry[:3] for entry in logs[1]]
    assert [entry[3] for entry in logs[0]] == pytest.approx([entry[3] for entry in logs[1]], rel=1e-9, abs=1e-7)


def instants(result: RunResult) -> list[float]:
    times = sorted({round(entry.time_s, 6) for entry in result.log.entries() if entry.time_s > 0})
    return [*times, *((a + b) / 2 for a, b in itertools.pairwise(times))]


@pytest.mark.parametrize("severity", ["process", "node", "rack", "cluster"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_at_events_by_arithmetic_and_by_events(kind: str, severity: str) -> None:
    # A sixth of the instants each time: together with the proof below every one is covered.
    moments = instants(run(scenario(kind, 23.5)))
    for instant in moments[::6]:
        made = scenario(kind, instant, severity=severity)
        assert_same(run(made), run(made, jump=False))


@pytest.mark.parametrize("severity", ["process", "node", "storage"])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_failure_at_events_of_other_ways(name: str, severity: str) -> None:
    kind, keys = VARIANTS[name]
    for instant in instants(run(scenario(kind, 23.5, **keys)))[::3]:
        made = scenario(kind, instant, severity=severity, **keys)
        assert_same(run(made), run(made, jump=False))


def test_a_stream_that_an_outage_held_up_is_not_taken_to_be_on_time() -> None:
    # The copy of 6.8 s from 32.6 s on goes on in the outage; the stream to storage begins only after it, at 38 s.
    made = scenario("datastates", 31.0, severity="storage", copy_bandwidth=50e3, staging=None, slowdown=1.25,
                    when_busy="wait", interval=2.21458914735394).replace("failures", [
        planted(1.2420626150684932, detection=0.5), planted(31.0, severity="storage", lasting=7.0)])  # fmt: skip
    assert_same(run(made), run(made, jump=False))


@pytest.mark.prove
@pytest.mark.parametrize("severity", ["process", "gpu", "node", "nvlink-domain", "rack", "cluster", "storage"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_at_every_event(kind: str, severity: str) -> None:
    for instant in instants(run(scenario(kind, 23.5))):
        made = scenario(kind, instant, severity=severity)
        assert_same(run(made), run(made, jump=False))


@settings(max_examples=40)
@given(st.sampled_from(KINDS), st.integers(0, 2**20), st.floats(0.0, 0.5), st.floats(0.0, 0.5), st.integers(1, 3),
       st.sampled_from(["wait", "skip", "block"]))  # fmt: skip
def test_random_failures_and_bad_luck(kind: str, seed: int, failing: float, corrupt: float, keep: int, busy: str) -> None:
    keys = {"failing": failing, "corrupt": corrupt, "keep": keep, "when_busy": busy}
    made = scenario(kind, steps=150, **keys).replace("failures", [
        {"component": "node", "severity": "node", "mtbf": 400.0, "detection": 1.0},
        job_failure(70.0, detection=0.5, name="crash"),
    ])  # fmt: skip
    assert_same(run(made, seed=seed), run(made, jump=False, seed=seed))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
def test_bytes_are_conserved_by_tier(kind: str) -> None:
    # Every save that became durable on storage moved its bytes once; one more may be under way at the end.
    prepared = Prepared(scenario(kind, steps=60), 1.0, jump=False)
    job = Job(prepared, 0, 0)
    entries = job.run().log.entries()
    for transfer in prepared.transfers:
        if transfer.channel == "storage":
            saves = sum(e.event == "save_durable" and e.subject == "shared" for e in entries)
            assert saves > 0
            assert saves * transfer.bytes <= job.storage.moved["write"] * (1 + 1e-9)
            assert job.storage.moved["write"] <= (saves + prepared.pattern.depth) * transfer.bytes * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_on_infinitely_fast_resources_nothing_stalls(kind: str) -> None:
    made = build(nodes=4, gpus=2, steps=50, checkpoint={
        "kind": kind, "interval": {"steps": 3}, **LEVELS.get(kind, {}), "planning": 0.0,
        **({"local_stall": None} if kind == "multi-level" else {})})  # fmt: skip
    assert Job(Prepared(made, 1.0), 0, 0).run().wall_s == pytest.approx(50.0, abs=2e-3)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
def test_an_engine_tells_what_it_does(kind: str) -> None:
    prepared = Prepared(scenario(kind), 1.0)
    told = describe(prepared)
    assert told["stall_s"] >= 0
    assert told["stall_full_s"] >= told["stall_s"] - 1e-12
    assert (told["interval_s"] is None) != (told["interval_steps"] is None)
    assert told["host_memory_bytes"] >= 0
    assert told["tiers"] or not prepared.site.state.replicas > 1 or kind in ("just-in-time", "peer-rebuild")
    for tier, row in told["tiers"].items():
        assert row["durable_s"] >= 0
        assert row["restore_s"] >= 0
        assert math.isfinite(row["bandwidth_bytes_per_s"])
        assert tier in {"shared", "disk", "host", "peer", "replica"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_survives_writing_and_reading(kind: str) -> None:
    made = scenario(kind)
    assert Scenario.model_validate(made.data()).checkpoint == made.checkpoint


@pytest.mark.parametrize("kind", KINDS)
def test_more_failures_never_help(kind: str) -> None:
    def ettr(mtbf: float) -> float:
        made = scenario(kind, steps=120).replace("failures", [job_failure(mtbf, detection=1.0)])
        prepared = Prepared(made, 1.0)
        return math.fsum(Job(prepared, 5, index, events=False).run().ettr for index in range(12)) / 12

    assert ettr(30.0) < ettr(3000.0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_cost_of_a_run_does_not_grow_with_its_saves(kind: str) -> None:
    result, events = counted(Prepared(scenario(kind, steps=10**7), 1.0))
    assert result.steps == 10**7
    assert events < 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_one_node_comes_back_from_storage_alone(kind: str) -> None:
    # There is no peer: what lay in the node's memory, or was sent to "another", is gone with it.
    engine = {"kind": kind, "interval": {"steps": 5}, **LEVELS.get(kind, {})}
    made = build(nodes=1, gpus=2, spares=2, stages={"start": 2.0, "communicators": 1.0}, storage=SLOW, checkpoint=engine,
                 steps=40, failures=[planted(27.0, 55.0, severity="node", detection=0.5, lasting=7.0)])  # fmt: skip
    back = [entry.subject for entry in run(made).log.entries() if entry.event == "rollback"]
    assert set(back) == {"shared"}
