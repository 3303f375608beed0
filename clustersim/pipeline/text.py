"""Op lists as text: the CSV of ``torch.distributed.pipelining``, in and out.

One row a rank, one cell an action: ``2F3`` (stage, kind, unit), ``1UNSHARD`` (a whole stage), ``(0F4;7B1)OVERLAP_F_B``
(a fused pair), ``[0SEND_F5+0RECV_B2]`` (messages posted together; an extension, torch's CSV has no such cell). Empty
cells are idle slots of a drawing and are skipped. Lists without and with communication have the same form.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from clustersim.errors import InputError, Problem, nearest
from clustersim.pipeline.ops import Action, Batch, Fused, Kind, Op, Program, parts_of

_OP = re.compile(r"(\d+)([A-Z](?:_?[A-Z]+)*)(\d*)")
_KINDS = {kind.value: kind for kind in Kind}
_WHOLE_STAGE = frozenset({Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD})
_PAIR = "OVERLAP_F_B"


def parse_op(text: str) -> Op:
    """The op that ``2F3`` or ``1RESHARD`` names.

    Raises:
        ValueError: a sentence that says what is wrong with it.
    """
    match = _OP.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{_shown(text)}' is no op: write stage, kind, unit, for example 2F3")
    stage, name, unit = match.groups()
    kind = _KINDS.get(name)
    if kind is None:
        raise ValueError(f"'{text.strip()}' has no known kind{nearest(name, _KINDS)}; kinds: {' '.join(_KINDS)}")
    if (kind in _WHOLE_STAGE) != (unit == ""):
        rule = "is for a whole stage and takes no unit" if unit else "needs the unit's number"
        raise ValueError(f"'{text.strip()}': {name} {rule}")
    return Op(int(stage), kind, int(unit) if unit else None)


def _shown(text: str, most: int = 40) -> str:
    """A cell as messages show it: on one line, without what a terminal cannot print, and not too long."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text.strip())
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def parse_action(text: str) -> Action:
    """One cell: an op, a fused pair or a batch of messages.

    Raises:
        ValueError: a sentence that says what is wrong with it.
    """
    text = text.strip()
    if text.startswith("("):
        inner, closed, after = text[1:].partition(")")
        pair = [parse_op(part) for part in inner.split(";")]
        if not closed or after != _PAIR or len(pair) != 2:
            raise ValueError(f"'{text}' is no fused pair: write (0F4;7B1){_PAIR}")
        return Fused(*pair)
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueError(f"'{text}' is no batch of messages: write [0SEND_F5+0RECV_B2]")
        return Batch(tuple(parse_op(part) for part in text[1:-1].split("+")))
    return parse_op(text)


def _rows(text: str, file: str | None) -> Iterator[list[Action]]:
    problems: list[Problem] = []
    most = 64 * (text.count(",") + text.count("\n")) + 10_000
    for line, cells in enumerate(_cells(text, file), start=1):
        actions: list[Action] = []
        for column, cell in enumerate(cells, start=1):
            if not cell.strip():
                continue
            try:
                actions.append(_in_range(parse_action(cell), most))
            except ValueError as error:
                problems.append(Problem("", str(error), file, line, column))
        if cells:
            yield actions
    if problems:
        raise InputError(problems)


def _cells(text: str, file: str | None) -> Iterator[list[str]]:
    """The rows of a CSV text.

    Raises:
        InputError: a row that is no CSV, such as one with a cell of over 100,000 characters.
    """
    reader = csv.reader(io.StringIO(text))
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(Problem("", f"is no row of CSV: {error}", file, reader.line_num, 1)) from None


def _in_range(action: Action, most: int) -> Action:
    """The action, where its numbers are at most ``most``.

    Raises:
        ValueError: a list of n ops has at most n stages and n units; far beyond, what is missing has no end.
    """
    for op in parts_of(action):
        number = max(op.stage, op.microbatch or 0)
        if number > most:
            raise ValueError(f"'{op}': number {number} is out of range for a list of this size (0 to {most})")
    return action


