"""Closed forms of checkpointing and restart under exponential failures, against the simulation.

λ = 1/M. The worked values come from the project's sheet of analytic checks; each test recomputes its formula and
compares it with the sheet's digits too, so that a wrong transcription cannot pass. Means must lie within 4 standard
errors.
"""

from __future__ import annotations

import math

import pytest

from tests.run.synthetic import HOUR, MINUTE, assert_mean, build, job_failure, ratio_of, replicas


def daly_wall(mtbf: float, tau: float, dump: float, restart: float, useful: float, dead: float = 0.0) -> float:
    """(M + D) e^{R/M} (e^{(τ+d)/M} − 1) T/τ: failures in compute, dump and restart, none in the dead time D."""
    return (mtbf + dead) * math.exp(restart / mtbf) * math.expm1((tau + dump) / mtbf) * useful / tau


def clean_restart_wall(mtbf: float, tau: float, dump: float, restart: float, useful: float) -> float:
    """(M + R)(e^{(τ+d)/M} − 1) T/τ: no failures during restart."""
    return (mtbf + restart) * math.expm1((tau + dump) / mtbf) * useful / tau


def sync_run(mtbf: float, tau: float, dump: float, restart: float, segments: int, *, dead: float = 0.0,
             during: dict[str, bool] | None = None, step: float = 0.0, count: int = 80) -> list[float]:  # fmt: skip
    """Wall times of a run of ``segments`` intervals, each closed by a dump (the last one included)."""
    step = step or tau / 10
    scenario = build(failures=[job_failure(mtbf, detection=dead)], during=during, stages={"start": restart},
                     checkpoint={"kind": "sync", "interval": tau, "stall": dump, "final": True},
                     steps=round(segments * tau / step))  # fmt: skip
    return [result.wall_s for result in replicas(scenario, step, count)]


@pytest.mark.parametrize(("mtbf_h", "tau_min", "hours"), [
    (24, 30, 594.5951), (24, 60, 557.939), (24, 240, 560.2859),
    (6, 30, 629.8877), (6, 60, 610.3694), (6, 240, 751.8277),
])  # fmt: skip
def test_wall_time_when_failures_strike_compute_dump_and_restart(mtbf_h: int, tau_min: int, hours: float) -> None:
    mtbf, tau, dump, restart = mtbf_h * HOUR, tau_min * MINUTE, 5 * MINUTE, 10 * MINUTE
    segments = 500 * 60 // tau_min
    expected = daly_wall(mtbf, tau, dump, restart, segments * tau)
    assert expected * 500 / (segments * tau_min / 60) == pytest.approx(hours * HOUR, rel=2e-6)
    assert_mean(sync_run(mtbf, tau, dump, restart, segments, count=200 if tau > mtbf / 2 else 60), expected)


@pytest.mark.prove
@pytest.mark.parametrize(("tau_min", "hours", "segments"), [(30, 4534.4507, 60), (60, 18308.1781, 30)])
def test_wall_time_where_failures_come_faster_than_saves(tau_min: int, hours: float, segments: int) -> None:
    mtbf, tau, dump, restart = 15 * MINUTE, tau_min * MINUTE, 5 * MINUTE, 10 * MINUTE
    expected = daly_wall(mtbf, tau, dump, restart, segments * tau)
    assert expected * 500 / (segments * tau_min / 60) == pytest.approx(hours * HOUR, rel=2e-6)
    assert_mean(sync_run(mtbf, tau, dump, restart, segments, count=340), expected, largest_error=0.01)


@pytest.mark.parametrize(("mtbf", "tau", "dump", "restart", "dead", "ratio"), [
    (185.6, 30, 0.5, 5, 3, 1.153493), (60, 20, 1, 10, 5, 1.608977),
])  # fmt: skip
def test_dead_time_without_failures_before_a_restart_that_can_fail(mtbf: float, tau: float, dump: float, restart: float,
                                                                   dead: float, ratio: float) -> None:  # fmt: skip
    expected = daly_wall(mtbf, tau, dump, restart, 1.0, dead)
    assert expected == pytest.approx(ratio, rel=1e-6)
    walls = sync_run(mtbf * 60, tau * 60, dump * 60, restart * 60, 400, dead=dead * 60, during={"detection": False})
    assert_mean([wall / (400 * tau * 60) for wall in walls], expected)


