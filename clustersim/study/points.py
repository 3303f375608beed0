"""The scenarios at the points of a study: one tree of values, several of them changed at once, validated together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clustersim.errors import InputError, Problem
from clustersim.part import Block
from clustersim.scenario.load import read_files, validate
from clustersim.scenario.measured import without_measured
from clustersim.scenario.override import apply_override, assign
from clustersim.scenario.places import placed_like
from clustersim.scenario.tree import Node, Place, from_plain
from clustersim.study.axes import Point

if TYPE_CHECKING:
    from clustersim.scenario.schema import Scenario


class Template:
    """A scenario that makes others: call it with a point, the values of several paths.

    All values of a point are set before anything is validated, so that ``tp`` and ``pp`` may change together.
    """

    def __init__(self, tree: Node, units: bool, option: str = "--over", problems: Sequence[Problem] = ()) -> None:
        self.tree, self.units, self.option, self.problems = tree, units, option, tuple(problems)

    @classmethod
    def of(cls, scenario: Scenario, option: str = "--over") -> Template:
        """A template of a scenario in memory; bare numbers in points are SI."""
        tree = from_plain(written(scenario), Place(None))
        return cls(placed_like(tree, scenario.origin.tree), units=False, option=option)

    @classmethod
    def read(cls, source: str, overrides: Sequence[str] = (), option: str = "--over") -> Template:
        """A template of a file with ``--set`` on top; in points, too, a bare number is refused where a unit is due.

        Raises:
            InputError: when the file cannot be read as a mapping.
        """
        tree, problems = read_files(source)
        for text in overrides:
            tree, wrong = apply_override(tree, text)
            problems += wrong
        return cls(tree, units=True, option=option, problems=problems)

    def __call__(self, point: Point) -> Scenario:
        """The scenario at ``point``.

        Raises:
            InputError: with every problem that the changed values cause.
        """
        tree = self.tree
        for path, value in point.items():
            place = Place(f"{self.option} {path}")
            steps = path.split(".")
            if not all(steps):
                raise InputError(Problem(path, "is no path of keys, such as checkpoint.interval").at(place.file))
            tree = assign(tree, steps, from_plain(value, place), place)
        return validate(tree, self.problems, self.units)


def written(scenario: Scenario) -> dict[str, Any]:
    """The scenario's data without the defaults of its parts.

    A part's defaults belong to its kind: they must not stand in the way when a point changes the kind.
    """
    pruned: dict[str, Any] = _pruned(scenario, scenario.data())
    return without_measured(pruned, scenario.calibration)


def _pruned(value: Any, data: Any) -> Any:
    if isinstance(value, Block) and isinstance(data, dict):
        kept = [name for name in type(value).model_fields if name in value.model_fields_set and name in data]
        return {**{name: item for name, item in data.items() if name not in type(value).model_fields},
                **{name: _pruned(getattr(value, name), data[name]) for name in kept}}  # fmt: skip
    if isinstance(value, (list, tuple)) and isinstance(data, list):
        return [_pruned(item, plain) for item, plain in zip(value, data, strict=True)]
    if isinstance(value, dict) and isinstance(data, dict) and value.keys() == data.keys():
        return {key: _pruned(value[key], data[key]) for key in data}
    return data


def scenario_at(scenario: Scenario, point: Point) -> Scenario:
    """``scenario`` with the values of one point; for many points keep a ``Template``."""
    return Template.of(scenario)(point)
