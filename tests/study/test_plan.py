"""Plans: the step search joined with the run, halved on the same bad days."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clustersim.errors import ImpossibleError
from clustersim.pipeline.search_space import Space
from clustersim.scenario.schema import Scenario
from clustersim.study.planning import FINALISTS, Plan, Prices, interval_choices, plan, point_of
from clustersim.study.points import Template

SPACE = Space(tp=(1, 2), pp=(1, 2, 4), micro_batch=(1, 2), schedules=("1f1b",), zero=(1,))


@pytest.fixture(scope="module")
def found(small: Scenario) -> Plan:
    return plan(small, space=SPACE, layouts=4, replicas=8, prices=Prices(gpu_hour=2.0, kwh=0.1, power_w=1000.0))


def test_the_run_prices_the_step_as_the_search_did(small: Scenario, found: Plan) -> None:
    from clustersim.pipeline.step import StepModel

    candidate = found.best.candidate
    scenario = Template.of(small)(point_of(candidate))
    assert StepModel.of(scenario).step_time().seconds == pytest.approx(candidate.seconds, rel=1e-9)


def test_designs_are_ranked_and_halved(found: Plan) -> None:
    assert len(found.designs) == 12
    finalists = [design for design in found.designs if len(design.outcome.replicas) == 8]
    assert len(finalists) == max(FINALISTS, 6)
    goodput = [design.goodput for design in finalists]
    assert goodput == sorted(goodput, reverse=True)
    assert found.best in found.pareto()
    row = found.rows()[0]
    assert row["cost_per_billion_tokens"] == pytest.approx(512 * 2.1 / (found.best.goodput * 3600) * 1e9)
    assert row["tokens_per_day"] == pytest.approx(found.best.goodput * 86400)
    assert len(found.to_frame()) == 12
    assert found.why()[0].startswith("Best: tp ")
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_best_design_is_a_scenario(small: Scenario, found: Plan, tmp_path: Path) -> None:
    """What is written runs, and keeps what the plan says it keeps."""
    from clustersim.scenario.load import load
    from clustersim.study.replicas import run_replicas

    path = tmp_path / "best.yaml"
    path.write_text(found.scenario().resolved(), encoding="utf-8")
    table = run_replicas(load(str(path)), replicas=8, seed=found.seed)
    assert table.to_dict()["goodput_tokens_per_s"]["mean"] == pytest.approx(found.best.goodput, rel=1e-12)
    last = found.designs[-1]
    assert found.scenario(last).parallelism.pp == last.candidate.choice.pp


def test_what_designs_share_is_said_once(found: Plan) -> None:
    from clustersim.report.study_text import plan_text

    shared, differ = found.shared()
    assert shared["zero"] == "1"
    assert "checkpoint.interval" in differ
    assert not set(shared) & set(differ)
    for design in found.designs:
        assert {key: design.choices[key] for key in shared} == shared
    table = plan_text(found).split("* none")[0]
    assert table.count("zero") == 1
    assert max(map(len, table.splitlines()[2:])) <= 115


def test_intervals_around_the_formula(small: Scenario) -> None:
    choices = interval_choices(small)["checkpoint.interval"]
    assert len(choices) == 3
    assert interval_choices(small.replace("failures", [])) == {}


def test_nothing_fits(small: Scenario) -> None:
    huge = small.replace("model.hidden", 65536).replace("model.ffn_hidden", 4 * 65536)
    with pytest.raises(ImpossibleError, match="fits in memory"):
        plan(huge, space=Space(tp=(1,), pp=(1,), zero=(1,), micro_batch=(1,)), layouts=1, replicas=2)


def test_command(small_yaml: str, tmp_path: Path) -> None:
    arguments = ["plan", small_yaml, "--space", "tp=1,2", "--space", "pp=1,2", "--space", "schedules=1f1b", "--layouts",
                 "2", "--replicas", "4", "--over", "checkpoint.interval=10 min,30 min", "-o", str(tmp_path), "--json",
                 "--workers", "1"]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "clustersim", *arguments], capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    assert len(document["designs"]) == 4
    names = {path.name for path in tmp_path.iterdir()}
    assert {name for name in names if not name.startswith("records-")} == {
        "best.yaml",
        "plan.json",
        "plan.csv",
        "plan.png",
        "report.html",
        "study.json",
    }
    assert len(names) == 7
    wrong = subprocess.run([sys.executable, "-m", "clustersim", "plan", small_yaml, "--space", "tpp=1"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    assert wrong.returncode == 2
    assert "did you mean 'tp'" in wrong.stderr
