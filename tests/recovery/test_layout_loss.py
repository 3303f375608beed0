"""What a lost node costs depends on where it sat: the same failures under one layout or another, priced by the step model."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.faults.failure import ComponentFailure
from clustersim.pipeline.conditions import Conditions
from clustersim.recovery.strategy import NOTHING, RecoveryStrategy
from clustersim.run.outlook import Snapshot
from clustersim.run.prepared import Prepared
from clustersim.scenario.load import load

FILE = Path(__file__).parents[2] / "scenarios" / "cases" / "loss-by-layout.yaml"
NODE, RACK = frozenset({59}), frozenset(range(56, 60))
"""4 nodes a rack; tp 8 × pp 4 × dp 16: a node is one stage of a replica, 59 the last one (with the head: the slowest) either way."""


@pytest.fixture(scope="module")
def prepared() -> dict[str, Prepared]:
    """The job with replicas innermost (a rack is one stage of four replicas), and with stages (a rack is one replica)."""
    return {
        order: Prepared(load(str(FILE), (f"parallelism.order={order}",))) for order in ("tp-cp-dp-pp", "tp-cp-pp-dp")
    }


def cost(ready: Prepared, kind: str, places: frozenset[int]) -> float:
    """Share of the training that is lost while ``places`` stand empty."""
    conditions = RecoveryStrategy.build(kind).conditions(places, ready.ground)
    assert conditions is not None
    pace = ready.paces.thinned(conditions)
    assert pace is not None
    assert pace.degraded_s == pytest.approx(pace.step_s - pace.nominal_s)
    return 1 - pace.nominal_s / pace.step_s * (ready.pace.step_s / ready.pace.nominal_s)


def test_a_stage_a_replica_and_a_rack_cost_differently(prepared: dict[str, Prepared]) -> None:
    rows = {order: {(kind, name): cost(ready, kind, places) for kind in ("reroute", "elastic", "oobleck", "bamboo")
                    for name, places in (("node", NODE), ("rack", RACK))
                    if not (kind == "bamboo" and name == "rack" and order == "tp-cp-pp-dp")}
            for order, ready in prepared.items()}  # fmt: skip
    assert rows["tp-cp-dp-pp"]["bamboo", "rack"] == pytest.approx(rows["tp-cp-dp-pp"]["bamboo", "node"])  # side by side
    assert RecoveryStrategy.build("bamboo").conditions(RACK, prepared["tp-cp-pp-dp"].ground) is None  # neighbours
    for row in rows.values():
        # A replica that drops out takes 1/16 of the tokens (the others' ring is a little shorter); rerouting one lost node of the
        # slowest stage costs less than that, and more than its share of the cluster (ReCycle's bound, (N - f) / N).
        assert row["elastic", "node"] == pytest.approx(1 / 16, rel=0.05)
        assert 1 / 64 <= row["reroute", "node"] < row["elastic", "node"]
        # Oobleck: ⌈80 ÷ 3⌉ = 27 layers where 20 were: 1 ÷ 16 of the batch is done at 20/27 of the speed.
        assert row["oobleck", "node"] == pytest.approx((1 - 20 / 27) / 16, rel=0.25)
        assert row["bamboo", "node"] > row["elastic", "node"]  # two stages on one node, while the others wait
    beside, along = rows["tp-cp-dp-pp"], rows["tp-cp-pp-dp"]
    # One rack: a stage of four replicas, or one whole replica.
    assert beside["elastic", "rack"] == pytest.approx(4 / 16, rel=0.05)
    assert along["elastic", "rack"] == pytest.approx(1 / 16, rel=0.05)
    assert beside["reroute", "rack"] > 2.5 * along["reroute", "rack"]
    assert along["reroute", "rack"] == pytest.approx(1 / 16, rel=0.25)  # every stage does 16/15 of its work


STRATEGIES = sorted(name for name, part in RecoveryStrategy.kinds.items()
                    if part.kind == name and part.__module__.startswith("clustersim."))  # fmt: skip


def answers(ready: Prepared, kind: str, places: frozenset[int]) -> tuple[float | None, bool, str]:
    """What a strategy makes of a loss without spares: share of the training lost meanwhile (None: it waits), whether the last
    step's state is kept, and the way it takes."""
    cause = ComponentFailure(name="loss", mtbf=1e9)
    seen = Snapshot(ready.ground, NOTHING.also(cause, places, False, 1e6), True, 0)
    keys = {"copies": "replica"} if kind == "trainmover" else {}  # else the state comes from storage, whatever is lost
    strategy = RecoveryStrategy.build({"kind": kind, "stages": {"start": 60.0}, **keys}).choose(seen)
    seen.kept = strategy.keeps(seen)
    going = strategy.conditions(places, ready.ground) is not None
    lost = round(cost(ready, strategy.kind, places), 3) if going else None
    return lost, seen.kept, strategy.comeback(cause, seen).path


