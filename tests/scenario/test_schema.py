"""The JSON Schema: fresh, each definition once, accepting what the loader accepts and refusing what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from clustersim.part import Part
from clustersim.scenario.json_schema import scenario_schema
from clustersim.scenario.load import load
from clustersim.scenario.starter import starter_text

FOLDER = Path(__file__).parents[2] / "scenarios"
SCHEMA = scenario_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def read(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path)


def merged(path: Path) -> Any:
    """A file as written, over those that it extends: what it leaves to them may be required."""

    def over(below: Any, above: Any) -> Any:
        if not (isinstance(below, dict) and isinstance(above, dict)):
            return above
        return {**below, **{key: over(below.get(key), value) for key, value in above.items()}}

    written, result = read(path), {}
    for name in written.get("extends", []):
        result = over(result, merged(path.parent / name))
    return over(result, written)


def test_the_shipped_file_is_fresh() -> None:
    """In a process of its own: other tests define parts, which are in the schema of this one."""
    fresh = subprocess.run([sys.executable, "-m", "clustersim", "schema"], capture_output=True, check=True).stdout
    assert (FOLDER / "schema.json").read_bytes() == fresh, "run `make schema`"


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def defaults(node: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path, what is taken and default of every property."""
    if isinstance(node, list):
        for item in node:
            yield from defaults(item, path)
    if isinstance(node, dict):
        for key, item in node.get("properties", {}).items():
            if "default" in item:
                yield f"{path}.{key}", {name: part for name, part in item.items() if name != "default"}, item["default"]
        for key, item in node.items():
            yield from defaults(item, path if key in ("anyOf", "items") else f"{path}.{key}")


def test_every_default_may_be_written_as_it_is_told() -> None:
    # An editor offers it, and the reference shows it: a quantity has its unit there.
    refused = {
        path: default
        for path, taken, default in defaults(SCHEMA)
        if not VALIDATOR.evolve(schema={**taken, "$defs": SCHEMA["$defs"]}).is_valid(default)
    }
    assert not refused


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()


def test_every_definition_stands_once_and_is_used() -> None:
    used = {ref.removeprefix("#/$defs/") for ref in references(SCHEMA)}
    assert used == set(SCHEMA["$defs"])
    assert "x-family" not in json.dumps(SCHEMA)
    assert not any("$defs" in definition for definition in SCHEMA["$defs"].values())


def test_one_branch_a_part() -> None:
    for name, family in Part.families.items():
        slug = name.replace(" ", "-")
        if slug in SCHEMA["$defs"]:
            branches = {ref.split(".", 1)[1] for ref in references(SCHEMA["$defs"][slug]["anyOf"]) if f"/{slug}." in ref}
            assert branches == {kind for kind in family.known_kinds() if kind in branches or family.kinds[kind].__module__.startswith("clustersim.")}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.yaml")), ids=lambda p: p.stem)
def test_scenarios_fit_it_as_written_and_resolved(path: Path) -> None:
    VALIDATOR.validate(merged(path))
    VALIDATOR.validate(json.loads(json.dumps(load(path).data())))


def test_the_starter_fits_it_and_loads(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(starter_text(), encoding="utf-8")
    VALIDATOR.validate(read(path))
    load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"naem": "x"},
        {"checkpoint": {"engine": "asinc"}},
        {"checkpoint": {"engine": "async", "interval": 5}},
        {"repair": {"time": "5 hours"}},
        {"model": "llama3-8c"},
        {"simulation": {"replicas": 0}},
        {"failures": [{"name": "x", "mtbf": "3 h", "severity": "nod"}]},
        {"parallelism": {"schedule": "1f2b"}},
        {"training": {"seq_len": 4096}},
    ],
)
def test_it_refuses_what_the_loader_refuses(change: dict[str, Any]) -> None:
    data = read(FOLDER / "8-gpus-8b.yaml") | change
    assert not VALIDATOR.is_valid(data)
