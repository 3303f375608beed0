"""Closed forms of checkpointing against runs: two levels, copies in peers' memory, upload behind memory, prediction.

Means must lie within 4 standard errors, which are at most 0.33 % of the value unless a test says otherwise.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from clustersim.checkpoint import closed_forms as forms
from clustersim.checkpoint.placement import Group, Placement, Ring, group_bound, group_probability, ring_probability
from clustersim.run.job import Job
from clustersim.run.prepared import Prepared
from tests.run.synthetic import MINUTE, assert_mean, build, job_failure, planted, replicas

TWO_LEVEL = [
    ((0.02, 2.0), (200.0, 2000.0), (2.0, 15.0), 2.8284, 32, 0.925854),
    ((0.1, 5.0), (120.0, 600.0), (3.0, 20.0), 4.8990, 16, 0.791183),
]


def two_levels(stalls: tuple[float, float], mtbf: tuple[float, float], restarts: tuple[float, float], tau: float,
               rounds: int, wall_min: float, flush: str = "blocking") -> Prepared:  # fmt: skip
    """Crashes that host memory survives, and losses of the whole cluster's that it does not; minutes."""
    scenario = build(
        failures=[job_failure(mtbf[0] * MINUTE, name="crash"),
                  {"component": "job", "severity": "cluster", "mtbf": mtbf[1] * MINUTE, "detection": 0.0, "name": "loss"}],
        checkpoint={"kind": "multi-level", "interval": {"steps": 4}, "local_stall": stalls[0] * MINUTE, "flush": flush,
                    "flush_stall": stalls[1] * MINUTE, "flush_every": rounds, "local_restart": restarts[0] * MINUTE,
                    "flush_restart": restarts[1] * MINUTE},
        during={"recovery": False}, duration=wall_min * MINUTE)  # fmt: skip
    return Prepared(scenario, tau * MINUTE / 4)


@pytest.mark.parametrize(("stalls", "mtbf", "restarts", "tau", "rounds", "published"), TWO_LEVEL)
def test_the_recursion_of_two_levels(stalls: tuple[float, float], mtbf: tuple[float, float], restarts: tuple[float, float],
                                     tau: float, rounds: int, published: float) -> None:  # fmt: skip
    rates = (1 / mtbf[0], 1 / mtbf[1])
    expected = forms.two_level_goodput(tau, rounds, stalls, rates, restarts)
    assert expected == pytest.approx(published, abs=2e-6)
    prepared = two_levels(stalls, mtbf, restarts, tau, rounds, 20_000.0)
    results = [Job(prepared, 1, index, events=False).run() for index in range(60)]
    assert_mean([result.ettr for result in results], expected)


def test_first_order_theory_brackets_the_recursion() -> None:
    for stalls, mtbf, restarts, tau, rounds, _ in TWO_LEVEL:
        rates = (1 / mtbf[0], 1 / mtbf[1])
        waste = stalls[0] / tau + stalls[1] / (rounds * tau)
        waste += rates[0] * (restarts[0] + tau / 2) + rates[1] * (restarts[1] + rounds * tau / 2)
        exact = forms.two_level_goodput(tau, rounds, stalls, rates, restarts)
        assert 1 - waste < exact < 1 / (1 + waste)
        first, second = forms.two_level_optimum(stalls, rates)
        assert first == pytest.approx(tau, rel=1e-4)
        assert second / first == pytest.approx(rounds, rel=0.15)


def test_the_chosen_number_of_saves_a_flush_is_about_the_best() -> None:
    stalls, mtbf, restarts = (0.02, 2.0), (200.0, 2000.0), (2.0, 15.0)
    scenario = two_levels(stalls, mtbf, restarts, 2.8284, 32, 1000.0).scenario.replace("checkpoint.flush_every", None)
    prepared = Prepared(scenario, 2.8284 * 15)
    chosen = prepared.transfers[-1].every
    rates = (1 / mtbf[0], 1 / mtbf[1])

    def goodput(rounds: int) -> float:
        return forms.two_level_goodput(2.8284, rounds, stalls, rates, restarts)

    assert goodput(chosen) > 0.999 * max(goodput(rounds) for rounds in range(1, 200))


