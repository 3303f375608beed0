"""A step of a given time: the step model's answers scaled to it, and told as such."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustersim.cli.main import guarded
from clustersim.errors import InputError
from clustersim.pipeline.conditions import Conditions
from clustersim.pipeline.step import StepModel
from clustersim.run.prepared import Prepared
from clustersim.run.simulate import run_replica
from clustersim.scenario.load import load
from clustersim.study.planning import plan
from clustersim.study.sensitivity import next_schedule

FILE = str(Path(__file__).parents[2] / "scenarios" / "cases" / "loss-by-layout.yaml")
GIVEN = "training.step_time=12.5 s"


@pytest.fixture(scope="module")
def both() -> tuple[StepModel, StepModel]:
    return StepModel.of(load(FILE)), StepModel.of(load(FILE, (GIVEN,)))


def test_the_nominal_step_takes_what_is_given_and_its_parts_keep_their_shares(
    both: tuple[StepModel, StepModel],
) -> None:
    modelled, given = (model.report() for model in both)
    assert given.step_time_s == pytest.approx(12.5, rel=1e-12)
    assert given.modelled_s == pytest.approx(modelled.step_time_s)
    assert modelled.modelled_s is None
    factor = 12.5 / modelled.step_time_s
    assert given.breakdown_s == pytest.approx({name: value * factor for name, value in modelled.breakdown_s.items()})
    assert sum(given.breakdown_s.values()) == pytest.approx(12.5)
    assert given.bubbles == pytest.approx(modelled.bubbles)
    assert given.mfu == pytest.approx(modelled.mfu / factor)
    assert given.memory == modelled.memory


@pytest.mark.parametrize("conditions", [Conditions(lost_replicas=3), Conditions(lost_replicas=1, keep_batch=True),
                                        Conditions(slow=((7, 2.0),)), Conditions(slow_links=((3, 0.25),)),
                                        Conditions(slow_gpus=((9, 1.5),), lost_replicas=2), Conditions(saving=0.5)])  # fmt: skip
def test_conditions_change_it_as_they_change_the_modelled_one(
    conditions: Conditions, both: tuple[StepModel, StepModel]
) -> None:
    modelled, given = (model.step_time(conditions) for model in both)
    nominal = both[0].step_time()
    assert given.seconds / 12.5 == pytest.approx(modelled.seconds / nominal.seconds)
    assert given.tokens == modelled.tokens


def test_a_run_steps_by_it_whatever_gives_it() -> None:
    keys = ("training.duration=2 d", "recovery.strategy=restart")
    from_file = run_replica(Prepared(load(FILE, (*keys, GIVEN))), 3, 0)
    from_python = run_replica(Prepared(load(FILE, keys), 12.5), 3, 0)
    assert from_file.steps == from_python.steps > 0
    assert from_file.ledger_s == pytest.approx(from_python.ledger_s)


def test_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["step", FILE, "--set", GIVEN, "--json"]) == 0
    step = json.loads(capsys.readouterr().out)
    assert step["step_time_s"] == pytest.approx(12.5)
    assert step["step_time_modelled_s"] < 12.5
    assert any("training.step_time" in line for line in step["warnings"])
    assert guarded(["step", FILE, "--json"]) == 0
    assert "step_time_modelled_s" not in json.loads(capsys.readouterr().out)
    assert guarded(["run", FILE, "--set", GIVEN, "--set", "training.duration=1 d", "--replicas", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["step"]["step_time_s"] == pytest.approx(12.5)
    assert document["step"]["warnings"]
    assert guarded(["step", FILE, "--set", GIVEN]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "step 12.5 s (given)" in told
    assert "is given (training.step_time), not modelled" in told
    assert guarded(["step", FILE, "--set", "training.step_time=1 ms"]) == 0
    assert "faster than the GPUs' peak" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("share", "warned"), [(1.001, False), (0.999, True), (1e-6, True)])
def test_a_step_faster_than_the_peak_is_told_at_its_key(capsys: pytest.CaptureFixture[str], tmp_path: Path, share: float, warned: bool) -> None:
    """Least time: model FLOP of a step ÷ (GPUs × peak)."""
    step = StepModel.of(load(FILE))
    peak = step.plan.cluster.node.gpu.peak["bf16"]
    report = step.report()
    least = report.model_flops_per_step / report.gpus / peak
    file = tmp_path / "job.yaml"
    file.write_text(f"extends: {FILE}\ntraining:\n  step_time: {least * share!r} s\n")
    assert guarded(["step", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = [text for text in document["warnings"] if "faster than the GPUs' peak" in text]
    assert len(found) == warned
    assert (document["mfu"] > 1) == warned
    if warned:
        assert found[0].startswith(f"{file}:3:14: training.step_time: ")
        percent = float(found[0].split("MFU of ")[1].split(" %;")[0].replace(",", ""))
        assert percent == pytest.approx(100 / share, rel=1e-3)
    for command in ("run", "check"):
        assert guarded([command, str(file), "--set", "simulation.replicas=1", "--set", "training.duration=1 h"]) == 0
        told = "".join(capsys.readouterr())
        assert told.count("faster than the") == warned


def test_what_compares_layouts_does_not_take_it() -> None:
    scenario = load(FILE, (GIVEN,))
    with pytest.raises(InputError, match=r"training\.step_time: gives every layout the same step"):
        plan(scenario, replicas=2)
    assert next_schedule(scenario, 12.5) is None
    assert "step_time: 12.5 s" in scenario.resolved()
