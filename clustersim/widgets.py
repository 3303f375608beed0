"""A what-if with sliders for notebooks: move one, read the answer.

``what_if(scenario)`` shows it; ``WhatIf(scenario)`` is the same without the sliders. Answers come in well under 200 ms: step
models are made once a microbatch and schedule, and few replicas are enough because each is compared with itself as the
scenario stands (common random numbers).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from clustersim.errors import ClusterSimError

if TYPE_CHECKING:
    from clustersim.run.result import RunResult
    from clustersim.scenario.schema import Scenario

BUDGET_S = 0.08
"""Time of an answer's replicas; validation and drawing take some 20 ms more."""
MOST_REPLICAS = 20
SCHEDULES = ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "dualpipe-v")
INTERVALS_S = (10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400)
_STYLE = """
.clustersim-what-if { background: #fff; color: var(--ink); padding: 8px 12px; font: 14px/1.5 system-ui, sans-serif;
  max-width: 720px; --ink: #1b222c; --soft: #4d5865; --line: #d9dee4; --c-train: #0b8f6a; --c-rework: #d55e00;
  --c-save: #e69f00; --c-slow: #a6577f; --c-detect: #0b3d66; --c-recover: #2f7fc1; --c-load: #6cb4e4; --c-wait: #6f4fa3;
  --c-other: #8a929c; --c-whole: #c3cad2; }
.clustersim-what-if svg { width: 100%; } .clustersim-what-if svg text { fill: var(--ink); }
.clustersim-what-if svg .soft { fill: var(--soft); } .clustersim-what-if svg .grid { stroke: var(--line); }
.clustersim-what-if svg .join { stroke: var(--soft); }
"""


@dataclass(frozen=True)
class Change:
    """What the sliders say; ``None`` leaves the scenario's value.

    Attributes:
        interval_s: training time between saves, seconds.
        detection_s: from a failure until it is noticed, for every cause, seconds.
        spares: spare nodes.
        micro_batch: sequences a microbatch.
        schedule: a schedule's name; its chunks follow from the schedule.
    """

    interval_s: float | None = None
    detection_s: float | None = None
    spares: int | None = None
    micro_batch: int | None = None
    schedule: str | None = None

    def values(self, scenario: Scenario) -> dict[str, Any]:
        """Paths and values to set in ``scenario``."""
        found: dict[str, Any] = {}
        if self.interval_s is not None:
            found["checkpoint.interval"] = float(self.interval_s)
        if self.detection_s is not None:
            found.update({f"failures.{i}.detection": float(self.detection_s) for i in range(len(scenario.failures))})
        if self.spares is not None:
            found["cluster.spare_nodes"] = self.spares
        if self.micro_batch is not None:
            found["training.micro_batch"] = self.micro_batch
        if self.schedule is not None and self.schedule != scenario.parallelism.schedule.kind:
            found.update({"parallelism.schedule": self.schedule, "parallelism.chunks": None})
        return found


