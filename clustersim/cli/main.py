"""The program's entry: one boundary where every error becomes a line and an exit code."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer

from clustersim.cli.app import Interrupted, ReaderGone, app
from clustersim.cli.talk import say
from clustersim.errors import ClusterSimError, PluginError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and exit.

    Exit codes: 0 done, 1 the answer is no (or the output cannot be written), 2 the input is wrong, 3 impossible,
    130 interrupted.
    """
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # An old locale may lack letters of ours; a question mark is better than none.
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(guarded(arguments))


def _open_closed() -> None:
    """Give a program that was started with a closed stream (``>&-``, as some daemons do) an empty one in its place: Python has
    none then, and what is meant for standard error would go to standard output."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            found = os.open(os.devnull, os.O_RDWR)
            if found != number:
                os.dup2(found, number)
                os.close(found)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False))


def _interrupt(number: int, frame: object) -> NoReturn:
    """Being told to end (by ``kill``, or a batch system before it kills) is Ctrl-C from elsewhere."""
    raise KeyboardInterrupt


def guarded(arguments: Sequence[str] | None = None) -> int:
    """The exit code of a run of the program; every expected error is printed as lines on standard error."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except (ReaderGone, BrokenPipeError):
        return _closed()
    except PluginError as error:
        return _plugin_failed(error, arguments)
    except ClusterSimError as error:
        _say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _say("interrupted")
        return Interrupted.exit_code
    except MemoryError:
        _say("clustersim: out of memory")
        return 1
    except Exception as error:
        from clustersim.blame import plugin_error

        blamed = plugin_error(error)
        if blamed is not None:
            return _plugin_failed(blamed, arguments)
        if not isinstance(error, OSError):
            raise
        _say(f"clustersim: {_os_sentence(error)}")
        return 1


def _plugin_failed(error: PluginError, arguments: Sequence[str] | None) -> int:
    """One line that names the plug-in's method; the traceback with ``-v``."""
    given = sys.argv[1:] if arguments is None else arguments
    if any(word == "--verbose" or re.fullmatch("-[a-z]*v[a-z]*", word) for word in given):
        _say(error.details.rstrip())
    _say(str(error))
    return error.exit_code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = app(args=arguments if arguments is None else list(arguments), prog_name="clustersim", standalone_mode=False)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except _WRONG_USAGE as error:
        _say(_usage_sentence(error))
        return int(error.exit_code)
    return code if isinstance(code, int) else 0


_WRONG_USAGE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What the parser of arguments raises; typer has no public name for it."""


def _usage_sentence(error: Any) -> str:
    """What is wrong with the arguments, on one line; the help of a group of commands that was called without one."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.format_message())
    path = error.ctx.command_path if getattr(error, "ctx", None) is not None else "clustersim"
    told = " ".join(error.format_message().split()).rstrip(".")
    return f"{path}: {told} ({path} -h tells its arguments)"


def _closed() -> int:
    """The reader of a pipe has gone: say so, and keep the interpreter from writing to it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _say("clustersim: the reader of the output closed it early")
    return 1


def _os_sentence(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    words = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EROFS: "the file system is read-only",
        errno.EACCES: "permission denied",
        errno.ENOTDIR: "a part of the path is a file, not a directory",
        errno.ENAMETOOLONG: "the file name is too long",
        errno.EMFILE: "too many open files",
    }
    return where + words.get(error.errno or 0, error.strerror or str(error))


def _say(text: str) -> None:
    try:
        say(text, err=True)
    except OSError:
        return
