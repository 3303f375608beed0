"""Errors that come up after loading, at the place of the key that they are about.

The step model, schedules, layouts and the run know a scenario's values and not where they were written. They name the path
of a key; here, where a scenario and the tree that it was read from are at hand, the path becomes file, line and column: of
the file that wrote the value (or of one that it extends), of ``--set`` or of ``--over``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from clustersim.errors import KeyedError, Problem
from clustersim.part import is_short_form
from clustersim.scenario.problems import LATE, locate
from clustersim.scenario.tree import Node, Origin, Place

if TYPE_CHECKING:
    from clustersim.scenario.schema import Scenario

F = TypeVar("F", bound=Callable[..., Any])

_STANDS_AT = {"schedule": ("parallelism", "schedule")}
"""Where the parts stand that name their own keys alone, since they do not know what they are a part of."""


def at_its_place(problem: Problem, origin: Origin) -> Problem:
    """``problem`` where its key was written, or the nearest key above it that was, which the sentence then says.

    One that has a place, names no key, or names an option stays as it is.
    """
    tree = origin.tree
    steps = _steps(problem.path)
    if tree is None or problem.file is not None or not steps:
        return problem
    path, place, rest = locate(tree, steps, LATE)
    if not rest:
        return replace(problem, path=path).at(place.file, place.line, place.column)
    whole = ".".join(filter(None, [path, *map(str, rest)]))
    note = f" ({rest[-1]} is not written here: {_whence(tree, path)})" if place.file is not None else ""
    return replace(problem, path=whole, message=problem.message + note).at(place.file, place.line, place.column)


def _steps(path: str) -> tuple[int | str, ...]:
    """The keys of a path in a scenario; empty for other paths, such as those of options."""
    from clustersim.scenario.schema import Scenario

    first, *below = path.split(".")
    start = _STANDS_AT.get(first, (first,))
    if start[0] not in Scenario.model_fields:
        return ()
    return (*start, *(int(step) if step.isdigit() else step for step in below))


def _whence(tree: Node, path: str) -> str:
    """Where the value of a key comes from that is not written below ``path``: a preset, or what it is by default."""
    name, node = None, tree
    for step in (None, *path.split(".")) if path else (None,):
        if step is not None:
            below = node.child(int(step)) if isinstance(node.value, list) else node.child(step)
            assert below is not None
            node = below
        named = node.value if isinstance(node.value, str) else getattr(node.child("preset"), "value", None)
        name = named if isinstance(named, str) and is_short_form(named) else name
    return "its default counts" if name is None else f"what '{name}' stands for counts"


def told(problems: Iterable[Problem], origin: Origin) -> list[str]:
    """Problems that are no errors as sentences at their places. What is not written is nobody's slip, and left out."""
    return [str(at_its_place(problem, origin)) for problem in problems if _written(problem.path, origin.tree)]


def _written(path: str, tree: Node | None) -> bool:
    return tree is None or not locate(tree, _steps(path), LATE)[2]


@contextmanager
def places_of(scenario: Scenario) -> Iterator[None]:
    """Errors from inside are told at the places of ``scenario``; they stay the errors that were raised."""
    try:
        yield
    except KeyedError as error:
        error.retell(lambda problem: at_its_place(problem, scenario.origin))
        raise


def tells_places(function: F) -> F:
    """A function of a scenario, its first argument, whose errors are told at the scenario's places."""

    @functools.wraps(function)
    def at_places(scenario: Scenario, *args: Any, **kwargs: Any) -> Any:
        with places_of(scenario):
            return function(scenario, *args, **kwargs)

    return cast(F, at_places)


def placed_like(tree: Node, origin: Node | None) -> Node:
    """``tree``, of the same scenario spelt otherwise, with the places at which ``origin`` has its values."""
    if origin is None:
        return tree
    return _placed(tree, origin, ())


def _placed(node: Node, origin: Node, path: tuple[int | str, ...]) -> Node:
    place: Place = locate(origin, path, LATE)[1] if path else origin.place
    if isinstance(node.value, dict):
        value = {key: _placed(item, origin, (*path, key)) for key, item in node.value.items()}
        return Node(value, place, {key: item.place for key, item in value.items()}, node.folder)
    if isinstance(node.value, list):
        return Node([_placed(item, origin, (*path, index)) for index, item in enumerate(node.value)], place, {}, node.folder)
    return replace(node, place=place)