@dataclass(frozen=True)
class Told:
    """An answer: ``results`` of the changed scenario and ``before`` of the scenario, the same "
    "replicas; or why there is none."""

    change: Change
    results: Sequence[RunResult] = ()
    before: Sequence[RunResult] = ()
    step_time_s: float = 0.0
    seconds: float = 0.0
    """Time that the answer took."""
    problem: str | None = None

    @property
    def ettr(self) -> float:
        """Mean ETTR."""
        return sum(result.ettr for result in self.results) / max(len(self.results), 1)

    @property
    def goodput(self) -> float:
        """Mean tokens a second that are kept."""
        return sum(result.goodput_tokens_per_s for result in self.results) / max(len(self.results), 1)

    @property
    def gain(self) -> float:
        """Goodput against that of the scenario as it stands, as a share."""
        before = sum(result.goodput_tokens_per_s for result in self.before) / max(len(self.before), 1)
        return self.goodput / before - 1 if before else 0.0

    def to_html(self) -> str:
        """A sentence and the waterfall of the ledger."""
        from clustersim.report.run_answer import waterfall_of
        from clustersim.report.summary import duration, short

        if self.problem is not None:
            return f'<style>{_STYLE}</style><div class="clustersim-what-if"><p>{escape(self.problem)}</p></div>'
        said = (
            f"ETTR <b>{self.ettr:.2%}</b>, <b>{short(self.goodput)}</b> tokens a second "
            f"({self.gain:+.2%} against the scenario as it stands), step {self.step_time_s:.4g} s. "
            f"{len(self.results)} replica{'s' if len(self.results) > 1 else ''}"
            f" of {duration(self.results[0].wall_s)}, {1000 * self.seconds:.0f} ms."
        )
        drawn = waterfall_of(self._run())
        return f'<style>{_STYLE}</style><div class="clustersim-what-if"><p>{said}</p>{drawn}</div>'

    def _run(self) -> dict[str, Any]:
        names = dict.fromkeys(name for result in self.results for name in result.ledger_s)
        ledger = {}
        for name in names:
            values = sorted(result.ledger_s.get(name, 0.0) for result in self.results)
            ledger[name] = {"mean": sum(values) / len(values), "p05": values[0], "p95": values[-1]}
        return {"ledger_s": ledger}


@dataclass
class WhatIf:
    """Answers to changes of one scenario; see the module.

    Args:
        scenario: as it stands.
        schedules: schedules to choose from; those that do not suit the layout are left out.
        replicas: how many; None: as many as ``BUDGET_S`` allows, at most 20.
    """

    scenario: Scenario
    schedules: Sequence[str] = SCHEDULES
    replicas: int | None = None
    """After that: how many there are. ``scenario`` is cut short where even one replica took longer than ``BUDGET_S``."""
    _steps: dict[tuple[int | None, str | None], Any] = field(default_factory=dict, repr=False)
    _before: list[RunResult] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        own = self.scenario.parallelism.schedule.kind
        others = self.schedules if self.scenario.parallelism.pp > 1 else ()
        known = [own, *(kind for kind in others if kind != own)]
        self.schedules = [kind for kind in known if self._step(Change(schedule=kind)) is not None]
        self._run(Change(), 1)  # compiles what is compiled once
        spent = self._timed()
        if spent > BUDGET_S and self.replicas is None:
            self.scenario = shortened(self.scenario, BUDGET_S / spent)
            spent = self._timed()
        count = self.replicas or max(1, min(MOST_REPLICAS, int(BUDGET_S / max(spent, 1e-6))))
        self.replicas = count
        self._before = self._run(Change(), count)

    def _timed(self) -> float:
        """Time of one replica, seconds of this process."""
        start = time.process_time()
        self._run(Change(), 1)
        return time.process_time() - start

    def answer(self, change: Change) -> Told:
        """What comes out under ``change``; a change that is impossible says why."""
        start = time.perf_counter()
        try:
            results = self._run(change, self.replicas or 1)
            step = self._step(change, strict=True)
        except ClusterSimError as error:
            return Told(change, problem=str(error))
        return Told(change, results, self._before, step.step_time().seconds, time.perf_counter() - start)

    def _run(self, change: Change, count: int) -> list[RunResult]:
        from clustersim.run.simulate import prepare, run_replica

        prepared = prepare(self._changed(change), self._step(change, strict=True))
        seed = self.scenario.simulation.seed
        return [run_replica(prepared, seed, replica, events=False) for replica in range(count)]

    def _changed(self, change: Change) -> Scenario:
        values = change.values(self.scenario)
        return self.scenario.replace(values) if values else self.scenario

    def _step(self, change: Change, strict: bool = False) -> Any:
        """The step model of a microbatch and schedule, made once; None (or an error if ``strict``) where there is none."""
        from clustersim.pipeline.step import StepModel
        from clustersim.pipeline.step_memory import checked_memory

        key = (change.micro_batch, change.schedule)
        if key not in self._steps:
            try:
                model = StepModel.of(self._changed(Change(micro_batch=change.micro_batch, schedule=change.schedule)))
                checked_memory(model)
                model.step_time()
                self._steps[key] = model
            except ClusterSimError as error:
                self._steps[key] = error
        found = self._steps[key]
        if isinstance(found, ClusterSimError):
            if strict:
                raise found
            return None
        return found


