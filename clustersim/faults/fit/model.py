"""A failure model from a log, fitted in a stated order, and the YAML block that runs it.

Frailty, recurrence and clusters explain some of the same faults, so the order matters. It is:

1. **clusters**: faults that start together; their followers are taken out, except those on nodes repaired less than 7 days
   before, which count as recurrences;
2. **frailty, recurrence, base rate and calendar**, jointly, on what is left (``recurrent``);
3. **aftershocks** over hours, on the background that the joint fit leaves (``aftershocks``); the base rate makes room for them;
4. **repair times**, their speed over the calendar and mass returns, one repair for those that were back together.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustersim.faults.fit.aftershocks import Aftershocks, fit_aftershocks
from clustersim.faults.fit.calendar import Periods, constant_rate_p
from clustersim.faults.fit.clusters import Clusters, find_clusters
from clustersim.faults.fit.describe import Description, describe, gaps_after_repair, lemons
from clustersim.faults.fit.families import Family
from clustersim.faults.fit.lifetimes import Fit, Lifetimes, compare
from clustersim.faults.fit.log import FaultLog, counts
from clustersim.faults.fit.recurrent import LARGEST_SHAPE, Recurrent, fit_recurrent
from clustersim.faults.fit.repairs import Repairs, fit_repairs
from clustersim.faults.fleet import FleetFailure

LEAST_CLASS_SHARE = 0.01


@dataclass(frozen=True)
class FittedFailures:
    """All that was learnt from a log.

    ``fleet_gaps`` and ``refaults`` are plain lifetime fits (best AIC first) of the time between faults of the fleet and of the
    up time from repair to the node's next fault (censored at the window's end): they describe, the model does not use them.
    """

    log: FaultLog
    description: Description
    clusters: Clusters
    recurrent: Recurrent
    aftershocks: Aftershocks
    repairs: Repairs
    fleet_gaps: list[Fit]
    refaults: list[Fit]
    constant_rate_p: float
    lemons: list[tuple[str, int, float]]

    def data(self, name: str = "fleet", detection: str = "1 min") -> dict[str, Any]:
        """The ``failures`` and ``repair`` blocks as scenario data."""
        joint = self.recurrent
        entry: dict[str, Any] = {"name": name, "kind": "fleet", "component": "node", "severity": "node",
                                 "mtbf": duration(1 / (joint.rate * (1 - self.aftershocks.replaced))),
                                 "detection": detection}  # fmt: skip
        if joint.frailty < LARGEST_SHAPE / 10:
            entry["frailty"] = {"shape": number(joint.frailty)}
        if len(joint.calendar.factors) > 1:
            entry["calendar"] = [steps(joint.calendar)]
        entry["recurrence"] = {"probability": number(joint.probability), "persistence": number(joint.persistence),
                               "delay": distribution(joint.delay, joint.delay_values),
                               "haste": number(self.repairs.haste)}  # fmt: skip
        if len(joint.again.factors) > 1:
            entry["recurrence"]["calendar"] = [steps(joint.again)]
        if bursts := self._bursts():
            entry["bursts"] = bursts
        entry["repair"] = distribution(self.repairs.family, self.repairs.values)
        if speed := self._speed():
            entry["repair_speed"] = speed
        classes = self._classes()
        if len(classes) > 1:
            entry["classes"] = classes
        return {"failures": [entry], "repair": {"crews": None, "time": entry["repair"]}}

    def _speed(self) -> list[dict[str, Any]]:
        """How the speed of repair changes: in steps, and for a few minutes at each mass return."""
        steady, surges = self.repairs.steady, self.repairs.surges
        found = [steps(steady)] if len(steady.factors) > 1 else []
        return found + [{"kind": "surge", "start": duration(each.begin_s), "length": duration(each.end_s - each.begin_s),
                         "times": number(factor)} for each, factor in surges]  # fmt: skip

    def _bursts(self) -> list[dict[str, Any]]:
        """Groups that start together, and aftershocks."""
        shocks, found = self.aftershocks, []
        for each, shared in ((self.clusters.together, 1.0), (self.clusters.apart, 0.0)):
            if each.mean > 0:
                burst: dict[str, Any] = {"followers": number(each.mean), "dispersion": number(each.dispersion),
                                         "delay": distribution(each.delay, each.delay_values),
                                         "shared_repair": shared}  # fmt: skip
                if len(each.calendar.factors) > 1:
                    burst["calendar"] = [steps(each.calendar)]
                found.append(burst)
        if shocks.number > 0:
            delay = {"kind": "exponential", "mean": duration(shocks.delay_s)}
            found.append({"followers": number(shocks.number), "delay": delay})
        return found

    def _classes(self) -> list[dict[str, Any]]:
        """Shares of the classes; those under 1 % together as ``other``."""
        found = counts([label or "unknown" for label in self.log.classes])
        shares = {label: count / len(self.log) for label, count in found.items()}
        large = [{"name": label, "share": number(share)} for label, share in shares.items() if share >= LEAST_CLASS_SHARE]
        rest = sum(share for share in shares.values() if share < LEAST_CLASS_SHARE)
        return [*large, {"name": "other (rare)", "share": number(rest)}] if rest else large

    def simulate(self, replicas: int, seed: int = 0) -> list[FaultLog]:
        """Logs of the fitted model, as many nodes for as long as the real one."""
        from clustersim.faults.simulate import simulate_log
        from clustersim.hardware.cluster import Cluster

        cluster = Cluster.model_validate({"nodes": self.log.population, "node": "dgx-h100", "storage": "tectonic"})
        model = self.model()
        return [simulate_log([model], cluster, self.log.window_s, seed=seed, replica=replica) for replica in range(replicas)]

    def model(self) -> FleetFailure:
        """The failure model itself."""
        built = FleetFailure.build(self.data()["failures"][0])
        assert isinstance(built, FleetFailure)
        return built

    def yaml(self) -> str:
        """The block as YAML text, with where it comes from."""
        from ruamel.yaml import YAML

        writer = YAML()
        writer.default_flow_style = None
        writer.width = 120
        writer.representer.ignore_aliases = lambda *_: True  # what is written twice is spelt out twice
        text = io.StringIO()
        days = self.log.window_s / 86400
        text.write(f"# fitted to {len(self.log)} faults of {self.log.population} nodes in {days:.6g} d; order: clusters, then "
                   "frailty + recurrence +\n# rate + calendar jointly, then aftershocks, then repair times\n")  # fmt: skip
        for each, factor in self.repairs.surges:
            text.write(f"# {each.nodes} nodes were back together at {duration(each.begin_s)}: "
                       f"{duration(self.repairs.surge_work_s(each, factor))} of work done at once\n")  # fmt: skip
        writer.dump(self.data(), text)
        return text.getvalue()

    def report(self) -> dict[str, Any]:
        """Everything as plain data for ``--json``; times in seconds."""
        joint, groups, repairs = self.recurrent, self.clusters, self.repairs
        return {
            "log": {"faults": len(self.log), "nodes": self.log.population, "window_s": self.log.window_s,
                    "open_ends": int((~self.log.closed).sum()), "resolution_s": self.log.resolution_s,
                    "classes": counts(self.log.classes)},
            "description": self.description.row(),
            "constant_rate_p": self.constant_rate_p,
            "lemons": [{"node": node, "faults": number_, "p": p} for node, number_, p in self.lemons],
            "clusters": {"followers": groups.followers, "followers_ci95": list(groups.ci95),
                         **{name: {"followers": each.mean, "followers_ci95": list(each.ci95), "dispersion": each.dispersion,
                                   "delay": {"family": each.delay.name, "values": list(each.delay_values)}}
                            for name, each in (("shared_repair", groups.together), ("own_repair", groups.apart))}},
            "aftershocks": {"number": self.aftershocks.number, "delay_s": self.aftershocks.delay_s,
                            "replaced_share": self.aftershocks.replaced, "aic_gain": self.aftershocks.gain},
            "joint": {"mtbf_s": 1 / joint.rate, "frailty": joint.frailty, "probability": joint.probability,
                      "persistence": joint.persistence,
                      "delay": {"family": joint.delay.name, "values": list(joint.delay_values)}, "aic": joint.aic,
                      "ci95": {key: list(ends) for key, ends in joint.ci95.items()}},
            "repair": {"family": repairs.family.name, "values": list(repairs.values), "aic": repairs.aic,
                       "haste": repairs.haste, "mean_error": repairs.mean_error, "zeros": repairs.zeros,
                       "mass_returns": [{"at_s": each.begin_s, "nodes": each.nodes,
                                         "work_s": repairs.surge_work_s(each, factor)} for each, factor in repairs.surges],
                       "candidates": [fit.row() for fit in repairs.overall]},
            "fleet_gaps": [fit.row() for fit in self.fleet_gaps],
            "refaults": [fit.row() for fit in self.refaults],
        }  # fmt: skip


def fit_failures(log: FaultLog, *, calendar: bool = True, intervals: bool = True) -> FittedFailures:
    """Fit everything.

    Args:
        log: the faults.
        calendar: let rates, recurrence, bursts and repair change over time where AIC asks for it.
        intervals: also find 95 % intervals.

    Raises:
        ValueError: when the log holds too few faults (at least 3 primaries and 2 repairs).
    """
    clusters = find_clusters(log)
    if not calendar:
        clusters = clusters.without_calendar(log.window_s)
    gaps = np.diff(log.start_s)
    up, observed, _ = gaps_after_repair(log)
    joint = fit_recurrent(log, clusters, calendar=calendar, intervals=intervals)
    return FittedFailures(
        log=log, description=describe(log), clusters=clusters,
        recurrent=joint, aftershocks=fit_aftershocks(log, clusters, joint),
        repairs=fit_repairs(log, clusters, joint.failed, calendar=calendar, intervals=intervals),
        fleet_gaps=_described(Lifetimes.of(gaps), intervals), refaults=_described(Lifetimes.of(up, observed), intervals),
        constant_rate_p=constant_rate_p(log.start_s, log.window_s),
        lemons=lemons(log))  # fmt: skip


def _described(data: Lifetimes, intervals: bool) -> list[Fit]:
    """Lifetime fits that only describe: none where there is too little to fit."""
    return compare(data, intervals=intervals) if data.positive().observed.sum() >= 2 else []


def number(value: float) -> float:
    """A value as it is written: six digits."""
    return float(f"{value:.6g}")


def duration(seconds: float) -> str:
    """A duration as it is written: six digits in a fitting unit."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.6g} {unit}"
    return f"{seconds:.6g} s"


def distribution(family: Family, values: tuple[float, ...]) -> dict[str, Any]:
    """A fitted family as scenario data."""
    if family.name == "exponential":
        return {"kind": "exponential", "mean": duration(values[0])}
    shape = min(values[0], 10.0) if family.name == "lognormal" else max(values[0], 0.05)  # what a scenario takes
    return {"kind": family.name, family.parameters[0]: number(shape), family.scale_key: duration(values[1])}


def steps(periods: Periods) -> dict[str, Any]:
    """Periods as a calendar of the scenario."""
    at = ["0 s", *(duration(float(edge)) for edge in periods.edges[1:-1])]
    return {"kind": "steps", "at": at, "factors": [number(float(factor)) for factor in periods.factors]}
