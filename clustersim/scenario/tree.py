"""A YAML file as a tree that knows the place of every key and value.

Nothing is constructed but mappings, lists and plain scalars: tags (``!!python/…``), dates and the like are problems, and
anchors are followed only as far as a fixed number of nodes allows, so no file can run code or fill the memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from clustersim.errors import InputError, Problem
from clustersim.paths import FileText, PresetText

MOST_NODES = 20_000
"""Keys and values of one file, anchors expanded."""
DEEPEST = 50
"""Levels of nesting."""
_LARGEST_INTEGER = 10**18
_CORE = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: a file's name (or ``--set …``) and, in a file, line and column from 1."""

    file: str | None
    line: int | None = None
    column: int | None = None


@dataclass(slots=True)
class Node:
    """A value with its place; mappings also know the places of their keys."""

    value: Any
    place: Place
    keys: dict[str, Place] = field(default_factory=dict)
    folder: Path | None = None

    def plain(self) -> Any:
        """The bare data; strings remember their folder."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, str) and not isinstance(self.value, PresetText):
            return FileText.of(self.value, self.folder)
        return self.value

    def child(self, step: int | str) -> Node | None:
        """The value at a key or an index, None where there is none."""
        if isinstance(self.value, dict):
            found = self.value.get(str(step))
            return found if isinstance(found, Node) else None
        if isinstance(self.value, list) and isinstance(step, int) and 0 <= step < len(self.value):
            return self.value[step]  # type: ignore[no-any-return]
        return None


class Origin:
    """The tree that a scenario was read from, kept for errors that come up later; None: it was made from data in memory.

    Where a scenario was read is no part of what it says: any two are equal.
    """

    def __init__(self, tree: Node | None = None) -> None:
        self.tree = tree

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin)

    __hash__ = None  # type: ignore[assignment]


def from_plain(data: Any, place: Place) -> Node:
    """A tree of plain data, all of it at one place."""
    if isinstance(data, dict):
        value: Any = {str(key): from_plain(item, place) for key, item in data.items()}
        return Node(value, place, dict.fromkeys(value, place))
    if isinstance(data, (list, tuple)):
        return Node([from_plain(item, place) for item in data], place)
    return Node(data, place)


class TreeBuilder:
    """Turns ruamel's node graph into a ``Node`` tree, collecting every problem on the way."""

    def __init__(self, file: str, folder: Path | None, constructor: Any, place: Place | None = None) -> None:
        self.file, self.folder, self.constructor, self.fixed = file, folder, constructor, place
        self.problems: list[Problem] = []
        self.count = 0

    def build(self, node: Any, path: tuple[str, ...] = ()) -> Node:
        """The tree under ``node``; where something is wrong a problem is noted and null stands in its place.

        Raises:
            InputError: when the file is too large or too deep to go on.
        """
        self.count += 1
        place = self._place(node)
        if self.count > MOST_NODES:
            self._refuse(path, f"holds more than {MOST_NODES:,} values, anchors expanded; a scenario is smaller", place)
        if len(path) > DEEPEST:
            self._refuse(path, f"is nested deeper than {DEEPEST} levels", place)
        suffix = str(node.tag).removeprefix(_CORE)
        if isinstance(node.value, list) and suffix == "map":
            return self._mapping(node, path, place)
        if isinstance(node.value, list) and suffix == "seq":
            items = [self.build(item, (*path, str(index))) for index, item in enumerate(node.value)]
            return Node(items, place, folder=self.folder)
        return Node(self._scalar(node, suffix, path, place), place, folder=self.folder)

    def _mapping(self, node: Any, path: tuple[str, ...], place: Place) -> Node:
        value: dict[str, Node] = {}
        keys: dict[str, Place] = {}
        merged: list[Node] = []
        for key_node, item in node.value:
            if str(key_node.tag) == f"{_CORE}merge":
                merged += self._merged(item, path)
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            where = self._place(key_node)
            if key in value:
                first = keys[key]
                self._wrong((*path, key), f"stands twice (first on line {first.line}); keep one", where)
                continue
            value[key], keys[key] = self.build(item, (*path, key)), where
        for base in merged:
            for key, below in base.value.items():
                if key not in value:
                    value[key], keys[key] = below, base.keys[key]
        return Node(value, place, keys, self.folder)

    def _merged(self, item: Any, path: tuple[str, ...]) -> list[Node]:
        built = self.build(item, (*path, "<<"))
        bases = built.value if isinstance(built.value, list) else [built]
        if not all(isinstance(base.value, dict) for base in bases):
            self._wrong((*path, "<<"), "merges a mapping or a list of mappings, nothing else", built.place)
            return []
        return bases

    def _key(self, node: Any, path: tuple[str, ...]) -> str | None:
        if isinstance(node.value, str) and str(node.tag) == f"{_CORE}str":
            return self._text(node.value, path, self._place(node))
        shown = repr(node.value) if isinstance(node.value, str) else "a list or mapping"
        self._wrong(path, f"a key must be a word, and {shown} is not; quote it if it is meant", self._place(node))
        return None

    def _scalar(self, node: Any, suffix: str, path: tuple[str, ...], place: Place) -> Any:
        if suffix == "str":
            return self._text(node.value, path, place)
        if suffix == "null":
            return None
        if suffix not in ("int", "float", "bool") or not isinstance(node.value, str):
            self._wrong(path, self._no_scalar(suffix, node.value), place)
            return None
        try:
            value = self.constructor.construct_object(node)
        except (ValueError, ArithmeticError):
            value = math.inf
        if isinstance(value, float) and not math.isfinite(value):
            self._wrong(path, f"'{node.value[:40]}' is not a finite number", place)
            return None
        if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            self._wrong(path, f"'{node.value[:40]}' is out of all range", place)
            return None
        return value

    def _text(self, text: str, path: tuple[str, ...], place: Place) -> str | None:
        """Text with escaped surrogate pairs (JSON's way to write an emoji) as the characters that they mean."""
        if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
            return text
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self._wrong(path, "holds half a surrogate pair, which is no character", place)
            return None

    @staticmethod
    def _no_scalar(suffix: str, value: Any) -> str:
        if suffix == "timestamp":
            return f"'{value}' reads as a date, which is no value of a scenario; quote it if it is text"
        tag = suffix if suffix.startswith("!") else f"!!{suffix}"
        return f"has the tag '{tag}'; tags are not allowed in a scenario"

    def _place(self, node: Any) -> Place:
        if self.fixed is not None:
            return self.fixed
        return Place(self.file, node.start_mark.line + 1, node.start_mark.column + 1)

    @staticmethod
    def _refuse(path: tuple[str, ...], message: str, place: Place) -> NoReturn:
        raise InputError(Problem(".".join(path[:3]), message).at(place.file, place.line, place.column))

    def _wrong(self, path: tuple[str, ...], message: str, place: Place) -> None:
        problem = Problem(".".join(path), message).at(place.file, place.line, place.column)
        if problem not in self.problems:
            self.problems.append(problem)
