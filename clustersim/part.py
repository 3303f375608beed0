"""``Part``: one class is a piece of a scenario, its YAML keys, its help and its behaviour.

A *family* is a direct subclass that names a place in the scenario (``class CheckpointEngine(Part, family="checkpoint
engine")``); a *kind* is a class of that family (``class Sync(CheckpointEngine, kind="sync")``). A field annotated with the
family accepts a bare kind (``sync``), a mapping with ``kind``, or an instance. Error paths stay as the user wrote them,
the JSON Schema has one branch a kind, and a plug-in's class is known from the moment that it is defined.

``PresetModel`` is the same idea for data: a field accepts a preset's name, ``{preset: name, key: value}``, or a mapping.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any, ClassVar, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError, core_schema

from clustersim.errors import nearest

_NAME = re.compile(r"[A-Za-z][\w.-]*")
_NUMBERS = (int, float, int | None, float | None)


class Block(BaseModel):
    """A mapping of the scenario: unknown keys are errors, values never change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Name the nearest key where a key is unknown; refuse true and false where a number is due."""
        wrong = cls._booleans_for_numbers(value)
        try:
            built = handler(value)
        except ValidationError as error:
            found = [cls._explained(detail) for detail in error.errors(include_url=False)]
            raise line_errors(cls.__name__, [*wrong, *found]) from None
        if wrong:
            raise line_errors(cls.__name__, wrong)
        return built

    @classmethod
    def _booleans_for_numbers(cls, value: Any) -> list[InitErrorDetails]:
        if not isinstance(value, dict):
            return []
        fields = cls.model_fields
        return [
            problem((key,), "must be a number, not {word}", item, word=str(item).lower())
            for key, item in value.items()
            if isinstance(item, bool) and key in fields and fields[key].annotation in _NUMBERS
        ]

    @classmethod
    def _explained(cls, detail: ErrorDetails) -> InitErrorDetails:
        if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
            key = str(detail["loc"][0])
            sentence = f"there is no key '{key}' here{cls.key_hint(key)}"
            return InitErrorDetails(type=PydanticCustomError("extra", "{text}", {"text": sentence}),
                                    loc=detail["loc"], input=detail["input"])  # fmt: skip
        return again(detail)

    @classmethod
    def key_hint(cls, key: str) -> str:
        """What to write instead of the unknown ``key``: the nearest key, else all keys."""
        known = sorted(cls.model_fields)
        return nearest(key, known) or (f"; keys: {', '.join(known)}" if known else "; it takes no keys")


def problem(loc: tuple[int | str, ...], sentence: str, value: Any = None, **words: Any) -> InitErrorDetails:
    """One line of a ``ValidationError``: ``sentence`` (with ``{word}`` places) about the value at ``loc``."""
    return InitErrorDetails(type=PydanticCustomError("rule", sentence, words or None), loc=loc, input=value)


def line_errors(title: str, lines: list[InitErrorDetails]) -> ValidationError:
    """A ``ValidationError`` that holds ``lines``; raised inside a validator, it lengthens the paths of the outer one."""
    return ValidationError.from_exception_data(title, lines)


@functools.cache
def _builtin_types() -> frozenset[str]:
    return frozenset(get_args(core_schema.ErrorType))


def again(detail: ErrorDetails) -> InitErrorDetails:
    """The same error, ready to be raised once more."""
    if detail["type"] in _builtin_types():
        return InitErrorDetails(
            type=detail["type"], loc=detail["loc"], input=detail["input"], ctx=detail.get("ctx", {})
        )
    error = PydanticCustomError(detail["type"], "{text}", {"text": detail["msg"]})
    return InitErrorDetails(type=error, loc=detail["loc"], input=detail["input"])


class Part(Block):
    """Base of all exchangeable pieces; see the module's text.

    Class keywords of a family: ``family`` (its name), ``folder`` (its presets), ``key`` (the YAML key that names the kind
    where that is not ``kind``: ``engine``, ``strategy``). Class keywords of a kind: ``kind`` and ``aliases``.
    """

    family: ClassVar[str] = ""
    kind: ClassVar[str] = ""
    key: ClassVar[str] = "kind"
    aliases: ClassVar[tuple[str, ...]] = ()
    folder: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Part]]] = {}
    family_class: ClassVar[type[Part] | None] = None
    families: ClassVar[dict[str, type[Part]]] = {}

    @classmethod
    def __init_subclass__(cls, family: str = "", kind: str = "", aliases: tuple[str, ...] = (), folder: str = "",
                          key: str = "kind", **kwargs: Any) -> None:  # fmt: skip
        super().__init_subclass__(**kwargs)
        if family:
            cls.family, cls.folder, cls.kinds, cls.family_class, cls.key = family, folder, {}, cls, key
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
            if name in cls.kinds:
                return {"kind": name, **{key: item for key, item in value.items() if key != "preset"}}
            if cls.folder:
                return expand_preset(cls.folder, value, cls.kinds)
        return value

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
        part = cls.kinds.get(kind) if isinstance(kind, str) else None
        if part is not None:
            return part
        text = str(kind)[:60]
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
    if name not in presets:
        known = sorted({*presets, *kinds})
        hint = nearest(str(name)[:60], known) or f"; known: {', '.join(known)}"
        raise PydanticCustomError("preset", "there is no '{name}' among the {folder}{hint}",
                                  {"name": str(name)[:60], "folder": folder, "hint": hint})  # fmt: skip
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
