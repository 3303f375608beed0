"""Whose fault an unforeseen error is: a part's that is not of this package, or ours.

Whatever a plug-in raises passes through the package like any other exception. ``plugin_error`` reads off the traceback whether
code of a plug-in raised it, or whether it came of what a plug-in's part had answered, and makes one line of it that names the
class and the method. All else is a fault of the package: there the traceback is what a report needs.
"""

from __future__ import annotations

import sys
import traceback
from types import FrameType

from clustersim.errors import PluginError, Problem
from clustersim.part import Part

OURS = "clustersim"


def plugin_error(error: BaseException) -> PluginError | None:
    """The error as one line that names the plug-in's class and method; None: no plug-in had a part in it."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    lines = {id(frame): line for frame, line in traceback.walk_tb(error.__traceback__)}
    modules = foreign_modules()
    raised = next((frame for frame in reversed(frames) if _module(frame) in modules), None)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if raised is not None:
        problem = Problem("", f"{_method(raised)} raised {what}").at(raised.f_code.co_filename, lines[id(raised)])
    else:
        part = next((found for frame in reversed(frames) if (found := _foreign_part(frame)) is not None), None)
        if part is None:
            return None
        problem = Problem("", f"{_title(type(part))} answered what cannot be: {what}").at(_file(type(part)))
    return PluginError.of(problem, "".join(traceback.format_exception(error)))


def foreign_modules() -> frozenset[str]:
    """Modules outside the package that have defined a part."""
    known = {part.__module__ for family in Part.families.values() for part in family.kinds.values()}
    return frozenset(name for name in known if not _ours(name))


def _ours(module: str) -> bool:
    return module == OURS or module.startswith(f"{OURS}.")


def _module(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__", "")
    return name if isinstance(name, str) else ""


def _method(frame: FrameType) -> str:
    """``MyStrategy.comeback (recovery strategy 'mine')`` for a method of a part, else the function's name in its module."""
    owner = frame.f_locals.get("self", frame.f_locals.get("cls"))
    owner = owner if isinstance(owner, type) else type(owner)
    if issubclass(owner, Part) and owner.kind:
        return f"{owner.__qualname__}.{frame.f_code.co_name} ({owner.family} '{owner.kind}')"
    return f"{_module(frame)}.{frame.f_code.co_qualname}"


def _foreign_part(frame: FrameType) -> Part | None:
    """A part of a plug-in that a frame of the package is dealing with."""
    held = (value for value in frame.f_locals.values() if isinstance(value, Part))
    return next((part for part in held if not _ours(type(part).__module__)), None)


def _title(part: type[Part]) -> str:
    return f"{part.__qualname__} ({part.family} '{part.kind}')"


def _file(part: type[Part]) -> str | None:
    return getattr(sys.modules.get(part.__module__), "__file__", None)
