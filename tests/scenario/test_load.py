"""Loading: the contract's file unchanged, extends, --set, plug-ins, standard input, paths."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.distributions import Distribution
from clustersim.errors import InputError
from clustersim.scenario.load import load

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SMALL = """\
model: llama3-8b
cluster: {nodes: 1, node: dgx-h100, storage: tectonic}
training: {seq_len: 4096, global_batch: 64, steps: 10}
"""
Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file into an empty folder, which is the current one; returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Distribution, "kinds", dict(Distribution.kinds))  # what a plug-in defines goes away again

    def make(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    return make


def lines(*arguments: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(*arguments)
    return str(caught.value).splitlines()


def test_the_contract_s_scenario_loads_with_every_value_as_written() -> None:
    scenario = load(SCENARIOS / "llama3-405b-16k.yaml")
    assert scenario.name == "llama3-405b-16k"
    assert (scenario.cluster.gpus, scenario.dp, scenario.microbatches) == (16384, 128, 16)
    assert scenario.cluster.spare_nodes == 64
    assert scenario.cluster.network.kind == "fat-tree"
    assert scenario.training.duration == 54 * 86400
    assert scenario.parallelism.schedule.kind == "interleaved-1f1b"
    assert scenario.parallelism.virtual_stages == 8
    assert scenario.checkpoint.kind == "async"
    assert len(scenario.failures) == 19
    assert scenario.recovery.kind == "restart"
    assert list(scenario.recovery.stages) == ["diagnose", "reschedule", "start", "communicators", "warm_up"]
    assert scenario.repair.crews == 64
    assert scenario.repair.time.mean_s() == pytest.approx(133 * 3600)
    assert (scenario.simulation.replicas, scenario.simulation.seed) == (20, 0)
    assert scenario.plugins == ()


@pytest.mark.parametrize("path", sorted(SCENARIOS.rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_scenario_loads(path: Path) -> None:
    load(path)


def test_defaults_make_a_small_file_enough(write: Write) -> None:
    scenario = load(write("a.yaml", SMALL))
    assert (scenario.dp, scenario.microbatches, scenario.checkpoint.kind, scenario.failures) == (8, 8, "none", ())


def test_plain_data_from_python_is_si() -> None:
    scenario = clustersim.load(
        {"model": "llama3-8b", "cluster": {"nodes": 1, "node": "dgx-h100", "storage": "tectonic"},
         "training": {"seq_len": 4096, "global_batch": 64, "duration": 86400}}
    )  # fmt: skip
    assert scenario.training.duration == 86400.0


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SMALL.encode())))
    assert load("-").cluster.gpus == 8
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"model: 3\n")))
    assert lines("-")[0].startswith("<stdin>:1:")


class TestExtends:
    def test_later_override_earlier_and_this_file_overrides_all(self, write: Write) -> None:
        write("base.yaml", SMALL + "name: base\nsimulation: {replicas: 5, seed: 1}\ncheckpoint: {engine: async, interval: 5 min}\n")
        write("more.yaml", "name: more\nsimulation: {replicas: 6}\n")
        scenario = load(write("top.yaml", "extends: [base.yaml, more.yaml]\nsimulation: {seed: 9}\ncheckpoint: {final: true}\n"))
        assert (scenario.name, scenario.simulation.replicas, scenario.simulation.seed) == ("more", 6, 9)
        assert scenario.checkpoint.kind == "async"
        assert scenario.checkpoint.final is True

    def test_lists_replace(self, write: Write) -> None:
        write("base.yaml", SMALL + "failures:\n  - {name: a, mtbf: 5 y}\n  - {name: b, mtbf: 5 y}\n")
        scenario = load(write("top.yaml", "extends: base.yaml\nfailures: [{name: c, mtbf: 1 y}]\n"))
        assert [failure.name for failure in scenario.failures] == ["c"]

    def test_a_mapping_on_a_preset_s_name_changes_single_values(self, write: Write) -> None:
        write("base.yaml", SMALL)
        scenario = load(write("top.yaml", "extends: base.yaml\nmodel: {layers: 30}\ncluster: {node: {gpu: {power: 500 W}}}\n"))
        assert (scenario.model.layers, scenario.model.hidden) == (30, 4096)
        assert scenario.cluster.node.gpu.power == 500.0

    def test_another_kind_replaces(self, write: Write) -> None:
        write("base.yaml", SMALL + "checkpoint: {engine: {kind: async, stall: 3 s}, interval: 5 min}\n")
        scenario = load(write("top.yaml", "extends: base.yaml\ncheckpoint: {engine: {kind: sync}}\n"))
        assert scenario.checkpoint.kind == "sync"

    def test_paths_are_relative_to_the_naming_file(self, write: Write) -> None:
        write("shared/base.yaml", SMALL + "name: base\n")
        write("shared/mid.yaml", "extends: base.yaml\ndescription: mid\n")
        scenario = load(write("jobs/top.yaml", "extends: ../shared/mid.yaml\n"))
        assert (scenario.name, scenario.description) == ("base", "mid")

    def test_errors_point_into_the_file_that_holds_the_value(self, write: Write) -> None:
        write("shared/base.yaml", SMALL + "simulation: {replicas: 0}\n")
        found = lines(write("top.yaml", "extends: shared/base.yaml\nnaem: x\n"))
        assert found == [
            "shared/base.yaml:4:24: simulation.replicas: 0 must be greater than 0",
            "top.yaml:2:1: naem: there is no key 'naem' here; did you mean 'name'?",
        ]

    @pytest.mark.parametrize(("files", "words"), [
        ({"a.yaml": "extends: a.yaml\n"}, "in a circle: a.yaml -> a.yaml"),
        ({"a.yaml": "extends: b.yaml\n", "b.yaml": "extends: [c.yaml]\n", "c.yaml": "extends: a.yaml\n"},
         "in a circle: a.yaml -> b.yaml -> c.yaml -> a.yaml"),
        ({"a.yaml": "extends: b.yaml\n", "b.yaml": "extends: sub/../b.yaml\n", "sub/x": ""}, "in a circle"),
        ({"a.yaml": "extends: bas.yaml\n", "base.yaml": SMALL}, "a.yaml:1:10: extends: 'bas.yaml': there is no such file; did you mean 'base.yaml'?"),
        ({"a.yaml": "extends: [3]\n"}, "must name YAML files"),
        ({"a.yaml": "extends: .\n"}, "is a directory"),
        ({"a.yaml": "extends: b.yaml\n", "b.yaml": "- 1\n"}, "b.yaml:1:1: must be a mapping"),
    ])  # fmt: skip
    def test_what_goes_wrong(self, write: Write, files: dict[str, str], words: str) -> None:
        for name, text in files.items():
            write(name, text)
        found = lines("a.yaml")
        assert any(words in line for line in found)
        assert not any("is missing" in line for line in found), "it may stand in the file that could not be read"

    def test_a_diamond_is_no_cycle(self, write: Write) -> None:
        write("root.yaml", SMALL)
        write("left.yaml", "extends: root.yaml\nname: left\n")
        write("right.yaml", "extends: root.yaml\nname: right\n")
        assert load(write("top.yaml", "extends: [left.yaml, right.yaml]\n")).name == "right"


class TestSet:
    @pytest.mark.parametrize(("option", "path", "value"), [
        ("simulation.replicas=7", "simulation.replicas", 7),
        ("checkpoint.interval=20min", "checkpoint.interval.time", 1200.0),
        ("checkpoint.engine=sync", "checkpoint.kind", "sync"),
        ("checkpoint=sync", "checkpoint.kind", "sync"),
        ("cluster.node.gpu.power=500 W", "cluster.node.gpu.power", 500.0),
        ("cluster.node.gpu=h200", "cluster.node.gpu.name", "NVIDIA H200 SXM5 141 GB"),
        ("parallelism={tp: 2, pp: 2}", "parallelism.pp", 2),
        ("training.seq_len= 8192 ", "training.seq_len", 8192),
        ("name=a=b", "name", "a=b"),
    ])  # fmt: skip
    def test_changes_one_value(self, write: Write, option: str, path: str, value: object) -> None:
        found: Any = load(write("a.yaml", SMALL + "checkpoint: {engine: async, interval: 5 min}\n"), [option])
        for step in path.split("."):
            found = getattr(found, step)
        assert found == value

    def test_entries_of_a_list_and_the_order_of_options(self, write: Write) -> None:
        name = write("a.yaml", SMALL + "failures: [{name: a, mtbf: 5 y}, {name: b, mtbf: 5 y}]\n")
        scenario = load(name, ["failures.1.mtbf=1y", "failures.1.mtbf=2y"])
        assert [failure.mtbf for failure in scenario.failures] == [5 * 365 * 86400.0, 2 * 365 * 86400.0]  # type: ignore[attr-defined]

    @pytest.mark.parametrize(("option", "line"), [
        ("training.seq_len", "--set training.seq_len: needs the form key.path=value"),
        ("=3", "--set =3: needs the form key.path=value"),
        ("a..b=3", "--set a..b=3: needs the form"),
        ("training.seq_len=abc", "--set training.seq_len=abc: training.seq_len: 'abc' is not a whole number"),
        ("repair.time=5", "--set repair.time=5: repair.time: 5 needs a unit"),
        ("simulation.replica=5", "--set simulation.replica=5: simulation.replica: there is no key 'replica' here; did you mean 'replicas'?"),
        ("simulation.replicas=[1", "--set simulation.replicas=[1: a ',' or the closing ']' of a list is missing"),
        ("training.seq_len.x=1", "has no keys"),
        ("simulation.seed=.nan", "simulation.seed: '.nan' is not a finite number"),
        ("name=!!python/object:os.system x", "tags are not allowed"),
    ])  # fmt: skip
    def test_errors_name_the_option(self, write: Write, option: str, line: str) -> None:
        assert any(line in item for item in lines(write("a.yaml", SMALL), [option]))

    def test_every_wrong_option_is_reported_with_the_file_s_errors(self, write: Write) -> None:
        found = lines(write("a.yaml", SMALL + "naem: x\n"), ["foo=1", "training.seq_len=x", "bad"])
        assert len(found) == 4


class TestPlugins:
    SOURCE = (
        "from clustersim.distributions import Distribution, Constant\n"
        "class Fixed(Constant, kind='{kind}'):\n    '''A plug-in.'''\n"
    )

    def test_a_module_beside_the_file(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "path", list(sys.path))
        write("jobs/plug_beside.py", self.SOURCE.format(kind="plug-beside"))
        text = SMALL + "plugins: [plug_beside]\nrepair: {time: {kind: plug-beside, value: 3 h}}\n"
        scenario = load(write("jobs/a.yaml", text))
        assert scenario.repair.time.kind == "plug-beside"
        assert scenario.plugins == ("plug_beside",)
        assert load(write("res.yaml", scenario.resolved())) == scenario

    def test_plug_ins_of_all_files_add_up(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "path", list(sys.path))
        write("plug_low.py", self.SOURCE.format(kind="plug-low"))
        write("plug_top.py", self.SOURCE.format(kind="plug-top"))
        write("base.yaml", SMALL + "plugins: [plug_low]\nrepair: {time: {kind: plug-low, value: 3 h}}\n")
        scenario = load(write("top.yaml", "extends: base.yaml\nplugins: [plug_top]\n"))
        assert scenario.plugins == ("plug_low", "plug_top")

    @pytest.mark.parametrize(("source", "name", "words"), [
        (None, "no_such_module", "there is no module 'no_such_module', neither installed nor beside this file"),
        (None, "os; import x", "is no name of a Python module"),
        ("import no_such_thing\n", "plug_imports", "imports 'no_such_thing', which is not installed"),
        ("1 / 0\n", "plug_zero", "cannot be imported: ZeroDivisionError"),
        ("def f(:\n", "plug_syntax", "cannot be imported: SyntaxError"),
        ("from clustersim.distributions import Constant\nclass X(Constant, kind='uniform'): ...\n", "plug_taken",
         "two distribution parts are called 'uniform'"),
    ])  # fmt: skip
    def test_what_goes_wrong(self, write: Write, monkeypatch: pytest.MonkeyPatch, source: str | None, name: str, words: str) -> None:
        monkeypatch.setattr(sys, "path", list(sys.path))
        if source is not None:
            write(f"{name}.py", source)
        found = lines(write("a.yaml", f"plugins: ['{name}']\n" + SMALL))
        assert found[0].startswith("a.yaml:1:11: plugins.0: ")
        assert words in found[0]


def test_calibration_profile_from_a_file_relative_to_the_naming_one(write: Write) -> None:
    write("profiles/p.yaml", "name: measured\nclock: 0.9\n")
    write("base/b.yaml", SMALL + "calibration: ../profiles/p.yaml\n")
    scenario = load(write("top.yaml", "extends: base/b.yaml\n"))
    assert scenario.calibration is not None
    assert (scenario.calibration.name, scenario.calibration.clock) == ("measured", 0.9)
    assert "there is no such file" in lines(write("bad.yaml", SMALL + "calibration: nope.yaml\n"))[0]
    write("wrong.yaml", "clock: fast\n")
    assert "bad2.yaml:4:14: calibration: " in lines(write("bad2.yaml", SMALL + "calibration: wrong.yaml\n"))[0]


def test_an_op_list_is_found_beside_the_file_that_names_it(write: Write) -> None:
    write("base/ops.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    write("base/b.yaml", SMALL + "parallelism: {pp: 2, schedule: {kind: csv, file: ops.csv}}\n")
    top = write("top.yaml", "extends: base/b.yaml\ntraining: {global_batch: 8}\n")
    scenario = load(top)
    assert scenario.microbatches == 2
    assert load(write("elsewhere/resolved.yaml", scenario.resolved())) == scenario
    write("base/ops.csv", "0F0,0X1\n")
    assert any("ops.csv:1:2: " in line for line in lines(top))
    found = lines(write("bad.yaml", SMALL + "parallelism: {pp: 2, schedule: {kind: csv, file: nope.csv}}\n"))
    assert found[0].startswith("bad.yaml:4:32: parallelism.schedule: ")
