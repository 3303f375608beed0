"""Reading a YAML file: from its name to a tree with places, every way in which a file can be wrong a sentence."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from clustersim.errors import InputError, Problem, nearest
from clustersim.scenario.tree import MOST_NODES, Node, Place, TreeBuilder

LARGEST_FILE = 256 * 1024
"""Bytes. Larger tables (fault traces, op lists) are files of their own, which a scenario names."""

_SENTENCES = (
    (r"found character '\\t'", "a tab stands here; YAML indents with spaces"),
    (r"found character '(.)'", r"a value cannot start with '\1'; quote it"),
    (r"mapping values are not allowed", "a ': ' too many here; indent it below its key, or quote the text"),
    (r"could not find expected ':'", "a key without ': ' above this line"),
    (r"expected <block end>, but found '<block sequence start>'", "a list item '-' where a key is due; check the indentation"),
    (r"expected <block end>", "the indentation fits no line above"),
    (r"expected ',' or '\]'", "a ',' or the closing ']' of a list is missing"),
    (r"expected ',' or '\}'", "a ',' or the closing '}' of a mapping is missing"),
    (r"unexpected end of stream", "a quote is opened and never closed"),
    (r"found undefined alias '?([^' ]*)'?", r"'*\1' refers to an anchor that is nowhere above; quote it if a star is meant"),
    (r"found another document", "the file holds a second document ('---'); one file is one scenario"),
    (r"found duplicate anchor", "this anchor's name is taken; anchors need names of their own"),
    (r"found undefined tag handle", "tags ('!…') are not allowed in a scenario"),
)  # fmt: skip


def read_tree(name: str, shown: str | None = None) -> tuple[Node, list[Problem]]:
    """The tree of a YAML file and the problems found while building it.

    Args:
        name: path of the file; ``-`` reads standard input.
        shown: what errors call the file; default: ``name``.

    Raises:
        InputError: when no tree can be read at all.
    """
    shown = shown or ("<stdin>" if name == "-" else name)
    folder = Path.cwd() if name == "-" else Path(name).absolute().parent
    return parse_tree(read_text(name, shown), shown, folder)


def read_text(name: str, shown: str) -> str:
    """Text of the file, at most ``LARGEST_FILE`` bytes of UTF-8."""
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(LARGEST_FILE + 1)
        elif not name.strip():
            raise _refuse(shown or "''", "is no name of a file")
        else:
            raw = _read_bytes(Path(name))
    except FileNotFoundError:
        raise _refuse(shown, f"there is no such file{_similar(Path(name))}") from None
    except IsADirectoryError:
        raise _refuse(shown, "is a directory; name a YAML file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refuse(shown, f"cannot be read: {reason}") from None
    if len(raw) > LARGEST_FILE:
        raise _refuse(shown, f"is larger than {LARGEST_FILE // 1024} KiB, which no scenario needs; "
                             "put tables into files of their own")  # fmt: skip
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        message = f"byte 0x{raw[error.start]:02x} is no UTF-8; save the file as UTF-8 text"
        raise InputError(Problem("", message).at(shown, line, column)) from None


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise IsADirectoryError
    with path.open("rb") as file:
        return file.read(LARGEST_FILE + 1)


def _similar(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except OSError:
        return ""
    return nearest(path.name, names)


def _refuse(shown: str, message: str) -> InputError:
    return InputError(Problem("", message).at(shown))


def parse_tree(text: str, shown: str, folder: Path | None, place: Place | None = None) -> tuple[Node, list[Problem]]:
    """The tree of YAML text; ``place``, if given, stands for every position in it (a command-line option)."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    _refuse_huge(text, shown)
    yaml = YAML(typ="safe", pure=True)
    try:
        graph = yaml.compose(text)
    except RecursionError:
        raise _refuse(shown, "is nested too deeply to be a scenario") from None
    except YAMLError as error:
        raise InputError(_yaml_problem(error, text, shown, place)) from None
    except (ValueError, IndexError, AttributeError, TypeError) as error:  # slips of the parser on odd input
        raise _refuse(shown, f"is not YAML: {error}") from None
    if graph is None:
        return Node(None, place or Place(shown), folder=folder), []
    builder = TreeBuilder(shown, folder, yaml.constructor, place)
    tree = builder.build(graph)
    return tree, builder.problems


def _refuse_huge(text: str, shown: str) -> None:
    """Refuse before parsing what would take the parser seconds: brackets without end, tens of thousands of values."""
    if text.count(",") + text.count("\n") > 2 * MOST_NODES:
        raise _refuse(shown, f"holds more than {2 * MOST_NODES:,} lines and list entries; a scenario is smaller")
    depth = 0
    for bracket in re.findall(r"[\[{\]}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > 100:
            raise _refuse(shown, "is nested too deeply to be a scenario")


def _yaml_problem(error: Any, text: str, shown: str, place: Place | None) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    raw = str(getattr(error, "problem", None) or error).split("\n")[0]
    message = next((re.sub(f".*{pattern}.*", sentence, raw) for pattern, sentence in _SENTENCES if re.search(pattern, raw)),
                   f"is not YAML: {raw}")  # fmt: skip
    position = getattr(error, "position", None)
    if mark is None and isinstance(position, int):  # a character that no text file holds
        before = text[:position]
        line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
        message = f"the control character #x{ord(text[position]):02x} stands here; a scenario is plain text"
    elif mark is None:
        return Problem("", message).at(shown)
    else:
        line, column = mark.line + 1, mark.column + 1
    if place is not None:
        return Problem("", message).at(place.file, place.line, place.column)
    return Problem("", message).at(shown, line, column)
