"""Writes the pages that follow from the program: the scenario reference, from the JSON Schema and the classes' docstrings.

    python docs/generate.py

A test holds that what is written is what would be written now.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

from clustersim.part import Block, Part
from clustersim.scenario.json_schema import scenario_schema
from clustersim.scenario.schema import Scenario

DOCS = Path(__file__).parent
HEAD = """# Scenario reference

Every key that a scenario may hold, generated from the program's own schema (`python docs/generate.py`). Durations, sizes
and rates carry units; see [scenarios](scenario.md) for how files are read. `clustersim list` shows the presets of each block
with their sources.
"""


def tidy(text: str | None) -> str:
    """A docstring's text as Markdown: double back-ticks single, lines joined."""
    plain = re.sub(r"``([^`]*)``", r"`\1`", inspect.cleandoc(text or ""))
    plain = re.split(r"\n\s*\n(?:Args|Attributes|Returns|Raises):", plain)[0]
    return plain.strip()


@functools.cache
def class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    """Statements of every class at the top of a module's file."""
    file = getattr(sys.modules[module], "__file__", None)
    tree = ast.parse(Path(file).read_text(encoding="utf-8")) if file else ast.Module([], [])
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


def field_notes(cls: type) -> dict[str, str]:
    """The string under each field of a class and of its bases, by field."""
    notes: dict[str, str] = {}
    for base in reversed([c for c in cls.__mro__ if issubclass(c, Block)]):
        body = class_bodies(base.__module__).get(base.__name__, [])
        for line, after in itertools.pairwise(body):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(after, ast.Expr):
                value = after.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    notes[line.target.id] = " ".join(tidy(value.value).split())
    return notes


def kind_of(data: dict[str, Any]) -> str:
    """What a property takes, in words."""
    if "$ref" in data:
        name = data["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{anchor(name)})"
    if "const" in data:
        return f"`{data['const']}`"
    if "enum" in data:
        shown = [f"`{value}`" for value in data["enum"]]
        return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")
    if "anyOf" in data:
        return " or ".join(dict.fromkeys(kind_of(one) for one in data["anyOf"]))
    if data.get("type") == "array":
        return f"list of {kind_of(data.get('items', {}))}"
    if data.get("examples"):
        return f"quantity, such as `{data['examples'][0]}`"
    return {"integer": "whole number", "number": "number", "boolean": "`true` or `false`", "string": "text", "null": "null",
            "object": "mapping"}.get(str(data.get("type")), "any")  # fmt: skip


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def table(properties: dict[str, Any], required: list[str], notes: dict[str, str], skip: set[str]) -> list[str]:
    """A row a key."""
    rows = []
    for name, data in properties.items():
        if name in skip:
            continue
        default = "required" if name in required else f"`{json.dumps(data['default'])}`" if "default" in data else "optional"
        default = default if len(default) < 60 else "see the schema"
        cells = (f"`{name}`", kind_of(data), default, notes.get(name, ""))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return ["| key | takes | default | |", "| --- | --- | --- | --- |", *rows, ""] if rows else []


def written_out(data: dict[str, Any]) -> dict[str, Any] | None:
    """The form of a definition that is a mapping with keys; where short forms stand beside it, the one with most keys."""
    forms = [one for one in [data, *data.get("anyOf", []), *data.get("oneOf", [])] if "properties" in one]
    return max(forms, key=lambda one: len(one["properties"])) if forms else None


def blocks() -> dict[str, type]:
    """Every block class by name."""
    found: dict[str, type] = {}

    def walk(cls: type) -> None:
        for child in cls.__subclasses__():
            found.setdefault(child.__name__, child)
            walk(child)

    walk(Block)
    return found


def reference() -> str:
    """The whole page."""
    schema = scenario_schema()
    definitions, classes = schema["$defs"], blocks()
    lines = [HEAD, "## Scenario", "", tidy(Scenario.__doc__), ""]
    lines += table(schema["properties"], schema.get("required", []), field_notes(Scenario), set())
    for name in sorted(name for name in definitions if "." not in name and name[0].isupper()):
        found = written_out(definitions[name])
        if found is None:
            about = tidy(definitions[name].get("description"))
            lines += [f"## {name}", "", about, "", f"Takes {kind_of(definitions[name])}.", ""]
            continue
        cls = classes.get(name)
        lines += [f"## {name}", "", tidy(cls.__doc__ if cls else definitions[name].get("description")), ""]
        notes = field_notes(cls) if cls else {}
        lines += table(found["properties"], found.get("required", []), notes, set())
    for family in sorted(name for name in definitions if "." not in name and not name[0].isupper()):
        lines += [f"## {family}", "", f"One of the kinds below, by `{tag_of(family)}`.", ""]
        kinds = Part.families[family.replace("-", " ")].kinds
        for name in sorted(name for name in definitions if name.startswith(f"{family}.")):
            cls, data = kinds[name.split(".", 1)[1]], definitions[name]
            if not cls.__module__.startswith("clustersim."):  # a plug-in's
                continue
            lines += [f"### {name}", "", tidy(cls.__doc__), ""]
            lines += table(data.get("properties", {}), data.get("required", []), field_notes(cls), {"kind", tag_of(family)})
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def tag_of(family: str) -> str:
    """The key that names a part of a family."""
    return {"checkpoint-engine": "engine", "recovery-strategy": "strategy"}.get(family, "kind")


if __name__ == "__main__":
    (DOCS / "reference.md").write_text(reference(), encoding="utf-8")
