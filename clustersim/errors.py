"""The error tree. Every error that a user can cause is one of these.

ClusterSimError
├── KeyedError                 about keys; holds every problem found, not only the first
│   ├── InputError    exit 2   the scenario, file or option is wrong
│   │   └── PluginError        a part of a plug-in raised, or answered what cannot be
│   └── ImpossibleError exit 3 well-formed, but cannot be run
│       ├── DoesNotFit         a stage needs more memory than a GPU has
│       └── Deadlock           a schedule or its communication waits for itself
└── NegativeAnswer    exit 1   it ran, and the answer is no (a bound exceeded, a check failed, no progress)

A ``Problem`` is one line for the user: ``file:line:column: path.to.key: sentence``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the input, and what would be right.

    ``path`` is the key path as the user wrote it (``recovery.stages.start``); ``line`` and ``column`` count from 1.
    """

    path: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def at(self, file: str | None, line: int | None = None, column: int | None = None) -> Problem:
        """The same problem with a place in a file."""
        return replace(self, file=file, line=line, column=column)

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return ": ".join(part for part in (place, self.path, self.message) if part)


class ClusterSimError(Exception):
    """Base of all errors that clustersim raises on purpose; ``exit_code`` is what the CLI ends with."""

    exit_code = 1


class KeyedError(ClusterSimError):
    """An error about keys. ``problems`` holds one entry for every fault found."""

    def __init__(self, problems: Sequence[Problem] | Problem | str) -> None:
        if isinstance(problems, str):
            problems = Problem("", problems)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__(self._text())

    def _text(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

    def retell(self, told: Callable[[Problem], Problem]) -> None:
        """Put each problem in other words, or at a place that is known only here; the error stays the one that was raised."""
        self.problems = tuple(told(problem) for problem in self.problems)
        self.args = (self._text(),)

    def __reduce__(self) -> tuple[type[KeyedError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class InputError(KeyedError):
    """The input is wrong."""

    exit_code = 2


class PluginError(InputError):
    """A part of a plug-in raised, or answered what cannot be; ``details`` holds the traceback."""

    details: str = ""

    @classmethod
    def of(cls, problem: Problem | str, details: str) -> PluginError:
        """One with its traceback."""
        made = cls(problem)
        made.details = details
        return made


class ImpossibleError(KeyedError):
    """The scenario is well-formed, but no such run exists."""

    exit_code = 3


class DoesNotFit(ImpossibleError):
    """A stage needs more memory than its GPU has; the message says which, by how much, and what would help."""


class Deadlock(ImpossibleError):
    """A schedule waits for itself; the message says which rank waits at which op for what."""


class NegativeAnswer(ClusterSimError):
    """The command ran and its answer is no."""

    exit_code = 1


def nearest(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the known word closest to ``word``, or an empty string."""
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{match[0]}'?" if match else ""
