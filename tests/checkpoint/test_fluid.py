"""What saves cross and how they share it: max–min fair, work conserving, bytes conserved; alone as the closed form says."""

from __future__ import annotations

import math
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.checkpoint.fluid import Demand, Shop, max_min
from clustersim.checkpoint.interval import Every
from clustersim.checkpoint.lanes import Lanes
from clustersim.checkpoint.pattern import Pace, Pattern
from clustersim.checkpoint.played import PlayedPattern
from clustersim.checkpoint.tiers import Tier
from clustersim.hardware.storage import SharedFilesystem
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from clustersim.run.resources import Resources
from clustersim.run.saver import Saver, Start
from clustersim.run.storage import Flow, SharedStorage
from tests.checkpoint.test_engines import GB, made
from tests.contracts.test_engines import KINDS, scenario

RESOURCES = ("copy-engine", "network", "disk", "storage")
FLOWS = st.lists(
    st.tuples(st.floats(0.1, 100.0), st.dictionaries(st.sampled_from(RESOURCES), st.floats(0.1, 3.0), min_size=1)).map(
        lambda pair: Demand(*pair)
    ),
    min_size=1,
    max_size=7,
)


@given(FLOWS, st.tuples(*[st.floats(1.0, 200.0)] * 4))
def test_rates_are_max_min_fair_over_all_resources(flows: list[Demand], sizes: tuple[float, ...]) -> None:
    # Bertsekas and Gallager: fair exactly if each flow is at its limit or crosses a full resource on which none has more.
    capacity = dict(zip(RESOURCES, sizes, strict=True))
    rates = max_min(flows, capacity)
    load = {name: math.fsum(rate * flow.uses.get(name, 0.0) for rate, flow in zip(rates, flows, strict=True))
            for name in RESOURCES}  # fmt: skip
    assert all(load[name] <= capacity[name] * (1 + 1e-9) for name in RESOURCES)
    for rate, flow in zip(rates, flows, strict=True):
        assert 0 < rate <= flow.limit * (1 + 1e-9)
        full = [name for name in flow.uses if load[name] >= capacity[name] * (1 - 1e-9)]
        most = [max(r for r, other in zip(rates, flows, strict=True) if name in other.uses) for name in full]
        assert rate >= flow.limit * (1 - 1e-9) or any(rate >= top * (1 - 1e-9) for top in most)


@given(st.lists(st.tuples(st.sampled_from(["read", "write"]), st.integers(1, 9), st.floats(1, 200)), min_size=1, max_size=8),
       st.sampled_from(["shared", "separate"]))  # fmt: skip
def test_flows_on_storage_alone_get_what_storage_gives(members: list[tuple[str, int, float]], duplex: str) -> None:
    system = SharedFilesystem.model_validate({"write_bandwidth": 100.0, "read_bandwidth": 150.0, "duplex": duplex})
    capacity = {"storage": 1.0, "storage-read": 1.0, "storage-write": 1.0}
    flows = [Flow(1.0, direction, clients, limit, 0.0, lambda: None) for direction, clients, limit in members]
    mine = Resources(simpy.Environment(), system, capacity).rates(flows)
    assert mine == pytest.approx(SharedStorage(simpy.Environment(), system).rates(flows))


def test_a_flow_without_any_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="without a limit"):
        max_min([Demand(math.inf, {})], {})


# -- savers over the resources of nodes


def play(
    job: Prepared, starts: list[float], queued: bool = True
) -> tuple[list[dict[Tier, float]], list[float], Resources]:
    """Saves with all levels that start at given times: when each was durable where, when training could go on."""
    env = simpy.Environment()
    cluster = job.scenario.cluster
    resources = Resources(env, cluster.storage, job.shop.capacity)
    durable: list[dict[Tier, float]] = [{} for _ in starts]
    unblocked = [math.nan] * len(starts)
    savers: list[Saver] = []

    def begin(index: int) -> simpy.events.ProcessGenerator:
        yield env.timeout(starts[index])
        behind = {tier: saver for saver in savers for tier in saver.open_sides}
        flying = [saver.ended for saver in savers if not saver.ended.triggered] if queued else []
        saver = Saver(env, resources, job.lanes_of(0), cluster.nodes, index,
                      lambda tier: durable[index].setdefault(tier, env.now),
                      Start(after=flying[-1] if flying else None, behind=behind))  # fmt: skip
        savers.append(saver)
        yield saver.unblocked
        unblocked[index] = env.now

    for index in range(len(starts)):
        env.process(begin(index))
    env.run()
    assert all(saver.over for saver in savers)
    return durable, unblocked, resources


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([kind for kind in KINDS if kind != "none"]), st.lists(st.floats(0.0, 12.0), min_size=1, max_size=5),
       st.booleans(), st.sampled_from(["own", "training"]), st.sampled_from([None, 200e3]), st.sampled_from([None, 300e3]))  # fmt: skip
