"""``PresetModel``: data that may be named. A field accepts a preset's name, ``{preset: name, key: value}``, or a mapping.

Presets are YAML files under ``hardware/presets``, each value with its source.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any, ClassVar, Self

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError

from clustersim.block import Block
from clustersim.errors import nearest

_NAME = re.compile(r"[A-Za-z][\w.-]*")


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

    @classmethod
    def key_hint(cls, key: str) -> str:
        """The nearest key; ``preset`` is one too."""
        return nearest(key, [*cls.model_fields, "preset"]) or super().key_hint(key)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(schema)
        body = handler.resolve_ref_schema(reference)
        names = cls.preset_names()
        if cls.folder and "preset" not in body["properties"]:
            body["properties"]["preset"] = {"enum": names, "description": "Start from this preset's values."}
            body["anyOf"] = [{"required": ["preset"]}, {"required": body.pop("required", [])}]
        return {"anyOf": [{"enum": names}, reference]} if cls.folder else reference


def expand_preset(folder: str, value: Any, kinds: Iterable[str] = ()) -> dict[str, Any]:
    """Data of the preset that ``value`` names, with the single values that it overrides.

    Raises:
        PydanticCustomError: naming the nearest preset (or kind, of ``kinds``) when there is none of that name.
    """
    if isinstance(value, str):
        value = {"preset": value}
    name = value["preset"]
    presets = preset_names(folder)
    if not isinstance(name, str):
        raise PydanticCustomError("preset", "must be the name of one of the {folder}: {known}",
                                  {"folder": folder, "known": ", ".join(sorted({*presets, *kinds}))})  # fmt: skip
    if name not in presets:
        known = sorted({*presets, *kinds})
        hint = nearest(name[:60], known) or f"; known: {', '.join(known)}"
        raise PydanticCustomError("preset", "there is no '{name}' among the {folder}{hint}",
                                  {"name": name[:60], "folder": folder, "hint": hint})  # fmt: skip
    data = {key: item for key, item in preset_data(folder, name).items() if key != "sources"}
    return merge(data, {key: item for key, item in value.items() if key != "preset"})


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``over`` laid on ``base``: mappings merge key by key, all else (lists too) replaces.

    A mapping of another ``kind`` or ``preset`` replaces; a mapping without either, laid on a bare name, changes single
    values of the piece of that name (``gpu: h100-sxm`` under ``gpu: {power: 500 W}``).
    """
    merged = dict(base)
    for key, item in over.items():
        below = merged.get(key)
        if isinstance(item, dict) and isinstance(below, str) and is_short_form(below):
            below = {"preset": below}
        merges = isinstance(item, dict) and isinstance(below, dict) and not differs(below, item)
        merged[key] = merge(below, item) if merges else item  # type: ignore[arg-type]
    return merged


def is_short_form(text: str) -> bool:
    """Whether ``text`` can be the bare name of a kind or preset (a quantity such as ``30 s`` cannot)."""
    return _NAME.fullmatch(text) is not None


def differs(below: dict[str, Any], over: dict[str, Any]) -> bool:
    """Whether ``over`` describes another thing than ``below``, so that it replaces instead of changing single values.

    The words that name a thing are ``kind`` and ``preset``; a preset's own data carries neither name, so a ``kind`` laid
    on data without one is another thing too.
    """
    return any(word in over and over[word] != below.get(word) for word in ("kind", "preset"))


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
