"""Any value in any place of a scenario: a valid scenario or lines that name the place, never another exception."""

from __future__ import annotations

import copy
import math
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from clustersim.errors import ClusterSimError, InputError
from clustersim.run.simulate import simulate
from clustersim.scenario.load import load
from clustersim.scenario.starter import starter_text
from clustersim.study.step import step

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 1.5, 1e300, -1e300, 10**17, 1e-300, "", " ", "x", "none", "auto", "0 s", "-5 s", "1 ns",
    "1e9 y", "1 min", "1 GiB", "1 GB/s", "10 Gb", "1e-9 B/s", "ünïcödé ☃", "\u202e", [], [1], ["a"], {}, {"kind": "x"},
    {"preset": "x"}, {"preset": None}, {"preset": ["a"]}, {"kind": None}, {"kind": ["a"]}, {"kind": {"a": 1}}, {"a": 1},
    [[]], [{}], [None], "a" * 300, {"kind": "none"}, {"steps": 0}, {"steps": 1}, "{}", "{text}", {"engine": {"kind": []}},
)  # fmt: skip
EACH = 8
"""Values tried in one place; drawn anew for each, so that over all places every value comes up often."""


def starter() -> dict[str, Any]:
    from ruamel.yaml import YAML

    data: dict[str, Any] = YAML(typ="safe", pure=True).load(starter_text())
    return data


def full(changes: Sequence[str] = ()) -> dict[str, Any]:
    """The starter with all presets and defaults written out."""
    from ruamel.yaml import YAML

    text = load(starter(), ["training.tokens=2e9", *changes]).resolved()
    data: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return data


def places(data: Any, path: tuple[int | str, ...] = ()) -> Iterator[tuple[int | str, ...]]:
    if path:
        yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def put(data: Any, path: tuple[int | str, ...], value: Any) -> Any:
    changed = copy.deepcopy(data)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@pytest.mark.parametrize("block", sorted(starter()))
def test_any_value_anywhere(block: str) -> None:
    data = starter()
    for path in places(data):
        if path[0] != block:
            continue
        for value in random.Random(str(path)).sample(HOSTILE, EACH):
            try:
                load(put(data, path, value))
            except InputError as error:
                for problem in error.problems:
                    text = str(problem)
                    assert problem.message, f"{path} = {value!r} says nothing"
                    for slip in ("Input should", "Traceback", "pydantic", "'NoneType'", "unhashable", "None"):
                        assert slip not in text, f"{path} = {value!r}: {text}"


USED = {
    "saves to disk": ["checkpoint={engine: multi-level, local: disk, flush_every: 4}", "training.power_cap=500 W"],
    "moved to the host": ["training.offload={optimizer: cpu, activations: 0.5}", "checkpoint.engine=datastates"],
    "moved to disk": [
        "training.offload={optimizer: nvme, parameters: nvme}",
        "parallelism.zero=3",
        "checkpoint.engine=gemini",
    ],
}
"""What uses the quantities of a scenario that a plain one has for nothing."""


@pytest.mark.parametrize("used", USED)
def test_nothing_of_a_quantity_is_refused_or_reckoned_with(used: str) -> None:
    # A rate of 0 is a divisor of 0 wherever something is moved or computed at it.
    data = full(USED[used])
    wrong = []
    for path in places(data):
        value = data
        for key in path:
            value = value[key]
        unit = re.fullmatch(r"[0-9.]+ (\S+)", value) if isinstance(value, str) else None
        if unit is None and type(value) is not float:
            continue
        try:
            scenario = load(put(data, path, f"0 {unit[1]}" if unit else 0.0))
            assert math.isfinite(step(scenario).step_time_s)
            assert 0 <= simulate(scenario, replica=0).ettr <= 1
        except ClusterSimError:
            continue
        except Exception as error:
            wrong.append((path, repr(error)))
    assert not wrong


@pytest.mark.parametrize(("path", "value", "words"), [
    ("extends", "base.yaml", "stands in a file"),
    ("cluster.spare_nodes", 10**11, "must be at most"),
    ("cluster.nodes", 10**9, "must be at most"),
    ("training.global_batch", 4 * 10**16, "is not replayed"),
    ("parallelism.schedule", "{kind: seq1f1b, slices: 100000}", "and 100,000 slices: a step of more than 1,000,000"),
    ("cluster.node.gpu.efficiency.gemm.bf16", 74, "must be at most 1"),
    ("cluster.node.gpu.efficiency.gemm.bf16", "true", "must be a number, not true"),
])  # fmt: skip
def test_what_cannot_be_set_is_refused_at_once(path: str, value: object, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load(starter(), [f"{path}={value}"])
    assert caught.value.problems[0].path == path


def test_a_trace_that_is_not_there_or_is_no_log_is_an_error_of_the_scenario(tmp_path: Any) -> None:
    (tmp_path / "bad.csv").write_text("node,start_s,end_s\na,5,2\nb,x,3\nc,-1,2\n")
    (tmp_path / "instant.csv").write_text("node,start_s,end_s\na,0,0\n")
    for name, words in (("nope.csv", "there is no such file"), ("instant.csv", "watches no time"), ("bad.csv", "ends 3 s before its start")):
        with pytest.raises(InputError, match=words) as caught:
            load(starter(), [f"failures=[{{kind: trace, file: {tmp_path / name}}}]"])
        assert caught.value.problems[0].path == "failures.0.file"


@pytest.mark.parametrize("distribution", ["weibull", "gamma", "lognormal"])
@pytest.mark.parametrize("shape", [1e-300, 1e-5, 0.01, 50.0, 1e300])
def test_shapes_beyond_the_range_of_a_float_are_refused(distribution: str, shape: float) -> None:
    cause = {"component": "node", "mtbf": "1 h", "distribution": distribution, "shape": shape}
    if shape == 50.0 and distribution != "lognormal":
        return
    with pytest.raises(InputError, match=r"shape"):
        load({**starter(), "failures": [cause]})


@pytest.mark.parametrize(("end", "value"), [("steps", 10**15), ("tokens", 1e22), ("duration", "100000 y")])
def test_a_run_of_a_million_years_is_a_slip_of_the_pen(end: str, value: Any) -> None:
    from clustersim.run.simulate import prepare

    data = starter()
    data["training"] = {
        key: item for key, item in data["training"].items() if key not in ("steps", "tokens", "duration")
    }
    scenario = load({**data, "training": {**data["training"], end: value}})
    with pytest.raises(InputError, match=f"training.{end}: makes a run of"):
        prepare(scenario, 1.0)


def test_a_plug_in_that_ends_the_program_does_not(tmp_path: Any) -> None:
    (tmp_path / "leaves_at_once.py").write_text("raise SystemExit(7)\n")
    path = tmp_path / "f.yaml"
    path.write_text("plugins: [leaves_at_once]\n" + starter_text())
    with pytest.raises(InputError, match="cannot be imported"):
        load(str(path))
