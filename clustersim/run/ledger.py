"""Where every second of a run went: exclusive categories whose sum is the wall time.

What was done while training stays tentative: it is held as pieces in order of steps, and a rollback moves all that lies
behind the restored state to ``rework``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from clustersim.checkpoint.pattern import Books, Pace, book_steps
from clustersim.checkpoint.stretch import Stretch
from clustersim.recovery.stages import Section, Spent

CATEGORIES = (
    "train",
    "rework",
    "checkpoint_stall",
    "checkpoint_slowdown",
    "straggle",
    "degraded",
    "detect",
    "diagnose",
    "reschedule",
    "wait_for_nodes",
    "start",
    "communicators",
    "load",
    "warm_up",
    "migrate",
    "other",
)


class Piece:
    """Training that is kept so far, from ``step_from`` to ``step_to``.

    Attributes:
        books: where its seconds went; None: the first ``legs`` legs of ``stretch`` say so.
        stretch: the stretch that it belongs to; None: one leg by itself.
        open: it goes on beyond its last save, with steps, a broken step or a stall that no copy holds.
    """

    __slots__ = ("books", "legs", "open", "step_from", "step_to", "stretch")

    def __init__(self, step_from: int, step_to: int, books: Books | None = None, stretch: Stretch | None = None,
                 open: bool = False, legs: int = 0) -> None:  # fmt: skip
        self.step_from, self.step_to, self.books, self.stretch = step_from, step_to, books, stretch
        self.open, self.legs = open, legs

    def booked(self) -> Books:
        """Where its seconds went."""
        if self.books is not None:
            return self.books
        assert self.stretch is not None
        return self.stretch.books(self.legs)

    def up_to(self, step: int) -> Piece | None:
        """The part up to ``step``, a save of its; None: nothing of it."""
        if step <= self.step_from:
            return None
        if self.open and step == self.step_to:  # a copy was made while training still stood still
            return Piece(self.step_from, step, self.booked()._replace(other=0.0), self.stretch)
        if self.stretch is None:
            return None
        return Piece(self.step_from, step, stretch=self.stretch, legs=self.stretch.legs_to(step))


class Ledger:
    """Books the seconds of one run."""

    def __init__(self) -> None:
        self._spent: dict[str, list[float]] = {category: [] for category in CATEGORIES}
        self._sections: dict[Section, int] = {}
        self.pieces: list[Piece] = []
        self._trained: list[float] = []
        """Training up to the end of each piece, as far as it has been asked for."""

    def spend(self, category: str, seconds: float) -> None:
        """Book seconds for good; a strategy may bring categories of its own."""
        spent = self._spent.get(category)
        if spent is None:
            spent = self._spent[category] = []
        spent.append(seconds)

    def spend_all(self, spent: Sequence[Spent]) -> None:
        """Book stages of a recovery that ran from start to end."""
        sections = self._sections
        for item, start, end in spent:
            if isinstance(item, Section):
                sections[item] = sections.get(item, 0) + 1
            else:
                self.spend(item.category, end - start)

    def keep(self, piece: Piece) -> None:
        """Book training, until a rollback takes it back."""
        self.pieces.append(piece)

    def rollback(self, step: int) -> None:
        """Move all training behind ``step`` to ``rework``."""
        pieces = self.pieces
        while pieces and (pieces[-1].step_to > step or pieces[-1].open):
            piece = pieces.pop()
            kept = piece.up_to(step)
            del self._trained[len(pieces) :]
            lost = math.fsum(piece.booked())
            if kept is not None:
                pieces.append(kept)
                self._spent["rework"].append(lost - math.fsum(kept.booked()))
                return
            self._spent["rework"].append(lost)

    def totals(self) -> dict[str, float]:
        """Seconds by category, in the order of ``CATEGORIES``, then a strategy's own."""
        terms = {category: list(values) for category, values in self._spent.items()}
        for section, count in self._sections.items():
            for step in section.steps:
                terms.setdefault(step.category, []).append(count * (step.fixed_s or 0.0))
        for category, column in zip(Books._fields, zip(*self._kept(), strict=True), strict=False):
            terms[category] += column
        return {category: math.fsum(values) for category, values in terms.items()}

    def _kept(self) -> Iterator[Books]:
        """Books of all that is kept; whole legs of one pace are counted together."""
        counted: dict[Pace, tuple[list[int], list[int], list[float]]] = {}
        for piece in self.pieces:
            if piece.books is not None:
                yield piece.books
            elif piece.stretch is not None:
                steps, slow, stalls = counted.setdefault(piece.stretch.pattern.pace, ([], [], []))
                steps.append(piece.step_to - piece.step_from)
                slow.append(piece.stretch.slow_steps(piece.legs))
                stalls.append(piece.stretch.stall_s(piece.legs))
        for pace, (steps, slow, stalls) in counted.items():
            yield book_steps(pace, sum(steps), sum(slow), math.fsum(stalls))

    @property
    def trained_s(self) -> float:
        """Training that is kept so far, seconds."""
        done = self._trained
        for piece in self.pieces[len(done) :]:
            done.append((done[-1] if done else 0.0) + piece.booked().train)
        return done[-1] if done else 0.0

    @property
    def steps(self) -> int:
        """Steps kept."""
        return self.pieces[-1].step_to if self.pieces else 0
