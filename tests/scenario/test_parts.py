"""Plug-ins of installed packages: found by their entry-point group; a broken one never stops the program."""

from __future__ import annotations

from importlib import metadata
from typing import get_args

import pytest

from clustersim.part import Part
from clustersim.scenario import parts
from clustersim.units import Unit


class Broken:
    name, value = "broken", "no_such_module"

    def load(self) -> None:
        raise ModuleNotFoundError("No module named 'no_such_module'")


class Good:
    name, value = "good", "some_module"
    loaded = 0

    def load(self) -> None:
        Good.loaded += 1


def test_modules_of_the_group_are_imported_and_failures_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def entry_points(group: str) -> list[object]:
        asked.append(group)
        return [Good(), Broken()]

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    failed = parts.import_installed.__wrapped__()
    assert asked == ["clustersim.parts"]
    assert Good.loaded == 1
    assert failed == (
        "the plug-in 'broken' (no_such_module) cannot be imported: ModuleNotFoundError: No module named 'no_such_module'",
    )


def test_every_module_with_parts_is_imported() -> None:
    from clustersim.part import Part

    parts.import_parts()
    assert {"async", "sync", "none"} <= set(Part.families["checkpoint engine"].kinds)
    assert "restart" in Part.families["recovery strategy"].kinds
    assert len(Part.families["schedule"].known_kinds()) > 20


def test_a_part_takes_its_parents_keys_in_their_dimension() -> None:
    # A default that is stated anew without its unit would make `heartbeat: 10 s` an error in one strategy alone.
    parts.import_parts()
    changed = [
        f"{kind.__name__}.{name}"
        for part in Part.__subclasses__()
        for kind in set(part.kinds.values())
        for parent in kind.__mro__[1:]
        for name, field in getattr(parent, "model_fields", {}).items()
        if parent is not kind and units_of(kind.model_fields[name].annotation) != units_of(field.annotation)
    ]
    assert not changed


def units_of(annotation: object) -> list[str]:
    """The dimensions in a field's type."""
    own = [each.dimension.name for each in getattr(annotation, "__metadata__", ()) if isinstance(each, Unit)]
    return own + [name for inner in get_args(annotation) for name in units_of(inner)]
