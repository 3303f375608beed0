"""Tiers, copies, what survives which loss; bytes of a state."""

from __future__ import annotations

import pytest

from clustersim.checkpoint.engine import CheckpointEngine, SaveSite
from clustersim.checkpoint.interval import Every
from clustersim.checkpoint.pattern import Pace, make_leg, outlay, steps_for
from clustersim.checkpoint.state import state_bytes
from clustersim.checkpoint.tiers import Copies, Copy, Tier, survives
from clustersim.faults.failure import Severity
from clustersim.scenario.schema import Scenario
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.training import Training
from tests.run.synthetic import build

LOST = {
    Tier.SHARED: set(),
    Tier.DISK: {"gpu", "node", "nvlink-domain", "rack"},
    Tier.HOST: {"gpu", "node", "nvlink-domain", "rack", "cluster"},
    Tier.PEER: {"nvlink-domain", "rack", "cluster"},
    Tier.REPLICA: {"nvlink-domain", "rack", "cluster"},
}


@pytest.mark.parametrize("tier", list(Tier))
@pytest.mark.parametrize("severity", list(Severity))
def test_what_survives(tier: Tier, severity: Severity) -> None:
    assert survives(tier, severity) == (severity.value not in LOST[tier])


def test_the_newest_copy_that_is_left() -> None:
    copies = Copies(Copy(0, Tier.SHARED, 0.0))
    copies.add(Copy(10, Tier.SHARED, 20.0))
    copies.add(Copy(30, Tier.HOST, 40.0))
    copies.add(Copy(20, Tier.PEER, 30.0))
    assert copies.newest() == Copy(30, Tier.HOST, 40.0)
    copies.lose(Severity.NODE)
    assert copies.newest() == Copy(20, Tier.PEER, 30.0)
    copies.lose(Severity.RACK)
    assert copies.newest() == Copy(10, Tier.SHARED, 20.0)
    copies.lose(Severity.CLUSTER)
    assert copies.newest() == Copy(10, Tier.SHARED, 20.0)
    copies.add(Copy(5, Tier.SHARED, 50.0))  # a late save of an older state never replaces a newer one
    assert copies.newest() == Copy(10, Tier.SHARED, 20.0)


@pytest.mark.parametrize(("zero", "weights", "optimizer"), [(0, 64, 64), (1, 64, 1), (2, 64, 1), (3, 1, 1)])
def test_all_ranks_read_their_weights_and_their_own_shard(zero: int, weights: int, optimizer: int) -> None:
    model = TransformerModel.preset("llama3-8b")
    training = Training(seq_len=8192, global_batch=64, steps=1)
    state = state_bytes(model, training, Layout(tp=8, zero=zero), 512)  # type: ignore[arg-type]
    parameters = 8_030_261_248
    assert state.total == pytest.approx(14 * parameters)
    assert state.read_by_all == pytest.approx(parameters * (2 * weights + 12 * optimizer))
    assert state.replicas == 64


def test_experts_are_held_less_often_under_expert_parallelism() -> None:
    model = TransformerModel.preset("mixtral-8x7b")
    training = Training(seq_len=4096, global_batch=64, steps=1)
    plain = state_bytes(model, training, Layout(zero=1), 64)
    spread = state_bytes(model, training, Layout(zero=1, ep=8), 64)
    experts = 32 * 8 * 3 * 4096 * 14336
    assert plain.total == spread.total == pytest.approx(14 * 46_702_792_704)
    assert plain.read_by_all - spread.read_by_all == pytest.approx(2 * experts * (64 - 8))


def test_engines_say_what_a_save_consists_of() -> None:
    scenario: Scenario = build(nodes=4, gpus=2, steps=1, storage={"latency": 0.5})
    state = state_bytes(scenario.model, scenario.training, scenario.parallelism, 8)
    site = SaveSite(state, scenario.cluster)
    assert CheckpointEngine.build("none").save(site) == ()
    (sync,) = CheckpointEngine.build("sync").save(site)
    assert (sync.blocking, sync.bytes, sync.channel, sync.tier, sync.seconds) == (
        True,
        state.total,
        "storage",
        Tier.SHARED,
        0.5,
    )
    stage, upload = CheckpointEngine.build("async").save(site)
    assert (stage.blocking, stage.tier, upload.blocking, upload.tier) == (True, None, False, Tier.SHARED)
    assert stage.seconds == pytest.approx(state.total / 8 / (0.85 * 1e11))
    plan = outlay((stage, upload), (2.0, 5.0))
    assert (plan.stall_s, plan.durable, plan.busy_s) == (2.0, ((7.0, Tier.SHARED),), 5.0)


def test_intervals_are_rounded_up_to_whole_steps() -> None:
    pace = Pace(0.1, 0.1, 0.1)
    assert steps_for(600.0, 0, pace) == 6000  # not 6001: 600 ÷ 0.1 is a hair above 6000 in floating point
    assert steps_for(600.01, 0, pace) == 6001
    assert steps_for(0.0, 0, pace) == 1
    slow = Pace(2.0, 3.0, 2.0)
    assert steps_for(10.0, 2, slow) == 4  # 3 + 3 + 2 + 2
    assert steps_for(5.0, 9, slow) == 2


@pytest.mark.parametrize(("when_busy", "steps", "wait"), [("wait", 5, 0.0), ("skip", 6, 0.0), ("block", 3, 4.0)])
def test_a_save_that_is_due_while_one_is_in_flight(when_busy: str, steps: int, wait: float) -> None:
    # Due every 6 s = 3 steps of 2 s; the save before needs 10 s.
    pace = Pace(2.0, 2.0, 2.0)
    save = outlay((), ())._replace(stall_s=1.0)
    leg = make_leg(Every(seconds=6.0), pace, save, 10.0, when_busy)
    assert (leg.steps, leg.wait_s, leg.stall_s) == (steps, wait, 1.0 + wait)
