"""From pydantic's errors to sentences at the place where the user wrote the value.

Validation sees data with presets expanded, short forms spelt out and files merged. Here each error's path is walked
through the tree as it was written, as far as that goes, so that line, column and path are the user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from clustersim.errors import Problem, nearest
from clustersim.part import is_short_form
from clustersim.scenario.tree import Node, Place

_HOPS = ("engine", "strategy", "kind")
"""Keys that may hold the mapping in which a part's other keys stand."""

LATE = "late"
"""The kind of an error that came up after validation: its path is of keys alone."""

_EXAMPLES = {
    "model": "model: llama3-8b (clustersim list models)",
    "cluster": "cluster: {nodes: 16, node: dgx-h100, storage: tectonic}",
    "cluster.nodes": "nodes: 16",
    "cluster.node": "node: dgx-h100 (clustersim list nodes)",
    "cluster.storage": "storage: tectonic (clustersim list storage), or a mapping with its bandwidths",
    "training": "training: {seq_len: 8192, global_batch: 1024, duration: 30 d}",
    "training.seq_len": "seq_len: 8192",
    "training.global_batch": "global_batch: 1024 (sequences a step)",
}
"""What stands at the keys that every scenario needs."""


def problems_of(errors: Sequence[ErrorDetails], tree: Node) -> list[Problem]:
    """One problem for each error, in the order of the file; alternatives of a union at one place become one."""
    found: dict[tuple[str, Place], list[str]] = {}
    for error in errors:
        path, place, rest = locate(tree, tuple(error["loc"]), error["type"])
        sentence = sentence_of(error)
        if error["type"] == "missing" and path in _EXAMPLES:
            sentence += f"; write for example {_EXAMPLES[path]}"
        note = _where_inside(rest, error["type"])
        sentences = found.setdefault((path, place), [])
        if (text := f"{note}{sentence}") not in sentences:
            sentences.append(text)
    return [
        Problem(path, "; or: ".join(sentences), place.file, place.line, place.column)
        for (path, place), sentences in found.items()
    ]


def in_order(problems: Sequence[Problem]) -> list[Problem]:
    """The problems sorted by place, duplicates dropped."""
    unique = dict.fromkeys(problems)
    return sorted(unique, key=lambda item: (item.file or "", item.line or 0, item.column or 0, item.path))


def locate(tree: Node, loc: tuple[int | str, ...], kind: str) -> tuple[str, Place, tuple[int | str, ...]]:
    """Path and place of an error as the user wrote them, and what of ``loc`` stands nowhere in the tree.

    An unknown key is shown at the key, a missing one at the key of the mapping that lacks it, all else at the value.
    """
    node, path, rest = tree, [], list(loc)
    key_place = tree.place
    while rest:
        step = _step(node, rest, tags=kind != LATE)
        if step is None:
            break
        key_place = node.keys.get(str(step), node.place)
        found = node.child(step)
        assert found is not None
        node = found
        path.append(str(step))
    if kind == "missing" and len(rest) == 1:
        return ".".join([*path, str(rest[0])]), key_place, ()
    if kind in ("kind", "preset") and not rest:
        node, path = _named(node, path, kind)
    if not isinstance(node.value, (dict, list)) and not (isinstance(node.value, str) and is_short_form(node.value)):
        rest = []  # a short form, such as `30 s` for {kind: constant, value: 30 s}: the value itself is meant
    place = key_place if kind in ("extra", "no_kind") and not rest else node.place
    return ".".join(path), place, tuple(rest)


def _step(node: Node, rest: list[int | str], tags: bool) -> int | str | None:
    """The next key to follow; consumes it from ``rest`` unless it is one that the error's path leaves out.

    ``tags``: whether ``rest`` may hold names of a union's branches beside keys.
    """
    if node.child(rest[0]) is not None:
        return rest.pop(0)
    for hop in _HOPS:
        inner = node.child(hop)
        if inner is not None and isinstance(inner.value, dict) and inner.child(rest[0]) is not None:
            return hop
    if tags and len(rest) > 1 and node.child(rest[1]) is not None:  # the tag of a union's branch
        rest.pop(0)
        return rest.pop(0)
    return None


def _named(node: Node, path: list[str], kind: str) -> tuple[Node, list[str]]:
    """The value that names a kind or preset: the text itself, or what stands under ``kind``, ``engine``, ``preset`` …"""
    for word in ("preset",) if kind == "preset" else ("engine", "strategy", "kind", "preset"):
        inner = node.child(word)
        if inner is not None:
            return _named(inner, [*path, word], kind)
    return node, path


def _where_inside(rest: tuple[int | str, ...], kind: str) -> str:
    steps = [str(step) for step in rest if str(step) != "value" and "[" not in str(step)]
    plain = {"float", "int", "str", "bool", "constrained-float", "constrained-int", "literal"}
    steps = [step for step in steps if step not in plain]
    return f"(in what it stands for: {'.'.join(steps)}) " if steps and kind != "check" else ""


def sentence_of(error: ErrorDetails) -> str:
    """What is wrong and what would be right, in words of the scenario."""
    kind, words = error["type"], error.get("ctx", {})
    maker = _SENTENCES.get(kind)
    if maker is not None:
        return maker(error["input"], words)
    message = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind.startswith(("int_", "float_")):
        what = "a whole number" if kind.startswith("int_") else "a number"
        return f"{shown(error['input'])} is not {what}"
    return message[:1].lower() + message[1:] if message.startswith("Input should") else message


def shown(value: Any) -> str:
    """A value as the user would recognise it, at most 60 characters."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:56]}…'"


def _one_of(value: Any, words: dict[str, Any]) -> str:
    options = str(words["expected"]).replace(" or ", ", ")
    names = [name.strip().strip("'") for name in options.split(",")]
    hint = nearest(value, names) if isinstance(value, str) else ""
    if len(names) == 1:
        return f"must be {names[0]}, not {shown(value)}"
    return f"{shown(value)} is not one of {', '.join(names)}{hint}"


def _needs(what: str) -> Callable[[Any, dict[str, Any]], str]:
    return lambda value, words: f"must be {what}, not {shown(value)}"


_MAPPING = _needs("a mapping (key: value)")
_LIST = _needs("a list")
_SENTENCES: dict[str, Callable[[Any, dict[str, Any]], str]] = {
    "missing": lambda value, words: "is missing",
    "greater_than": lambda value, words: f"{shown(value)} must be greater than {words['gt']:g}",
    "greater_than_equal": lambda value, words: f"{shown(value)} must be at least {words['ge']:g}",
    "less_than": lambda value, words: f"{shown(value)} must be less than {words['lt']:g}",
    "less_than_equal": lambda value, words: f"{shown(value)} must be at most {words['le']:g}",
    "multiple_of": lambda value, words: f"{shown(value)} must be a multiple of {words['multiple_of']:g}",
    "finite_number": lambda value, words: f"{shown(value)} must be a finite number",
    "literal_error": _one_of,
    "enum": _one_of,
    "bool_type": _needs("true or false"),
    "bool_parsing": _needs("true or false"),
    "string_type": lambda value, words: f"must be text, not {shown(value)}; quote it if it is meant",
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
    "mapping_type": _MAPPING,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "set_type": _LIST,
    "too_short": lambda value, words: f"needs at least {words['min_length']} entries, not {words['actual_length']}",
    "too_long": lambda value, words: f"takes at most {words['max_length']} entries, not {words['actual_length']}",
    "int_parsing_size": lambda value, words: f"{shown(value)} is out of all range",
    "is_instance_of": lambda value, words: f"{shown(value)} cannot stand here",
}
