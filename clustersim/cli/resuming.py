"""What a study says when it is interrupted: how much is kept, where, and how to go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clustersim.cli.app import Interrupted

Progress = Callable[[int, int], None]
ROUND = "replicas of this round"
"""What is counted where more may follow: designs that stay in a plan, or replicas that ``--until`` asks for."""


class Kept:
    """Counts the replicas that are finished; stands between a study and its progress bar."""

    def __init__(self, out: str | None, what: str) -> None:
        self.out, self.what, self.done, self.total = out, what, 0, 0

    def counting(self, progress: Progress | None) -> Progress:
        """Like ``progress``, and counted here."""

        def tell(done: int, total: int) -> None:
            self.done, self.total = done, total
            if progress is not None:
                progress(done, total)

        return tell

    def sentence(self) -> str:
        """For whoever interrupted the study."""
        counted = f"{self.done:,} of {self.total:,} {self.what}"
        again = "the same command goes on from there"
        if self.out is not None and self.done:
            return f"interrupted; {counted} are finished and kept in {Path(self.out)}: {again}"
        if self.out is not None and any(Path(self.out).glob("records-*.jsonl")):
            return f"interrupted; the replicas that were finished before are kept in {Path(self.out)}: {again}"
        if self.done:
            return f"interrupted; {counted} were finished, and none is kept: with -o DIR they are, and {again}"
        return "interrupted before a replica was finished; nothing is kept"


@contextmanager
def resumable(out: str | None, what: str = "replicas") -> Iterator[Kept]:
    """A study that may be interrupted.

    Args:
        out: the folder that keeps its records, None: nothing does.
        what: what is counted.
    """
    kept = Kept(out, what)
    try:
        yield kept
    except KeyboardInterrupt:
        raise Interrupted(kept.sentence()) from None
