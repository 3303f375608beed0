"""``Part``: one class is a piece of a scenario, its YAML keys, its help and its behaviour.

A *family* is a direct subclass that names a place in the scenario (``class CheckpointEngine(Part, family="checkpoint
engine")``); a *kind* is a class of that family (``class Sync(CheckpointEngine, kind="sync")``). A field annotated with the
family accepts a bare kind (``sync``), a mapping with ``kind``, or an instance. Error paths stay as the user wrote them,
the JSON Schema has one branch a kind, and a plug-in's class is known from the moment that it is defined.

``PresetModel`` is the same idea for data: a field accepts a preset's name, ``{preset: name, key: value}``, or a mapping.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib import resources
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from clustersim.errors import nearest


class Block(BaseModel):
    """A mapping of the scenario: unknown keys are errors, values never change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Part(Block):
    """Base of all exchangeable pieces; see the module's text."""

    family: ClassVar[str] = ""
    kind: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    folder: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Part]]] = {}
    family_class: ClassVar[type[Part] | None] = None

    @classmethod
    def __init_subclass__(cls, family: str = "", kind: str = "", aliases: tuple[str, ...] = (), folder: str = "",
                          **kwargs: Any) -> None:  # fmt: skip
        super().__init_subclass__(**kwargs)
        if family:
            cls.family, cls.folder, cls.kinds, cls.family_class = family, folder, {}, cls
        cls.kind, cls.aliases = kind, aliases
        for name in (kind, *aliases) if kind else ():
            taken = cls.kinds.get(name)
            if taken is not None and taken.__qualname__ != cls.__qualname__:
                raise TypeError(f"two {cls.family} parts are called '{name}': {taken.__qualname__} and {cls.__qualname__}")
            cls.kinds[name] = cls

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """Turn a short form into a mapping with ``kind``; a family may override to accept more (a duration).

        A bare name is a kind, or a preset where the family has a preset folder; ``{preset: name, key: value}`` changes
        single values of a preset.
        """
        if isinstance(value, str):
            return {"kind": value} if value in cls.kinds or not cls.folder else expand_preset(cls.folder, value, cls.kinds)
        if isinstance(value, dict) and "preset" in value and cls.folder:
            return expand_preset(cls.folder, value, cls.kinds)
        return value

    @classmethod
    def build(cls, value: Any, context: dict[str, Any] | None = None) -> Self:
        """The part that ``value`` describes.

        Raises:
            pydantic.ValidationError: with paths relative to ``value``.
        """
        if isinstance(value, cls):
            return value
        value = cls.short_form(value)
        if isinstance(value, cls):
            return value
        known = sorted(name for name, part in cls.kinds.items() if name == part.kind)
        if not isinstance(value, dict):
            raise PydanticCustomError("kind", "needs a {family}: one of {known}, or a mapping with 'kind'",
                                      {"family": cls.family, "known": ", ".join(known)})  # fmt: skip
        if "kind" not in value:
            raise PydanticCustomError("kind", "needs the key 'kind': one of {known}", {"known": ", ".join(known)})
        kind = value["kind"]
        part = cls.kinds.get(kind) if isinstance(kind, str) else None
        if part is None:
            raise PydanticCustomError("kind", "there is no {family} '{kind}'{hint}; known: {known}",
                                      {"family": cls.family, "kind": str(kind), "hint": nearest(str(kind), known),
                                       "known": ", ".join(known)})  # fmt: skip
        fields = {key: item for key, item in value.items() if key != "kind"}
        return part.model_validate(fields, context=context)  # type: ignore[return-value]

    def dump(self) -> Any:
        """The part as plain YAML data: its ``kind`` and its keys."""
        return {"kind": self.kind, **self.model_dump(mode="json")}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        if cls.family_class is not cls:
            return handler(source)

        def validate(value: Any, info: ValidationInfo) -> Part:
            return cls.build(value, info.context)

        return core_schema.with_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(lambda part: part.dump())
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        if cls.family_class is not cls:
            return handler(schema)
        return cls.family_schema()

    @classmethod
    def family_schema(cls) -> JsonSchemaValue:
        """JSON Schema of the family: bare kinds, and one branch with its keys for each kind."""
        branches: list[JsonSchemaValue] = []
        parts = {part.kind: part for part in cls.kinds.values()}
        names = sorted(cls.kinds)
        if names:
            branches.append({"enum": names})
        for kind in sorted(parts):
            body = parts[kind].model_json_schema()
            body.pop("title", None)
            body.setdefault("properties", {})["kind"] = {"const": kind}
            body["required"] = sorted({*body.get("required", []), "kind"})
            branches.append(body)
        return {"oneOf": branches}


class PresetModel(Block):
    """A block of data that may be named: ``gpu: h100-sxm`` or ``gpu: {preset: h100-sxm, power: 500 W}``."""

    folder: ClassVar[str] = ""

    def __init_subclass__(cls, folder: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if folder:
            cls.folder = folder

    @classmethod
    def preset_names(cls) -> list[str]:
        """Names of the shipped presets, sorted."""
        return preset_names(cls.folder)

    @classmethod
    def preset(cls, name: str) -> Self:
        """The shipped preset called ``name``."""
        return cls.model_validate(name)

    @model_validator(mode="before")
    @classmethod
    def expand(cls, value: Any) -> Any:
        """Replace a preset's name by its data, single values overridden (lists replace, mappings merge)."""
        if isinstance(value, str) or (isinstance(value, dict) and "preset" in value):
            return expand_preset(cls.folder, value)
        return value


def expand_preset(folder: str, value: Any, kinds: Iterable[str] = ()) -> dict[str, Any]:
    """Data of the preset that ``value`` names, with the single values that it overrides.

    Raises:
        PydanticCustomError: naming the nearest preset (or kind, of ``kinds``) when there is none of that name.
    """
    if isinstance(value, str):
        value = {"preset": value}
    name = value["preset"]
    presets = preset_names(folder)
    if name not in presets:
        known = sorted({*presets, *kinds})
        raise PydanticCustomError("preset", "there is no '{name}' among {folder}{hint}; known: {known}",
                                  {"name": str(name), "folder": folder, "hint": nearest(str(name), known),
                                   "known": ", ".join(known)})  # fmt: skip
    data = {key: item for key, item in preset_data(folder, name).items() if key != "sources"}
    return merge(data, {key: item for key, item in value.items() if key != "preset"})


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``over`` laid on ``base``: mappings merge key by key (unless ``kind`` or ``preset`` differs), all else replaces."""
    merged = dict(base)
    for key, item in over.items():
        below = merged.get(key)
        if isinstance(item, dict) and isinstance(below, dict):
            other = any(word in item and item[word] != below.get(word) for word in ("kind", "preset"))
            merged[key] = item if other else merge(below, item)
        else:
            merged[key] = item
    return merged


def _folder(folder: str) -> Any:
    return resources.files("clustersim").joinpath("hardware", "presets", *folder.split("/"))


@functools.cache
def preset_names(folder: str) -> list[str]:
    """Names of the YAML files in a preset folder, sorted."""
    try:
        return sorted(entry.name[:-5] for entry in _folder(folder).iterdir() if entry.name.endswith(".yaml"))
    except FileNotFoundError:
        return []


@functools.cache
def preset_data(folder: str, name: str) -> dict[str, Any]:
    """The raw data of a shipped preset, with its ``sources``."""
    from ruamel.yaml import YAML

    text = _folder(folder).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return loaded
