"""What a command says: data to standard output, talk to standard error, progress on a terminal only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Talk:
    """How much to say."""

    quiet: bool = False
    verbose: int = 0

    def remark(self, text: str) -> None:
        """A line on standard error, unless quiet."""
        if not self.quiet:
            print(text, file=sys.stderr)

    def detail(self, text: str) -> None:
        """A line on standard error with ``-v``."""
        if self.verbose:
            print(text, file=sys.stderr)

    @contextmanager
    def progress(self, label: str) -> Iterator[Callable[[int, int], None] | None]:
        """A progress bar to call with (done, all); None where standard error is no terminal or quiet is asked."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


def print_json(document: Any) -> None:
    """One JSON document on standard output: UTF-8, no NaN, the same bytes for the same data."""
    print(to_json(document))


def to_json(document: Any) -> str:
    """``document`` as JSON text; a NaN or infinity in it is a bug and raises ``ValueError``."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
