"""Plan a job: the step search joined with the run, so that designs are ranked by what is left after failures.

The step search gives the best layouts that fit. Each is crossed with checkpoint and recovery choices and simulated under
the same failures. Few replicas tell the bad designs apart, so the field is halved again and again while the replicas of
those that stay are doubled (successive halving); the finalists are compared pair by pair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clustersim.errors import NegativeAnswer
from clustersim.pipeline.search import Candidate, SearchResult, search_steps
from clustersim.pipeline.search_explain import explain
from clustersim.pipeline.search_space import Space
from clustersim.scenario.places import tells_places
from clustersim.study.axes import Point, points_of
from clustersim.study.executors import Executor
from clustersim.study.points import Template
from clustersim.study.runner import Outcome, Progress, Runner, job_of, refuse_if_all_wrong
from clustersim.study.statistics import Difference, difference, mean_of
from clustersim.study.store import PLAN, Store
from clustersim.study.sweeping import label_of

if TYPE_CHECKING:
    import pandas as pd

    from clustersim.scenario.schema import Scenario

METRIC = "goodput_tokens_per_s"
FIRST_REPLICAS = 4
FINALISTS = 4


@dataclass(frozen=True)
class Prices:
    """What an hour and a kilowatt-hour cost; None: not asked for."""

    gpu_hour: float | None = None
    kwh: float | None = None
    power_w: float = 0.0
    """Power of one GPU with its share of host and cooling, watts."""

    def per_hour(self, gpus: int) -> float | None:
        """Cost of the job's GPUs for an hour; None where no price is given."""
        if self.gpu_hour is None and self.kwh is None:
            return None
        return gpus * ((self.gpu_hour or 0.0) + (self.kwh or 0.0) * self.power_w / 1000)


@dataclass
class Design:
    """One layout with one way of saving and coming back."""

    candidate: Candidate
    extra: Point
    outcome: Outcome
    spares: int

    @property
    def choices(self) -> dict[str, str]:
        """What was chosen, key → value as text, in the order of the label."""
        return {**_choices(self.candidate), **{key: str(value) for key, value in self.extra.items()}}

    @property
    def goodput(self) -> float:
        """Mean tokens a second that are kept; 0 where it could not be run."""
        told = self.outcome.summaries().get(METRIC)
        return float(told["mean"]) if told else 0.0

    def goodput_of(self, replicas: int) -> float:
        """Mean over the first replicas only."""
        known = [value for value in self.outcome.column(METRIC)[:replicas] if value is not None]
        return mean_of(known) if known else 0.0

    @property
    def headroom_bytes(self) -> float:
        """Memory to spare on the fullest rank."""
        return -self.candidate.fit.over_bytes

    def row(self, gpus: int, prices: Prices) -> dict[str, Any]:
        """One flat row of the plan's table."""
        told = self.outcome.summaries()
        run, ettr = told.get(METRIC), told.get("ettr")
        hourly = prices.per_hour(gpus)
        row = {
            **self.candidate.describe(), **self.extra, "spare_nodes": self.spares,
            "step_time_s": self.candidate.seconds, "step_tokens_per_s_per_gpu": self.candidate.tokens_per_s_per_gpu,
            "headroom_bytes": self.headroom_bytes,
            "replicas": sum(replica is not None for replica in self.outcome.replicas),
            "mean_goodput_tokens_per_s": run["mean"] if run else None,
            "ci95_low_goodput_tokens_per_s": run["ci95"][0] if run and run["ci95"] else None,
            "ci95_high_goodput_tokens_per_s": run["ci95"][1] if run and run["ci95"] else None,
            "mean_ettr": ettr["mean"] if ettr else None,
            "tokens_per_day": run["mean"] * 86400 if run else None,
            "tokens_per_gpu_hour": run["mean"] * 3600 / gpus if run else None,
            "error": self.outcome.error,
        }  # fmt: skip
        if hourly is not None:
            row["cost_per_billion_tokens"] = hourly / (run["mean"] * 3600) * 1e9 if run and run["mean"] else None
        return row