def test_two_levels_of_which_one_is_free_are_one() -> None:
    # Level 2 at every save, free: only its restart differs; a second class that never fails leaves level 1 alone.
    one = forms.two_level_goodput(10.0, 1, (0.5, 0.0), (1 / 100, 1e-12), (3.0, 3.0))
    assert one == pytest.approx(forms.sync_goodput(100.0, 10.0, 0.5, 3.0, restart_fails=False), rel=1e-6)


@pytest.mark.parametrize("engine", [
    "transom", *(pytest.param(name, marks=pytest.mark.prove) for name in ("async", "megascale", "checkfreq", "gockpt")),
])  # fmt: skip
def test_whatever_uploads_behind_training_has_the_goodput_of_asynchronous_saves(engine: str) -> None:
    # Losses of the whole cluster leave storage alone. Stall and persist time are those that the engine works out.
    mtbf, restart, tau = 185.6 * MINUTE, 10 * MINUTE, 30 * MINUTE
    keys = {"gockpt": {"target": "storage"}, "checkfreq": {"overlap": False}, "transom": {"copies": 1}}.get(engine, {})
    scenario = build(failures=[{"component": "job", "severity": "cluster", "mtbf": mtbf, "detection": 0.0}],
                     stages={"start": restart, "load": 0.0}, during={"recovery": False}, duration=400 * mtbf,
                     storage={"write_bandwidth": 5000.0, "latency": 3.0},
                     checkpoint={"kind": engine, "interval": tau, "copy_bandwidth": 200_000.0, "planning": 2.0, **keys})  # fmt: skip
    prepared = Prepared(scenario, tau / 300)
    save = prepared.saves[0]
    stall, durable = save.stall_s, save.after_s(prepared.transfers[-1].tier)  # type: ignore[arg-type]
    assert stall >= 2.0
    assert durable is not None
    assert durable - stall > 300
    expected = forms.async_goodput(mtbf, tau, stall, durable - stall, restart)
    results = [Job(prepared, 1, index, events=False).run() for index in range(40)]
    assert_mean([result.ettr for result in results], expected)


# -- copies in peers' memory


def brute(placement: Placement, nodes: int, lost: int) -> float:
    sets = [placement.recoverable(set(chosen), nodes) for chosen in itertools.combinations(range(nodes), lost)]
    return sum(sets) / len(sets)


@pytest.mark.parametrize(("copies", "lost"), [(2, 1), (2, 2), (2, 3), (2, 4), (4, 4), (4, 5), (3, 3)])
def test_formulas_of_placement_against_every_set(copies: int, lost: int) -> None:
    nodes = 12 if copies == 3 else 16
    assert group_probability(nodes, copies, lost) == pytest.approx(brute(Group(copies), nodes, lost), abs=1e-12)
    assert ring_probability(nodes, copies, lost) == pytest.approx(brute(Ring(copies), nodes, lost), abs=1e-12)
    assert group_bound(nodes, copies, lost) <= group_probability(nodes, copies, lost) + 1e-12


@pytest.mark.parametrize(("placed", "published"), [("group", 0.79254125), ("ring", None)])
def test_nodes_lost_together_in_runs(placed: str, published: float | None) -> None:
    # 128 nodes, 2 copies, 8 nodes lost at one instant: the run goes back to the copy of the last step, or to nothing.
    formula = group_probability if placed == "group" else ring_probability
    expected = formula(128, 2, 8)
    if published is not None:
        assert expected == pytest.approx(published, abs=1e-8)
    rng, count, kept = np.random.default_rng(4), 200, 0
    for _ in range(count):
        places = rng.choice(128, 8, replace=False)
        causes = [planted(20.5, severity="node", place=int(place), name=f"n{place}") for place in places]
        scenario = build(nodes=128, spares=8, failures=causes, steps=25, checkpoint={"kind": "gemini", "placed": placed})
        log = Job(Prepared(scenario, 1.0), 0, 0).run().log.entries()
        kept += [entry.step for entry in log if entry.event == "resume"][-1] == 20
    error = math.sqrt(expected * (1 - expected) / count)  # binomial
    assert abs(kept / count - expected) <= 4 * error


