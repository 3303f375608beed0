"""File names in a scenario: relative to the file that names them, wherever the program was started.

The loader hands strings on as ``FileText``, which remember their file's folder; ``InputPath`` fields turn them absolute.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError


class FileText(str):
    """A string of a scenario file, with the folder of that file."""

    folder: Path | None = None

    @classmethod
    def of(cls, text: str, folder: Path | None) -> FileText:
        """``text`` as it stands in a file of ``folder``."""
        made = cls(text)
        made.folder = folder
        return made


class PresetText(str):
    """A preset's value, put back where a measured one stood: the scenario itself does not state it."""


def absolute(value: Any) -> str:
    """The name of a file as an absolute path, or as it is where no folder is known."""
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise PydanticCustomError("path", "must be the name of a file")
    folder = value.folder if isinstance(value, FileText) else None
    path = Path(value).expanduser()
    return str(path if folder is None or path.is_absolute() else (folder / path).resolve())


InputPath = Annotated[
    str,
    PlainValidator(absolute),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "description": "A file; relative names count from the scenario's own folder."}),
]
"""A field type: the name of a file to read, absolute after validation."""
