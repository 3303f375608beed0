"""The JSON documents of the commands, and what they were made with."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustersim.errors import Problem
    from clustersim.scenario.schema import Scenario
    from clustersim.study.replicas import ReplicaTable

_LIBRARIES = ("numpy", "scipy", "simpy", "pydantic")


def run_document(scenario: Scenario, step: dict[str, Any], table: ReplicaTable) -> dict[str, Any]:
    """The ``--json`` object of ``clustersim run`` for one scenario."""
    from clustersim import __version__

    return {
        "scenario": scenario.name,
        "version": __version__,
        "seed": table.seed,
        "replicas": table.replicas,
        "step": step,
        "run": table.to_dict(),
        "checkpoint": checkpoint_document(scenario),
        "recovery": recovery_document(scenario),
        "given_up": table.hopeless,
        "warnings": [*warnings_of(table), *cautions_of(scenario)],
    }


def checkpoint_document(scenario: Scenario) -> dict[str, Any] | None:
    """The interval that is used (also where it is ``auto``), the stall of a save, the time until it is durable, and what it
    is made of by tier (see ``clustersim.run.describe``).

    None where nothing is ever saved; ``interval_steps`` and ``interval_s``: the one that rules, the other null.
    """
    from clustersim.run.describe import describe
    from clustersim.study.replicas import prepared_for

    prepared = prepared_for(scenario)
    if prepared.save is None or prepared.every.never:
        return None
    told = describe(prepared)
    return {
        "engine": scenario.checkpoint.kind,
        "interval_s": prepared.every.seconds,
        "interval_steps": prepared.every.steps,
        "stall_s": prepared.save.stall_s,
        "durable_s": max((after for after, _ in prepared.save.durable), default=None),
        **{name: told[name] for name in ("stall_full_s", "stall_mean_s", "meet", "tiers", "host_memory_bytes", "in_flight",
                                         "interval_best_s")},
    }


def recovery_document(scenario: Scenario) -> dict[str, Any]:
    """How the strategy comes back, what it holds ready, and the interval between saves that suits it."""
    from clustersim.run.outlook import outlook
    from clustersim.study.replicas import prepared_for

    return outlook(prepared_for(scenario))


def cautions_of(scenario: Scenario) -> list[str]:
    """What is legal and can hardly be meant in a run of ``scenario``, each at the place of its key."""
    from clustersim.run.cautions import cautions
    from clustersim.scenario.places import told
    from clustersim.study.replicas import prepared_for

    return told(cautions(prepared_for(scenario)), scenario.origin)


def study_cautions(scenario: Scenario, paths: Iterable[str] = ()) -> list[str]:
    """The like of a study's scenario, step and run: without what its points, which set ``paths``, have otherwise.

    That is what stands at, above or below such a path; all of the run where they set its length. Nothing where the
    scenario cannot be run as it is: its points tell what is wrong with it.
    """
    from clustersim.errors import KeyedError
    from clustersim.run.cautions import cautions
    from clustersim.scenario.places import told
    from clustersim.study.replicas import prepared_for
    from clustersim.study.step import step

    free = set(paths)
    try:
        of_step, of_run = step(scenario).cautions, cautions(prepared_for(scenario))
    except KeyedError:
        return []
    if free & {"training.duration", "training.steps", "training.tokens"}:
        of_run = []

    def left(found: Iterable[Problem]) -> list[Problem]:
        return [item for item in found if not any(_within(item.path, path) or _within(path, item.path) for path in free)]

    return [*map(str, left(of_step)), *told(left(of_run), scenario.origin)]


def _within(path: str, other: str) -> bool:
    return f"{path}.".startswith(f"{other}.")


def warnings_of(table: ReplicaTable) -> list[str]:
    """Replicas without progress, with the reason of the first."""
    if not table.verdicts:
        return []
    return [f"{len(table.verdicts)} of {table.replicas} replicas: {next(iter(table.verdicts.values()))}"]


def provenance(scenario: Scenario) -> dict[str, Any]:
    """What a result rests on: the same wherever and whenever it is computed with these versions."""
    from clustersim import __version__

    return {
        "scenario_sha256": scenario.sha256,
        "clustersim": __version__,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        **{name: metadata.version(name) for name in _LIBRARIES},
    }
