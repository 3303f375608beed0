"""Ways of saving in numbers, side by side: the engines of several scenarios, or all engines for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clustersim.report.documents import checkpoint_document
from clustersim.report.study_text import table
from clustersim.report.summary import rough_bytes, rough_duration
from clustersim.shown import cut, printable

if TYPE_CHECKING:
    from clustersim.scenario.schema import Scenario

Json = dict[str, Any]


def every_engine(scenario: Scenario) -> list[Json]:
    """What each registered engine would do in a scenario.

    Its own engine as the scenario says; the others with the keys that all engines have as the scenario gives them, and
    with the interval that they would choose.

    Returns:
        Documents of ``checkpoint_document``; ``{"engine", "error"}`` of one that the job cannot have; ``{"engine"}`` of one
        that never saves.
    """
    from clustersim.checkpoint.engine import CheckpointEngine

    mine = scenario.checkpoint
    keys = {name: getattr(mine, name) for name in mine.model_fields_set & CheckpointEngine.model_fields.keys()}
    keys.pop("interval", None)
    found = []
    for kind in CheckpointEngine.known_kinds():
        part = CheckpointEngine.kinds[kind]
        if part.kind != kind:
            continue
        other = scenario if kind == mine.kind else scenario.replace("checkpoint", {**keys, "engine": kind})
        found.append(_told(other, kind))
    return found


def _told(scenario: Scenario, kind: str) -> Json:
    from clustersim.errors import ClusterSimError

    try:
        return checkpoint_document(scenario) or {"engine": kind}
    except ClusterSimError as error:
        return {"engine": kind, "error": str(error)}


def differ_in_saving(scenarios: Sequence[Scenario]) -> bool:
    """Whether scenarios differ in how they save, and in nothing else."""
    told = [scenario.data() for scenario in scenarios]
    saving = [document.pop("checkpoint", None) for document in told]
    for document in told:
        document.pop("name", None), document.pop("description", None)
    return all(document == told[0] for document in told) and any(each != saving[0] for each in saving)


def engines_text(labels: Sequence[str], told: Sequence[Json | None]) -> str:
    """A table of ways of saving, and a line for each that the job cannot have.

    Args:
        labels: the first column.
        told: documents of ``checkpoint_document``; None: nothing is ever saved.
    """
    header = ["saving", "stall", "first copy", "storage", "every", "auto", "memory", "load"]
    rows, errors = [], []
    for label, document in zip(labels, told, strict=True):
        name = cut(printable(label), 30)
        if document and "error" in document:
            errors.append(f"! {name}: {document['error']}")
        else:
            rows.append([name, *(_row(document) if document and "tiers" in document else ["-"] * 7)])
    return "\n".join([table(header, rows), *errors, "", *_LEGEND])


_LEGEND = (
    "stall: a save's mean; first copy, storage: from a save's start until durable;",
    "every: training between saves (auto: the best by formula); memory: of a host;",
    "load: reading the state back from storage, else from the first copy.",
)


def _row(document: Json) -> list[str]:
    tiers = document["tiers"]
    first = min(tiers, key=lambda name: _durable(tiers[name]), default=None)
    shared = tiers.get("shared")
    steps = document["interval_steps"]
    every = f"{steps:,} step{'s' * (steps != 1)}" if steps else rough_duration(document["interval_s"])
    best, memory = document["interval_best_s"], document["host_memory_bytes"]
    last = shared or (tiers[first] if first else None)
    return [
        rough_duration(document["stall_mean_s"]),
        f"{first} {rough_duration(_durable(tiers[first]))}" if first and first != "shared" else "-",
        rough_duration(_durable(shared)) if shared else "-",
        every,
        rough_duration(best) if best else "-",
        rough_bytes(memory),
        rough_duration(last["restore_s"]) if last else "-",
    ]


def _durable(tier: Json) -> float:
    """From a save's start until a tier holds the copy, seconds."""
    found = tier["durable_mean_s"]
    return float(tier["durable_s"] if found is None else found)
