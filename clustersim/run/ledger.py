"""Where every second of a run went: exclusive categories whose sum is the wall time.

What was done while training stays tentative: it is held as pieces in order of steps, and a rollback moves all that lies
behind the restored state to ``rework``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from clustersim.checkpoint.pattern import Books
from clustersim.checkpoint.stretch import Stretch
from clustersim.recovery.stages import Section

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


@dataclass(slots=True)
class Piece:
    """Training that is kept so far, from ``step_from`` to ``step_to``: of a stretch, or of one leg by itself.

    ``open``: it goes on beyond its last save, with steps, a broken step or a stall that no copy holds.
    """

    step_from: int
    step_to: int
    books: Books
    stretch: Stretch | None = None
    open: bool = False


class Ledger:
    """Books the seconds of one run."""

    def __init__(self) -> None:
        self._spent: dict[str, list[float]] = {category: [] for category in CATEGORIES}
        self._sections: dict[Section, int] = {}
        self.pieces: list[Piece] = []

    def spend(self, category: str, seconds: float) -> None:
        """Book seconds for good; a strategy may bring categories of its own."""
        spent = self._spent.get(category)
        if spent is None:
            spent = self._spent[category] = []
        spent.append(seconds)

    def spend_section(self, section: Section) -> None:
        """Book a section of recovery stages that ran from start to end."""
        self._sections[section] = self._sections.get(section, 0) + 1

    def keep(self, piece: Piece) -> None:
        """Book training, until a rollback takes it back."""
        self.pieces.append(piece)

    def rollback(self, step: int) -> None:
        """Move all training behind ``step`` to ``rework``."""
        while self.pieces and (self.pieces[-1].step_to > step or self.pieces[-1].open):
            piece = self.pieces.pop()
            kept = _cut(piece, step)
            if piece.open and piece.step_from < step == piece.step_to:  # a copy was made while it still stood still
                kept = Piece(piece.step_from, step, piece.books._replace(other=0.0), piece.stretch)
            if kept is not None:
                self.pieces.append(kept)
            lost = math.fsum(piece.books) - (math.fsum(kept.books) if kept else 0.0)
            self._spent["rework"].append(lost)
            if kept is not None:
                return

    def totals(self) -> dict[str, float]:
        """Seconds by category, in the order of ``CATEGORIES``, then a strategy's own."""
        terms = {category: list(values) for category, values in self._spent.items()}
        for section, count in self._sections.items():
            for step in section.steps:
                terms.setdefault(step.category, []).append(count * (step.fixed_s or 0.0))
        for piece in self.pieces:
            for category, value in zip(Books._fields, piece.books, strict=True):
                if value:
                    terms[category].append(value)
        return {category: math.fsum(values) for category, values in terms.items()}

    @property
    def steps(self) -> int:
        """Steps kept."""
        return self.pieces[-1].step_to if self.pieces else 0


def _cut(piece: Piece, step: int) -> Piece | None:
    """The part of a piece up to ``step`` (a save of its); None: nothing of it."""
    if step <= piece.step_from or piece.stretch is None:
        return None
    legs = piece.stretch.legs_to(step)
    return Piece(piece.step_from, step, piece.stretch.books(legs), piece.stretch)
