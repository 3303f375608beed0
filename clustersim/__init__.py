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
    from clustersim.errors import ClusterSimError as ClusterSimError
    from clustersim.errors import ImpossibleError as ImpossibleError
    from clustersim.errors import InputError as InputError
    from clustersim.errors import NegativeAnswer as NegativeAnswer
    from clustersim.run.result import RunResult as RunResult
    from clustersim.run.simulate import simulate as simulate
    from clustersim.scenario.load import load as load
    from clustersim.scenario.schema import Scenario as Scenario
    from clustersim.study.replicas import run_replicas as run_replicas
    from clustersim.study.step import step as step


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'clustersim' has no attribute '{name}'")
    import importlib

    found = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