def test_bytes_are_conserved_by_resource(kind: str, starts: list[float], queued: bool, uplink: str, copies: float | None,
                                         memory: float | None) -> None:  # fmt: skip
    keys = {"uplink": uplink, "copy_bandwidth": copies, "snapshots": 5, "staging": None}
    job = Prepared(scenario(kind, **keys).replace({
        "cluster.node.host_memory_bandwidth": memory, "cluster.node.nic_bandwidth": 1e6}), 1.0)  # fmt: skip
    durable, unblocked, resources = play(job, sorted(starts), queued)
    made = {tier: sum(tier in found for found in durable) for tier in Tier}  # an upload beside one that goes on is left out
    times = [made[m.transfer.tier] if m.transfer.beside and m.transfer.tier else len(starts) for m in job.shop.moves]
    assert all(count >= 1 for count in times)
    for name, capacity in job.shop.capacity.items():
        moved = math.fsum(count * move.size * move.demand.uses.get(name, 0.0)
                          for count, move in zip(times, job.shop.moves, strict=True) if move.demand)  # fmt: skip
        assert resources.carried[name] == pytest.approx(moved, rel=1e-9, abs=1e-6)
        last = max(*unblocked, 0.0, *(time for found in durable for time in found.values()))
        assert resources.carried[name] <= capacity * max(last - min(starts), 0.0) * (1 + 1e-9) + 1e-6
    written = math.fsum(count * m.transfer.bytes for count, m in zip(times, job.shop.moves, strict=True)
                        if m.transfer.channel == "storage")  # fmt: skip
    assert resources.moved["write"] == pytest.approx(written)


def test_an_upload_is_left_out_while_the_one_before_it_goes_on() -> None:
    # 160 GB at 16 GB/s: 10 s. Saves at 0, 4, 8 and 12 s: the first is uploaded, then the one at 12 s.
    job = made("transom", interval={"steps": 10}, persist_every=1)
    durable, _, _ = play(job, [0.0, 4.0, 8.0, 12.0])
    assert [Tier.SHARED in found for found in durable] == [True, False, False, True]
    assert durable[3][Tier.SHARED] == pytest.approx(12.0 + 0.5 + 10.0)
    assert all(Tier.PEER in found for found in durable)


def slow_copies(**keys: Any) -> Prepared:
    """Copies of 10 GB a GPU at 1 GB/s, all beside training: 10 s."""
    return made("byterobust", copy_bandwidth=GB, stall=0.0, copies=1, snapshots=2, interval={"steps": 2}, **keys)


def test_two_equal_snapshots_at_once_take_twice_as_long_each() -> None:
    job = slow_copies(queued=False)
    (first, second), _, resources = play(job, [0.0, 0.0], queued=False)
    assert first[Tier.HOST] == second[Tier.HOST] == pytest.approx(20.0)
    assert resources.carried["copy-engine"] == pytest.approx(2 * job.site.per_node)
    # Half of the first is done when the second begins: 5 + 10 s; the second has the engine for itself from 15 s on.
    (first, second), _, _ = play(slow_copies(queued=False), [0.0, 5.0], queued=False)
    assert (first[Tier.HOST], second[Tier.HOST]) == pytest.approx((15.0, 20.0))


def test_saves_that_queue_go_one_by_one_and_end_as_early() -> None:
    (first, second), _, _ = play(slow_copies(), [0.0, 0.0])
    assert (first[Tier.HOST], second[Tier.HOST]) == pytest.approx((10.0, 20.0))


def test_a_blocking_copy_beside_a_hidden_one_stalls_for_longer() -> None:
    # Copies of 2.5 s, of which the next step hides 1.75 s: the stall of 0.75 s meets the hidden part of the save before.
    job = made("checkfreq", copy_bandwidth=4 * GB, snapshots=2, interval={"steps": 1}, when_busy="block")
    assert job.saves[0].stall_s == pytest.approx(0.75)
    _, unblocked, _ = play(job, [0.0, 1.0])
    # At 1.0 the first has 1.5 s of its hidden copy left: both at half speed until the second's 0.75 s are done at 2.5.
    assert unblocked == pytest.approx([0.75, 2.5])


