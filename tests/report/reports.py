"""Runs for the tests of pages: small, and made once."""

from __future__ import annotations

import functools
from typing import Any

from clustersim import study
from clustersim.pipeline.search_space import Space
from clustersim.report.compare_page import comparison_page
from clustersim.report.documents import run_document
from clustersim.report.html import report_page
from clustersim.report.plan_page import plan_page
from clustersim.report.story import Story
from clustersim.report.summary import Answer
from clustersim.report.sweep_page import sweep_page
from clustersim.scenario.load import load
from clustersim.scenario.schema import Scenario
from clustersim.study.planning import Prices
from clustersim.study.replicas import prepared_for, run_replicas
from clustersim.study.sensitivity import Gain, sensitivities
from clustersim.study.step import fitting_step

SMALL: dict[str, Any] = {
    "name": "small",
    "model": "llama3-8b",
    "cluster": {"nodes": 2, "spare_nodes": 1, "node": "dgx-h100", "storage": "tectonic"},
    "training": {"seq_len": 4096, "global_batch": 64, "duration": 2 * 86400.0, "recompute": "selective"},
    "parallelism": {"tp": 2, "pp": 2, "zero": 1},
    "checkpoint": {"engine": "async", "interval": 600.0},
    "failures": [{"name": "gpu", "component": "gpu", "mtbf": 200 * 3600.0},
                 {"name": "crash", "component": "job", "mtbf": 9 * 3600.0, "severity": "process"}],
    "repair": {"time": 4 * 3600.0},
    "simulation": {"replicas": 4},
}  # fmt: skip
HOSTILE = "</script><script>window.hurt=1</script><img src=x onerror=hurt=2>\"'& عنوان \u202eabc 👩‍💻 {__DATA__} $x$ " + "y" * 10_000


def told(scenario: Scenario, replicas: int | None = None) -> tuple[Answer, Story]:
    """An answer and the story of its replicas."""
    story, step = Story(), fitting_step(scenario).to_dict()
    table = run_replicas(scenario, replicas=replicas, on_result=lambda _, result: story.add(result, result.events))
    return Answer(scenario, run_document(scenario, step, table)), story


@functools.cache
def small() -> tuple[Answer, Story, list[Gain]]:
    """The small run with its sensitivities."""
    answer, story = told(load(SMALL))
    return answer, story, sensitivities(answer.scenario, prepared_for(answer.scenario), 0, story.goodput)


@functools.cache
def small_page() -> str:
    """Its page."""
    return report_page(*small())


PLAN_SPACE: dict[str, Any] = {"tp": (1, 2), "pp": (1, 2), "micro_batch": (1, 2), "schedules": ("1f1b", "zb-v"), "zero": (1,)}


@functools.cache
def four_pages(name: str = "small") -> dict[str, str]:
    """The pages of a run, a comparison, a sweep and a plan of a small job called ``name``."""
    job = load(SMALL | {"name": name, "description": name, "simulation": {"replicas": 3}})
    other = job.replace({"name": f"other {name}", "parallelism.schedule": "zb-h1"})
    over = {"description": [name, f"other {name}"], "cluster.spare_nodes": [0, 1, 2]}
    choices = {"description": [name], "checkpoint.interval": ["10 min", "1 h"]}
    found = study.plan(job, space=Space(**PLAN_SPACE), over=choices, layouts=3, replicas=4, prices=Prices(gpu_hour=2.0))
    return {
        "run": report_page(*told(job)),
        "compare": comparison_page(study.compare([job, other]), [job, other]),
        "sweep": sweep_page(study.sweep(job, over=over), title=f"{name}: sweep"),
        "plan": plan_page(found, title=f"{name}: plan"),
    }
