"""Writing results so that a half-written file is never taken for one: under another name first, then renamed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clustersim.errors import InputError, Problem

_WRONG_NAME = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}
"""What is wrong with the name that was given; all else (a full disk, no permission) is no mistake of the input."""


def output_folder(name: str) -> Path:
    """The folder ``name``, made if need be and writable.

    Raises:
        InputError: no folder can have this name.
        OSError: it cannot be written to.
    """
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except FileExistsError:
        raise InputError(Problem("", "is a file; -o needs the name of a folder").at(name)) from None
    except OSError as error:
        if error.errno not in _WRONG_NAME:
            error.filename = name
            raise
        raise InputError(Problem("", f"cannot be written to: {error.strerror}").at(name)) from None
    return folder


def write_output(path: Path, content: bytes) -> None:
    """Write a file that a user named, whole.

    Raises:
        InputError: no file can have this name.
        OSError: it cannot be written.
    """
    try:
        with written_whole(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        if error.errno not in _WRONG_NAME:
            raise
        raise InputError(f"cannot write {path}: {error.strerror}") from None


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` to write to; it becomes ``path`` when the block ends without an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:  # told by the name that was given, or by none where a write to the open file failed
        if error.filename in (None, str(temporary)):
            error.filename = str(path)
        error.filename2 = None
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove_old(folder: Path, names: tuple[str, ...]) -> None:
    """Remove results of an earlier run and the remains of one that was killed; the first of ``names`` goes first."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
    for name in names:
        for left in folder.glob(f".{name}.*.tmp"):
            left.unlink(missing_ok=True)
