"""Loss spikes in a run: what each costs by its closed form, what undoes one, and what goes back for it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersim.checkpoint.tiers import Copies, Copy, Tier
from clustersim.errors import InputError
from clustersim.run.outlook import outlook
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.run.simulate import run_replica
from clustersim.scenario.load import load
from clustersim.scenario.schema import Scenario

DAY, HOUR = 86400.0, 3600.0
STEP, INTERVAL = 10.0, 1800.0


def scenario(spike: dict[str, Any], *others: dict[str, Any], days: float = 60, keep: int = 6, **keys: Any) -> Scenario:
    return Scenario.model_validate({
        "model": "llama3-8b", "cluster": {"nodes": 16, "spare_nodes": 2, "node": "dgx-h100", "storage": "tectonic"},
        "training": {"seq_len": 8192, "global_batch": 128, "micro_batch": 1, "duration": days * DAY},
        "parallelism": {"tp": 2, "pp": 4}, "checkpoint": {"engine": "async", "interval": INTERVAL, "keep": keep},
        "failures": [{"kind": "loss-spike", "mtbf": 4 * DAY, "latency": 2 * HOUR, **spike}, *others], **keys,
    })  # fmt: skip


def runs(given: Scenario, replicas: int = 10) -> list[RunResult]:
    prepared = Prepared(given, STEP)
    results = [run_replica(prepared, 0, replica) for replica in range(replicas)]
    for result in results:
        assert math.fsum(result.ledger_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    return results


@pytest.mark.parametrize(("keys", "more"), [({}, 0.0), ({"margin": 100}, 100 * STEP), ({"saves_back": 2}, 2 * INTERVAL),
                                            ({"margin": 200, "saves_back": 1}, 200 * STEP + INTERVAL)], ids=str)  # fmt: skip
def test_what_a_spike_costs(keys: dict[str, Any], more: float) -> None:
    # Done again: from the copy to the spike (half an interval, uniform, and what it is to be older), and all since.
    results = runs(scenario(keys))
    hits = sum(result.interruptions for result in results)
    assert hits == pytest.approx(150, abs=4 * math.sqrt(150) + 10)
    lost = sum(result.lost_work_s for result in results) / hits
    assert lost == pytest.approx(2 * HOUR + INTERVAL / 2 + more, abs=4 * INTERVAL / math.sqrt(12 * hits) + 60)


def test_spikes_that_have_not_been_seen_are_undone_with_the_first() -> None:
    # What begins within the latency of a spike is gone when that one is seen: renewals of mean mtbf + latency + recovery.
    results = runs(scenario({"mtbf": 2 * HOUR, "latency": 4 * HOUR}), 6)
    hits = sum(result.interruptions for result in results)
    down = sum(result.wall_s - result.ledger_s["train"] - result.ledger_s["rework"] for result in results) / hits
    expected = 6 * 60 * DAY / (2 * HOUR + 4 * HOUR + down)
    assert hits == pytest.approx(expected, abs=4 * math.sqrt(expected) * (2 / 6) + 6)  # relative spread of a renewal: 2 h in 6 h


def test_those_that_pass_cost_nothing_and_leave_the_others_where_they_were() -> None:
    assert all(result.interruptions == 0 and result.lost_work_s == 0 for result in runs(scenario({"passes": 1.0}), 2))
    some = sum(result.interruptions for result in runs(scenario({"passes": 0.5})))
    assert some == pytest.approx(75, abs=4 * math.sqrt(75))


def test_the_decision_holds_the_gpus() -> None:
    results = runs(scenario({"detection": 600.0}))
    hits = sum(result.interruptions for result in results)
    assert sum(result.ledger_s["detect"] for result in results) == pytest.approx(600 * hits, rel=1e-9)


def test_batches_that_are_left_out_are_read_past() -> None:
    # A stage that reads data from the start takes 1 ms a batch: by the n-th spike n × 500 batches more than steps.
    stages = {"reschedule": 0.0, "start": 0.0, "communicators": 0.0, "load": 0.0, "warm_up": 0.0,
              "data": {"time": 0.0, "per_step": 0.001, "books": "other", "after": []}}  # fmt: skip
    plain, skipped = (runs(scenario({"skip": skip}, recovery={"strategy": "restart", "stages": stages}), 1)[0] for skip in (0, 500))
    hits = skipped.interruptions
    assert hits == plain.interruptions > 5
    more = sum(0.5 * number for number in range(1, hits + 1))
    assert skipped.ledger_s["other"] - plain.ledger_s["other"] == pytest.approx(more, abs=25)  # and up to a step at the end


@pytest.mark.parametrize("strategy", ["fftrainer", "elastic", "checkfree"])
@pytest.mark.parametrize("kind", ["loss-spike", "silent-corruption"])
def test_no_state_that_is_wrong_is_kept(strategy: str, kind: str) -> None:
    # Strategies that go on with the last step's state after the loss of a node do not after a spike or a corruption.
    cause = {"kind": kind, "mtbf": 4 * DAY, "latency": 2 * HOUR, "component": "job" if kind == "loss-spike" else "node"}
    results = runs(scenario(cause | ({"mtbf": 64 * DAY} if kind != "loss-spike" else {}), recovery={"strategy": strategy}), 4)
    hits = sum(result.interruptions for result in results)
    assert hits > 30
    assert sum(result.lost_work_s for result in results) / hits > 2 * HOUR


def test_the_outlook_keeps_no_wrong_state_either() -> None:
    node = {"component": "node", "mtbf": 64 * DAY}  # as many losses of a node, which the ring outlives, as spikes
    told = outlook(Prepared(scenario({}, node, recovery={"strategy": "fftrainer"}), STEP))
    assert told["kept_share"] == pytest.approx(0.5)


def test_no_spike_begins_while_nothing_trains() -> None:
    # Down half of the time: half as many spikes.
    crash = {"component": "job", "mtbf": 2 * HOUR, "severity": "process", "detection": 2 * HOUR}
    results = runs(scenario({"mtbf": 12 * HOUR, "latency": 0.0}, crash), 6)
    spikes = [entry for result in results for entry in result.log.entries() if entry.event == "failure" and entry.subject == "loss-spike"]
    up = sum(result.ledger_s["train"] + result.ledger_s["rework"] for result in results)
    assert len(spikes) == pytest.approx(up / (12 * HOUR), abs=4 * math.sqrt(up / (12 * HOUR)))


def test_the_copy_to_go_back_to() -> None:
    copies = Copies(Copy(0, Tier.SHARED, 0.0), keep=4)
    for step in (100, 200, 300, 400, 500):
        copies.add(Copy(step, Tier.SHARED, float(step)))
    wanted = {(500, 0): 500, (499, 0): 400, (350, 1): 200, (500, 3): 200, (200, 2): 200, (50, 0): 200}
    assert {key: copies.before(*key).step for key in wanted} == wanted  # type: ignore[union-attr]
    assert Copies(None).before(10) is None


def test_saves_that_are_not_kept_are_named(tmp_path: Path) -> None:
    text = "\n".join([
        "model: llama3-8b", "cluster: {nodes: 1, node: dgx-h100, storage: tectonic}", "training: {seq_len: 2048, global_batch: 8, steps: 5}",
        "checkpoint: {engine: async, interval: 10 min, keep: 2}", "failures:", "  - {kind: loss-spike, mtbf: 1 d, saves_back: 2}",
    ])  # fmt: skip
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert problem.path == "failures.0.saves_back"
    assert problem.line == 6
    assert "keep 3 or more" in str(problem)


def test_a_spike_takes_no_node() -> None:
    with pytest.raises(ValueError, match="component 'job' and severity 'process'"):
        scenario({"severity": "node"})


def test_the_same_bytes_for_one_seed() -> None:
    given = scenario({"passes": 0.3, "margin": 50, "latency": {"kind": "exponential", "mean": HOUR}})
    first, second = (run_replica(Prepared(given, STEP), 3, 1) for _ in range(2))
    assert first.ledger_s == second.ledger_s
    assert np.isfinite(first.ettr)