@pytest.mark.parametrize("kind", STRATEGIES)
def test_each_strategy_tells_a_stage_a_replica_and_a_rack_apart(kind: str, prepared: dict[str, Prepared]) -> None:
    # The same four nodes' worth of failures, or one stage of all replicas. Strategies that neither go on without nodes nor keep
    # a state restart alike whatever is lost; each other one makes a difference by where the nodes sat.
    ready = prepared["tp-cp-dp-pp"]
    seats = {place: ready.ground.seats(place)[0] for place in range(64)}
    replica = frozenset(place for place, seat in seats.items() if seat.replica == 11)
    stage = frozenset(place for place, seat in seats.items() if seat.stage == 2)
    assert (len(replica), len(stage), len(RACK)) == (4, 16, 4)
    assert {place for place, seat in seats.items() if seat.stage == 3} > RACK
    told = {name: answers(ready, kind, places) for name, places in (("rack", RACK), ("replica", replica), ("stage", stage))}
    part = RecoveryStrategy.kinds[kind]
    blind = (part.conditions is RecoveryStrategy.conditions and part.choose is RecoveryStrategy.choose
             and part.keeps in (RecoveryStrategy.keeps, RecoveryStrategy.kinds["restart"].keeps))  # fmt: skip
    assert (len(set(told.values())) == 1) == blind, told


def test_the_step_model_says_what_bubbles_hide(prepared: dict[str, Prepared]) -> None:
    # Fewer microbatches, more bubble: the same lost node costs less of a step.
    ready = prepared["tp-cp-dp-pp"]
    few = Prepared(load(str(FILE), ("training.global_batch=64",)))
    assert few.ground.microbatches == 4
    assert cost(few, "reroute", NODE) < cost(ready, "reroute", NODE)
    # So does a stage that is not the slowest: the middle of the pipeline has slack where the last stage also has the head.
    middle = frozenset({21})
    assert cost(ready, "reroute", middle) < cost(ready, "reroute", NODE) / 5


def test_the_run_books_it_as_degraded(prepared: dict[str, Prepared]) -> None:
    from clustersim.run.simulate import run_replica

    results = {}
    for kind in ("reroute", "elastic", "restart"):
        ready = Prepared(load(str(FILE), (f"recovery.strategy={kind}",)))
        results[kind] = [run_replica(ready, 0, replica, events=False) for replica in range(4)]
    degraded = {kind: sum(result.ledger_s["degraded"] for result in found) for kind, found in results.items()}
    assert degraded["restart"] == 0
    assert degraded["reroute"] > 0
    tokens = {kind: sum(result.tokens for result in found) for kind, found in results.items()}
    assert tokens["reroute"] > tokens["restart"]  # no spares: a restart waits a day for each repair
    assert tokens["elastic"] > tokens["restart"]
    nominal = prepared["tp-cp-dp-pp"].paces.thinned(Conditions(lost_replicas=1))
    assert nominal is not None
    assert nominal.nominal_s == pytest.approx(prepared["tp-cp-dp-pp"].pace.nominal_s * 15 / 16)