@pytest.mark.parametrize(("mtbf", "tau", "dump", "restart", "ratio"), [
    (185.6, 30, 0.5, 8, 1.1526), (185.6, 60, 0.5, 25, 1.352661), (60, 20, 1, 15, 1.571503),
])  # fmt: skip
def test_restart_without_failures(mtbf: float, tau: float, dump: float, restart: float, ratio: float) -> None:
    expected = clean_restart_wall(mtbf, tau, dump, restart, 1.0)
    assert expected == pytest.approx(ratio, rel=1e-6)
    walls = sync_run(mtbf * 60, tau * 60, dump * 60, restart * 60, 400, during={"recovery": False}, count=100)
    assert_mean([wall / (400 * tau * 60) for wall in walls], expected)


def test_saves_without_failures_shorten_the_exposed_time() -> None:
    # With failures in compute only, a segment takes (M + R)(e^{τ/M} − 1) + d: the dump is added once, undisturbed.
    mtbf, tau, dump, restart, segments = 60 * MINUTE, 20 * MINUTE, 5 * MINUTE, 10 * MINUTE, 300
    expected = segments * ((mtbf + restart) * math.expm1(tau / mtbf) + dump)
    walls = sync_run(mtbf, tau, dump, restart, segments, during={"save": False, "recovery": False})
    assert_mean(walls, expected)


def test_without_a_last_dump_the_last_segment_is_shorter() -> None:
    mtbf, tau, dump, restart, segments = 60 * MINUTE, 20 * MINUTE, 5 * MINUTE, 10 * MINUTE, 6
    whole, last = math.expm1((tau + dump) / mtbf), math.expm1(tau / mtbf)
    expected = mtbf * math.exp(restart / mtbf) * ((segments - 1) * whole + last)
    scenario = build(failures=[job_failure(mtbf)], stages={"start": restart}, steps=segments * 20,
                     checkpoint={"kind": "sync", "interval": tau, "stall": dump})  # fmt: skip
    assert_mean([result.wall_s for result in replicas(scenario, MINUTE, 2500)], expected, largest_error=0.01)


def test_a_cold_start_adds_one_restart() -> None:
    # M e^{R/M}(…) counts restarts after failures only; a start that must itself succeed adds M (e^{R/M} − 1).
    mtbf, tau, dump, restart, segments = 60 * MINUTE, 20 * MINUTE, 5 * MINUTE, 30 * MINUTE, 2
    expected = daly_wall(mtbf, tau, dump, restart, segments * tau) + mtbf * math.expm1(restart / mtbf)
    scenario = build(failures=[job_failure(mtbf)], stages={"start": restart}, recovery={"cold_start": True},
                     checkpoint={"kind": "sync", "interval": tau, "stall": dump, "final": True}, steps=40)  # fmt: skip
    assert_mean([result.wall_s for result in replicas(scenario, MINUTE, 3000)], expected, largest_error=0.01)


def test_no_checkpoints_at_all() -> None:
    # One segment without a dump: M e^{R/M} (e^{T/M} − 1).
    mtbf, total, restart = 60 * MINUTE, 60 * MINUTE, 6 * MINUTE
    expected = mtbf * math.exp(restart / mtbf) * math.expm1(total / mtbf)
    scenario = build(failures=[job_failure(mtbf)], stages={"start": restart}, steps=60)
    assert_mean([result.wall_s for result in replicas(scenario, MINUTE, 8000)], expected, largest_error=0.01)


@pytest.mark.parametrize(("tau", "stall", "persist", "goodput", "lost"), [
    (10, 0.78 / 60, 67 / 60, 0.916778, 6.12171), (30, 0.78 / 60, 436 / 60, 0.840291, 22.27002),
    (60, 0.59 / 60, 51.06 / 60, 0.79992, 30.85578),
])  # fmt: skip
def test_goodput_of_asynchronous_saves(tau: float, stall: float, persist: float, goodput: float, lost: float) -> None:
    # τ e^{−(τ+s+P)/M} ÷ ((1 − e^{−(τ+s)/M})(M + R)): persist beside training, recovery to the last durable state.
    mtbf, restart = 185.6, 10.0
    expected = tau * math.exp(-(tau + stall + persist) / mtbf) / (-math.expm1(-(tau + stall) / mtbf) * (mtbf + restart))
    assert expected == pytest.approx(goodput, abs=2e-6)
    assert tau**2 / (2 * (tau + stall)) + tau * (stall + persist) / (tau + stall) == pytest.approx(lost, abs=2e-5)
    scenario = build(failures=[job_failure(mtbf * 60)], stages={"start": restart * 60}, during={"recovery": False},
                     checkpoint={"kind": "async", "interval": tau * 60, "stall": stall * 60, "persist": persist * 60},
                     duration=400 * mtbf * 60)  # fmt: skip
    results = replicas(scenario, tau * 60 / 300, 40)
    assert_mean([result.ettr for result in results], expected)


