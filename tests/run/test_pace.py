"""The pace of training: conditions of the step model, their categories, and changes of pace in mid-run."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from clustersim.pipeline.conditions import Conditions, StepTime
from clustersim.run.clock import at
from clustersim.run.job import Job
from clustersim.run.pace import FixedStep, Pace, Paces
from clustersim.run.prepared import MOST_PATTERNS, Prepared
from tests.run.synthetic import build, planted


class FakeStep:
    """A step of 10 s: × the worst factor; ÷ 2 of the tokens with a replica lost; 1 s more beside a save."""

    def step_time(self, conditions: Conditions) -> StepTime:
        factor = max((f for _, f in conditions.slow), default=1.0)
        tokens = 100.0 if conditions.lost_replicas == 0 else 50.0
        seconds = (9.0 if conditions.lost_replicas else 10.0) * factor + (1.0 if conditions.saving else 0.0)
        return StepTime(seconds, MappingProxyType({}), tokens)


def test_the_excess_of_a_step_has_its_category() -> None:
    paces = Paces(None, FakeStep())
    assert paces.nominal == Pace(10.0, 10.0, 10.0)
    assert paces.under(Conditions(slow=((3, 1.5),))) == Pace(15.0, 15.0, 10.0, 5.0, 0.0)
    # Half the tokens in 9 s: 5 s of training, 4 s degraded; with a straggler 4.5 s more.
    assert paces.under(Conditions(slow=((3, 1.5),), lost_replicas=1)) == Pace(13.5, 13.5, 5.0, 4.5, 4.0)
    assert paces.under(Conditions(), saving=0.1) == Pace(10.0, 11.0, 10.0, 0.0, 0.0)


def test_a_fixed_step_knows_no_conditions() -> None:
    with pytest.raises(ValueError, match="knows no conditions"):
        Paces(None, FixedStep(1.0)).under(Conditions(lost_replicas=1))


def run(changes: list[tuple[float, Pace]], jump: bool = True, **keys: Any) -> Any:
    """A run whose pace changes at given times."""
    job = Job(Prepared(build(**keys), 2.0, jump=jump), 0, 0)
    for time, pace in changes:
        at(job.env, time, change(job, pace), "test")
    return job.run()


def change(job: Job, pace: Pace) -> Callable[[object], None]:
    return lambda _: job.change_pace(pace)


SLOW = Pace(3.0, 3.0, 2.0, 1.0)


@pytest.mark.parametrize("jump", [True, False])
def test_conditions_are_read_at_the_start_of_a_step(jump: bool) -> None:
    # Steps of 2 s; slow from 5.0: the step under way ends at 6, then steps of 3 s; well again at 13.0: that step ends
    # at 15.
    result = run([(5.0, SLOW), (13.0, Pace(2.0, 2.0, 2.0))], jump, steps=10)
    assert result.wall_s == pytest.approx(3 * 2 + 3 * 3 + 4 * 2)
    assert result.ledger_s["straggle"] == pytest.approx(3.0)
    assert result.ledger_s["train"] == pytest.approx(20.0)


@pytest.mark.parametrize("jump", [True, False])
@pytest.mark.parametrize("moment", [3.0, 10.0, 10.5, 11.0, 12.5, 17.0, 33.3])
def test_a_change_of_pace_leaves_saves_in_flight_alone(jump: bool, moment: float) -> None:
    engine = {"kind": "async", "interval": 10.0, "stall": 1.0, "persist": 4.0}
    result = run([(moment, SLOW), (50.0, Pace(2.0, 2.0, 2.0))], jump, steps=40, checkpoint=engine)
    assert math.fsum(result.ledger_s.values()) == pytest.approx(result.wall_s, rel=1e-9)
    assert result.steps == 40
    assert result.ledger_s["train"] == pytest.approx(80.0)
    durable = [entry for entry in result.log.entries() if entry.event == "save_durable"]
    starts = [entry for entry in result.log.entries() if entry.event == "save_start"]
    assert all(b.time_s - a.time_s == pytest.approx(5.0) for a, b in zip(starts, durable, strict=False))


def test_fewer_tokens_a_step_are_fewer_tokens() -> None:
    half = Pace(2.0, 2.0, 1.0, 0.0, 1.0)
    result = run([(0.0, half)], steps=10)
    assert result.steps == 10
    assert result.tokens == pytest.approx(8 * (1 + 9 / 2))  # the first step had read its conditions already
    assert result.ledger_s["degraded"] == pytest.approx(9.0)


def test_a_change_of_pace_during_recovery_holds_from_the_first_step() -> None:
    result = run([(6.0, SLOW)], steps=4, stages={"start": 10.0}, failures=[planted(5.0)])
    assert result.ledger_s["start"] == pytest.approx(10.0)
    assert result.wall_s == pytest.approx(5 + 10 + 4 * 3)


def test_what_is_remembered_of_slow_nodes_is_bounded() -> None:
    prepared = Prepared(build(checkpoint={"kind": "async", "interval": 600.0, "stall": 1.0, "persist": 5.0}, steps=10), 1.0)
    whole = prepared.pattern_at(prepared.pace._replace(step_s=2.0))
    for more in range(2 * MOST_PATTERNS):
        prepared.pattern_at(prepared.pace._replace(step_s=3.0 + more))
    assert len(prepared._patterns) == MOST_PATTERNS
    again = prepared.pattern_at(prepared.pace._replace(step_s=2.0))
    assert again is not whole and again.cycle == whole.cycle
