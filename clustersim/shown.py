"""What results look like where they are shown: notebooks (small HTML tables), terminals, figures; no text of a user acts."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TURNS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Marks that turn the direction of the text behind them."""


def printable(text: str) -> str:
    """A user's text for one line of a terminal: control characters, which could move the cursor or recolour it, and marks that
    turn the direction of what follows become ``\ufffd``; letters of all scripts and emoji stay."""
    return "".join("\ufffd" if unicodedata.category(char) in ("Cc", "Cs") or char in TURNS else char for char in text)


def cut(text: str, most: int) -> str:
    """``text`` with at most ``most`` characters; what follows becomes ``…``."""
    return text if len(text) <= most else text[: most - 1] + "…"


def drawable(text: str, most: int = 60) -> str:
    """A user's text for a matplotlib figure: a dollar sign starts no formula, nothing turns the text around, and it ends."""
    return printable(cut(text, most)).replace("$", r"\$")


def save_figure(figure: Figure, target: str | Path | IO[bytes], **options: Any) -> None:
    """``figure.savefig``; a letter that the font lacks becomes a box, which is seen and needs no warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(target, **options)


def shown(title: str, rows: Iterable[Sequence[Any]], head: Sequence[str] = ()) -> str:
    """A titled table; numbers to five figures, None as a dash."""
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    top = f"<thead><tr>{heads}</tr></thead>" if head else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(_said(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption><b>{escape(title)}</b></caption>{top}<tbody>{body}</tbody></table>"


def _said(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:.5g}"
    return str(value)


def with_interval(summary: dict[str, Any] | None) -> str:
    """Mean ± half a 95 % interval."""
    if summary is None:
        return "–"
    half = "" if summary["ci95"] is None else f" ± {(summary['ci95'][1] - summary['ci95'][0]) / 2:.2g}"
    return _said(float(summary["mean"])) + half
