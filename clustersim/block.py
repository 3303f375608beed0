"""``Block``: a mapping of the scenario as a pydantic model, with errors in words of the scenario."""

from __future__ import annotations

import functools
from typing import Any, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError, core_schema

from clustersim.errors import nearest

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
        ] + [
            problem((key, inner), "must be a number, not {word}", item, word=str(item).lower())
            for key, several in value.items()
            if key in fields and _hold_numbers(fields[key].annotation)
            for inner, item in _items(several)
            if isinstance(item, bool)
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


def _hold_numbers(annotation: Any) -> bool:
    """Whether a field is a list or a mapping of numbers."""
    inner = get_args(annotation)
    held = {dict: inner[-1:], tuple: inner[:1], list: inner}.get(get_origin(annotation), ())
    return any(each in _NUMBERS or get_args(each)[:1] in ((int,), (float,)) for each in held)


def _items(value: Any) -> list[tuple[int | str, Any]]:
    """Keys, or places, and values of a mapping or a list."""
    if isinstance(value, dict):
        return [(str(key), item) for key, item in value.items()]
    return list(enumerate(value)) if isinstance(value, (list, tuple)) else []


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
