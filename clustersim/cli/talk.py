"""What a command says: data to standard output, talk to standard error, progress on a terminal only."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Lines for people, on standard output or standard error: the only door of the commands. What a user named cannot act on a
    terminal (``clustersim.shown.printable``)."""
    from clustersim.shown import printable

    lines = ("\t".join(printable(cell) for cell in line.split("\t")) for line in text.split("\n"))
    print("\n".join(lines), end=end, file=sys.stderr if err else sys.stdout)


@dataclass(frozen=True)
class Talk:
    """How much to say."""

    quiet: bool = False
    verbose: int = 0

    def remark(self, text: str) -> None:
        """A line on standard error, unless quiet."""
        if not self.quiet:
            say(text, err=True)

    def warn(self, sentences: Iterable[str]) -> None:
        """Warnings, each once, on standard error, unless quiet."""
        for sentence in dict.fromkeys(sentences):
            self.remark(f"Warning: {sentence}")

    def detail(self, text: str) -> None:
        """A line on standard error with ``-v``."""
        if self.verbose:
            say(text, err=True)

    @contextmanager
    def progress(self, label: str) -> Iterator[Callable[[int, int], None] | None]:
        """A progress bar to call with (done, all); None where standard error is no terminal or quiet is asked."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from clustersim.shown import cut, printable

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(printable(cut(label, 60)), total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


def print_json(document: Any) -> None:
    """One JSON document on standard output: UTF-8, no NaN, the same bytes for the same data."""
    print(to_json(document))


def to_json(document: Any) -> str:
    """``document`` as JSON text; a NaN or infinity in it is a bug and raises ``ValueError``.

    What JSON lets stand and a terminal would act on (C1 controls, marks that turn text around) is written ``\\uXXXX``.
    """
    from clustersim.shown import TURNS

    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return re.sub(f"[\x7f-\x9f\ud800-\udfff{TURNS}]", lambda found: f"\\u{ord(found[0]):04x}", text)
