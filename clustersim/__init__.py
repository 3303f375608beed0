"""clustersim: a discrete-event simulator of large training clusters.

The public names load on first use, so that ``import clustersim`` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Scenario": "clustersim.scenario.schema",
    "load": "clustersim.scenario.load",
    "simulate": "clustersim.run.simulate",
    "RunResult": "clustersim.run.result",
    "step": "clustersim.study.step",
    "run_replicas": "clustersim.study.replicas",
    "ClusterSimError": "clustersim.errors",
    "InputError": "clustersim.errors",
    "ImpossibleError": "clustersim.errors",
    "NegativeAnswer": "clustersim.errors",
}

__all__ = ["__version__", *sorted(_PUBLIC)]

if TYPE_CHECKING:
    from clustersim.errors import ClusterSimError, ImpossibleError, InputError, NegativeAnswer
    from clustersim.scenario.load import load
    from clustersim.scenario.schema import Scenario


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'clustersim' has no attribute '{name}'")
    import importlib

    found = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
