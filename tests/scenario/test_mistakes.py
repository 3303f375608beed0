"""Every way in which a file can be wrong: a sentence at its place, quickly, and never a traceback."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.errors import InputError
from clustersim.scenario.load import load
from clustersim.scenario.read import parse_tree

SMALL = """\
model: llama3-8b
cluster: {nodes: 1, node: dgx-h100, storage: tectonic}
training: {seq_len: 4096, global_batch: 64, steps: 10}
"""
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(20)
)

WHOLE_FILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty; `clustersim init` writes"),
    "comments alone": (b"# nothing\n", "the file is empty"),
    "a list": (b"- 1\n", "f.yaml:1:1: must be a mapping (key: value), not a list"),
    "a word": (b"hello\n", "f.yaml:1:1: must be a mapping (key: value), not a single value"),
    "a tab": (b"model:\n\tname: x\n", "f.yaml:2:1: a tab stands here; YAML indents with spaces"),
    "UTF-16": (SMALL.encode("utf-16"), "f.yaml:1:1: byte 0xff is no UTF-8"),
    "Latin-1": (b"name: x\ndescription: caf\xe9\n", "f.yaml:2:17: byte 0xe9 is no UTF-8"),
    "NUL": (b"name: a\x00b\n", "f.yaml:1:8: the control character #x00"),
    "a program": (b"\x7fELF\x02\x01\x01\x00", "control character"),
    "an open quote": (b"name: 'abc\n", "a quote is opened and never closed"),
    "two colons": (b"name: a: b\n", "f.yaml:1:8: a ': ' too many"),
    "bad indentation": (b"a:\n  b: 1\n c: 2\n", "f.yaml:3:2: the indentation fits no line above"),
    "an open list": (b"a: [1, 2\n", "the closing ']' of a list is missing"),
    "an open mapping": (b"a: {b: 2\n", "the closing '}' of a mapping is missing"),
    "two documents": (SMALL.encode() + b"---\n" + SMALL.encode(), "f.yaml:4:1: the file holds a second document"),
    "an unknown anchor": (b"name: *x\n", "f.yaml:1:7: '*x' refers to an anchor that is nowhere above"),
    "an at sign": (b"name: @x\n", "f.yaml:1:7: a value cannot start with '@'; quote it"),
    "deep braces": (b"{" * 100_000, "nested too deeply"),
    "deep lists": (b"a: " + b"[" * 60 + b"]" * 60, "is nested deeper than 50 levels"),
    "deep blocks": (b"".join(b" " * i + b"a:\n" for i in range(300)), "nested"),
    "a bomb": (BOMB.encode(), "holds more than 20,000 values, anchors expanded"),
    "an anchor in itself": (b"a: &a [*a]\n", "is nested deeper than 50 levels"),
    "many values": (b"a: [" + b"1," * 100_000 + b"1]\n", "holds more than 40,000 lines and list entries"),
    "too large": (b"#" * 300_000, "is larger than 256 KiB"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "words"), WHOLE_FILE.values(), ids=WHOLE_FILE)
def test_what_cannot_be_read(content: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_bytes(content)
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        load("f.yaml")
    assert time.process_time() - start < 3.0  # a hundred times what it takes, and far below what the parser would need
    assert words in str(caught.value)
    assert str(caught.value).startswith("f.yaml")


ONE_VALUE: dict[str, tuple[str, str]] = {
    "a key twice": ("model: x\n", "f.yaml:4:1: model: stands twice (first on line 1); keep one"),
    "infinity": ("simulation: {seed: .inf}\n", "f.yaml:4:20: simulation.seed: '.inf' is not a finite number"),
    "1e999": ("simulation: {seed: 1e999}\n", "simulation.seed: '1e999' is not a finite number"),
    "NaN": ("simulation: {seed: .nan}\n", "simulation.seed: '.nan' is not a finite number"),
    "5,000 digits": (f"simulation: {{seed: {'9' * 5000}}}\n", "simulation.seed"),
    "20 digits": ("simulation: {seed: 99999999999999999999}\n", "simulation.seed: '99999999999999999999' is out of all range"),
    "a negative duration": ("repair: {time: -5 h}\n", "f.yaml:4:16: repair.time: -5 h must be at least 0"),
    "no unit": ("repair: {time: 5}\n", "f.yaml:4:16: repair.time: 5 needs a unit (y, d, h, min, s, ms, us, ns)"),
    "a Python tag": ("name: !!python/object/apply:os.system [ls]\n", "f.yaml:4:7: name: has the tag '!!python/object/apply:os.system'"),
    "another tag": ("name: !secret x\n", "f.yaml:4:7: name: has the tag '!secret'; tags are not allowed"),
    "a set": ("name: !!set {a, b}\n", "has the tag '!!set'"),
    "a date": ("name: 2024-01-01\n", "f.yaml:4:7: name: '2024-01-01' reads as a date"),
    "a number for a key": ("1: 2\n", "f.yaml:4:1: a key must be a word, and '1' is not"),
    "a list for a key": ("? [1]\n: 2\n", "a key must be a word, and a list or mapping is not"),
    "another version": ("version: 2\n", "f.yaml:4:10: version: must be 1, not 2"),
    "a misspelt key": ("checkpiont: none\n", "f.yaml:4:1: checkpiont: there is no key 'checkpiont' here; did you mean 'checkpoint'?"),
    "a misspelt engine": ("checkpoint: {engine: asinc}\n", "f.yaml:4:22: checkpoint.engine: there is no checkpoint engine 'asinc'; did you mean 'async'?"),
    "a misspelt bare engine": ("checkpoint: asinc\n", "f.yaml:4:13: checkpoint: there is no checkpoint engine 'asinc'"),
    "a key of a part": ("checkpoint: {engine: async, intervall: 5 min}\n", "f.yaml:4:29: checkpoint.intervall: there is no key 'intervall' here; did you mean 'interval'?"),
    "a key inside the engine": ("checkpoint: {engine: {kind: async, intervall: 5 min}}\n", "f.yaml:4:36: checkpoint.engine.intervall: there is no key"),
    "a value inside the engine": ("checkpoint: {engine: {kind: async, final: 5 min}}\n", "f.yaml:4:43: checkpoint.engine.final: must be true or false, not '5 min'"),
    "a short form's value": ("failures: [{name: a, mtbf: 3 h, detection: 3}]\n", "f.yaml:4:44: failures.0.detection: 3 needs a unit"),
    "a misspelt strategy": ("recovery: {strategy: restrat}\n", "f.yaml:4:22: recovery.strategy: there is no recovery strategy 'restrat'; did you mean 'restart'?"),
    "a stage": ("recovery: {strategy: restart, stages: {start: 60}}\n", "recovery.stages.start: 60 needs a unit"),
    "a preset of failures": ("failures: llama3\n", "f.yaml:4:11: failures: there is no 'llama3' among the failures; did you mean 'llama3-h100'?"),
    "failures that are a mapping": ("failures: {a: 1}\n", "f.yaml:4:11: failures: must be a list, not a mapping"),
    "a fraction for a count": ("simulation: {replicas: 1.5}\n", "simulation.replicas: 1.5 is not a whole number"),
    "true for a count": ("simulation: {replicas: true}\n", "simulation.replicas: must be a number, not true"),
    "text for a number": ("simulation: {replicas: many}\n", "simulation.replicas: 'many' is not a whole number"),
    "a scalar for a block": ("simulation: 5\n", "f.yaml:4:13: simulation: must be a mapping (key: value), not 5"),
    "null for a block": ("simulation:\n", "simulation: must be a mapping (key: value), not null"),
    "a number for text": ("description: 5\n", "description: must be text, not 5; quote it if it is meant"),
    "a misspelt schedule": ("parallelism: {schedule: 1f2b}\n", "f.yaml:4:25: parallelism.schedule: there is no schedule '1f2b'; did you mean '1f1b'?"),
    "a schedule's key": ("parallelism: {schedule: {kind: 1f1b, sliced: 3}}\n", "parallelism.schedule.sliced: there is no key 'sliced'"),
    "a choice": ("recovery: {strategy: restart}\nrepair: {crews: 0}\n", "f.yaml:5:17: repair.crews: 0 must be greater than 0"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "words"), ONE_VALUE.values(), ids=ONE_VALUE)
def test_what_is_wrong_in_a_file(line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_text(SMALL + line)
    with pytest.raises(InputError) as caught:
        load("f.yaml")
    assert words in str(caught.value), str(caught.value)
    assert "Input should" not in str(caught.value)


def test_every_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_text(
        "modell: llama3-8b\n"
        "cluster:\n"
        "  nodes: -4\n"
        "  node: {preset: dgx-h100, gpu: {power: 500}}\n"
        "  storage: {kind: shared-filesystem, write_bandwidth: 2 TBs, read_bandwidth: 400 gbps}\n"
        "training: {seq_len: 4096, global_batch: 512, duration: 35 mins, precision: bf61}\n"
        "parallelism: {tp: 3.5, schedule: 1f2b}\n"
        "checkpoint:\n"
        "  engine: asinc\n"
        "  interval: 10\n"
        "failures: [{name: x, mtbf: .inf, detection: 3}, {mtbf: 3 h, severity: nod}]\n"
    )
    with pytest.raises(InputError) as caught:
        load("f.yaml")
    assert {problem.path for problem in caught.value.problems} == {
        "modell", "model", "cluster.nodes", "cluster.node.gpu.power", "cluster.storage.write_bandwidth",
        "cluster.storage.read_bandwidth", "training.duration", "training.precision", "parallelism.tp",
        "parallelism.schedule", "checkpoint.engine", "checkpoint.interval", "failures.0.mtbf", "failures.0.detection",
        "failures.1.severity",
    }  # fmt: skip
    places = [(problem.line, problem.column) for problem in caught.value.problems]
    assert places == sorted(places)
    assert len(caught.value.problems) == 15
    assert all(problem.line for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("name", "words"),
    [("nope.yaml", "there is no such file"), (".", "is a directory"), ("/dev/zero", "is larger than 256 KiB"),
     ("a\x00b", "cannot be read"), ("f.yaml/x", "cannot be read"), ("x" * 5000, "cannot be read"), ("", "is no name of a file")],
)  # fmt: skip
def test_names_that_are_no_file(name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_text(SMALL)
    with pytest.raises(InputError, match=words):
        load(name)


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(SMALL)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root may read everything")
    with pytest.raises(InputError, match="Permission denied"):
        load(path)


def test_a_hundred_megabytes_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)  # sparse
    start = time.process_time()
    with pytest.raises(InputError, match="is larger than 256 KiB"):
        load(path)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    "text",
    [SMALL.replace("\n", "\r\n"), "\ufeff" + SMALL, SMALL + "name: yes\ndescription: no\n", SMALL + "name: &n x\ndescription: *n\n",
     SMALL + "simulation: {seed: 1e3}\n", SMALL + "simulation: &s {seed: 3}\nfailures: null\n",
     SMALL.replace("{nodes: 1", "{<<: {nodes: 1}"), "%YAML 1.2\n---\n" + SMALL, SMALL + "...\n"],
    ids=["CRLF", "BOM", "yes and no", "anchor", "1e3", "null failures", "merge key", "directive", "end mark"],
)  # fmt: skip
def test_what_is_right_though_it_looks_odd(text: str, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(text.encode())
    assert load(path).cluster.gpus == 8


@given(text=st.text(alphabet=st.sampled_from("ab:-[]{}&*!#|>'\"%@` \n\t,.01~<"), max_size=60))
def test_any_text_is_a_tree_or_an_input_error(text: str) -> None:
    try:
        parse_tree(text, "f.yaml", None)
    except InputError as error:
        assert error.problems


@given(data=st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
                         lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
                             ["model", "cluster", "training", "nodes", "node", "kind", "preset", "engine", "failures", "tp"]),
                             inner, max_size=4), max_leaves=12))  # fmt: skip
def test_any_data_is_a_scenario_or_an_input_error(data: object) -> None:
    with pytest.raises(InputError):
        load(data if isinstance(data, dict) else {"model": data})