@dataclass
class Plan:
    """Designs, best first; those that were dropped early follow with the replicas that they got."""

    designs: list[Design]
    search: SearchResult
    gpus: int
    seed: int
    template: Template = field(repr=False)
    prices: Prices = field(default_factory=Prices)

    @property
    def best(self) -> Design:
        """The design that keeps the most tokens a second."""
        return self.designs[0]

    def rivals(self) -> list[Difference]:
        """The best against each other finalist: which are really worse."""
        best, count = self.best.outcome, len(self.best.outcome.replicas)
        found = (
            difference(best.label, other.outcome.label, METRIC, best.column(METRIC), other.outcome.column(METRIC))
            for other in self.designs[1:]
            if len(other.outcome.replicas) == count and other.outcome.error is None
        )
        return [one for one in found if one is not None]

    def pareto(self) -> list[Design]:
        """Designs that none beats in goodput, memory headroom and spare nodes at once.

        Goodput is taken from the replicas that all designs have: the same bad days for each.
        """

        def beats(a: Design, b: Design) -> bool:
            of_a, of_b = ((d.goodput_of(FIRST_REPLICAS), d.headroom_bytes, -d.spares) for d in (a, b))
            pairs = list(zip(of_a, of_b, strict=True))
            return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)

        usable = [design for design in self.designs if design.goodput > 0]
        return [design for design in usable if not any(beats(other, design) for other in usable)]

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a design."""
        front = {id(design) for design in self.pareto()}
        return [{**design.row(self.gpus, self.prices), "pareto": id(design) in front} for design in self.designs]

    def to_frame(self) -> pd.DataFrame:
        """The rows as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def _repr_html_(self) -> str:
        """The designs, best first, for notebooks."""
        from clustersim.shown import shown

        rows = [(design.outcome.label, design.goodput, design.candidate.seconds, design.headroom_bytes / 2**30)
                for design in self.designs]  # fmt: skip
        return shown("Plan", rows, ("design", "tokens a second", "step [s]", "to spare [GiB]"))

    def scenario(self, design: Design | None = None) -> Scenario:
        """The scenario of a design, of the best if none is given: to run, to dump, to change."""
        chosen = self.best if design is None else design
        return self.template({**point_of(chosen.candidate), **chosen.extra})

    def shared(self) -> tuple[dict[str, str], list[str]]:
        """What all designs have chosen alike, key → value; and the keys in which they differ."""
        chosen = [design.choices for design in self.designs]
        keys = list(dict.fromkeys(key for choices in chosen for key in choices))
        differ = [key for key in keys if len({choices.get(key) for choices in chosen}) > 1]
        return {key: chosen[0][key] for key in keys if key not in differ}, differ

    def why(self) -> list[str]:
        """Why the best step is best, and what single changes would lose."""
        return explain(self.search).lines()

    def to_dict(self) -> dict[str, Any]:
        """One JSON document."""
        return {"seed": self.seed, "gpus": self.gpus, "considered": self.search.considered,
                "evaluated": self.search.evaluated, "unfit": self.search.unfit, "designs": self.rows(),
                "rivals": [found.to_dict() for found in self.rivals()], "why": self.why()}  # fmt: skip


def point_of(candidate: Candidate) -> Point:
    """The scenario values of a candidate."""
    choice = candidate.choice
    schedule: Any = choice.schedule if choice.slices == 1 else {"kind": choice.schedule, "slices": choice.slices}
    layout = {key: getattr(choice, key) for key in ("tp", "pp", "cp", "ep", "dp", "chunks", "zero")}
    return {**{f"parallelism.{key}": value for key, value in layout.items()}, "parallelism.schedule": schedule,
            "parallelism.stage_layout": None, "parallelism.sequence_parallel": candidate.layout.sequence_parallel,
            "training.micro_batch": choice.micro_batch,
            "training.recompute": candidate.training.recompute.dump()}  # fmt: skip


def interval_choices(scenario: Scenario) -> dict[str, Sequence[Any]]:
    """Default choices of the run: the interval as written, the best by formula, and half and twice that."""
    from clustersim.study.references import references_of
    from clustersim.units import DURATION

    found = references_of(scenario, "checkpoint.interval")
    if not found:
        return {}
    best = found.get("exact (exponential failures)") or next(iter(found.values()))
    scaled = (DURATION.format(float(f"{best * factor:.3g}")) for factor in (0.5, 1.0, 2.0))
    return {"checkpoint.interval": list(dict.fromkeys(scaled))}