@pytest.mark.parametrize(("nodes", "rate", "tau", "restart", "dump", "published"), [
    (2000, 0.0065, 60, 5, 0, 0.7202), (2000, 0.0065, 5, 5, 0, 0.9345), (1500, 0.0065, 7.017, 5, 1 / 6, 0.9215),
    (1500, 0.0065, 38.431, 5, 5, 0.7358), (12500, 0.00234, 2, 2, 0, 0.9408),
])  # fmt: skip
def test_exact_renewal_beside_metas_estimator(nodes: int, rate: float, tau: float, restart: float, dump: float,
                                              published: float) -> None:  # fmt: skip
    # τ ÷ (M e^{R/M} (e^{(τ+w)/M} − 1)) with M = 24 h ÷ (N r_f). Failures of nodes, each replaced by a spare at once.
    mtbf = 1440 / (nodes * rate)
    expected = tau / (mtbf * math.exp(restart / mtbf) * math.expm1((tau + dump) / mtbf))
    assert expected == pytest.approx(published, abs=6e-5)
    cause = {"component": "node", "severity": "node", "mtbf": 86400 / rate, "detection": 0.0}
    scenario = build(
        nodes=nodes,
        spares=60,
        failures=[cause],
        stages={"start": restart * 60},
        during={"spare": False},
        checkpoint={"kind": "sync", "interval": tau * 60, "stall": dump * 60},
        duration=300 * mtbf * 60,
    )
    results = replicas(scenario, tau * 60 / 20, 80 if tau > mtbf / 4 else 30)
    assert_mean([result.ettr for result in results], expected)


@pytest.mark.parametrize(("detection", "goodput"), [(0.5, 0.91573), (10, 0.87341), (30, 0.79598)])
def test_detection_time_costs_goodput(detection: float, goodput: float) -> None:
    # τ ÷ ((e^{(τ+d)/M} − 1)(M + R)) at the exact optimum, R = 10 min + detection, no failures meanwhile.
    from clustersim.checkpoint.optimum import exact

    mtbf, dump, restart = 185.6, 0.1, 10.0
    tau = exact(dump, mtbf)
    expected = tau / (math.expm1((tau + dump) / mtbf) * (mtbf + restart + detection))
    assert expected == pytest.approx(goodput, abs=6e-6)
    scenario = build(failures=[job_failure(mtbf * 60, detection=detection * 60)], stages={"start": restart * 60},
                     during={"recovery": False}, duration=400 * mtbf * 60,
                     checkpoint={"kind": "sync", "interval": tau * 60, "stall": dump * 60})  # fmt: skip
    assert_mean([result.ettr for result in replicas(scenario, tau * 60 / 50, 40)], expected)


def test_a_stall_every_step() -> None:
    # Relative MFU t ÷ (t + stall), ByteRobust Table 8 inputs: 4.4833 s a step and 1.84 s of stall give 0.709.
    assert pytest.approx(0.709, abs=5e-4) == 4.4833 / (4.4833 + 1.84)
    scenario = build(checkpoint={"kind": "sync", "interval": {"steps": 1}, "stall": 1.84}, duration=4.0e6)
    assert replicas(scenario, 4.4833, 1)[0].ettr == pytest.approx(4.4833 / (4.4833 + 1.84), rel=1e-5)


def test_interruptions_of_the_llama_3_fleet() -> None:
    # 419 unexpected interruptions on 2,048 nodes in 54 d are 3.7887e-3 a node and day; their number is Poisson.
    cause = {"component": "node", "severity": "process", "mtbf": 86400 / 3.788701e-3, "detection": 60.0}
    scenario = build(nodes=2048, failures=[cause], stages={"start": 60.0}, duration=54 * 86400.0,
                     checkpoint={"kind": "sync", "interval": 600.0, "stall": 1.0})  # fmt: skip
    results = replicas(scenario, 6.0, 30)
    assert_mean([float(result.interruptions) for result in results], 419.0, largest_error=0.01)
    ratio_of([(result.wall_s, float(result.interruptions)) for result in results], 3.0931 * HOUR, largest_error=0.01)
