"""``Part``: one class is a piece of a scenario, its YAML keys, its help and its behaviour.

A *family* is a direct subclass that names a place in the scenario (``class CheckpointEngine(Part, family="checkpoint
engine")``); a *kind* is a class of that family (``class Sync(CheckpointEngine, kind="sync")``). A field annotated with the
family accepts a bare kind (``sync``), a mapping with ``kind``, or an instance. Error paths stay as the user wrote them,
the JSON Schema has one branch a kind, and a plug-in's class is known from the moment that it is defined.

``PresetModel`` (``clustersim.presets``) is the same idea for data.
"""

from __future__ import annotations

import difflib
import importlib
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from clustersim.block import Block, again, line_errors, problem
from clustersim.errors import nearest
from clustersim.presets import (
    PresetModel,
    differs,
    expand_preset,
    is_short_form,
    merge,
    preset_data,
    preset_names,
)

__all__ = [
    "Block",
    "Part",
    "PresetModel",
    "again",
    "differs",
    "expand_preset",
    "is_short_form",
    "line_errors",
    "merge",
    "preset_data",
    "preset_names",
    "problem",
]


class Part(Block):
    """Base of all exchangeable pieces; see the module's text.

    Class keywords of a family: ``family`` (its name), ``folder`` (its presets), ``key`` (the YAML key that names the kind
    where that is not ``kind``: ``engine``, ``strategy``), ``implied`` (the kind of a mapping that names none). Class keywords
    of a kind: ``kind`` and ``aliases``.
    """

    family: ClassVar[str] = ""
    kind: ClassVar[str] = ""
    key: ClassVar[str] = "kind"
    aliases: ClassVar[tuple[str, ...]] = ()
    folder: ClassVar[str] = ""
    implied: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Part]]] = {}
    family_class: ClassVar[type[Part] | None] = None
    families: ClassVar[dict[str, type[Part]]] = {}

    @classmethod
    def __init_subclass__(cls, family: str = "", kind: str = "", aliases: tuple[str, ...] = (), folder: str = "",
                          key: str = "kind", implied: str = "", **kwargs: Any) -> None:  # fmt: skip
        super().__init_subclass__(**kwargs)
        if family:
            cls.family, cls.folder, cls.kinds, cls.family_class, cls.key = family, folder, {}, cls, key
            cls.implied = implied
            Part.families[family] = cls
        cls.kind, cls.aliases = kind, aliases
        for name in (kind, *aliases) if kind else ():
            taken = cls.kinds.get(name)
            if taken is not None and taken.__qualname__ != cls.__qualname__:
                raise TypeError(
                    f"two {cls.family} parts are called '{name}': {taken.__qualname__} and {cls.__qualname__}"
                )
            cls.kinds[name] = cls

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """Turn a short form into a mapping with ``kind``; a family may override to accept more (a duration).

        A bare name is a kind, or a preset where the family has a preset folder; ``{preset: name, key: value}`` changes
        single values of a preset (or of the kind of that name). Where the family's ``key`` is not ``kind``, that key
        names the kind, or holds the mapping with it (``{engine: {kind: async, …}, interval: 10 min}``).
        """
        if isinstance(value, str):
            return (
                {"kind": value} if value in cls.kinds or not cls.folder else expand_preset(cls.folder, value, cls.kinds)
            )
        if not isinstance(value, dict):
            return value
        if cls.key != "kind" and cls.key in value:
            named = value[cls.key]
            rest = {key: item for key, item in value.items() if key != cls.key}
            return cls.short_form({**rest, **named} if isinstance(named, dict) else {**rest, "kind": named})
        if "preset" in value and "kind" not in value:
            name = value["preset"]
            if isinstance(name, str) and name in cls.kinds:
                return {"kind": name, **{key: item for key, item in value.items() if key != "preset"}}
            if cls.folder:
                return expand_preset(cls.folder, value, cls.kinds)
        return {"kind": cls.implied, **value} if cls.implied and "kind" not in value else value

    @classmethod
    def known_kinds(cls) -> list[str]:
        """Names of the family's kinds without aliases, sorted."""
        return sorted(name for name, part in cls.kinds.items() if name == part.kind)

    @classmethod
    def build(cls, value: Any, context: dict[str, Any] | None = None) -> Self:
        """The part that ``value`` describes.

        Raises:
            pydantic.ValidationError: with paths relative to ``value``.
            PydanticCustomError: where no kind can be read off ``value``.
        """
        if isinstance(value, cls):
            return value
        value = cls.short_form(value)
        if isinstance(value, cls):
            return value
        part = cls._part_named(value)
        fields = {key: item for key, item in value.items() if key != "kind"}
        if isinstance(part, PydanticCustomError):
            raise line_errors(cls.family, [InitErrorDetails(type=part, loc=(), input=value),
                                           *cls._wrong_keys(str(value["kind"]), fields, context)])  # fmt: skip
        return part.model_validate(fields, context=context)  # type: ignore[return-value]

    @classmethod
    def _part_named(cls, value: Any) -> type[Part] | PydanticCustomError:
        """The class that ``value`` names, or, for an unknown name, the error to report beside those of its other keys."""
        known = cls.known_kinds()
        words = {"family": cls.family, "key": cls.key, "known": ", ".join(known)}
        if not isinstance(value, dict):
            raise PydanticCustomError("kind", "needs a {family}: one of {known}, or a mapping with '{key}'", words)
        if "kind" not in value:
            raise PydanticCustomError("no_kind", "needs the key '{key}': one of {known}", words)
        kind = value["kind"]
        if not isinstance(kind, str):
            return PydanticCustomError("kind", "must be the name of a {family}: one of {known}", words)
        if kind in cls.kinds:
            return cls.kinds[kind]
        text = kind[:60]
        words |= {"kind": text, "hint": nearest(text, known) or f"; known: {', '.join(known)}"}
        return PydanticCustomError("kind", "there is no {family} '{kind}'{hint}", words)

    @classmethod
    def _wrong_keys(cls, kind: str, fields: dict[str, Any], context: dict[str, Any] | None) -> list[InitErrorDetails]:
        """What else is wrong with a part of an unknown kind: judged as the nearest kind, else by the family's common keys."""
        near = difflib.get_close_matches(kind, cls.known_kinds(), n=1)
        part = cls.kinds[near[0] if near else next(iter(cls.kinds))]
        fields = fields if near else {key: item for key, item in fields.items() if key in cls.model_fields}
        try:
            part.model_validate(fields, context=context)
        except ValidationError as error:
            details = error.errors(include_url=False)
            return [again(detail) for detail in details if near or detail["type"] != "missing"]
        return []

    @classmethod
    def key_hint(cls, key: str) -> str:
        """The nearest key, the kinds that do have the key, else all keys."""
        near = nearest(key, cls.model_fields)
        owners = [kind for kind in cls.known_kinds() if key in cls.kinds[kind].model_fields]
        if not near and owners:
            return f"; it is a key of {cls.key} {', '.join(owners)}, this is '{cls.kind}'"
        return near or super().key_hint(key)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by family and kind: classes made from functions (schedules) are no attributes of their module."""
        cls = type(self)
        if not cls.kind or cls.kinds.get(cls.kind) is not cls:
            return super().__reduce_ex__(protocol)
        return _unpickled, (cls.__module__, cls.family, cls.kind), self.__getstate__()

    def dump(self) -> Any:
        """The part as plain YAML data: its ``kind`` and its keys."""
        return {self.key: self.kind, **self.model_dump(mode="json")}

    def dump_set(self) -> dict[str, Any]:
        """Like ``dump``, of the keys alone that were given: what is left can stand beside another kind."""
        return {self.key: self.kind, **self.model_dump(mode="json", exclude_unset=True)}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        if cls.family_class is not cls:
            return handler(source)

        def validate(value: Any, info: ValidationInfo) -> Part:
            return cls.build(value, info.context)

        def serialize(part: Part, info: core_schema.SerializationInfo) -> Any:
            return part.dump_set() if info.exclude_unset else part.dump()

        return core_schema.with_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(serialize, info_arg=True)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A family stands as a mark, which ``scenario.json_schema`` replaces by a reference to its one definition."""
        if cls.family_class is not cls:
            return handler(schema)
        return {"x-family": cls.family}

    @classmethod
    def short_schema(cls) -> list[JsonSchemaValue]:
        """JSON Schema of the short forms: names of kinds and presets; a family may add its own."""
        names = sorted({*cls.kinds, *(preset_names(cls.folder) if cls.folder else ())})
        return [{"enum": names}] if names else []


def _unpickled(module: str, family: str, kind: str) -> Part:
    """An empty part of a kind, its module imported, for pickle to fill."""
    importlib.import_module(module)
    cls = Part.families[family].kinds[kind]
    return cls.__new__(cls)