@tells_places
def plan(scenario: Scenario, *, space: Space | None = None, over: Mapping[str, Sequence[Any]] | None = None,
         layouts: int = 8, replicas: int = 32, seed: int | None = None, prices: Prices | None = None,
         executor: Executor | None = None, store: Store | None = None, progress: Progress | None = None,
         ) -> Plan:  # fmt: skip
    """Search layouts and rank designs by tokens kept a second.

    Args:
        scenario: the job; its layout, schedule, microbatch and recompute are free, the rest stays.
        space: values that the step search may take.
        over: choices of the run, path → values; default: checkpoint intervals around the best by formula.
        layouts: how many of the best steps are taken on to the run.
        replicas: replicas of the finalists.
        store: remembers finished replicas, of this plan and others.

    Raises:
        ImpossibleError: no layout passes the rules or fits in memory.
        InputError: a key is wrong whatever the layout.
        NegativeAnswer: no design could be simulated.
    """
    seed = scenario.simulation.seed if seed is None else seed
    found = search_steps(scenario.model, scenario.cluster, scenario.training, space, base=scenario.parallelism,
                         top=layouts)  # fmt: skip
    if store is not None:
        store.open_study(PLAN)
    template = Template.of(scenario)
    designs = [design for candidate in found.candidates for design in _crossed(template, candidate, over)]
    runner = Runner(seed, executor, store, progress)
    ranked = _halve(designs, template, runner, replicas)
    if not any(design.goodput > 0 for design in ranked):
        refuse_if_all_wrong([design.outcome for design in ranked])
        errors = {design.outcome.error for design in ranked if design.outcome.error}
        raise NegativeAnswer(f"no design could be run: {'; '.join(sorted(errors)) or 'none makes progress'}")
    return Plan(ranked, found, scenario.cluster.gpus, seed, template, prices or Prices())


def _crossed(template: Template, candidate: Candidate, over: Mapping[str, Sequence[Any]] | None) -> list[Design]:
    point = point_of(candidate)
    choices = over if over is not None else interval_choices(template(point))
    named = ", ".join(f"{key} {value}" for key, value in _choices(candidate).items())
    designs = []
    for extra in points_of(choices):
        label = f"{named}; {label_of(extra)}" if extra else named
        spares = template({**point, **extra}).cluster.spare_nodes
        designs.append(Design(candidate, extra, Outcome(label), spares))
    return designs


def _choices(candidate: Candidate) -> dict[str, str]:
    """What the step search chose, key → value as text."""
    named = {key: str(value) for key, value in candidate.describe().items() if key in _NAMED}
    if candidate.choice.slices > 1:
        named["slices"] = str(candidate.choice.slices)
    return {**named, "recompute": _recompute(candidate)}


def _recompute(candidate: Candidate) -> str:
    """``none``, ``full``, or ``selective(norm+activation)``."""
    told = candidate.training.recompute.dump()
    if not isinstance(told, dict):
        return str(told)
    ops = told.get("ops")
    return f"{told['kind']}({'+'.join(ops)})" if ops else str(told["kind"])


_NAMED = ("tp", "pp", "cp", "ep", "dp", "chunks", "schedule", "micro_batch", "zero")


def _halve(designs: list[Design], template: Template, runner: Runner, replicas: int) -> list[Design]:
    """Run, keep the better half, double the replicas; the dropped ones follow, best first within each round."""
    dropped: list[Design] = []
    count = min(FIRST_REPLICAS, replicas)
    while True:
        jobs = [job_of(d.outcome.label, template({**point_of(d.candidate), **d.extra})) for d in designs]
        for design, outcome in zip(designs, runner.run(jobs, count), strict=True):
            design.outcome = outcome
        runner.remember(jobs, [design.outcome for design in designs])
        designs = sorted(designs, key=lambda design: -design.goodput)
        if count >= replicas:
            return designs + dropped
        keep = max(FINALISTS, math.ceil(len(designs) / 2))
        dropped = designs[keep:] + dropped
        designs, count = designs[:keep], min(2 * count, replicas)