def test_an_upload_over_trainings_network_takes_its_share_from_copies_to_peers() -> None:
    # 80 GB a node in the gaps of an 80 GB/s network that training uses for half of the time: 2 s alone; beside an upload of
    # 8 GB/s a node the peers have 40 − 8: the closed form 1 − busy − share. The upload of 160 GB at 16 GB/s is not slowed.
    job = made("gemini", network=1.0, persist_every=5, uplink="training", interval={"steps": 10})
    durable, _, _ = play(job, [0.0])
    assert durable[0][Tier.PEER] == pytest.approx(0.5 + 80 / (40 - 8))
    assert durable[0][Tier.SHARED] == pytest.approx(10.0)
    assert isinstance(job.pattern, PlayedPattern)
    leg = job.pattern.prefix(len(job.pattern.saves) - 1)[0][0]
    assert leg.lags is not None
    assert leg.lags[Tier.PEER] == pytest.approx(0.5 + 80 / (40 - 8))
    own = made("gemini", network=1.0, persist_every=5, interval={"steps": 10})
    assert play(own, [0.0])[0][0][Tier.PEER] == pytest.approx(0.5 + 2.0)


def test_a_full_pinned_cache_holds_saves_at_the_pace_of_the_flush() -> None:
    # Room for three copies, a save every 2 steps of 2 s, a flush of 10 s: back-pressure; whatever is in flight, storage
    # carries 16 GB/s and no more, so that a save takes 10 s of it.
    def period(**keys: Any) -> float:
        job = made("datastates", staging=3.5 * 80 * GB, planning=0.0, interference=1.0, interval={"steps": 2}, **keys)
        assert job.shop.depth == 3
        cycle = job.pattern.cycle
        return math.fsum(leg.length_s for leg in cycle) / len(cycle)

    assert period() == pytest.approx(10.0)
    assert period(queued=False) == pytest.approx(10.0)
    # The copy of a save streams while it is made, as long as storage has nothing before it: 2.5 s ahead of a flush alone.
    assert period(copy_bandwidth=4 * GB) == pytest.approx(10.0)


def test_uploads_start_no_more_often_than_one_ends() -> None:
    # An interval that follows from costs: still no upload begins before the one before has ended.
    slow = {"write_bandwidth": 0.5 * GB}  # 320 s
    job = made("transom", persist_every=1, interval={"kind": "bounded", "overhead": 0.01}, storage=slow)
    assert job.every.seconds == pytest.approx(50.0)
    assert job.transfers[-1].every == 7


# -- alone, everything is as the closed form says


@pytest.mark.parametrize("busy", ["wait", "skip", "block"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
def test_saves_that_are_played_but_do_not_meet_are_the_closed_form(kind: str, busy: str) -> None:
    job = Prepared(scenario(kind, when_busy=busy, snapshots=1, staging=None), 1.0)
    pace, shop = Pace(1.0, 1.25, 1.0), Shop(job.shop.saves, job.shop.capacity)
    for every in (Every(steps=3), Every(seconds=20.0)):
        played = PlayedPattern(every, pace, job.saves, busy, shop, tuple(Lanes.of(moves) for moves in shop.saves))
        alone = Pattern(every, pace, job.saves, busy)
        for number in range(min(4, len(job.saves))):
            mine, theirs = played.track(number, False), alone.track(number, False)
            for save in range(40):
                leg, other = mine.legs[save], theirs.legs[save]
                assert (leg.steps, leg.slow) == (other.steps, other.slow)
                assert (leg.train_s, leg.stall_s, leg.wait_s) == pytest.approx(
                    (other.train_s, other.stall_s, other.wait_s)
                )
                for tier, _ in alone.tiers:
                    lags = mine.lags[tier][save], theirs.lags[tier][save]
                    assert math.isinf(lags[1]) if math.isinf(lags[0]) else lags[0] == pytest.approx(lags[1])


def test_nothing_that_cannot_meet_is_played() -> None:
    # Registered engines at their defaults, one save in flight: no resource is asked for more than it has.
    for kind in KINDS:
        if kind != "none":
            assert not Prepared(scenario(kind, snapshots=1, staging=None), 1.0).shared, kind


def test_a_run_where_nothing_meets_keeps_its_storage() -> None:
    assert type(Job(Prepared(scenario("gemini"), 1.0), 0, 0).storage) is SharedStorage
    slow = scenario("gemini", uplink="training").replace("cluster.node.nic_bandwidth", 250e3)
    assert type(Job(Prepared(slow, 1.0), 0, 0).storage) is Resources
