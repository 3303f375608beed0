"""The step under conditions: slow nodes, weak links, lost replicas, saves in flight."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.pipeline.conditions import NORMAL, Conditions
from clustersim.pipeline.step import StepModel
from clustersim.pipeline.step_conditions import place
from tests.workload.jobs import llama, step


def job(order: str = "tp-cp-dp-pp") -> StepModel:
    """Four nodes: tp 4, pp 4, dp 2."""
    return step(llama(8), nodes=4, layout={"tp": 4, "pp": 4, "dp": 2, "order": order}, global_batch=32)


JOB = job()
NOMINAL = JOB.step_time().seconds


@pytest.mark.parametrize("order", ["tp-cp-dp-pp", "tp-cp-pp-dp"])
def test_every_gpu_has_its_place(order: str) -> None:
    built = job(order)
    places = [place(gpu, built.groups) for gpu in range(32)]
    assert {places.count(spot) for spot in places} == {4}
    assert set(places) == {(replica, rank) for replica in range(2) for rank in range(4)}
    assert place(32, built.groups) is None
    # the first node holds both replicas of rank 0, or ranks 0 and 1 of replica 0
    first = {places[gpu] for gpu in range(8)}
    assert first == ({(0, 0), (1, 0)} if order == "tp-cp-dp-pp" else {(0, 0), (0, 1)})


entries = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1.0, 1.05, 1.3, 2.0])), max_size=4).map(tuple)
links = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1.0, 0.875, 0.5])), max_size=3).map(tuple)


@given(entries, links, st.integers(0, 1), st.booleans(), st.sampled_from([0.0, 0.3, 0.9]))
def test_nothing_that_goes_wrong_helps(slow, weak, lost, keep, saving) -> None:  # type: ignore[no-untyped-def]
    time = JOB.step_time(Conditions(slow, (), weak, lost, keep, saving))
    assert math.fsum(time.breakdown.values()) == time.seconds
    assert min(time.breakdown.values()) >= 0
    per_token = time.seconds / time.tokens
    assert per_token >= NOMINAL / JOB.step_time().tokens * (1 - 1e-9)


def test_conditions_are_looked_up() -> None:
    assert JOB.step_time(Conditions(slow=((0, 1.5),))) is JOB.step_time(Conditions(slow=((0, 1.5),)))
    assert JOB.step_time(Conditions()) is JOB.step_time(NORMAL)
    assert NORMAL.nominal
    assert not Conditions(saving=0.1).nominal


def test_a_slower_node_is_worse_than_a_slow_one_and_than_a_slow_gpu() -> None:
    slow = [JOB.step_time(Conditions(slow=((1, factor),))).seconds for factor in (1.1, 1.2, 1.5)]
    assert NOMINAL < slow[0] < slow[1] < slow[2]
    # tensor parallel ranks wait for their slowest: one GPU of a group is as bad as the group
    assert JOB.step_time(Conditions(slow_gpus=((8, 1.2),))).seconds <= slow[1]


def test_all_nodes_slow_scales_the_computation() -> None:
    time = JOB.step_time(Conditions(slow=tuple((node, 1.5) for node in range(4))))
    assert time.breakdown["compute"] == pytest.approx(1.5 * JOB.step_time().breakdown["compute"])
    assert time.breakdown["tp"] == pytest.approx(JOB.step_time().breakdown["tp"])
    assert NOMINAL < time.seconds < 1.5 * NOMINAL


def test_equal_replicas_cost_no_more_than_one() -> None:
    """Two replicas slow in the same way are one distinct replica."""
    both = JOB.step_time(Conditions(slow=((0, 1.3),)))  # node 0: rank 0 of both replicas
    only = JOB.step_time(Conditions(slow_gpus=((0, 1.3),)))
    assert both.seconds == only.seconds


def test_nodes_beyond_the_job_do_not_count() -> None:
    assert JOB.step_time(Conditions(slow=((17, 3.0),))).seconds == NOMINAL


def test_lost_replicas_train_fewer_tokens_in_the_same_time() -> None:
    time = JOB.step_time(Conditions(lost_replicas=1))
    assert time.tokens == JOB.step_time().tokens / 2
    assert time.seconds == pytest.approx(NOMINAL, rel=0.05)


def test_or_keep_the_batch_with_more_microbatches() -> None:
    time = JOB.step_time(Conditions(lost_replicas=1, keep_batch=True))
    assert time.tokens == JOB.step_time().tokens
    assert 1.6 * NOMINAL < time.seconds < 2.0 * NOMINAL


def test_all_replicas_lost_is_no_step() -> None:
    with pytest.raises(ValueError, match="2 replicas lost of 2"):
        JOB.step_time(Conditions(lost_replicas=2))


def test_saves_and_weak_links_slow_what_crosses_nodes_only() -> None:
    inside = step(layout={"tp": 8})
    assert inside.step_time(Conditions(saving=0.5)).seconds == inside.step_time().seconds
    saving = JOB.step_time(Conditions(saving=0.5))
    assert saving.seconds > NOMINAL
    assert saving.breakdown["compute"] == JOB.step_time().breakdown["compute"]
    assert JOB.step_time(Conditions(slow_links=((0, 0.5),))).seconds > NOMINAL


@pytest.mark.parametrize(
    "wrong", [{"slow": ((0, 0.0),)}, {"slow_links": ((0, 1.5),)}, {"lost_replicas": -1}, {"saving": 1.0}]
)
def test_impossible_conditions_are_refused(wrong) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="must be"):
        Conditions(**wrong)


def test_replicas_that_another_covers_need_no_replay() -> None:
    from clustersim.pipeline.step_conditions import rank_factors

    # the first GPU of replica 0 on ranks 0 and 1; replica 1 on rank 0 is covered by replica 0's larger factor
    conditions = Conditions(slow_gpus=((0, 1.5), (8, 1.2), (4, 1.3)))
    factors = rank_factors(conditions, JOB.plan, JOB.groups)
    assert factors.compute.tolist() == [[1.5, 1.2, 1.0, 1.0]]
    mixed = rank_factors(Conditions(slow_gpus=((0, 1.5), (12, 1.2))), JOB.plan, JOB.groups)
    assert mixed.compute.tolist() == [[1.0, 1.2, 1.0, 1.0], [1.5, 1.0, 1.0, 1.0]]