def test_a_stride_beyond_the_rack_survives_its_loss() -> None:
    def resumed(**keys: object) -> list[int | None]:
        causes = [planted(20.5, severity="node", place=place, name=f"n{place}") for place in range(4)]
        scenario = build(nodes=8, spares=8, nodes_per_rack=4, steps=25, stages={"start": 1.0}, failures=causes,
                         checkpoint={"kind": "gemini", **keys})  # fmt: skip
        log = Job(Prepared(scenario, 1.0), 0, 0).run().log.entries()
        return [entry.step for entry in log if entry.event == "resume"]

    assert resumed(placed="ring", stride=1)[-1] == 0
    assert resumed(placed="ring", stride=4)[-1] == 20


def test_a_second_loss_before_the_copies_are_made_anew_counts_with_the_first() -> None:
    def resumed(second: float, place: int) -> int | None:
        causes = [planted(20.5, severity="node", place=0, name="a"), planted(second, severity="node", place=place, name="b")]
        scenario = build(nodes=4, spares=4, steps=60, failures=causes, stages={"start": 5.0}, checkpoint="gemini")
        log = Job(Prepared(scenario, 1.0), 0, 0).run().log.entries()
        return [entry.step for entry in log if entry.event == "resume"][-1]

    assert resumed(22.0, 1) == 0  # nodes 0 and 1 held each other's parts
    assert resumed(22.0, 2) == 20
    assert (resumed(40.5, 1) or 0) > 20  # copied anew since


# -- stalls at every step, prediction


@pytest.mark.parametrize(("step", "stall", "published"), [
    (4.4833, 1.84, 0.709), (4.5861, 1.69, 0.7307), (9.8502, 0.22, 0.9782), (9.7123, 0.18, 0.9818),
])  # fmt: skip
def test_a_stall_at_every_step(step: float, stall: float, published: float) -> None:
    expected = forms.relative_mfu(step, stall)
    assert expected == pytest.approx(published, abs=1e-4)
    scenario = build(checkpoint={"kind": "gemini", "stall": stall}, duration=1e6)
    assert replicas(scenario, step, 1)[0].ettr == pytest.approx(expected, rel=1e-4)


def test_a_perfect_predictor_leaves_the_step_under_way_to_lose() -> None:
    # Recall 1 − ε, free of false alarms: each failure costs its restart, one save, and less than a step.
    mtbf, restart, stall, step = 100 * MINUTE, 5 * MINUTE, 1.0, 2.0
    scenario = build(failures=[job_failure(mtbf)], stages={"start": restart}, during={"recovery": False}, duration=100 * mtbf,
                     checkpoint={"kind": "sync", "stall": stall, "interval": {"kind": "predicted", "recall": 0.999999,
                                                                              "precision": 1.0, "lead": 10.0}})  # fmt: skip
    for result in replicas(scenario, step, 4):
        lost = result.lost_work_s / max(1, result.interruptions)
        assert lost < 10.0 + step + stall
        assert result.ettr == pytest.approx(mtbf / (mtbf + restart), rel=0.02)


@pytest.mark.prove
def test_prediction_helps_more_the_more_it_finds_and_costs_more_the_less_it_is_right() -> None:
    def ettr(recall: float, precision: float) -> float:
        policy = {"kind": "predicted", "recall": recall, "precision": precision, "lead": 60.0}
        scenario = build(failures=[job_failure(3600.0)], stages={"start": 30.0}, duration=200 * 3600.0,
                         checkpoint={"kind": "sync", "stall": 20.0, "interval": policy})  # fmt: skip
        return math.fsum(result.ettr for result in replicas(scenario, 5.0, 6)) / 6

    found, rarely, wrongly = ettr(0.9, 1.0), ettr(0.3, 1.0), ettr(0.9, 0.05)
    assert found > rarely + 0.01
    assert found > wrongly + 0.01
