"""Where an error that comes up after loading is told: the walk from a key's path to what was written."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from clustersim.errors import ClusterSimError, DoesNotFit, InputError, NegativeAnswer, PluginError, Problem
from clustersim.scenario.load import load
from clustersim.scenario.places import at_its_place, placed_like, places_of, tells_places
from clustersim.scenario.schema import Scenario
from clustersim.scenario.tree import Node, Origin

TEXT = """\
model: llama3-8b
cluster: {nodes: 1, node: {preset: dgx-h100, nics: 4}, storage: tectonic}
training:
  seq_len: 8192
  global_batch: 128
  steps: 10
  optimizer: adam
checkpoint: {engine: {kind: async, keep: 2}, interval: 10 min}
failures:
  - {name: a, component: job, mtbf: 9 h, severity: process}
  - {name: b, component: gpu, mtbf: 9 y}
recovery: restart
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_text(TEXT)
    return load("f.yaml")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("training.steps", "f.yaml:6:10: training.steps: x"),
        ("failures.1.mtbf", "f.yaml:11:37: failures.1.mtbf: x"),
        ("checkpoint.keep", "f.yaml:8:42: checkpoint.engine.keep: x"),
        ("checkpoint.interval.time", "f.yaml:8:56: checkpoint.interval: x"),
        ("training", "f.yaml:4:3: training: x"),
        ("training.precision", "f.yaml:4:3: training.precision: x (precision is not written here: its default counts)"),
        ("training.offload.optimizer", "f.yaml:4:3: training.offload.optimizer: x (optimizer is not written here: its default counts)"),
        ("recovery.stages", "f.yaml:12:11: recovery.stages: x (stages is not written here: what 'restart' stands for counts)"),
        ("cluster.node.nics", "f.yaml:2:52: cluster.node.nics: x"),
        ("cluster.node.gpu.peak",
         "f.yaml:2:27: cluster.node.gpu.peak: x (peak is not written here: what 'dgx-h100' stands for counts)"),
        ("cluster.storage.capacity",
         "f.yaml:2:65: cluster.storage.capacity: x (capacity is not written here: what 'tectonic' stands for counts)"),
        ("schedule.fsdp", "f.yaml:1:1: parallelism.schedule.fsdp: x (fsdp is not written here: its default counts)"),
        ("failures.7.mtbf", "f.yaml:10:3: failures.7.mtbf: x (mtbf is not written here: its default counts)"),
    ],
)  # fmt: skip
def test_a_path_becomes_a_place(scenario: Scenario, path: str, told: str) -> None:
    assert str(at_its_place(Problem(path, "x"), scenario.origin)) == told


@pytest.mark.parametrize("problem", [Problem("", "x"), Problem("--over a.b", "x"), Problem("SCENARIO", "x"), Problem("a.b", "x"),
                                     Problem("training.steps", "x", "other.csv", 3, 4)])  # fmt: skip
def test_what_names_no_key_or_has_a_place_stays(scenario: Scenario, problem: Problem) -> None:
    assert at_its_place(problem, scenario.origin) == problem


def test_data_in_memory_have_no_places() -> None:
    data = {"model": "llama3-8b", "cluster": {"nodes": 1, "node": "dgx-h100", "storage": "tectonic"},
            "training": {"seq_len": 8192, "global_batch": 128, "steps": 10}}  # fmt: skip
    assert str(at_its_place(Problem("training.steps", "x"), load(data).origin)) == "training.steps: x"
    assert str(at_its_place(Problem("training.precision", "x"), load(data).origin)) == "training.precision: x"
    assert str(at_its_place(Problem("training.steps", "x"), Scenario.model_validate(data).origin)) == "training.steps: x"


def test_an_override_has_its_option(scenario: Scenario) -> None:
    other = load("f.yaml", ["training.steps=20"])
    assert str(at_its_place(Problem("training.steps", "x"), other.origin)) == "--set training.steps=20: training.steps: x"


def test_a_changed_copy_knows_what_was_not_changed(scenario: Scenario) -> None:
    other = scenario.replace("training.steps", 20)
    assert str(at_its_place(Problem("training.steps", "x"), other.origin)) == "training.steps: x"
    assert str(at_its_place(Problem("failures.1.mtbf", "x"), other.origin)) == "f.yaml:11:37: failures.1.mtbf: x"


def test_where_it_was_written_is_no_part_of_a_scenario(scenario: Scenario) -> None:
    again = Scenario.model_validate(scenario.data())
    assert again == scenario
    assert again.sha256 == scenario.sha256
    assert pickle.loads(pickle.dumps(scenario)) == scenario


@pytest.mark.parametrize("kind", [InputError, DoesNotFit, PluginError])
def test_the_error_stays_the_one_that_was_raised(scenario: Scenario, kind: type[ClusterSimError]) -> None:
    raised = kind(Problem("training.steps", "x"))  # type: ignore[arg-type]
    with pytest.raises(kind) as caught, places_of(scenario):
        raise raised
    assert caught.value is raised
    assert str(raised) == "f.yaml:6:10: training.steps: x"
    assert str(pickle.loads(pickle.dumps(raised))) == str(raised)


def test_other_errors_pass(scenario: Scenario) -> None:
    @tells_places
    def no(scenario: Scenario, more: int) -> None:
        raise NegativeAnswer(f"training.steps: {more}")

    with pytest.raises(NegativeAnswer, match=r"^training.steps: 3$"):
        no(scenario, more=3)


def test_places_of_every_value_survive_another_spelling(scenario: Scenario) -> None:
    """Each value that was written keeps its place in the tree of the scenario's data."""
    from clustersim.scenario.tree import Place, from_plain

    tree = placed_like(from_plain(scenario.model_dump(mode="json", exclude_unset=True), Place(None)), scenario.origin.tree)
    for path in ("training.steps", "failures.1.mtbf", "failures.0.name", "cluster.node.nics", "cluster.nodes"):
        told = at_its_place(Problem(path, "x"), Origin(tree))
        assert told == at_its_place(Problem(path, "x"), scenario.origin)
        assert told.line is not None


def test_no_tree_no_places() -> None:
    from clustersim.scenario.tree import Place

    node = Node(1, Place(None))
    assert placed_like(node, None) is node
