"""What a check says: one finding a fault, and the drawing of a stuck program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clustersim.pipeline.ops import Program


@dataclass(frozen=True)
class Finding:
    """One fault of an op list.

    Attributes:
        kind: ``missing``, ``double``, ``order``, ``stage``, ``unit``, ``cycle``, ``left-over``, ``communication``,
            ``copy`` or ``gather``.
        message: a sentence that names rank, op and what is wrong or waited for.
        rank: the rank, None where the fault is of no single rank.
        op: the op as text.
        place: the op's index in its rank's list, from 0.
        waits_for: what the op waits for, as text, for ``cycle`` and ``communication``.
        drawing: the stuck state, a line a rank, or empty.
    """

    kind: str
    message: str
    rank: int | None = None
    op: str | None = None
    place: int | None = None
    waits_for: str | None = None
    drawing: str = ""

    def __str__(self) -> str:
        return f"{self.message}\n{self.drawing}" if self.drawing else self.message


def draw_stuck(program: Program, places: Sequence[int], waits: Mapping[int, str], around: int = 3) -> str:
    """A line a rank: the last ops done, the op that it stands at in ``> <``, the next ones, what it waits for."""
    label = len(str(len(program.ranks) - 1))
    lines = []
    for rank, (order, place) in enumerate(zip(program.ranks, places, strict=True)):
        head = f"rank {rank:>{label}}  "
        if place >= len(order):
            lines.append(f"{head}done ({len(order)} ops)")
            continue
        done = [str(action) for action in order[max(0, place - around) : place]]
        left = [str(action) for action in order[place + 1 : place + 1 + around]]
        cells = (["…"] if place > around else []) + [*done, f">{order[place]}<", *left]
        cells += ["…"] if place + 1 + around < len(order) else []
        lines.append(f"{head}{' '.join(cells)}   waits for {waits.get(rank, 'its turn')}")
    return "\n".join(lines)


def some(numbers: Sequence[int], most: int = 6) -> str:
    """``3, 4, 5`` or ``0, 1, 2, 3, 4, 5 … (32 in all)``."""
    text = ", ".join(str(number) for number in numbers[:most])
    return text if len(numbers) <= most else f"{text} … ({len(numbers)} in all)"
