"""Loading a scenario: files laid on one another, options on top, validated, every error at its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from clustersim.errors import InputError, Problem
from clustersim.scenario.checks import Pieces, cross_check
from clustersim.scenario.measured import without_measured
from clustersim.scenario.override import apply_override, assign, overlay
from clustersim.scenario.parts import import_installed, import_plugin
from clustersim.scenario.places import placed_like
from clustersim.scenario.problems import in_order, problems_of
from clustersim.scenario.read import read_tree
from clustersim.scenario.schema import Scenario
from clustersim.scenario.tree import Node, Place, from_plain

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MOST_FILES = 50
"""Files that one scenario may extend, all levels together."""


def load(source: str | Path | dict[str, Any], overrides: Sequence[str] = ()) -> Scenario:
    """Read and validate a scenario.

    Args:
        source: path of a YAML file (``"-"``: standard input), or plain data (bare numbers are SI then).
        overrides: changes as after ``--set``: ``"checkpoint.interval=20 min"``.

    Raises:
        InputError: with every problem found, each at its file, line and column.
    """
    if isinstance(source, dict):
        tree, wrong = _with_overrides(from_plain(source, Place(None)), overrides)
        return validate(tree, wrong, units=False)
    tree, problems = read_files(str(source))
    tree, wrong = _with_overrides(tree, overrides)
    return validate(tree, [*problems, *wrong])


def _with_overrides(tree: Node, overrides: Sequence[str]) -> tuple[Node, list[Problem]]:
    problems: list[Problem] = []
    for text in overrides:
        try:
            tree, wrong = apply_override(tree, text)
            problems += wrong
        except InputError as error:
            problems += error.problems
    return tree, problems


def read_files(name: str) -> tuple[Node, list[Problem]]:
    """The tree of a file laid on all files that it extends, and the problems found on the way.

    Raises:
        InputError: when a file cannot be read as a mapping at all.
    """
    problems: list[Problem] = []
    tree = _Reader(problems).read(name, name, ())
    return tree, problems


class _Reader:
    """Follows ``extends``; each file's path is kept to refuse cycles."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems, self.files = problems, 0

    def read(self, name: str, shown: str, above: tuple[Path, ...]) -> Node:
        self.files += 1
        if self.files > MOST_FILES:
            raise InputError(Problem("extends", f"more than {MOST_FILES} files are extended").at(shown))
        tree, found = read_tree(name, "<stdin>" if name == "-" else shown)
        self.problems += found
        _must_be_mapping(tree)
        bases = tree.value.pop("extends", None)
        if bases is None:
            return tree
        own = Path("-") if name == "-" else Path(name).resolve()
        merged: Node | None = None
        for base in self._named(bases):
            below = self._base(base, (*above, own))
            if below is not None:
                merged = below if merged is None else overlay(merged, below)
        if merged is None:
            return tree
        return _with_all_plugins(overlay(merged, tree), merged)

    def _named(self, bases: Node) -> list[Node]:
        items = bases.value if isinstance(bases.value, list) else [bases]
        good = [item for item in items if isinstance(item.value, str) and item.value]
        for item in items:
            if item not in good and item.value is not None:
                self._wrong(item, "must name YAML files: one, or a list of them")
        return good

    def _base(self, node: Node, above: tuple[Path, ...]) -> Node | None:
        folder = node.folder or Path.cwd()
        path = folder / Path(node.value).expanduser()
        if path.resolve() in above:
            chain = " -> ".join(item.name for item in (*above[above.index(path.resolve()) :], path))
            self._wrong(node, f"the files extend one another in a circle: {chain}")
            return None
        try:
            return self.read(str(path), _shown(node, path), above)
        except InputError as error:
            if all(problem.line is None and problem.file == _shown(node, path) for problem in error.problems):
                self._wrong(node, f"'{node.value}': {error.problems[0].message}")  # the name is what is wrong
            else:
                self.problems += error.problems
                self._wrong(node, f"'{node.value}' cannot be read; what is wrong with it is told at its own lines")
            return None

    def _wrong(self, node: Node, message: str) -> None:
        self.problems.append(Problem("extends", message).at(node.place.file, node.place.line, node.place.column))


