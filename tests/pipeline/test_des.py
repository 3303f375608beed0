"""The SimPy replay: shared links, traffic, blocking, jitter."""

from __future__ import annotations

import numpy as np
import pytest

from clustersim.distributions import Constant, Gamma, Uniform
from clustersim.pipeline.des import simulate
from clustersim.pipeline.fabric import Fabric, Link, Traffic, nic_per_rank
from clustersim.pipeline.graph import Graph, compile
from clustersim.pipeline.jitter import jittered
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.replay import Costs, Timeline, replay
from clustersim.pipeline.text import parse_program
from tests.pipeline.replays import built


def at(graph: Graph, text: str) -> int:
    """The op with this text."""
    return next(op for op in range(graph.ops) if graph.label(op) == text)


def equal(one: Timeline, other: Timeline) -> bool:
    """The same times to the last float."""
    return np.array_equal(one.node_start, other.node_start) and np.array_equal(one.node_end, other.node_end)


LISTED = """0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD
1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD
"""


@pytest.mark.parametrize("streams", ["direction", "pair", "rank"])
def test_listed_communication_is_equal_in_both_replays(streams: str) -> None:
    graph = compile(parse_program(LISTED), streams=streams)  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    durations, delays = rng.uniform(0, 2, graph.ops), rng.uniform(0, 1, len(graph.messages))
    assert equal(replay(graph, durations, delays), simulate(graph, durations, delays))


@pytest.mark.parametrize("algorithm", ["algorithm-1", "algorithm-2"])
def test_barriers_and_release_times_are_equal_in_both_replays(algorithm: str) -> None:
    graph = compile(built("1f1b", 4, 8, vocabulary_parallel=algorithm))
    rng = np.random.default_rng(4)
    durations, release = rng.uniform(0.5, 2, graph.ops), rng.uniform(0, 3, 4)
    compiled = replay(graph, durations, 0.1, release=release)
    assert equal(compiled, simulate(graph, durations, 0.1, release=release))
    assert compiled.first_start >= release.min()


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_links_that_nobody_shares_change_nothing(sharing: str) -> None:
    """GPipe on two ranks: all traffic is one way at a time, and a message is over before the next leaves."""
    graph = compile(built("gpipe", 2, 8))
    costs = Costs.of(latency=0.03, message_bytes=3e9, bandwidth=7e9)
    durations, delays = graph.durations(costs), graph.delays(costs)
    fabric = nic_per_rank(2, 7e9, sharing=sharing)  # type: ignore[arg-type]
    shared = simulate(graph, durations, delays, fabric=fabric, message_bytes=costs.bytes(graph))
    assert equal(replay(graph, durations, delays), shared)


def two_into_one(sharing: str) -> tuple[Graph, Timeline]:
    """Ranks 0 and 1 finish at 1 s and send 1 GB each through one link of 1 GB/s to ranks 2 and 3."""
    text = "0F0\n2F0\n1F0\n3F0\n"
    program = parse_program(text, chains=2, microbatches=2)
    graph = compile(program)
    fabric = Fabric((Link("spine", 1e9, sharing),), route=lambda source, target: ("spine",))  # type: ignore[arg-type]
    return graph, simulate(graph, np.ones(graph.ops), 1.25, fabric=fabric, message_bytes=1e9)


def test_fair_links_halve_and_fifo_links_queue() -> None:
    """Alone a message takes 1 s on the link and 0.25 s of latency. Together: 2 + 0.25 each, or 1.25 and 2.25."""
    for sharing, arrivals in (("fair", [3.25, 3.25]), ("fifo", [2.25, 3.25])):
        graph, timeline = two_into_one(sharing)
        assert len(graph.messages) == 2
        assert sorted(timeline.arrival.tolist()) == pytest.approx(arrivals, abs=1e-12)


def test_a_flow_that_shares_for_a_while_gets_its_bytes() -> None:
    """1 GB at 1 GB/s from 1.0; a second flow of 0.25 GB from 1.5: half a second at half rate, then full rate."""
    graph = compile(built("gpipe", 2, 1))
    fabric = nic_per_rank(2, 1e9, traffic=[Traffic(("out 0",), 0.25e9, start=1.5)])
    timeline = simulate(graph, np.ones(graph.ops), 1.0, fabric=fabric, message_bytes=1e9)
    first = int(np.flatnonzero(graph.messages.source_rank == 0)[0])
    assert timeline.arrival[first] == pytest.approx(2.25, abs=1e-12)
    assert timeline.message_delay[first] == pytest.approx(1.25, abs=1e-12)


