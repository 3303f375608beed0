"""Knowing every part: those of the package, of installed plug-ins, and of the modules that a scenario names."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from importlib import metadata
from pathlib import Path

ENTRY_POINTS = "clustersim.parts"
"""Group of entry points; each names a module whose import registers parts."""

_PACKAGES = ("pipeline.schedules", "faults", "checkpoint", "recovery")


@functools.cache
def import_parts() -> None:
    """Import every module of the packages that hold parts, so that each class is registered."""
    for name in _PACKAGES:
        package = importlib.import_module(f"clustersim.{name}")
        for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
            importlib.import_module(f"clustersim.{name}.{module.name}")


@functools.cache
def import_installed() -> tuple[str, ...]:
    """Import the modules that installed packages announce; returns a sentence for each that cannot be imported."""
    failed = []
    for point in sorted(metadata.entry_points(group=ENTRY_POINTS), key=lambda found: (found.name, found.value)):
        try:
            point.load()
        except (Exception, SystemExit) as error:
            failed.append(
                f"the plug-in '{point.name}' ({point.value}) cannot be imported: {type(error).__name__}: {error}"
            )
    return tuple(failed)


def import_plugin(name: str, folder: Path | None) -> str | None:
    """Import the module that a scenario names; a sentence when that fails.

    A module that is not installed is looked for beside the file that names it; its folder then stays importable, so
    that worker processes find it too.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        return f"'{name}' is no name of a Python module"
    try:
        _import(name, folder)
    except ModuleNotFoundError as error:
        if error.name == name or (error.name and name.startswith(f"{error.name}.")):
            return f"there is no module '{name}', neither installed nor beside this file"
        return f"'{name}' imports '{error.name}', which is not installed"
    except (Exception, SystemExit) as error:
        return f"'{name}' cannot be imported: {type(error).__name__}: {error}"
    return None


def _import(name: str, folder: Path | None) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        first = name.split(".")[0]
        beside = folder is not None and ((folder / f"{first}.py").is_file() or (folder / first).is_dir())
        if error.name != first or not beside or str(folder) in sys.path:
            raise
        sys.path.append(str(folder))
        importlib.invalidate_caches()
        importlib.import_module(name)
