"""Studies: many replicas of many scenarios. The public names load on first use."""

from __future__ import annotations

from typing import Any

_PUBLIC = {
    "compare": "comparison",
    "sweep": "sweeping",
    "plan": "planning",
    "optimum": "optimal",
    "sobol": "importance",
    "morris": "importance",
    "spread": "importance",
    "Range": "ranges",
    "Store": "store",
    "merge": "merging",
    "executor": "executors",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    """The public name, its module imported now."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'clustersim.study' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f"clustersim.study.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