def test_a_save_on_the_nic_slows_the_step_and_bytes_are_conserved() -> None:
    graph = compile(built("1f1b", 4, 8))
    costs = Costs.of(message_bytes=0.2e9, bandwidth=1e9)
    durations, delays, size = graph.durations(costs), graph.delays(costs), costs.bytes(graph)
    alone = simulate(graph, durations, delays, fabric=nic_per_rank(4, 1e9), message_bytes=size)
    saves = [Traffic((f"out {rank}",), 15e9) for rank in range(4)]
    saving = simulate(graph, durations, delays, fabric=nic_per_rank(4, 1e9, traffic=saves), message_bytes=size)
    assert saving.makespan > alone.makespan
    # equal shares: a message that meets one save takes at most twice its bytes' time
    assert saving.message_delay.max() <= 2 * 0.2 + 1e-9


def test_gradient_reduction_and_pipeline_messages_share_one_nic() -> None:
    """Rank 1's reduction (1 GB at 1 GB/s) starts with its last gradient message (0.5 GB): both crawl at half rate."""
    graph = compile(parse_program("0F0,0B0\n1F0,1B0,1REDUCE_GRAD\n"))
    costs = Costs({Kind.F: 1.0, Kind.B: 2.0, Kind.REDUCE_GRAD: 1.0}, message_bytes=0.5e9, bandwidth=1e9)
    durations, delays = graph.durations(costs), graph.delays(costs)
    op_bytes = np.where(np.arange(graph.ops) == at(graph, "1REDUCE_GRAD"), 1e9, 0.0)
    plain = replay(graph, durations, delays)
    shared = simulate(
        graph, durations, delays, fabric=nic_per_rank(2, 1e9), message_bytes=costs.bytes(graph), op_bytes=op_bytes
    )
    assert plain.start[at(graph, "0B0")] == 5.0
    assert shared.start[at(graph, "0B0")] == pytest.approx(5.5, abs=1e-12)  # 0.5 GB at 0.5 GB/s from 4.5
    assert shared.end[at(graph, "1REDUCE_GRAD")] == pytest.approx(6.0, abs=1e-12)  # 1.5 GB through 1 GB/s


def test_blocking_transfers_cross_shared_links_too() -> None:
    graph = compile(built("1f1b", 4, 8), p2p="blocking")
    costs = Costs.of(message_bytes=0.3e9, bandwidth=1e9)
    durations, delays, size = graph.durations(costs), graph.delays(costs), costs.bytes(graph)
    one = Fabric((Link("switch", 1e9),), route=lambda source, target: ("switch",))
    assert equal(replay(graph, durations, delays), simulate(graph, durations, delays))
    assert (
        simulate(graph, durations, delays, fabric=one, message_bytes=size).makespan
        > replay(graph, durations, delays).makespan
    )


def test_shared_replays_are_deterministic() -> None:
    graph = compile(built("interleaved-1f1b", 4, 8, 2))
    costs = Costs.of(message_bytes=0.3e9, bandwidth=1e9)
    durations = jittered(graph, graph.durations(costs), Uniform(low=0.8, high=1.2), seed=7)
    runs = [
        simulate(graph, durations, graph.delays(costs), fabric=nic_per_rank(4, 1e9), message_bytes=costs.bytes(graph))
        for _ in range(2)
    ]
    assert equal(*runs)


# --- jitter --------------------------------------------------------------------------------------------------


def test_jitter_is_decided_by_seed_and_op_alone() -> None:
    """Common random numbers: the same op draws the same factor under any schedule, seed by seed."""
    noise = Gamma(shape=100, mean=1.0)
    drawn = []
    for kind in ("1f1b", "gpipe"):
        graph = compile(built(kind, 4, 8))
        values = jittered(graph, np.ones(graph.ops), noise, seed=11)
        drawn.append({graph.label(op): float(values[op]) for op in range(graph.ops)})
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0].values())) == 2 * 4 * 8
    graph = compile(built("1f1b", 4, 8))
    other = jittered(graph, np.ones(graph.ops), noise, seed=12)
    assert not np.isin(other, list(drawn[0].values())).any()
    assert not np.array_equal(other, jittered(graph, np.ones(graph.ops), noise, seed=12, replica=1))


def test_jitter_of_fused_pairs_and_added_seconds() -> None:
    graph = compile(built("dualpipe", 4, 8))
    base = graph.durations(Costs.of())
    assert jittered(graph, base, Constant(value=2.0), seed=0) == pytest.approx(2 * base)
    added = jittered(graph, base, Constant(value=0.5), seed=0, relative=False) - base
    assert added == pytest.approx(np.where(graph.fused, 1.0, 0.5))


def test_jitter_costs_more_than_its_mean() -> None:
    """A pipeline waits for the slower of two: the mean step under mean-1 noise is above the step without (Jensen).

    200 seeds; the mean of the excess is 30 times its standard error here, the bound asks for 5.
    """
    graph = compile(built("1f1b", 4, 16))
    noise = Gamma(shape=25, mean=1.0)
    steps = np.array(
        [replay(graph, jittered(graph, graph.durations(Costs.of()), noise, seed=seed)).makespan for seed in range(200)]
    )
    plain = replay(graph, graph.durations(Costs.of())).makespan
    assert steps.mean() - plain > 5 * steps.std() / np.sqrt(len(steps))
