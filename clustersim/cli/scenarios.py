"""Loading the scenarios that a command names, all their errors together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clustersim.cli.talk import say
from clustersim.errors import InputError, Problem

if TYPE_CHECKING:
    from clustersim.scenario.schema import Scenario


def import_plugins() -> None:
    """Import the parts that installed packages announce; a line on standard error for each package that cannot be imported."""
    import clustersim.scenario.schema  # noqa: F401 - registers the parts of this package
    from clustersim.scenario.parts import import_installed

    for sentence in import_installed():
        say(f"Warning: {sentence}", err=True)


def load_all(names: Sequence[str], overrides: Sequence[str] | None) -> list[Scenario]:
    """The scenarios of all files.

    Raises:
        InputError: with the problems of every file.
    """

    from clustersim.scenario.load import load

    import_plugins()
    loaded: list[Scenario] = []
    problems: list[Problem] = []
    for name in names:
        try:
            loaded.append(load(name, tuple(overrides or ())))
        except InputError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    if problems:
        raise InputError(problems)
    return loaded


def load_one(name: str, overrides: Sequence[str] | None) -> Scenario:
    """The scenario of one file; see ``load_all``."""
    return load_all([name], overrides)[0]
