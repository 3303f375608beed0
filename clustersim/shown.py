"""What results look like in a notebook: small HTML tables, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


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
