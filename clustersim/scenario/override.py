"""Changing single values of a tree: ``extends`` lays one file on another, ``--set a.b=c`` one value on the whole."""

from __future__ import annotations

from dataclasses import replace

from clustersim.errors import InputError, Problem
from clustersim.part import differs, is_short_form
from clustersim.scenario.read import parse_tree
from clustersim.scenario.tree import Node, Place


def overlay(below: Node, over: Node) -> Node:
    """``over`` laid on ``below`` by the rule of ``clustersim.part.merge``, every value with the place that it came from."""
    if not isinstance(over.value, dict):
        return over
    if isinstance(below.value, str) and is_short_form(below.value):
        below = _spelt_out(below)
    if not isinstance(below.value, dict) or differs(_names(below), _names(over)):
        return over
    value, keys = dict(below.value), dict(below.keys)
    for key, item in over.value.items():
        value[key] = overlay(below.value[key], item) if key in below.value else item
        keys[key] = over.keys[key]
    return Node(value, over.place, keys, over.folder)


def _spelt_out(node: Node) -> Node:
    """The bare name of a kind or preset as a mapping."""
    inner = Node(node.value, node.place, folder=node.folder)
    return Node({"preset": inner}, node.place, {"preset": node.place}, node.folder)


def _names(node: Node) -> dict[str, object]:
    return {key: item.value for key, item in node.value.items() if not isinstance(item.value, (dict, list))}


def apply_override(tree: Node, text: str, option: str = "--set") -> tuple[Node, list[Problem]]:
    """``tree`` with the change that ``text`` (``a.b=c``) asks for; ``c`` is read as YAML.

    Raises:
        InputError: when the text is no ``key.path=value`` or the path leads nowhere; it names the option.
    """
    place = Place(f"{option} {text}" if len(text) <= 100 else f"{option} {text[:97]}…")
    path, equals, raw = text.partition("=")
    steps = [step.strip() for step in path.split(".")]
    if not equals or not all(steps):
        raise _refuse(place, "", "needs the form key.path=value, such as checkpoint.interval=20min")
    if steps[0] == "extends":
        raise _refuse(place, "extends", "stands in a file; write a file that extends this one")
    value, problems = parse_tree(raw, place.file or option, None, place)
    problems = [replace(item, path=".".join(filter(None, [*steps, item.path]))) for item in problems]
    return assign(tree, steps, value, place), problems


def assign(node: Node, steps: list[str], value: Node, place: Place, done: tuple[str, ...] = ()) -> Node:
    """``node`` with ``value`` at the path ``steps``; mappings on the way are made where there are none."""
    if not steps:
        return value
    first, rest = steps[0], steps[1:]
    path = ".".join((*done, first))
    if isinstance(node.value, list):
        if not first.isdigit() or int(first) >= len(node.value):
            raise _refuse(place, path, f"the list has the entries 0 to {len(node.value) - 1}, and no '{first}'")
        items = list(node.value)
        items[int(first)] = assign(items[int(first)], rest, value, place, (*done, first))
        return replace(node, value=items)
    if isinstance(node.value, str) and is_short_form(node.value):
        node = _spelt_out(node)
    if node.value is None:
        node = replace(node, value={}, keys={})
    if not isinstance(node.value, dict):
        raise _refuse(place, path, f"'{'.'.join(done)}' is the value {node.value!r}, which has no keys")
    below = node.value.get(first, Node(None, place))
    kept = {key: item for key, item in node.value.items() if not (_same(key, first) and not rest)}
    keys = {key: node.keys[key] for key in kept}
    kept[first], keys[first] = assign(below, rest, value, place, (*done, first)), place
    return replace(node, value=kept, keys=keys)


def _same(key: str, first: str) -> bool:
    """Whether setting ``first`` takes the place of ``key``: a new kind or preset replaces the old name."""
    words = ("kind", "preset", "engine", "strategy")
    return key == first or (key in words and first in words)


def _refuse(place: Place, path: str, message: str) -> InputError:
    return InputError(Problem(path, message).at(place.file))
