"""The scenario object: resolved YAML reads back to an equal scenario, hashes, replace, pickling, HTML."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.errors import InputError
from clustersim.part import preset_names
from clustersim.scenario.load import load
from clustersim.scenario.schema import Scenario

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").rglob("*.yaml"))
MAIN = next(path for path in SCENARIOS if path.stem == "llama3-405b-16k")


def reloaded(scenario: Scenario, folder: Path) -> Scenario:
    path = folder / "resolved.yaml"
    path.write_text(scenario.resolved(), encoding="utf-8")
    return load(path)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_resolved_reads_back_to_an_equal_scenario(path: Path, tmp_path: Path) -> None:
    scenario = load(path)
    back = reloaded(scenario, tmp_path)
    assert back == scenario
    assert back.sha256 == scenario.sha256
    assert "preset" not in scenario.resolved()


QUANTITY = st.floats(min_value=1e-3, max_value=1e9).map(lambda value: f"{value!r} s")
DURATIONS = st.one_of(
    QUANTITY,
    st.builds(lambda mean: {"kind": "exponential", "mean": mean}, QUANTITY),
    st.builds(lambda median, sigma: {"kind": "lognormal", "median": median, "sigma": sigma}, QUANTITY, st.floats(0, 3)),
    st.builds(lambda mean, shape: {"kind": "weibull", "mean": mean, "shape": shape}, QUANTITY, st.floats(0.3, 4)),
)
CAUSES = st.builds(
    lambda name, mtbf, detection, severity, planned: {
        "name": name, "mtbf": mtbf, "detection": detection, "severity": severity, "planned": planned},
    st.text(max_size=12), QUANTITY, DURATIONS, st.sampled_from(["process", "gpu", "node", "rack", "cluster"]), st.booleans(),
)  # fmt: skip
JOBS = st.fixed_dictionaries(
    {
        "name": st.text(max_size=20),
        "description": st.text(max_size=40),
        "model": st.sampled_from(["llama3-8b", "llama2-7b", {"preset": "llama3-8b", "layers": 16}]),
        "cluster": st.fixed_dictionaries({
            "nodes": st.integers(1, 64), "spare_nodes": st.integers(0, 9), "node": st.sampled_from(["dgx-h100", "dgx-a100"]),
            "storage": st.sampled_from(["tectonic", {"kind": "object-store", "write_bandwidth": "3.3 GB/s", "read_bandwidth": "1 Gbit/s"}]),
        }),
        "training": st.fixed_dictionaries({
            "seq_len": st.sampled_from([1024, 2048]), "steps": st.integers(1, 10**9)}),
        "failures": st.lists(CAUSES, max_size=3),
        "repair": st.fixed_dictionaries({"crews": st.none() | st.integers(1, 9), "time": DURATIONS}),
        "simulation": st.fixed_dictionaries({"replicas": st.integers(1, 99), "seed": st.integers(0, 2**31)}),
    }
)  # fmt: skip


@settings(max_examples=15)
@given(data=JOBS)
def test_any_scenario_reads_back_to_an_equal_one(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    training = data["training"] | {"global_batch": 8 * data["cluster"]["nodes"]}
    scenario = load(data | {"training": training})
    assert reloaded(scenario, tmp_path_factory.getbasetemp()) == scenario


def test_the_hash_is_of_the_meaning_not_of_the_writing(tmp_path: Path) -> None:
    text = "model: llama3-8b\ncluster: {nodes: 1, node: dgx-h100, storage: tectonic}\ntraining: {seq_len: 4096, global_batch: 64, duration: 1 d}\n"
    other = "training:\n  duration: 24 h\n  global_batch: 64\n  seq_len: 4096\n  precision: bf16\nmodel: {preset: llama3-8b}\ncluster: {storage: tectonic, node: {preset: dgx-h100}, nodes: 1}\n"
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(other)
    first, second = load(tmp_path / "a.yaml"), load(tmp_path / "b.yaml")
    assert first == second
    assert first.sha256 == second.sha256
    assert first.sha256 != load(tmp_path / "a.yaml", ["training.duration=23h"]).sha256


class TestReplace:
    scenario = load(MAIN)

    def test_changes_one_value_and_leaves_the_original(self) -> None:
        changed = self.scenario.replace("checkpoint.interval", "20 min")
        assert changed.data()["checkpoint"]["interval"] == "20 min"
        assert self.scenario.data()["checkpoint"]["interval"] == "10 min"

    def test_a_bare_number_is_si(self) -> None:
        assert self.scenario.replace("checkpoint.interval", 600) == self.scenario

    def test_another_engine_keeps_the_keys_that_were_given(self) -> None:
        changed = self.scenario.replace("checkpoint.engine", "sync")
        assert changed.checkpoint.kind == "sync"
        assert changed.data()["checkpoint"]["interval"] == "10 min"

    def test_lists_and_presets(self) -> None:
        assert self.scenario.replace("failures.0.mtbf", "5 y").failures[0].mtbf == 5 * 365 * 86400.0  # type: ignore[attr-defined]
        assert self.scenario.replace("model.layers", 127).model.layers == 127
        assert self.scenario.replace("cluster.node.gpu", "h200").cluster.node.gpu.memory > 140e9

    def test_several_values_that_fit_only_together(self) -> None:
        changed = self.scenario.replace({"model": "llama3-70b", "parallelism.chunks": 5, "parallelism.tp": 8})
        assert (changed.model.layers, changed.parallelism.chunks) == (80, 5)

    def test_dp_follows_when_it_is_left_out(self) -> None:
        free = self.scenario.replace("parallelism.dp", None)
        assert free.replace("cluster.nodes", 1024).dp == 64

    @pytest.mark.parametrize(
        ("path", "value", "line"),
        [
            ("checkpoint.intervall", "20 min", "checkpoint.intervall: there is no key 'intervall' here; did you mean 'interval'?"),
            ("checkpoint.interval", "20 mins", "checkpoint.interval: 'mins' in '20 mins' is no unit of a duration; did you mean 'min'?"),
            ("parallelism.tp", 16, "parallelism.dp: tp 16 × pp 16"),
            ("failures.99.mtbf", 3, "failures.99: the list has the entries 0 to 18, and no '99'"),
            ("a.b", 1, "a: there is no key 'a' here"),
            ("name.x.y", 1, "name"),
            ("training.steps", 10, "training: needs exactly one of duration, steps and tokens"),
            ("cluster.network", "torsus", "cluster.network: there is no 'torsus' among the networks; did you mean 'torus'?"),
        ],
    )  # fmt: skip
    def test_errors_name_the_path(self, path: str, value: object, line: str) -> None:
        with pytest.raises(InputError) as caught:
            self.scenario.replace(path, value)
        told = caught.value.problems[0]
        assert str(told.at(None)).startswith(line)

    def test_what_is_wrong_elsewhere_is_shown_where_it_was_written(self) -> None:
        with pytest.raises(InputError) as caught:
            self.scenario.replace("parallelism.tp", 16)
        told = caught.value.problems[0]
        assert told.line is not None
        assert (told.file, told.path) == (str(MAIN), "parallelism.dp")
        assert MAIN.read_text().splitlines()[told.line - 1].strip().startswith("dp: 128")


def test_pickles() -> None:
    scenario = load(MAIN)
    assert pickle.loads(pickle.dumps(scenario)) == scenario


def test_html_for_notebooks_escapes() -> None:
    shown = load(MAIN).replace("description", "<script>")._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


@pytest.mark.parametrize("folder", ["gpus", "nodes", "networks", "storage", "models", "failures"])
def test_every_preset_can_be_named(folder: str) -> None:
    """Units are required in presets too: each is put where a scenario names it, as a file would."""
    where = {"gpus": "cluster.node.gpu", "nodes": "cluster.node", "networks": "cluster.network", "storage": "cluster.storage",
             "models": "model", "failures": "failures"}[folder]  # fmt: skip
    names = preset_names(folder)
    assert names
    for name in names:
        data: dict[str, Any] = {
            "model": "llama3-8b", "cluster": {"nodes": 1, "node": {"preset": "dgx-h100", "gpus": 1}, "storage": "tectonic"},
            "training": {"seq_len": 512, "global_batch": 144, "steps": 10},
        }  # fmt: skip
        load(data, [f"{where}={name}"])
