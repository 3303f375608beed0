"""One self-contained HTML page: styles and scripts inside, nothing loaded, every text of a user escaped."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The page may load nothing and talk to nobody; a browser enforces it."""
_TYPES = {"f8": "<f8", "f4": "<f4", "i4": "<i4", "u2": "<u2", "u1": "<u1"}


def asset(name: str) -> str:
    """The text of a file below ``assets``."""
    return (files("clustersim.report") / "assets" / name).read_text(encoding="utf-8")


def user(text: str) -> str:
    """A user's text: escaped, its direction kept from spilling over into the page."""
    return f"<bdi>{escape(text)}</bdi>"


def packed(array: npt.ArrayLike, kind: str) -> list[str]:
    """An array as ``[type, base64]``, which the scripts decode to a typed array."""
    return [kind, base64.b64encode(np.ascontiguousarray(array, dtype=_TYPES[kind]).tobytes()).decode("ascii")]


def data_block(name: str, data: Any) -> str:
    """Data for a script; no ``<`` survives, so no text in it can end the element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script id="{name}" type="application/json">{text}</script>'


def section(name: str, title: str, *parts: str) -> str:
    """A section with a heading that the navigation names; empty where it has no parts."""
    inner = "\n".join(part for part in parts if part)
    return (
        f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{escape(title)}</h2>\n{inner}</section>'
        if inner
        else ""
    )


def figure(title: str, drawn: str, note: str = "") -> str:
    """A drawing under its title."""
    below = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<figure><figcaption>{escape(title)}</figcaption>{drawn}{below}</figure>"


def breakable(text: str) -> str:
    """A user's text whose dotted paths may break behind a dot or a sign: ``cluster.`` ``spare_nodes=6``."""
    return re.sub(r"(?<=[a-z_*])([.=])(?=[a-z0-9_*])", r"\1<wbr>", escape(text))


def heading(text: str, *, breaks: bool = False) -> str:
    """The head of a column; a long one may take several lines."""
    style = ' class="long"' if len(text) > 32 else ""
    return f'<th scope="col"{style}>{breakable(text) if breaks else escape(text)}</th>'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    best: int | None = None,
    raw: bool = False,
    breaks: bool = False,
) -> str:
    """A table whose first column names the row.

    Args:
        best: index of a row to stress.
        raw: cells are HTML already.
        breaks: dotted paths may break behind their dots, and headings between words: many columns fit a sheet.
    """
    said = (lambda cell: cell) if raw else breakable if breaks else escape
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    heads = "".join(heading(cell, breaks=breaks) for cell in head)
    body = []
    for number, row in enumerate(rows):
        stress = ' class="best"' if number == best else ""
        cells = "".join(f"<td>{said(cell)}</td>" for cell in row[1:])
        body.append(f'<tr{stress}><th scope="row">{said(row[0])}</th>{cells}</tr>')
    style = ' class="wraps"' if breaks else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption or head[0] or "table")}">'
        f"<table{style}>{title}<thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def facts(pairs: Iterable[tuple[str, str, str]]) -> str:
    """Headline numbers: (what, value, its interval)."""
    cells = "".join(
        f"<div><dt>{escape(what)}</dt><dd>{escape(value)} <small>{escape(more)}</small></dd></div>"
        for what, value, more in pairs
    )
    return f'<dl class="facts">{cells}</dl>'


def folded(summary: str, inner: str) -> str:
    """Something long that opens on a click and in print."""
    return f"<details><summary>{escape(summary)}</summary>{inner}</details>"


def warnings(sentences: Iterable[str]) -> str:
    """A paragraph a warning."""
    return "".join(f'<p class="warning" role="note"><strong>Warning:</strong> {escape(text)}</p>' for text in sentences)


def page(
    title: str,
    about: str,
    sections: Sequence[str],
    *,
    scripts: Sequence[str] = (),
    styles: Sequence[str] = (),
    links: Sequence[tuple[str, str]] = (),
) -> str:
    """The whole page.

    Args:
        title, about: heading and the line below it, as users wrote them.
        sections: HTML of the sections.
        scripts, styles: further assets by name; the page's own come first.
        links: (id, name) of what the navigation leads to.
    """
    from clustersim import __version__

    said = title if len(title) <= 200 else title[:199] + "…"
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><meta name="generator" '
        f'content="clustersim {__version__}">'
        f"<title>{escape(said)}</title><style>{''.join(asset(name) for name in ('page.css', *styles))}</style>"
    )
    nav = "".join(f'<a href="#{name}">{escape(what)}</a>' for name, what in links)
    code = "".join(f"<script>\n{asset(name)}</script>\n" for name in ("page.js", *scripts))
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n<a class="skip" href="#main">to the content</a>\n'
        f'<header class="top"><div class="row"><h1>{user(title)}</h1><button id="theme" type="button">'
        "dark / light</button></div>"
        f'<p class="about">{user(about)}</p><nav aria-label="Sections">{nav}</nav></header>\n<main id="main">\n'
        + "\n".join(part for part in sections if part)
        + f"\n</main>\n<footer>Made by clustersim {__version__}. This file is complete in itself: it loads nothing.</footer>\n"
        + f'<div class="tip" id="page-tip" role="tooltip"></div>\n{code}</body></html>\n'
    )