def _shown(node: Node, path: Path) -> str:
    """What errors call an extended file: as its own name, seen from where the naming file is seen."""
    if node.place.file is None or node.place.file.startswith("<") or Path(node.value).is_absolute():
        return str(node.value)
    return str(Path(node.place.file).parent / node.value)


def _must_be_mapping(tree: Node) -> None:
    if isinstance(tree.value, dict):
        return
    if tree.value is None:
        message = "the file is empty; `clustersim init` writes a scenario to start from"
    else:
        kind = "a list" if isinstance(tree.value, list) else "a single value"
        message = f"must be a mapping (key: value), not {kind}"
    raise InputError(Problem("", message).at(tree.place.file, tree.place.line, tree.place.column))


def _with_all_plugins(tree: Node, below: Node) -> Node:
    """Plug-ins add up over files: a part that a lower file names needs its module still."""
    lower, own = below.child("plugins"), tree.child("plugins")
    if lower is None or own is None or not (isinstance(lower.value, list) and isinstance(own.value, list)):
        return tree
    named = [item.value for item in own.value]
    own.value = [item for item in lower.value if item.value not in named] + own.value
    return tree


def validate(tree: Node, problems: Sequence[Problem] = (), units: bool = True) -> Scenario:
    """The scenario that a tree describes.

    Args:
        tree: files and options already merged.
        problems: what is known to be wrong already.
        units: whether a bare number is refused where a unit is due.

    Raises:
        InputError: with ``problems`` and all that validation finds.
    """
    found = [*problems, *_import_plugins(tree)]
    context = {"units": "required"} if units else {}
    data = tree.plain()
    try:
        scenario = Scenario.model_validate(data, context=context)
    except ValidationError as error:
        details = error.errors(include_url=False)
        if any(problem.path == "extends" for problem in problems):  # what is missing may stand in what could not be read
            details = [detail for detail in details if detail["type"] != "missing"]
        fresh = [*problems_of(details, tree), *_checked_apart(data, tree, context, error)]
        known = [problem.path for problem in found if problem.path]
        found += [problem for problem in fresh if not _follows(problem.path, known)]
    if found:
        raise InputError(in_order(found))
    scenario.origin.tree = tree
    return scenario


def _follows(path: str, known: list[str]) -> bool:
    """Whether an error at ``path`` only repeats one that is known: of the same value, or of the block around it."""
    return any(other == path or (path and other.startswith(f"{path}.")) for other in known)


def _checked_apart(data: Any, tree: Node, context: dict[str, Any], error: ValidationError) -> list[Problem]:
    """Rules between blocks, for those blocks that are right by themselves."""
    if any(detail["type"] == "check" for detail in error.errors(include_url=False)):
        return []
    blocks = {name: _block(name, data, context) for name in Pieces._fields}
    lines = cross_check(Pieces(**blocks))
    details: list[ErrorDetails] = [
        {"type": "check", "loc": line["loc"], "msg": line["type"].message(), "input": None}  # type: ignore[union-attr]
        for line in lines
    ]
    return problems_of(details, tree)


def _block(name: str, data: Any, context: dict[str, Any]) -> Any:
    if name not in data and Scenario.model_fields[name].is_required():
        return None
    try:
        annotation: Any = Scenario.model_fields[name].annotation
        return TypeAdapter(annotation).validate_python(data.get(name, {}), context=context)
    except ValidationError:
        return None


def _import_plugins(tree: Node) -> list[Problem]:
    import_installed()
    node = tree.child("plugins")
    if node is None or not isinstance(node.value, list):
        return []
    problems = []
    for index, item in enumerate(node.value):
        wrong = import_plugin(item.value, item.folder or Path.cwd()) if isinstance(item.value, str) else None
        if wrong is not None:
            problems.append(Problem(f"plugins.{index}", wrong).at(item.place.file, item.place.line, item.place.column))
    return problems


def changed(scenario: Scenario, changes: Mapping[str, Any]) -> Any:
    """``scenario`` with the value at each path replaced; see ``Scenario.replace``.

    Raises:
        InputError: naming the path.
    """
    here = Place(None)
    tree = from_plain(
        without_measured(scenario.model_dump(mode="json", exclude_unset=True), scenario.calibration), here
    )
    tree = placed_like(tree, scenario.origin.tree)
    for path, value in changes.items():
        tree = assign(tree, path.split("."), from_plain(value, here), here)
    return validate(tree, units=False)
