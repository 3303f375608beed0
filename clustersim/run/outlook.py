"""What a recovery strategy promises before anything has failed: how it comes back, what it holds ready, how often to save."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from clustersim.checkpoint.interval import Auto, Costs
from clustersim.faults.failure import FailureModel, Severity
from clustersim.faults.process import domain_nodes
from clustersim.recovery.ground import Ground
from clustersim.recovery.strategy import NOTHING, Loss, RecoveryStrategy
from clustersim.run.prepared import Prepared


class Snapshot:
    """A job of which a loss has just been noticed, spares standing ready; what a strategy sees."""

    step, away = 0, frozenset[int]()

    def __init__(self, ground: Ground, loss: Loss, takes_nodes: bool, spares: int) -> None:
        self.ground, self.loss, self.kept = ground, loss, True
        self.vacancies = loss.places if takes_nodes else frozenset[int]()
        self.vacant, self.spares, self.nodes = len(self.vacancies), spares, ground.nodes


def loss_of(cause: FailureModel, prepared: Prepared) -> Loss:
    """The loss that a typical failure of a cause brings: places in the middle of the job."""
    cluster, middle = prepared.scenario.cluster, prepared.ground.nodes // 2
    size = {Severity.RACK: cluster.nodes_per_rack, Severity.NVLINK_DOMAIN: domain_nodes(cluster)}.get(cause.severity, 1)
    first = middle // size * size
    everywhere = cause.severity == Severity.CLUSTER or (cause.component == "job" and not cause.severity.takes_nodes)
    places = frozenset() if everywhere else frozenset(range(first, min(first + size, prepared.ground.nodes)))
    repair = cause.repair or prepared.scenario.repair.time
    return NOTHING.also(cause, places, everywhere, repair.mean_s())


def _answers(prepared: Prepared, spares: int | None = None) -> Iterator[tuple[FailureModel, RecoveryStrategy, Snapshot]]:
    """Each cause that interrupts, who answers for it, and what is seen of the job then."""
    site = prepared.job_site()
    for cause in prepared.causes:
        if cause.severity == Severity.STORAGE or cause.rate(site) <= 0:
            continue
        ready = prepared.ground.spares if spares is None else spares
        seen = Snapshot(prepared.ground, loss_of(cause, prepared), False, ready)
        chosen = prepared.scenario.recovery.choose(seen)
        seen.kept = not cause.spoils and chosen.keeps(seen)
        if cause.severity.takes_nodes:
            seen.vacancies = seen.loss.places
            seen.vacant = len(seen.vacancies)
        yield cause, chosen, seen


def kept_share(prepared: Prepared) -> float | None:
    """Share of the interruptions that leave the state of the last step; None: nothing ever fails."""
    site = prepared.job_site()
    rates = [(cause.rate(site), seen.kept) for cause, _, seen in _answers(prepared)]
    total = math.fsum(rate for rate, _ in rates)
    return math.fsum(rate for rate, kept in rates if kept) / total if total > 0 else None


def chosen_interval(prepared: Prepared) -> float | None:
    """Training time between saves that suits the losses which go back to one, seconds; None: never.

    The exact optimum, with the mean time between the failures that the strategy does not outlive.
    """
    share = kept_share(prepared)
    if prepared.save is None or share is None or share >= 1:
        return None
    costs = Costs(prepared.save.stall_s, prepared.save.busy_s, prepared.mtbf_s / (1 - share))
    return Auto().resolve(costs).seconds


def ways_back(prepared: Prepared) -> list[dict[str, Any]]:
    """The ways that the strategy takes, by share of the interruptions: stages with their mean times, and the whole."""
    site = prepared.job_site()
    found: dict[str, dict[str, Any]] = {}
    total = math.fsum(cause.rate(site) for cause, _, _ in _answers(prepared))
    for cause, chosen, seen in _answers(prepared):
        back = chosen.comeback(cause, seen)
        stages = {step.name: prepared.load_s if step.time is None else step.time.mean_s() + step.extra_s
                  for step in back.graph.steps}  # fmt: skip
        way = found.setdefault(back.path, {"path": back.path, "share": 0.0, "keeps_state": seen.kept, "stages_s": stages,
                                           "total_s": back.graph.mean_s(prepared.load_s)})  # fmt: skip
        way["share"] += cause.rate(site) / total
    return sorted(found.values(), key=lambda way: (-way["share"], way["path"]))


def outlook(prepared: Prepared) -> dict[str, Any]:
    """The ``recovery`` object of the JSON output."""
    recovery, ground = prepared.scenario.recovery, prepared.ground
    costs = recovery.costs(ground)
    return {
        "strategy": recovery.kind,
        "ways": ways_back(prepared),
        "kept_share": kept_share(prepared),
        "spare_nodes": ground.spares,
        "cold_spare_nodes": prepared.scenario.cluster.cold_spare_nodes,
        "extra_memory_bytes_per_node": costs.memory,
        "network_bytes_per_node_per_step": costs.per_step,
        "network_bytes_per_recovery": costs.per_recovery,
        "step_overhead_s": recovery.overhead_s(ground),
        "best_interval_s": chosen_interval(prepared),
    }