def parse_program(
    text: str,
    *,
    microbatches: int | None = None,
    slices: int = 1,
    chains: int = 1,
    name: str = "",
    file: str | None = None,
) -> Program:
    """The program that a CSV text describes.

    Args:
        text: one row a rank.
        microbatches: microbatches a step, over all chains; read off the highest unit when absent.
        slices: units that make one microbatch.
        chains: independent pipelines that share the ranks (Chimera, DualPipe: 2).
        name: what the program is called in reports.
        file: where the text came from, for error messages.

    Raises:
        InputError: one problem for every cell that cannot be read (line = row, column = cell, both from 1).
    """
    ranks = tuple(tuple(row) for row in _rows(text, file))
    if not any(ranks):
        raise InputError(Problem("", "the op list is empty: write one row a rank, one cell an op", file))
    units = 1 + max((op.microbatch for op in all_ops(ranks) if op.microbatch is not None), default=-1)
    if microbatches is None:
        microbatches = max(1, units * chains // slices)
    return Program(ranks, microbatches, slices, chains, name=name)


def load_program(path: str | Path, *, microbatches: int | None = None, slices: int = 1, chains: int = 1) -> Program:
    """The program in a CSV file; see :func:`parse_program`.

    Raises:
        InputError: when the file cannot be read or a cell is wrong.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(Problem("", f"cannot read the op list: {reason}", str(path))) from None
    return parse_program(text, microbatches=microbatches, slices=slices, chains=chains, name=path.stem, file=str(path))


def to_csv(program: Program) -> str:
    """The program as CSV, one row a rank; :func:`parse_program` and torch's ``_load_csv`` read it."""
    return "".join(",".join(str(action) for action in rank) + "\n" for rank in program.ranks)


def to_grid(program: Program, width: int | None = None) -> str:
    """The program as aligned text for a terminal: a row a rank, columns in list order (not in time)."""
    rows = [[str(action) for action in rank] for rank in program.ranks]
    cell = max((len(text) for row in rows for text in row), default=1)
    label = len(str(len(rows) - 1))
    lines = []
    for rank, row in enumerate(rows):
        line = f"rank {rank:>{label}}: " + " ".join(f"{text:<{cell}}" for text in row)
        lines.append(line.rstrip() if width is None else line[:width].rstrip())
    return "\n".join(lines) + "\n"


def all_ops(ranks: Iterable[Iterable[Action]]) -> Iterator[Op]:
    """Every op of every rank, fused pairs and batches opened."""
    return (op for rank in ranks for action in rank for op in parts_of(action))


def merge_backward(program: Program) -> Program:
    """The same program with every I directly followed by its own W written as one full backward B."""
    ranks = tuple(tuple(_merged(rank)) for rank in program.ranks)
    return replace(program, ranks=ranks)


def split_backward(program: Program) -> Program:
    """The same program with every full backward written as I, W (fused pairs keep their B)."""
    ranks = tuple(tuple(part for action in rank for part in _split(action)) for rank in program.ranks)
    return replace(program, ranks=ranks)


def _split(action: Action) -> Iterator[Action]:
    if isinstance(action, Op) and action.kind is Kind.B:
        yield Op(action.stage, Kind.I, action.microbatch)
        yield Op(action.stage, Kind.W, action.microbatch)
    else:
        yield action


def _merged(rank: tuple[Action, ...]) -> Iterator[Action]:
    skip = False
    for action, after in zip(rank, (*rank[1:], None), strict=True):
        if skip:
            skip = False
        elif isinstance(action, Op) and action.kind is Kind.I and after == Op(action.stage, Kind.W, action.microbatch):
            yield Op(action.stage, Kind.B, action.microbatch)
            skip = True
        else:
            yield action
