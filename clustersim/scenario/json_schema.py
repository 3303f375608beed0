"""JSON Schema of a scenario: every model and every part once, in ``$defs``.

A family of parts stands in pydantic's schema as a mark (``x-family``). Here each family becomes one definition: its short
forms, and one branch a kind, each branch a definition of its own.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError, core_schema

from clustersim.part import Part
from clustersim.units import DURATION, Unit

Json = dict[str, Any]
_REFERENCE = "#/$defs/{model}"


class _Written(GenerateJsonSchema):
    """Defaults as a scenario would write them: quantities with their unit."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Json:
        made, inner = super().default_schema(schema), schema["schema"]
        while inner["type"] == "nullable":
            inner = inner["schema"]
        if isinstance(default := schema.get("default"), Part):
            made["default"] = default.dump()
        written = inner.get("serialization")
        if isinstance(made.get("default"), float) and written is not None and written["type"] == "function-plain":
            made["default"] = written["function"](made["default"])
        return made


def scenario_schema() -> Json:
    """The schema, keys in a fixed order, ready to print."""
    from clustersim.scenario.schema import Scenario

    schema = Scenario.model_json_schema(ref_template=_REFERENCE, schema_generator=_Written)
    definitions: Json = schema.pop("$defs", {})
    schema["properties"]["extends"] = {
        "description": "YAML files below this one, first to last; mappings merge, lists replace.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}],
    }
    _add_failure_presets(schema)
    _add_short_forms(definitions)
    done: set[str] = set()
    while waiting := sorted(_families([schema, definitions]) - done):
        for family in waiting:
            _define(Part.families[family], definitions)
            _add_short_forms(definitions)
            done.add(family)
    schema = _resolved(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "clustersim scenario",
        **{key: item for key, item in schema.items() if key != "title"},
        "$defs": {name: _resolved(definitions[name]) for name in sorted(definitions)},
    }


def _add_failure_presets(schema: Json) -> None:
    from clustersim.part import preset_names

    listed = schema["properties"]["failures"]
    names = preset_names("failures")
    named = {"type": "object", "properties": {"preset": {"enum": names}}, "required": ["preset"]}
    schema["properties"]["failures"] = {"anyOf": [{"enum": names}, named, listed, {"type": "null"}]}


def _add_short_forms(definitions: Json) -> None:
    """Blocks that take the value of one family for a short form: a recovery stage is its time."""
    stage = definitions.get("Stage")
    if stage is not None and "anyOf" not in stage:
        definitions["Stage"] = {"anyOf": [{"x-family": "distribution"}, stage]}


def _families(node: Any) -> set[str]:
    """Names of the families that are marked in a schema."""
    if isinstance(node, dict):
        own = {node["x-family"]} if isinstance(node.get("x-family"), str) else set()
        return own.union(*(_families(item) for item in node.values()))
    return set().union(*(_families(item) for item in node)) if isinstance(node, list) else set()


def _define(family: type[Part], definitions: Json) -> None:
    """Add the family's definition and one for each of its kinds."""
    branches = [*family.short_schema(), *_quantity(family)]
    for kind in family.known_kinds():
        part = family.kinds[kind]
        body = part.model_json_schema(ref_template=_REFERENCE, schema_generator=_Written)
        definitions.update(body.pop("$defs", {}))
        name = f"{_slug(family.family)}.{kind}"
        definitions[name] = _branch(family, kind, part, body)
        branches.append({"$ref": f"#/$defs/{name}"})
    definitions[_slug(family.family)] = {"description": _doc(family), "anyOf": branches}


def _branch(family: type[Part], kind: str, part: type[Part], body: Json) -> Json:
    names = [name for name, owner in family.kinds.items() if owner is part]
    named: Json = {"const": kind} if len(names) == 1 else {"enum": sorted(names)}
    words = [family.key] if family.key == "kind" else [family.key, "kind"]
    properties: Json = dict.fromkeys(words, named) | body.get("properties", {})
    required = sorted(body.get("required", []))
    branch: Json = {
        "type": "object",
        "description": _doc(part),
        "properties": properties,
        "additionalProperties": False,
    }
    if _kind_is_implied(family, part):
        return branch | ({"required": required} if required else {})
    if len(words) == 1:
        return branch | {"required": ["kind", *required]}
    return branch | ({"required": required} if required else {}) | {"anyOf": [{"required": [word]} for word in words]}


def _quantity(family: type[Part]) -> list[Json]:
    """The branch of a bare duration, where the family takes one for a short form (found by trying)."""
    duration = Unit(DURATION).schema()
    if duration in family.short_schema():
        return []
    try:
        family.build(DURATION.example, {"units": "required"})
    except (ValidationError, PydanticCustomError):
        return []
    return [duration]


def _kind_is_implied(family: type[Part], part: type[Part]) -> bool:
    """Whether a mapping with the kind's required keys alone is taken for this kind (``{steps: 200}``)."""
    required = {name: None for name, info in part.model_fields.items() if info.is_required()}
    meant = family.short_form(required)
    return isinstance(meant, dict) and meant.get("kind") == part.kind


def _resolved(node: Any) -> Any:
    """The schema with each mark replaced by a reference to the family's definition."""
    if isinstance(node, dict):
        if isinstance(node.get("x-family"), str):
            rest = {key: item for key, item in node.items() if key != "x-family"}
            return {"$ref": f"#/$defs/{_slug(node['x-family'])}", **rest}
        return {key: _resolved(item) for key, item in node.items()}
    return [_resolved(item) for item in node] if isinstance(node, list) else node


def _slug(family: str) -> str:
    return family.replace(" ", "-")


def _doc(part: type[Part]) -> str:
    return " ".join((part.__doc__ or "").split("\n\n")[0].split())