def shortened(scenario: Scenario, share: float) -> Scenario:
    """The same job for a share of its duration, steps or tokens: a run whose answer would come too late for a slider."""
    training = scenario.training
    if training.duration is not None:
        return scenario.replace("training.duration", training.duration * share)
    if training.steps is not None:
        return scenario.replace("training.steps", max(1, round(training.steps * share)))
    return scenario.replace("training.tokens", (training.tokens or 0.0) * share)


def what_if(scenario: Scenario, replicas: int | None = None) -> Any:
    """Sliders for interval, detection, spares, microbatch and schedule, with the answer below.

    Args:
        scenario: as it stands.
        replicas: see ``WhatIf``.

    Returns:
        An ``ipywidgets.VBox``, which a notebook shows; ``box.asked`` is the ``WhatIf`` behind it.

    Raises:
        ImportError: ``ipywidgets`` is not installed (``pip install 'clustersim[notebook]'``).
    """
    import ipywidgets

    asked = WhatIf(scenario, replicas=replicas)
    controls = _controls(asked, ipywidgets)
    told = ipywidgets.HTML()

    def refresh(_: Any = None) -> None:
        said = {name: control.value for name, control in controls.items()}
        stands = {name: None for name in ("interval_s", "detection_s") if said.get(name) == 0}
        told.value = asked.answer(Change(**{**said, **stands})).to_html()

    for control in controls.values():
        control.observe(refresh, names="value")
    refresh()
    box = ipywidgets.VBox([*controls.values(), told])
    box.asked, box.controls, box.told = asked, controls, told
    return box


def _controls(asked: WhatIf, ipywidgets: Any) -> dict[str, Any]:
    """The sliders that make sense for the scenario, at its values."""
    from clustersim.report.summary import duration

    scenario = asked.scenario
    wide = {"style": {"description_width": "13em"}, "layout": {"width": "34em"}, "continuous_update": False}
    found: dict[str, Any] = {}
    if hasattr(scenario.checkpoint, "interval"):
        options = [("as it stands", 0), *((duration(float(seconds)), seconds) for seconds in INTERVALS_S)]
        found["interval_s"] = ipywidgets.SelectionSlider(options=options, value=0, description="save every", **wide)
    if scenario.failures:
        options = [
            ("as it stands", 0),
            *((duration(float(seconds)), seconds) for seconds in (1, 10, 30, 60, 120, 300, 600, 1800)),
        ]
        found["detection_s"] = ipywidgets.SelectionSlider(
            options=options, value=0, description="failures noticed after", **wide
        )
    most = max(8, 2 * scenario.cluster.spare_nodes)
    found["spares"] = ipywidgets.IntSlider(scenario.cluster.spare_nodes, 0, most, description="spare nodes", **wide)
    batch = scenario.training.global_batch // scenario.dp
    sizes = [size for size in (1, 2, 4, 8, 16) if batch % size == 0]
    if scenario.training.micro_batch in sizes and len(sizes) > 1:
        found["micro_batch"] = ipywidgets.SelectionSlider(
            options=sizes, value=scenario.training.micro_batch, description="sequences a microbatch", **wide
        )
    if len(asked.schedules) > 1:
        layout = {key: value for key, value in wide.items() if key != "continuous_update"}
        found["schedule"] = ipywidgets.Dropdown(
            options=list(asked.schedules), value=scenario.parallelism.schedule.kind, description="schedule", **layout
        )
    return found
